"""Commits: races, repeats, several tables at once, and what is left behind when something fails."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.table import StaticTable, Table, Transaction
from pyiceberg.table.snapshots import ancestors_of
from pyiceberg.table.update import AddSnapshotUpdate, SetPropertiesUpdate, TableUpdate
from pyiceberg.types import LongType

from endive.catalog import KVCatalog, TableChange, commit
from endive.catalog.committer import ATTEMPTS
from endive.catalog.pyiceberg import EndiveCatalog
from endive.catalog.works import Work
from endive.errors import CommitConflictError, CommitRetriesExhaustedError, OutcomeUnknownError
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NUMBERS, numbers

T = TypeVar("T")
NAME = ("db", "t")


class Interrupted(DictStore):
    """A store that lets somebody else in before a transaction, or loses answers, as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], object] | None = None
        self.answers_lost = 0
        self.requests_lost = 0

    def transact(self, work: Work[T]) -> T:
        before, self.before = self.before, None
        if before is not None:
            before()
        if self.requests_lost:
            self.requests_lost -= 1
            raise OutcomeUnknownError("wal/1")
        result = super().transact(work)
        if self.answers_lost:
            self.answers_lost -= 1
            raise OutcomeUnknownError("wal/1")
        return result


@pytest.fixture
def store() -> Interrupted:
    return Interrupted()


@pytest.fixture
def catalog(kv: KVCatalog) -> EndiveCatalog:
    kv.create_namespace("db")
    return EndiveCatalog.on(kv)


@pytest.fixture
def rival(store: Interrupted, warehouse: str, catalog: EndiveCatalog) -> EndiveCatalog:
    """Another process, as far as the store can tell."""
    return EndiveCatalog.on(KVCatalog(store, warehouse))


@pytest.fixture
def table(catalog: EndiveCatalog) -> Table:
    return catalog.create_table(NAME, NUMBERS)


def rows_of(table: Table) -> list[int]:
    values: list[int] = table.refresh().scan().to_arrow()["n"].to_pylist()
    return sorted(values)


def files_of(table: Table) -> set[str]:
    root = Path(table.location().removeprefix("file://"))
    return {path.name for path in root.rglob("*") if path.is_file()}


def setting(**properties: str) -> tuple[TableUpdate, ...]:
    return (SetPropertiesUpdate(updates=properties),)


# Appends that race.


@pytest.mark.parametrize("version", ["1", "2"])
def test_an_append_on_an_old_state_is_put_on_top(catalog: EndiveCatalog, version: str) -> None:
    catalog.create_table(NAME, NUMBERS, properties={"format-version": version})
    first, second = catalog.load_table(NAME), catalog.load_table(NAME)
    first.append(numbers(1))
    second.append(numbers(2))

    table = catalog.load_table(NAME)
    assert rows_of(table) == [1, 2]
    older, newer = table.metadata.snapshots
    assert newer.parent_snapshot_id == older.snapshot_id
    assert newer.timestamp_ms >= older.timestamp_ms
    assert newer.summary is not None
    assert (newer.summary["added-records"], newer.summary["total-records"]) == ("1", "2")
    assert newer.summary["total-data-files"] == "2"
    assert catalog.kv.check() == []
    assert second.metadata == table.metadata


def test_sequence_numbers_are_those_of_the_snapshots(catalog: EndiveCatalog, table: Table) -> None:
    handles = [catalog.load_table(NAME) for _ in range(3)]
    for number, handle in enumerate(handles):
        handle.append(numbers(number))

    table.refresh()
    by_snapshot = {one.snapshot_id: one.sequence_number for one in table.metadata.snapshots}
    assert sorted(filter(None, by_snapshot.values())) == [1, 2, 3]
    entries = table.inspect.entries().to_pylist()
    assert len(entries) == 3
    assert all(one["sequence_number"] == by_snapshot[one["snapshot_id"]] for one in entries)
    current = table.current_snapshot()
    assert current is not None
    assert {one.added_snapshot_id: one.sequence_number for one in current.manifests(table.io)} == by_snapshot


