"""What expires: Iceberg's retention of tables, branches and tags."""

from collections.abc import Iterator

import pytest
from pyiceberg.table import Table

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.drivers.blocking import unix_ms
from endive.errors import CommitConflictError, ConfigurationError
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME, NUMBERS, numbers

DAY_MS = 86_400_000


class Clock:
    """The time, and what has passed since in the test's mind."""

    def __init__(self) -> None:
        self.passed_ms = 0

    def __call__(self) -> int:
        return unix_ms() + self.passed_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kv(store: DictStore, warehouse: str, clock: Clock) -> Iterator[KVCatalog]:
    with KVCatalog(store, warehouse, create=True, clock=clock) as catalog:
        catalog.create_namespace("db")
        yield catalog


@pytest.fixture
def table(kv: KVCatalog) -> Table:
    """Three snapshots, in which 1, 2 and 3 were added."""
    table = EndiveCatalog.on(kv).create_table(NAME, NUMBERS)
    for number in (1, 2, 3):
        table.append(numbers(number))
    return table


def ids_of(kv: KVCatalog) -> list[int]:
    return [one.snapshot_id for one in kv.snapshots(NAME)]


def refs_of(kv: KVCatalog) -> set[str]:
    return set(kv.load_table(NAME).metadata.refs)


# Branches and tags.


def test_a_tag_goes_when_its_snapshot_is_past_its_age(kv: KVCatalog, table: Table, clock: Clock) -> None:
    first, second, third = ids_of(kv)
    kv.create_tag(NAME, "month", first, max_ref_age_ms=30 * DAY_MS)
    kv.create_tag(NAME, "for-ever", second)

    clock.passed_ms = 29 * DAY_MS
    assert kv.expire_snapshots(NAME).refs == ()
    assert ids_of(kv) == [first, second, third]

    clock.passed_ms = 31 * DAY_MS
    gone = kv.expire_snapshots(NAME)
    assert (gone.refs, gone.snapshot_ids) == (("month",), (first,))
    assert refs_of(kv) == {"main", "for-ever"}
    assert kv.check() == []


def test_a_branch_past_its_age_goes_with_its_snapshots_and_files(kv: KVCatalog, table: Table, clock: Clock) -> None:
    kv.create_branch(NAME, "trial", max_ref_age_ms=DAY_MS)
    table.refresh().append(numbers(9), branch="trial")
    tried = ids_of(kv)[-1]

    clock.passed_ms = 2 * DAY_MS
    gone = kv.expire_snapshots(NAME, clock(), keep_last=3)

    assert (gone.refs, gone.snapshot_ids) == (("trial",), (tried,))
    assert len([path for path in gone.deleted_files if path.endswith(".parquet")]) == 1
    assert sorted(table.refresh().scan().to_arrow()["n"].to_pylist()) == [1, 2, 3]
    assert kv.check() == []


def test_main_never_goes(kv: KVCatalog, table: Table, clock: Clock) -> None:
    kv.update_properties(NAME, {"history.expire.max-ref-age-ms": "1"})
    kv.create_tag(NAME, "old")

    clock.passed_ms = DAY_MS
    assert kv.expire_snapshots(NAME, 0).refs == ("old",)
    assert refs_of(kv) == {"main"}


