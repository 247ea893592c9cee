"""Retries and unknown outcomes: a commit happens once, and nothing is deleted that may be needed."""

from pathlib import Path
from typing import TypeVar

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.types import LongType

from endive.catalog import KVCatalog, TableChange
from endive.catalog.commit import rebase
from endive.catalog.commit import stored_results as commit
from endive.catalog.commit.prepared import NO_VERSION
from endive.catalog.model.transaction import TransactionFunction
from endive.catalog.operations import requests
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import CommitConflictError, NotInCatalogError
from tests.catalog.commits.interrupted import Interrupted, files_of, rows_of, setting
from tests.catalog.tables import NAME, NUMBERS, numbers

T = TypeVar("T")


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_a_retry_to_several_tables_is_recognised_by_one_stored_result(
    catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(commit, "RESULTS_STORED", 3)
    monkeypatch.setattr(requests, "LIFETIME_MS", -1 - requests.CLOCKS_DIFFER_MS)  # results are deleted by their number
    names = [("db", name) for name in "abc"]
    for name in names:
        catalog.create_table(name, NUMBERS, properties={"endive.metadata-json": mode})
    changes = [TableChange(name, (), setting(k="first")) for name in names[:2]]
    changes.append(TableChange(names[2], (), ()))  # which changes nothing, and has no answer to remember
    first = catalog.kv.commit_many(changes, "once")
    for number in range(5):
        catalog.kv.update_properties(names[0], {"k": str(number)})
    catalog.kv.update_properties(names[2], {"k": "other"})

    again = catalog.kv.commit_many(changes, "once")

    assert again[1] == first[1]
    assert [one.version for one in again] == [catalog.kv.load_table(name).version for name in names]
    assert [catalog.kv.load_table(name).metadata.properties["k"] for name in names] == ["4", "first", "other"]


@pytest.mark.parametrize("end", ["drop", "rename"])
def test_a_retry_is_recognised_after_another_table_of_the_commit_was_dropped_or_renamed(
    catalog: EndiveCatalog, table: Table, end: str
) -> None:
    catalog.create_table("db.u", NUMBERS)
    together = [catalog.load_table(name).transaction() for name in (NAME, "db.u")]
    for transaction in together:
        transaction.append(numbers(1))
    changes = [
        TableChange(name, one._requirements, one._updates)
        for name, one in zip((NAME, ("db", "u")), together, strict=True)
    ]
    first = catalog.kv.commit_many(changes, "once")
    if end == "drop":
        catalog.drop_table("db.u")
    else:
        catalog.rename_table("db.u", "db.v")

    kept, gone = catalog.kv.commit_many(changes, "once")
    catalog.commit_transactions(together, "once")

    assert kept == first[0]
    assert (gone.commit_id, gone.version, gone.snapshot_id) == ("once", NO_VERSION, None)
    assert rows_of(catalog.load_table(NAME)) == [1]
    with pytest.raises(NotInCatalogError, match=r"db\.u"):  # one of the two was not in the commit
        catalog.kv.commit_many([*changes, TableChange(("db", "w"), (), setting(a="1"))], "once")


def test_an_id_that_was_used_for_other_tables_is_refused(catalog: EndiveCatalog, table: Table) -> None:
    catalog.create_table("db.u", NUMBERS)
    catalog.kv.commit(NAME, (), setting(a="1"), commit_id="once")

    with pytest.raises(CommitConflictError, match=r"db\.u: the commit id 'once' was already used for a commit"):
        catalog.kv.commit_many(
            [TableChange(NAME, (), setting(a="1")), TableChange(("db", "u"), (), setting(b="2"))], "once"
        )
    assert catalog.kv.load_table("db.u").metadata.properties == {}
    catalog.kv.commit("db.u", (), setting(b="2"), commit_id="once")  # ids are each table's own
    assert catalog.kv.load_table("db.u").metadata.properties == {"b": "2"}


def test_a_retry_returns_the_original_result(catalog: EndiveCatalog, table: Table) -> None:
    first = catalog.kv.commit(NAME, (), setting(a="1"), commit_id="batch 7")
    catalog.kv.update_properties(NAME, {"a": "2"})

    assert catalog.kv.commit(NAME, (), setting(a="1"), commit_id="batch 7") == first
    assert catalog.kv.load_table(NAME).metadata.properties == {"a": "2"}


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_a_retry_without_an_id_fails_since_it_is_already_committed(catalog: EndiveCatalog, mode: str) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})
    late = table.transaction()
    late.append(numbers(1))
    catalog.kv.commit(NAME, (), late._updates)

    with pytest.raises(CommitConflictError, match="is already in the table: this change has been committed before"):
        catalog.kv.commit(NAME, (), late._updates)

    assert rows_of(table) == [1]


