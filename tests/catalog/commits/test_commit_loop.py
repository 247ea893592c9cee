"""The commit loop: one base and one decision for each commit, and changes that cannot share a chain."""

from functools import partial
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AssertCreate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
)
from pyiceberg.types import NestedField, StringType

from endive.catalog import TableChange
from endive.catalog.commit import apply, chains, commit_loop, committer
from endive.catalog.commit.commit_loop import CommitLoop
from endive.catalog.pyiceberg import EndiveCatalog
from endive.errors import CommitConflictError, NotInCatalogError
from tests.catalog.commits.interrupted import rows_of
from tests.catalog.commits.test_groups import append_of, lead, sets
from tests.catalog.tables import NAME, NUMBERS, numbers


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """Return a list that gets an element for each call of a function of the commit path."""
    calls: list[int] = []
    for module in (apply, chains, commit_loop, committer):
        function = getattr(module, name, None)
        if function is None:
            continue

        def count(*arguments: Any, function: Any = function, **named: Any) -> Any:
            calls.append(1)
            return function(*arguments, **named)

        monkeypatch.setattr(module, name, count)
    return calls


def expect_whole(catalog: EndiveCatalog) -> None:
    """The metadata file shows what the records say."""
    loaded = catalog.load_table(NAME)
    assert catalog.kv.files.read(loaded.metadata_location) == loaded.metadata
    assert catalog.kv.check() == []


def test_a_commit_loads_its_base_once_and_is_decided_about_once(
    catalog: EndiveCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(numbers(1))
    loads, decisions = counted(monkeypatch, "load_base"), counted(monkeypatch, "decide")
    table.append(numbers(2))

    assert (len(loads), len(decisions)) == (1, 1)
    assert rows_of(table) == [1, 2]


def test_a_change_that_removes_snapshots_is_committed_between_those_that_wait_with_it(
    catalog: EndiveCatalog, table: Table
) -> None:
    for number in range(3):
        table.append(numbers(number))
    first = table.metadata.snapshots[0].snapshot_id
    removal = TableChange(NAME, (), (RemoveSnapshotsUpdate(snapshot_ids=[first]),))
    group = lead(catalog.kv, [sets(a="1"), removal, append_of(catalog, 3), sets(b="2")])

    assert [one.error for one in group] == [None] * 4
    versions = [one.committed.record.version for one in group if one.committed is not None]
    assert versions == list(range(versions[0], versions[0] + 4))
    table.refresh()
    assert rows_of(table) == [0, 1, 2, 3]
    assert first not in {one.snapshot_id for one in table.metadata.snapshots}
    assert table.properties == {"a": "1", "b": "2"}
    expect_whole(catalog)


def test_a_table_that_waiting_changes_miss_can_be_created_among_them(catalog: EndiveCatalog) -> None:
    catalog.create_namespace_if_not_exists("db")
    staged = catalog.create_table_transaction(NAME, NUMBERS)
    create = TableChange(NAME, (AssertCreate(),), staged._updates)
    group = lead(catalog.kv, [sets(a="1"), create, sets(b="2")])

    assert isinstance(group[0].error, NotInCatalogError)
    assert [one.error for one in group[1:]] == [None, None]
    assert catalog.load_table(NAME).properties == {"b": "2"}
    expect_whole(catalog)


def test_the_metadata_file_of_a_table_without_branches_has_its_whole_past(catalog: EndiveCatalog, table: Table) -> None:
    for number in range(3):
        table.append(numbers(number))
    catalog.kv.commit(NAME, (), (RemoveSnapshotRefUpdate(ref_name="main"),))
    group = lead(catalog.kv, [sets(a="1"), append_of(catalog, 3), append_of(catalog, 4), sets(b="2")])

    assert [one.error for one in group] == [None] * 4
    loaded = catalog.load_table(NAME)
    assert len(loaded.metadata.snapshots) == 5
    assert rows_of(loaded) == [3, 4]
    expect_whole(catalog)


def test_an_append_to_a_table_that_was_dropped_or_replaced_is_refused(catalog: EndiveCatalog, table: Table) -> None:
    append = append_of(catalog, 1)
    requirements = (*append.requirements, AssertTableUUID(uuid=table.metadata.table_uuid))
    change = TableChange(NAME, requirements, append.updates)
    catalog.drop_table(NAME)
    with pytest.raises(NotInCatalogError):
        catalog.kv.commit_many([change])

    schema = Schema(NestedField(7, "other", StringType(), required=False))
    catalog.create_table(NAME, schema)
    with pytest.raises(CommitConflictError):
        catalog.kv.commit_many([change])
    expect_whole(catalog)


def test_a_conflict_in_the_transaction_of_one_change_is_not_that_of_its_group(
    catalog: EndiveCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        table.append(numbers(number))
    first, head = (one.snapshot_id for one in table.metadata.snapshots)
    requirement = AssertRefSnapshotId(ref="main", snapshot_id=head)
    removal = TableChange(NAME, (requirement,), (RemoveSnapshotsUpdate(snapshot_ids=[first]),))
    other = committer_of(catalog)
    meanwhile = [append_of(catalog, 9)]
    transact = CommitLoop._transact

    def overtaken(self: CommitLoop, built: Any) -> Any:
        while meanwhile:
            other.commit([meanwhile.pop()])  # as another process would, past the lock of the table
        return transact(self, built)

    monkeypatch.setattr(catalog.kv._committer._loop, "_transact", partial(overtaken, catalog.kv._committer._loop))
    group = lead(catalog.kv, [removal, sets(a="1"), append_of(catalog, 5)])

    assert isinstance(group[0].error, CommitConflictError)
    assert [one.error for one in group[1:]] == [None, None]
    table.refresh()
    assert rows_of(table) == [0, 1, 5, 9]
    assert table.properties == {"a": "1"}
    expect_whole(catalog)


def test_a_commit_to_several_tables_stands_if_old_metadata_files_cannot_be_deleted(
    catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [("db", "a"), ("db", "b")]
    at_once = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
    catalog.create_namespace_if_not_exists("db")
    for name in names:
        catalog.create_table(name, NUMBERS, properties=at_once)

    def unreachable(*_: Any) -> None:
        raise OSError("the store does not answer")

    monkeypatch.setattr(chains, "delete_dropped_files", unreachable)
    for number in range(4):
        update = SetPropertiesUpdate(updates={"n": str(number)})
        catalog.kv.commit_many([TableChange(name, (), (update,)) for name in names])

    assert [catalog.load_table(name).properties["n"] for name in names] == ["3", "3"]


def committer_of(catalog: EndiveCatalog) -> committer.TableCommitter:
    """Return another committer on the same store."""
    own = catalog.kv._committer
    return committer.TableCommitter(own.store, own.files, own._clock, own._new_id)
