"""Expiry of snapshots with many files: rows are handed over and swept in pieces, and crashes leave nothing wrong."""

import pytest
from pyiceberg.table import Table

from endive.catalog import KVCatalog, TableChange, dropped
from endive.catalog.checking import check
from endive.catalog.keys import files_of as file_keys
from endive.catalog.pyiceberg import EndiveCatalog
from endive.catalog.records import TableRecord
from endive.errors import CommitConflictError
from tests.catalog.stand_in import Counting, Died
from tests.catalog.tables import NAME, NUMBERS, numbers

FAR = 2**62
FILES = 8


@pytest.fixture
def store() -> Counting:
    return Counting()


@pytest.fixture(params=["before-acknowledgement", "background"])
def catalog(kv: KVCatalog, request: pytest.FixtureRequest) -> EndiveCatalog:
    kv.create_namespace("db")
    kv.files.properties["endive.metadata-json"] = request.param
    return EndiveCatalog.on(kv)


@pytest.fixture
def table(catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Eight files in as many snapshots, and one that deletes what the first brought."""
    monkeypatch.setattr(dropped, "PIECE_ROWS", 4)
    table = catalog.create_table(NAME, NUMBERS)
    for number in range(FILES):
        table.append(numbers(number))
    table.delete("n = 0")
    catalog.kv.export_metadata(NAME)
    return table


def planned(kv: KVCatalog) -> list[str]:
    return sorted(task.file.file_path for task in kv.plan_files(NAME))


def file_rows(store: Counting) -> int:
    return len([key for key in store.rows if key.startswith(b"__files/")])


def unswept(store: Counting) -> tuple[int, ...]:
    return TableRecord.decoded(store.rows[b"__tables/db/t"]).unswept


def test_an_expiry_changes_few_file_rows_at_a_time(catalog: EndiveCatalog, table: Table, store: Counting) -> None:
    kv = catalog.kv
    expected = sorted(task.file.file_path for task in table.refresh().scan().plan_files())
    store.changed.clear()

    gone = kv.expire_snapshots(NAME, FAR)

    kv.export_metadata(NAME)
    assert len(gone.snapshot_ids) == FILES
    around = 3 * FILES + 5  # of the commit: a snapshot and a line of history for each that goes, and what it has itself
    assert sorted(store.changed)[-2] <= 5
    assert max(store.changed) <= around
    assert file_rows(store) == FILES  # one that is deleted, and what is there
    assert unswept(store) == ()
    assert planned(kv) == expected
    assert kv.check() == []


@pytest.mark.parametrize("transactions", [0, 1, 2, 3, 4, 5, 8, 11])
def test_a_crash_at_any_point_leaves_nothing_wrong(
    catalog: EndiveCatalog, table: Table, store: Counting, transactions: int
) -> None:
    kv = catalog.kv
    expected = planned(kv)
    store.left = transactions
    with pytest.raises(Died):
        kv.expire_snapshots(NAME, FAR)
    store.left = None
    kv.export_metadata(NAME)

    assert planned(kv) == expected
    assert kv.check() == []

    kv.expire_snapshots(NAME, FAR)

    kv.export_metadata(NAME)
    assert planned(kv) == expected
    assert check(kv).leftovers == 0
    assert unswept(store) == ()
    assert file_rows(store) == FILES
    assert kv.check() == []


def crash_after_the_commit(kv: KVCatalog, store: Counting) -> None:
    for transactions in range(1, 30):
        store.left = transactions
        with pytest.raises(Died):
            kv.expire_snapshots(NAME, FAR)
        if unswept(store):
            store.left = None
            return
    raise AssertionError("no crash left anything")


def test_the_check_tells_leftovers_from_damage(catalog: EndiveCatalog, table: Table, store: Counting) -> None:
    crash_after_the_commit(catalog.kv, store)
    catalog.kv.export_metadata(NAME)
    report = check(catalog.kv)
    assert report.faults == []
    assert report.leftovers > 0
    stray = file_keys(table.metadata.table_uuid, 7) + b"s"
    store.rows[stray] = next(body for key, body in store.rows.items() if key.startswith(b"__files/"))

    assert any("row of a snapshot that is not there" in str(fault) for fault in check(catalog.kv).faults)


def test_orphans_sweep_too_and_an_append_in_between_does_no_harm(
    catalog: EndiveCatalog, table: Table, store: Counting
) -> None:
    crash_after_the_commit(catalog.kv, store)
    table.refresh().append(numbers(99))
    assert unswept(store)

    catalog.kv.remove_orphan_files(NAME, 0)

    assert unswept(store) == ()
    assert sorted(table.refresh().scan().to_arrow()["n"].to_pylist()) == [*range(1, FILES), 99]
    catalog.kv.export_metadata(NAME)
    assert catalog.kv.check() == []


def test_a_snapshot_whose_rows_are_being_deleted_is_not_added_again(
    catalog: EndiveCatalog, table: Table, store: Counting
) -> None:
    again = table.refresh().transaction()
    again.append(numbers(50))
    change = TableChange(NAME, (), again._updates)
    catalog.kv.commit_many([change])
    table.refresh().append(numbers(51))
    crash_after_the_commit(catalog.kv, store)

    with pytest.raises(CommitConflictError, match="has expired; its rows are still being deleted"):
        catalog.kv.commit_many([change])


def test_pyicebergs_own_expiry_is_tidied_up_after(catalog: EndiveCatalog, table: Table, store: Counting) -> None:
    expected = planned(catalog.kv)
    first = catalog.kv.snapshots(NAME)[0].snapshot_id

    table.refresh().maintenance.expire_snapshots().by_id(first).commit()

    assert not [key for key in store.rows if key.startswith(file_keys(table.metadata.table_uuid, first))]
    assert planned(catalog.kv) == expected
    catalog.kv.export_metadata(NAME)
    assert catalog.kv.check() == []