def test_the_retry_of_an_append_adds_nothing(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(0))
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(1))
    table.append(numbers(2))
    first = catalog.kv.commit(NAME, late._requirements, late._updates, commit_id="once")

    assert catalog.kv.commit(NAME, late._requirements, late._updates, commit_id="once") == first
    assert rows_of(table) == [0, 1, 2]


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_a_restarted_job_does_not_delete_what_its_first_life_committed(
    catalog: EndiveCatalog, rival: EndiveCatalog, store: Interrupted, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Both commit the same snapshot under the same id; the second sees the branch moved, but not yet by whom."""
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})
    late = table.transaction()
    late.append(numbers(1))
    original, first_life = store.read_cached, [late]

    def read_cached(function: TransactionFunction[T]) -> T:
        if first_life:
            first = first_life.pop()
            rival.kv.commit(NAME, first._requirements, first._updates, commit_id="batch 1")
            rival.load_table(NAME).append(numbers(2))
        return original(function)

    monkeypatch.setattr(store, "read_cached", read_cached)
    catalog.kv.commit(NAME, late._requirements, late._updates, commit_id="batch 1")

    assert rows_of(catalog.load_table(NAME)) == [1, 2]
    assert table.refresh().snapshots()[0].manifest_list == late_list(late)


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_a_list_that_the_first_life_of_a_job_has_committed_is_not_taken_for_a_replaced_one(
    catalog: EndiveCatalog, rival: EndiveCatalog, store: Interrupted, mode: str
) -> None:
    """The second life has put its append on top of another, which is rolled back before the first life commits."""
    properties = {"endive.metadata-json": mode, "format-version": "1"}  # without sequence numbers the list fits again
    table = catalog.create_table(NAME, NUMBERS, properties=properties)
    table.append(numbers(0))
    start = table.metadata.current_snapshot_id
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(1))
    rival.load_table(NAME).append(numbers(2))

    def first_life() -> None:
        rival.kv.roll_back(NAME, start)
        rival.kv.commit(NAME, late._requirements, late._updates, commit_id="batch 1")

    catalog.load_table(NAME)
    store.before = first_life
    catalog.kv.commit(NAME, late._requirements, late._updates, commit_id="batch 1")

    assert Path(late_list(late).removeprefix("file://")).exists()
    assert rows_of(catalog.load_table(NAME)) == [0, 1]


def late_list(transaction: Transaction) -> str:
    (added,) = (one for one in transaction._updates if isinstance(one, AddSnapshotUpdate))
    return added.snapshot.manifest_list


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_an_append_with_a_real_conflict_fails_at_once(
    catalog: EndiveCatalog, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})
    late = catalog.load_table(NAME).transaction()
    with late.update_schema() as update:
        update.add_column("k", LongType())
    late.append(numbers(1))
    with table.update_schema() as update:
        update.add_column("m", LongType())

    monkeypatch.setattr(rebase, "write_body", None)  # nothing is written that would be deleted again

    with pytest.raises(CommitConflictError, match="current schema id has changed"):
        catalog.kv.commit(NAME, late._requirements, late._updates)


def test_an_interrupted_commit_deletes_nothing(
    catalog: EndiveCatalog, table: Table, store: Interrupted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control-C while the request is under way: the record may name the file a moment later."""

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    before = files_of(table)
    monkeypatch.setattr(store, "transact", interrupt)
    with pytest.raises(KeyboardInterrupt):
        catalog.kv.update_properties(NAME, {"a": "b"})
    assert len(files_of(table) - before) == 1


def test_old_results_are_deleted(kv: KVCatalog, store: Interrupted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "RESULTS_STORED", 3)
    monkeypatch.setattr(requests, "LIFETIME_MS", -1 - requests.CLOCKS_DIFFER_MS)  # results are deleted by their number
    kv.create_namespace("db")
    kv.create_table(NAME, NUMBERS)
    for number in range(6):
        kv.commit(NAME, (), setting(a=str(number)), commit_id=f"id {number}")

    assert len([key for key in store.rows if b"/id/" in key]) == 3
    assert len([key for key in store.rows if b"/version/" in key]) == 3


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_an_unknown_outcome_is_resolved_by_the_id(catalog: EndiveCatalog, store: Interrupted, mode: str) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})
    store.answers_lost = 1

    table.append(numbers(1))

    assert rows_of(table) == [1]
    assert len(table.metadata.snapshots) == 1
    store.answers_lost = 1
    catalog.create_namespace("other")
    store.answers_lost = 1
    catalog.rename_table(NAME, "other.t")
    store.answers_lost = 1
    catalog.create_table(NAME, NUMBERS)
    store.answers_lost = 1
    catalog.drop_table(NAME)
    assert catalog.list_tables("db") == []


def test_an_outcome_that_stays_unknown_deletes_nothing(
    catalog: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    store.requests_lost = 2
    with pytest.raises(CommitStateUnknownException):
        table.append(numbers(1))
    left = files_of(table)

    assert len([name for name in left if name.endswith("metadata.json")]) == 2
    assert len([name for name in left if name.startswith("snap-")]) == 1
    assert len([name for name in left if name.endswith(".parquet")]) == 1


def test_a_retry_that_fails_proves_nothing(rival: EndiveCatalog, table: Table, store: Interrupted) -> None:
    """The first request may be on its way; only its success could be seen."""

    def at_the_repeat() -> None:
        rival.rename_table(NAME, "db.other")

    def at_first() -> None:
        store.before = at_the_repeat
        store.requests_lost = 1

    store.before = at_first
    with pytest.raises(CommitStateUnknownException):
        table.append(numbers(1))
    assert len([name for name in files_of(table) if name.startswith("snap-")]) == 1


# Work in proportion.


def test_a_commit_writes_the_same_number_of_rows_however_long_the_table_has_lived(
    kv: KVCatalog, catalog: EndiveCatalog, store: Interrupted
) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": "background"})
    sizes = []
    for number in range(12):
        before = dict(store.rows)
        table.append(numbers(number))
        kv.export_metadata(NAME)
        changed = {key for key in store.rows if store.rows[key] != before.get(key)}
        sizes.append((len(changed), len(store.rows[b"__tables/db/t"])))
    counts = [count for count, _ in sizes]
    assert counts == [counts[0]] * len(counts)