def test_a_branch_that_is_written_meanwhile_stays(
    kv: KVCatalog, table: Table, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv.create_branch(NAME, "trial", max_ref_age_ms=DAY_MS)
    writer = table.refresh()
    clock.passed_ms = 2 * DAY_MS
    commit_many = KVCatalog.commit_many

    def after_another(self: KVCatalog, *arguments: object) -> object:
        monkeypatch.undo()
        writer.append(numbers(9), branch="trial")
        return commit_many(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(KVCatalog, "commit_many", after_another)
    with pytest.raises(CommitConflictError, match="trial"):
        kv.expire_snapshots(NAME, 0)

    assert refs_of(kv) == {"main", "trial"}


# Snapshots of a branch.


def branch(kv: KVCatalog, table: Table, **retention: int) -> None:
    """Make a branch at the newest snapshot; PyIceberg's interface takes all of Iceberg's retention."""
    newest = table.refresh().metadata.current_snapshot_id
    assert newest is not None
    table.manage_snapshots().create_branch(newest, "kept", **retention).commit()


def test_a_branch_keeps_its_own_number_of_snapshots(kv: KVCatalog, table: Table, clock: Clock) -> None:
    first, _, _ = ids_of(kv)
    branch(kv, table, min_snapshots_to_keep=2)
    clock.passed_ms = DAY_MS

    assert kv.expire_snapshots(NAME, clock(), keep_last=1).snapshot_ids == (first,)


def test_the_number_of_a_branch_does_not_lower_that_of_the_caller(kv: KVCatalog, table: Table, clock: Clock) -> None:
    first, _, _ = ids_of(kv)
    kv.roll_back(NAME, first)
    kv.set_current_snapshot(NAME, ids_of(kv)[-1])
    third = ids_of(kv)[-1]
    table.refresh().manage_snapshots().create_branch(third, "main", min_snapshots_to_keep=1).commit()
    clock.passed_ms = DAY_MS

    assert kv.expire_snapshots(NAME, clock(), keep_last=3).snapshot_ids == ()
    assert kv.expire_snapshots(NAME, clock(), keep_last=2).snapshot_ids == (first,)


def test_a_branch_keeps_its_snapshots_for_its_own_time(kv: KVCatalog, table: Table, clock: Clock) -> None:
    first, second, _ = ids_of(kv)
    branch(kv, table, max_snapshot_age_ms=30 * DAY_MS)

    clock.passed_ms = 29 * DAY_MS
    assert kv.expire_snapshots(NAME, clock()).snapshot_ids == ()
    clock.passed_ms = 31 * DAY_MS
    assert kv.expire_snapshots(NAME, clock()).snapshot_ids == (first, second)


def test_a_branch_may_keep_its_snapshots_for_a_shorter_time(kv: KVCatalog, table: Table, clock: Clock) -> None:
    kv.create_branch(NAME, "short")
    table.refresh().append(numbers(8), branch="short")
    passed = ids_of(kv)[-1]
    table.refresh().append(numbers(9), branch="short")
    head = ids_of(kv)[-1]
    kv.remove_ref(NAME, "short")
    table.refresh().manage_snapshots().create_branch(head, "short", max_snapshot_age_ms=DAY_MS).commit()

    clock.passed_ms = 2 * DAY_MS
    assert kv.expire_snapshots(NAME, clock() - 3 * DAY_MS).snapshot_ids == (passed,)
    assert kv.check() == []


def test_without_arguments_the_tables_properties_decide(kv: KVCatalog, table: Table, clock: Clock) -> None:
    first, second, _ = ids_of(kv)
    clock.passed_ms = 4 * DAY_MS
    assert kv.expire_snapshots(NAME).snapshot_ids == ()  # Iceberg's default: five days
    kv.update_properties(
        NAME, {"history.expire.max-snapshot-age-ms": str(3 * DAY_MS), "history.expire.min-snapshots-to-keep": "2"}
    )
    assert kv.expire_snapshots(NAME).snapshot_ids == (first,)
    assert kv.expire_snapshots(NAME, keep_last=1).snapshot_ids == (second,)
    kv.update_properties(NAME, {"history.expire.max-snapshot-age-ms": "a week"})
    with pytest.raises(ConfigurationError, match="'a week', which is not a number"):
        kv.expire_snapshots(NAME)


# What PyIceberg forgets.


@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
def test_an_append_does_not_undo_a_branchs_retention(kv: KVCatalog, table: Table, mode: str) -> None:
    kv.update_properties(NAME, {"endive.metadata-json": mode})
    branch(kv, table, max_ref_age_ms=7 * DAY_MS, max_snapshot_age_ms=DAY_MS, min_snapshots_to_keep=2)

    table.refresh().append(numbers(4), branch="kept")

    ref = kv.load_table(NAME).metadata.refs["kept"]
    assert (ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep) == (7 * DAY_MS, DAY_MS, 2)
    assert ref.snapshot_id == ids_of(kv)[-1]


def test_a_roll_back_does_not_undo_the_branchs_retention(kv: KVCatalog, table: Table) -> None:
    first, _, third = ids_of(kv)
    table.refresh().manage_snapshots().create_branch(third, "main", min_snapshots_to_keep=5).commit()

    kv.roll_back(NAME, first)

    assert kv.load_table(NAME).metadata.refs["main"].min_snapshots_to_keep == 5
