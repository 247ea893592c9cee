"""A commit that meets an earlier try of itself that it does not know of."""

import pytest
from pyiceberg.table import Table

from endive.catalog import TableChange
from endive.catalog.commit import stored_results as commit
from endive.catalog.operations import requests
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import CommitConflictError, OutcomeUnknownError
from tests.catalog.commits.interrupted import Interrupted, files_of, read_result_too_early, rows_of, setting
from tests.catalog.tables import NAME, numbers


def test_a_retry_that_finds_the_table_changed_proves_nothing(
    catalog: EndiveCatalog,
    rival: EndiveCatalog,
    table: Table,
    store: Interrupted,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first try has happened, but so many commits came after it that its result is deleted."""
    monkeypatch.setattr(commit, "RESULTS_STORED", 3)
    monkeypatch.setattr(requests, "LIFETIME_MS", -1 - requests.CLOCKS_DIFFER_MS)  # results are deleted by their number

    def others_come() -> None:
        for number in range(4):
            rival.kv.update_properties(NAME, {"a": f"theirs {number}"})

    def lose_the_answer() -> None:
        store.before = others_come
        store.answers_lost = 1

    store.before = lose_the_answer
    with pytest.raises(OutcomeUnknownError):
        catalog.kv.update_properties(NAME, {"a": "ours"})

    loaded = catalog.kv.load_table(NAME)
    assert loaded.metadata.properties == {"a": "theirs 3"}  # which knew of ours
    logged = {entry.metadata_file.rpartition("/")[2] for entry in loaded.metadata.metadata_log}
    assert len(logged) == 5
    assert logged <= files_of(table)


@pytest.fixture
def rebased(catalog: EndiveCatalog, table: Table) -> TableChange:
    """An append that has lost a race. The manifest list of its client is deleted when the append is rebased."""
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(2))
    table.append(numbers(1))
    return TableChange(NAME, late._requirements, late._updates)


def test_a_rebased_append_is_not_rebased_again(catalog: EndiveCatalog, table: Table, rebased: TableChange) -> None:
    catalog.kv.commit_many([rebased])

    with pytest.raises(CommitConflictError, match="is already in the table: this change has been committed before"):
        catalog.kv.commit_many([rebased])

    assert rows_of(table) == [1, 2]
    assert catalog.kv.check() == []


def test_an_append_that_an_earlier_try_rebases_returns_the_stored_result(
    catalog: EndiveCatalog, table: Table, rebased: TableChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = catalog.kv.commit_many([rebased], "once")
    read_result_too_early(monkeypatch)

    assert catalog.kv.commit_many([rebased], "once") == first

    assert rows_of(table) == [1, 2]
    assert catalog.kv.check() == []


def test_metadata_of_a_failed_attempt_is_not_returned_as_the_table(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    """The first life of a job commits just before the second, and another process after it."""
    change = TableChange(NAME, (), setting(a="1"))

    def first_life() -> None:
        rival.kv.commit_many([change], "batch 1")
        rival.kv.update_properties(NAME, {"theirs": "2"})

    store.before = first_life
    (loaded,) = catalog.kv.commit_and_load([change], "batch 1")

    assert loaded == catalog.kv.load_table(NAME)
    assert loaded.metadata.properties == {"a": "1", "theirs": "2"}