def test_two_appends_of_one_transaction_are_both_put_on_top(catalog: EndiveCatalog, table: Table) -> None:
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(2))
    late.append(numbers(3))
    table.append(numbers(1))

    late.commit_transaction()

    assert rows_of(table) == [1, 2, 3]
    lineage = [one.sequence_number for one in ancestors_of(table.current_snapshot(), table.metadata)]
    assert lineage == [3, 2, 1]
    entries = table.inspect.entries().to_pylist()
    assert sorted(one["sequence_number"] for one in entries) == [1, 2, 3]
    assert catalog.kv.check() == []


def test_an_append_with_merged_manifests_brings_only_its_own_files(catalog: EndiveCatalog) -> None:
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
    table = catalog.create_table(NAME, NUMBERS, properties=merging)
    table.append(numbers(1))
    late = catalog.load_table(NAME)
    table.overwrite(numbers(2))  # the files that `late` merges into its manifest are gone by now

    late.append(numbers(3))

    assert rows_of(table) == [2, 3]
    assert catalog.kv.check() == []


def test_appends_to_two_branches_do_not_share_a_sequence_number(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    catalog.kv.create_branch(NAME, "dev")
    main, dev = catalog.load_table(NAME), catalog.load_table(NAME)
    main.append(numbers(2))
    dev.append(numbers(3), branch="dev")

    table.refresh()
    assert sorted(one.sequence_number or 0 for one in table.metadata.snapshots) == [1, 2, 3]
    assert sorted(table.scan().use_ref("dev").to_arrow()["n"].to_pylist()) == [1, 3]
    assert rows_of(table) == [1, 2]


def test_an_append_whose_sequence_number_was_taken_on_another_branch_is_put_on_top_at_once(
    catalog: EndiveCatalog, table: Table
) -> None:
    """By the catalog: its own branch has not moved, and PyIceberg need not try again."""
    table.append(numbers(1))
    catalog.kv.create_branch(NAME, "dev")
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(2))
    catalog.load_table(NAME).append(numbers(3), branch="dev")

    catalog.kv.commit(NAME, late._requirements, late._updates)

    assert rows_of(table) == [1, 2]
    assert sorted(one.sequence_number or 0 for one in table.metadata.snapshots) == [1, 2, 3]


def test_the_list_that_an_append_no_longer_needs_is_deleted(catalog: EndiveCatalog, table: Table) -> None:
    late = catalog.load_table(NAME)
    table.append(numbers(1))
    late.append(numbers(2))

    table.refresh()
    named = {one.manifest_list.rpartition("/")[2] for one in table.metadata.snapshots}
    assert {name for name in files_of(table) if name.startswith("snap-")} == named
    assert catalog.kv.remove_orphan_files(NAME, 2**62, dry_run=True) == []


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_many_threads_append_to_one_table(catalog: EndiveCatalog, mode: str) -> None:
    catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})

    def append(writer: int) -> None:
        handle = catalog.load_table(NAME)
        for number in range(3):
            handle.append(numbers(writer * 10 + number))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(append, range(8)))

    table = catalog.load_table(NAME)
    assert rows_of(table) == sorted(writer * 10 + number for writer in range(8) for number in range(3))
    catalog.kv.export_metadata(NAME)
    assert catalog.kv.check() == []


def test_who_wants_to_hear_of_conflicts_is_not_rebased(catalog: EndiveCatalog) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"commit.retry.num-retries": "0"})
    late = catalog.load_table(NAME)
    table.append(numbers(1))

    with pytest.raises(CommitFailedException, match="main was created concurrently"):
        late.append(numbers(2))


# Real conflicts.


