"""Commits of one process to one table that wait for one another: one metadata file, one transaction."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate, AssertCurrentSchemaId, SetCurrentSchemaUpdate, TableUpdate
from pyiceberg.types import LongType

from endive.catalog import KVCatalog, TableChange
from endive.catalog.commit import groups
from endive.catalog.commit.change import TableChange as Change
from endive.catalog.commit.groups import TableQueue, Waiting
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import (
    CommitConflictError,
    CommitRetriesExhaustedError,
    NotInCatalogError,
    OutcomeUnknownError,
)
from endive.kv import Store
from endive.objects import MemoryStore
from tests.catalog.commits.interrupted import Interrupted, files_of, rows_of, setting
from tests.catalog.tables import NAME, NUMBERS, numbers


def lead(kv: KVCatalog, changes: Sequence[Change], ids: Sequence[str] = ()) -> list[Waiting]:
    """Commit changes as one group."""
    names = ids or [f"id {number}" for number in range(len(changes))]
    group = [Waiting(change, commit_id) for change, commit_id in zip(changes, names, strict=True)]
    committer = kv._committer
    committer._loop.lead(committer._loop.queues.of(NAME), group)
    return group


def sets(**properties: str) -> Change:
    return TableChange(NAME, (), setting(**properties))


def append_of(catalog: EndiveCatalog, *values: int) -> Change:
    """An append, written on the state as it is now."""
    transaction = catalog.load_table(NAME).transaction()
    transaction.append(numbers(*values))
    return TableChange(NAME, transaction._requirements, transaction._updates)


def adds_column(catalog: EndiveCatalog, name: str) -> Change:
    metadata = catalog.load_table(NAME).metadata
    schema = catalog.load_table(NAME).update_schema().add_column(name, LongType())._apply()
    updates: tuple[TableUpdate, ...] = (AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1))
    return TableChange(NAME, (AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),), updates)


def metadata_files(table: Table) -> set[str]:
    return {name for name in files_of(table) if name.endswith(".metadata.json")}


def test_a_group_has_one_metadata_file_and_one_transaction(
    catalog: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    before, transactions = metadata_files(table), store.transactions
    group = lead(catalog.kv, [sets(a="1"), append_of(catalog, 1), sets(b="2"), append_of(catalog, 2)])

    assert [one.error for one in group] == [None] * 4
    assert store.transactions == transactions + 1
    assert len(metadata_files(table) - before) == 1
    loaded = catalog.load_table(NAME)
    results = [one.committed.record for one in group if one.committed is not None]
    assert [one.version for one in results] == [1, 2, 3, 4]
    assert {one.metadata_location for one in results} == {loaded.metadata_location}
    assert catalog.kv.files.read(loaded.metadata_location) == loaded.metadata
    assert loaded.properties == {"a": "1", "b": "2"}
    assert rows_of(loaded) == [1, 2]
    assert catalog.kv.check() == []
    assert [entry.metadata_file for entry in loaded.metadata.metadata_log] == [table.metadata_location]


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
@pytest.mark.parametrize("version", ["1", "2"])
def test_appends_are_rebased_together(catalog: EndiveCatalog, mode: str, version: str) -> None:
    properties = {"endive.metadata-json": mode, "format-version": version}
    table = catalog.create_table(NAME, NUMBERS, properties=properties)
    table.append(numbers(0))
    group = lead(catalog.kv, [append_of(catalog, number) for number in range(1, 5)])

    assert [one.error for one in group] == [None] * 4
    table.refresh()
    assert rows_of(table) == [0, 1, 2, 3, 4]
    snapshots = table.metadata.snapshots
    assert [one.parent_snapshot_id for one in snapshots[1:]] == [one.snapshot_id for one in snapshots[:-1]]
    if version == "2":
        assert [one.sequence_number for one in snapshots] == [1, 2, 3, 4, 5]
    by_snapshot = {one.snapshot_id: one.sequence_number for one in snapshots}
    entries = table.inspect.entries().to_pylist()
    assert {one["snapshot_id"]: one["sequence_number"] for one in entries} == by_snapshot
    for count, one in enumerate(snapshots, start=1):
        assert table.scan(snapshot_id=one.snapshot_id).to_arrow().num_rows == count
        assert one.summary is not None
        assert one.summary["total-data-files"] == str(count)
    assert [line.snapshot_id for line in table.history()] == [one.snapshot_id for one in snapshots]
    assert catalog.kv.check() == []


def test_a_conflict_is_the_error_of_one_member(catalog: EndiveCatalog, table: Table) -> None:
    changes = [adds_column(catalog, "a"), append_of(catalog, 1), adds_column(catalog, "b"), sets(c="3")]
    group = lead(catalog.kv, changes)

    assert [type(one.error) for one in group] == [type(None), type(None), CommitConflictError, type(None)]
    table.refresh()
    assert table.schema().column_names == ["n", "a"]
    assert (rows_of(table), table.properties) == ([1], {"c": "3"})
    assert catalog.kv.check() == []


def test_a_group_of_conflicts_commits_nothing(catalog: EndiveCatalog, table: Table, store: Interrupted) -> None:
    changes = [adds_column(catalog, "a"), adds_column(catalog, "b")]
    with table.update_schema() as update:
        update.add_column("c", LongType())
    before, transactions = files_of(table), store.transactions
    group = lead(catalog.kv, changes)

    assert [type(one.error) for one in group] == [CommitConflictError] * 2
    assert (files_of(table), store.transactions) == (before, transactions)


def test_a_group_that_lost_its_race_is_computed_again(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    changes = [append_of(catalog, 1), sets(a="1"), append_of(catalog, 2)]
    store.before = lambda: rival.load_table(NAME).append(numbers(9))
    before = metadata_files(table)
    group = lead(catalog.kv, changes)

    assert [one.error for one in group] == [None] * 3
    assert rows_of(table) == [1, 2, 9]
    assert table.properties == {"a": "1"}
    assert len(metadata_files(table) - before) == 2  # the rival's, and the group's; that of the lost race is deleted
    assert catalog.kv.check() == []


def test_a_group_that_loses_every_race_gives_up(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    catalog.kv.update_properties(NAME, {"endive.commit.attempts": "1"})
    changes = [append_of(catalog, 1), sets(a="1")]
    before = files_of(table)
    store.before = lambda: rival.kv.update_properties(NAME, {"b": "2"})
    group = lead(catalog.kv, changes)

    assert [type(one.error) for one in group] == [CommitRetriesExhaustedError] * 2
    assert len(files_of(table) - before) == 1  # the rival's
    assert group[0].error is not group[1].error  # each thread raises its own


@pytest.mark.parametrize("lost", ["answers_lost", "requests_lost"])
def test_an_unknown_outcome_is_resolved_for_all_members(
    catalog: EndiveCatalog, table: Table, store: Interrupted, lost: str
) -> None:
    changes = [append_of(catalog, 1), sets(a="1"), append_of(catalog, 2)]
    setattr(store, lost, 1)
    group = lead(catalog.kv, changes)

    assert [one.error for one in group] == [None] * 3
    assert rows_of(table) == [1, 2]
    assert table.metadata.properties == {"a": "1"}
    assert catalog.kv.check() == []


def test_an_outcome_that_stays_unknown_deletes_nothing(
    catalog: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    changes = [append_of(catalog, 1), sets(a="1")]
    before = files_of(table)
    store.requests_lost = 2
    group = lead(catalog.kv, changes)

    assert [type(one.error) for one in group] == [OutcomeUnknownError] * 2
    assert len(files_of(table) - before) == 1


def test_a_member_that_was_committed_before_gets_its_stored_result(catalog: EndiveCatalog, table: Table) -> None:
    first = catalog.kv.commit(NAME, (), setting(a="1"), "known")
    group = lead(catalog.kv, [sets(b="2"), sets(a="1"), append_of(catalog, 1)], ["one", "known", "two"])

    assert [one.error for one in group] == [None] * 3
    assert group[1].committed is not None
    assert group[1].committed.record == first
    assert catalog.load_table(NAME).properties == {"a": "1", "b": "2"}
    assert rows_of(table) == [1]
    assert catalog.kv.load_table(NAME).version == 3


def test_a_file_that_cannot_be_written_fails_all_members_and_leaves_none(
    catalog: EndiveCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(numbers(0))
    changes = [append_of(catalog, 1), append_of(catalog, 2)]
    before = files_of(table)

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(MetadataFiles, "write", fail)
        group = lead(catalog.kv, changes)
    assert [str(one.error) for one in group] == ["the disk is full"] * 2
    assert files_of(table) == before
    assert [one.error for one in lead(catalog.kv, changes)] == [None] * 2


def test_a_group_of_a_table_that_is_gone_fails(catalog: EndiveCatalog, table: Table, store: Interrupted) -> None:
    changes = [sets(a="1"), sets(b="2")]
    store.before = lambda: catalog.rename_table(NAME, ("db", "moved"))
    group = lead(catalog.kv, changes)

    assert [type(one.error) for one in group] == [NotInCatalogError] * 2


class Killed(BaseException):
    """The process ends."""


def test_a_record_names_a_file_that_exists_whenever_the_process_ends(
    catalog: EndiveCatalog, table: Table, store: Interrupted, warehouse: str
) -> None:
    """The leader dies in the transaction, before it happens and after."""

    def die() -> None:
        raise Killed

    for moment in ("before", "after"):
        changes = [append_of(catalog, 1), sets(**{moment: "1"})]
        setattr(store, moment, die)
        with pytest.raises(Killed):
            lead(catalog.kv, changes)
        again = EndiveCatalog.on(KVCatalog(store, warehouse))
        loaded = again.load_table(NAME)
        assert catalog.kv.files.read(loaded.metadata_location) == loaded.metadata
        assert (moment in loaded.properties) == (moment == "after")
        assert again.kv.check() == []


def test_members_of_an_interrupted_leader_go_on(
    catalog: EndiveCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the transaction they are committed by another leader; during it their outcome is unknown."""
    committer = catalog.kv._committer
    queue = committer._loop.queues.of(NAME)
    group = [Waiting(sets(a="1"), "one"), Waiting(sets(b="2"), "two")]
    queue.waiting.append(group[1])

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(committer._loop._chains, "write", die)
        with pytest.raises(Killed):
            queue.commit(group[0], committer._loop.lead)
    assert queue.waiting == [group[1]]
    with monkeypatch.context() as patch:
        patch.setattr(committer._loop, "_transact", die)
        queue.waiting.append(third := Waiting(sets(c="3"), "three"))
        with pytest.raises(Killed):
            queue.commit(group[0], committer._loop.lead)
    assert isinstance(group[1].error, OutcomeUnknownError)
    assert isinstance(third.error, OutcomeUnknownError)
    assert not queue.is_led