def test_a_real_conflict_names_both_sides(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    late = catalog.load_table(NAME).transaction()
    late.overwrite(numbers(2))
    table.append(numbers(3))

    mine = [one.snapshot for one in late._updates if isinstance(one, AddSnapshotUpdate)]
    with pytest.raises(CommitConflictError) as caught:
        catalog.kv.commit(NAME, late._requirements, late._updates)
    words = str(caught.value)
    assert str(mine[-1].snapshot_id) in words
    assert str(table.metadata.current_snapshot_id) in words
    assert "delete" in words
    assert "append" in words


def test_a_lost_race_is_seen_inside_the_transaction_too(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    late = catalog.load_table(NAME)

    def meanwhile() -> None:
        with rival.load_table(NAME).update_schema() as update:
            update.add_column("m", LongType())

    change = late.update_schema()
    change.add_column("k", LongType())
    store.before = meanwhile
    files = len([name for name in files_of(table) if name.endswith("metadata.json")])

    with pytest.raises(CommitFailedException, match="current schema id has changed"):
        change.commit()
    assert len([name for name in files_of(table) if name.endswith("metadata.json")]) == files + 1


def test_changes_that_commute_are_worked_out_anew(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    store.before = lambda: rival.kv.update_properties(NAME, {"theirs": "1"})

    catalog.kv.update_properties(NAME, {"ours": "2"})

    loaded = catalog.kv.load_table(NAME)
    assert loaded.metadata.properties == {"theirs": "1", "ours": "2"}
    assert loaded.version == 2
    shown = StaticTable.from_metadata(loaded.metadata_location)
    assert shown.metadata == loaded.metadata
    assert len([name for name in files_of(table) if name.endswith("metadata.json")]) == 3


def test_a_commit_that_always_loses_says_which_limit_it_hit(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    catalog.kv.update_properties(NAME, {ATTEMPTS: "3"})
    losses = 0

    def win() -> None:
        nonlocal losses
        losses += 1
        rival.kv.update_properties(NAME, {"winner": str(losses)})
        store.before = win

    store.before = win
    with pytest.raises(CommitRetriesExhaustedError, match=r"lost 3 races.*endive\.commit\.attempts"):
        catalog.kv.update_properties(NAME, {"loser": "1"})
    store.before = None
    assert "loser" not in catalog.kv.load_table(NAME).metadata.properties


def test_a_table_dropped_while_it_is_written(rival: EndiveCatalog, table: Table, store: Interrupted) -> None:
    store.before = lambda: rival.drop_table(NAME)

    with pytest.raises(NoSuchTableError, match=r"db\.t; it may have been dropped or renamed"):
        table.append(numbers(1))


def test_another_table_of_the_name_and_version_is_not_taken_for_the_one_that_was_written(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    created: list[Table] = []

    def replace_it() -> None:
        rival.drop_table(NAME)
        created.append(rival.create_table(NAME, NUMBERS))

    store.before = replace_it
    catalog.kv.update_properties(NAME, {"a": "1"})  # of whichever table has the name

    loaded = catalog.kv.load_table(NAME)
    assert loaded.uuid == created[0].metadata.table_uuid
    assert (loaded.version, loaded.metadata.properties) == (1, {"a": "1"})
    assert catalog.kv.check() == []


def test_a_table_renamed_while_it_is_written(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted
) -> None:
    store.before = lambda: rival.rename_table(NAME, "db.other")

    with pytest.raises(NoSuchTableError, match="dropped or renamed"):
        table.append(numbers(1))
    assert catalog.load_table("db.other").scan().to_arrow().num_rows == 0


# Several tables at once.


def test_several_tables_change_together_or_not_at_all(catalog: EndiveCatalog, table: Table) -> None:
    catalog.create_table("db.u", NUMBERS)
    together = [catalog.load_table(NAME).transaction(), catalog.load_table("db.u").transaction()]
    for number, transaction in enumerate(together):
        transaction.append(numbers(number))
    table.append(numbers(7))

    catalog.commit_transactions(together)  # the first is rebased

    assert rows_of(table) == [0, 7]
    assert rows_of(catalog.load_table("db.u")) == [1]

    with pytest.raises(CommitConflictError):
        catalog.kv.commit_many(
            [
                TableChange(NAME, (), setting(a="1")),
                TableChange(("db", "u"), together[0]._requirements, setting(b="2")),
            ]
        )
    assert catalog.kv.load_table(NAME).metadata.properties == {}
    assert catalog.kv.check() == []


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
def test_of_several_tables_an_overwrite_that_found_nothing_to_delete_does_not_move(
    catalog: EndiveCatalog, table: Table
) -> None:
    append, overwrite = catalog.create_table("db.other", NUMBERS).transaction(), table.transaction()
    append.append(numbers(5))
    overwrite.overwrite(numbers(2), overwrite_filter="n == 1000")

    catalog.load_table(NAME).append(numbers(1000))

    with pytest.raises(CommitFailedException, match="main was created concurrently"):
        catalog.commit_transactions([append, overwrite])
    assert catalog.load_table("db.other").scan().to_arrow().num_rows == 0


@pytest.mark.parametrize("order", [1, -1])
def test_a_table_that_has_moved_on_holds_all_others_back(
    catalog: EndiveCatalog, rival: EndiveCatalog, table: Table, store: Interrupted, order: int
) -> None:
    """Both were worked out before; that one of them fits no longer is seen inside the transaction."""
    catalog.create_table("db.u", NUMBERS, properties={ATTEMPTS: "1"})
    changes = [TableChange(NAME, (), setting(a="1")), TableChange(("db", "u"), (), setting(b="2"))]
    store.before = lambda: rival.kv.update_properties("db.u", {"theirs": "1"})

    with pytest.raises(CommitRetriesExhaustedError):
        catalog.kv.commit_many(changes[::order])

    assert catalog.kv.load_table(NAME).metadata.properties == {}
    assert "b" not in catalog.kv.load_table("db.u").metadata.properties
    assert catalog.kv.check() == []


# Repeats.


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_a_repeat_to_several_tables_is_recognised_if_one_of_them_remembers(
    catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(commit, "COMMITS_REMEMBERED", 3)
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


def test_an_id_that_was_used_for_other_tables_is_refused(catalog: EndiveCatalog, table: Table) -> None:
    catalog.create_table("db.u", NUMBERS)
    catalog.kv.commit(NAME, (), setting(a="1"), commit_id="once")

    with pytest.raises(CommitConflictError, match=r"db\.u: a commit of the id 'once' has happened"):
        catalog.kv.commit_many(
            [TableChange(NAME, (), setting(a="1")), TableChange(("db", "u"), (), setting(b="2"))], "once"
        )
    assert catalog.kv.load_table("db.u").metadata.properties == {}
    catalog.kv.commit("db.u", (), setting(b="2"), commit_id="once")  # ids are each table's own
    assert catalog.kv.load_table("db.u").metadata.properties == {"b": "2"}


def test_a_repeated_commit_is_answered_as_the_first_one(catalog: EndiveCatalog, table: Table) -> None:
    first = catalog.kv.commit(NAME, (), setting(a="1"), commit_id="batch 7")
    catalog.kv.update_properties(NAME, {"a": "2"})

    assert catalog.kv.commit(NAME, (), setting(a="1"), commit_id="batch 7") == first
    assert catalog.kv.load_table(NAME).metadata.properties == {"a": "2"}


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_a_repeat_without_an_id_is_told_that_it_has_happened(catalog: EndiveCatalog, mode: str) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})
    late = table.transaction()
    late.append(numbers(1))
    catalog.kv.commit(NAME, (), late._updates)

    with pytest.raises(CommitConflictError, match="is in the table already: this commit has happened"):
        catalog.kv.commit(NAME, (), late._updates)

    assert rows_of(table) == [1]


def test_a_repeated_append_adds_nothing(catalog: EndiveCatalog, table: Table) -> None:
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
    original, first_life = store.read_known, [late]

    def read_known(work: Work[T]) -> T:
        if first_life:
            first = first_life.pop()
            rival.kv.commit(NAME, first._requirements, first._updates, commit_id="batch 1")
            rival.load_table(NAME).append(numbers(2))
        return original(work)

    monkeypatch.setattr(store, "read_known", read_known)
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
def test_an_append_with_a_real_conflict_fails_at_once(catalog: EndiveCatalog, mode: str) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})
    late = catalog.load_table(NAME).transaction()
    with late.update_schema() as update:
        update.add_column("k", LongType())
    late.append(numbers(1))
    with table.update_schema() as update:
        update.add_column("m", LongType())

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


def test_old_answers_are_forgotten(kv: KVCatalog, store: Interrupted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "COMMITS_REMEMBERED", 3)
    kv.create_namespace("db")
    kv.create_table(NAME, NUMBERS)
    for number in range(6):
        kv.commit(NAME, (), setting(a=str(number)), commit_id=f"id {number}")

    assert len([key for key in store.rows if b"/id/" in key]) == 3
    assert len([key for key in store.rows if b"/version/" in key]) == 3


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_a_lost_answer_is_found_by_the_id(catalog: EndiveCatalog, store: Interrupted, mode: str) -> None:
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


def test_a_repeat_that_fails_proves_nothing(rival: EndiveCatalog, table: Table, store: Interrupted) -> None:
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