# Threads.


def test_threads_share_groups(tmp_path: Path) -> None:
    """While a leader is at work, the others wait; then they are one group."""
    with (
        Store(MemoryStore(), "shared") as store,
        KVCatalog(store, f"file://{tmp_path}", create=True) as kv,
    ):
        catalog = EndiveCatalog.on(kv)
        catalog.create_namespace("db")
        table = catalog.create_table(NAME, NUMBERS)
        committer = kv._committer
        queue = committer._loop.queues.of(NAME)
        sizes: list[int] = []
        real = committer._loop.lead

        def noted(queue: TableQueue, group: list[Waiting]) -> None:
            sizes.append(len(group))
            real(queue, group)

        committer._loop.lead = noted  # type: ignore[method-assign]
        with committer._loop._locks.held([NAME]):
            threads = [Thread(target=catalog.load_table(NAME).append, args=(numbers(n),)) for n in range(6)]
            for thread in threads:
                thread.start()
            _until(lambda: len(queue.waiting) == 5)
        for thread in threads:
            thread.join()

        assert sizes == [1, 5]
        assert rows_of(table) == [0, 1, 2, 3, 4, 5]
        assert len(metadata_files(table)) == 3
        assert kv.check() == []


def _until(holds: Callable[[], bool]) -> None:
    pause = Event()
    for _ in range(3000):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("it never happened")


def test_a_full_group_leaves_the_rest_to_the_next(
    catalog: EndiveCatalog, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "GROUP_MAX", 2)
    queue = catalog.kv._committer._loop.queues.of(NAME)
    waiting = [Waiting(sets(**{f"p{number}": "1"}), f"id {number}") for number in range(5)]
    queue.waiting += waiting[:4]
    queue.commit(waiting[4], catalog.kv._committer._loop.lead)

    assert [one.error for one in waiting] == [None] * 5
    assert len(catalog.load_table(NAME).properties) == 5
    assert len(metadata_files(table)) == 1 + 3


@pytest.mark.slow
def test_many_threads_of_several_catalogs_lose_nothing(tmp_path: Path) -> None:
    objects = MemoryStore()
    with (
        Store(objects, "shared") as one,
        Store(objects, "shared") as two,
        KVCatalog(one, f"file://{tmp_path}", create=True) as first,
        KVCatalog(two, f"file://{tmp_path}") as second,
    ):
        catalogs = [EndiveCatalog.on(first), EndiveCatalog.on(second)]
        catalogs[0].create_namespace("db")
        table = catalogs[0].create_table(NAME, NUMBERS)

        def work(place: int) -> None:
            mine = catalogs[place % 2].load_table(NAME)
            for number in range(5):
                mine.append(numbers(place * 100 + number))
                with mine.transaction() as transaction:
                    transaction.set_properties({f"p{place}": str(number)})

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))

        assert rows_of(table) == [place * 100 + number for place in range(8) for number in range(5)]
        assert table.metadata.properties == {f"p{place}": "4" for place in range(8)}
        assert catalogs[0].load_table(NAME).metadata == catalogs[0].kv.files.read(table.metadata_location)
        assert first.check() == []


def test_a_group_has_every_commit_id_once(kv: KVCatalog, table: Table) -> None:
    """A client that lost patience sends its commit again while the first try still waits for its group."""
    queue = TableQueue()
    groups_led: list[list[str]] = []

    def answer(_queue: TableQueue, group: list[Waiting]) -> None:
        groups_led.append([one.commit_id for one in group])
        lead_with(kv, group)

    queue.waiting = [Waiting(sets(a="1"), "same"), Waiting(sets(a="1"), "same")]
    first, second = queue.waiting
    queue.commit(Waiting(sets(b="1"), "other"), answer)
    while not second.is_answered:
        queue.commit(second, answer)

    assert groups_led[0] == ["same", "other"]
    assert first.committed is not None
    assert second.committed is not None
    assert first.committed.record.version == second.committed.record.version
    assert kv.load_table(NAME).version == 2  # two commits, not three


def lead_with(kv: KVCatalog, group: list[Waiting]) -> None:
    committer = kv._committer
    committer._loop.lead(committer._loop.queues.of(NAME), group)
