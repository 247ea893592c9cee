"""Dropped tables: a small decision, rows and files that go piece by piece, and crashes at any point of it."""

from pathlib import Path

import pytest
from pyiceberg.exceptions import TableAlreadyExistsError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table
from pyiceberg.table.update import AssertCreate

from endive.catalog import KVCatalog, TableChange
from endive.catalog.maintenance import purge
from endive.catalog.model.keys import dropped_key
from endive.catalog.operations import dropped_tables as dropped
from endive.catalog.operations.dropped_tables import _clear_batch, clear_rows, rows_of
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import AlreadyInCatalogError, NotInCatalogError, OutcomeUnknownError
from tests.catalog.stand_in import Counting, DictStore, Died
from tests.catalog.tables import NAME, NUMBERS, numbers

FAR = 2**62


@pytest.fixture
def store() -> Counting:
    return Counting()


@pytest.fixture
def table(catalog: EndiveCatalog) -> Table:
    table = catalog.create_table(NAME, NUMBERS)
    for number in range(4):
        table.append(numbers(number))
    return table


def files_of(table: Table) -> list[Path]:
    return [path for path in Path(table.location().removeprefix("file://")).rglob("*") if path.is_file()]


def spaces_of(store: DictStore) -> set[bytes]:
    return {key.split(b"/")[0] for key in store.rows}


def die_in_drop(kv: KVCatalog, store: Counting, transactions: int, purge: bool = False) -> None:
    store.left = transactions
    with pytest.raises(Died):
        kv.drop_table(NAME, purge)
    store.left = None


# The decision, and the rows.


def test_a_drop_changes_few_rows_at_a_time(
    kv: KVCatalog, table: Table, store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dropped, "BATCH_ROWS", 5)
    store.changed.clear()

    kv.drop_table(NAME)

    assert store.changed[0] == 3  # the table's record, its uuid, and the mark
    assert len(store.changed) > 4
    assert max(store.changed) <= 5
    assert spaces_of(store) == {b"__catalog", b"__namespaces"}


@pytest.mark.parametrize("transactions", [1, 2, 3])
def test_rows_left_by_a_crash_are_harmless_and_deleted_by_the_next_maintenance(
    catalog: EndiveCatalog, table: Table, store: Counting, monkeypatch: pytest.MonkeyPatch, transactions: int
) -> None:
    kv = catalog.kv
    monkeypatch.setattr(dropped, "BATCH_ROWS", 5)
    die_in_drop(kv, store, transactions)

    assert kv.list_tables("db") == []
    assert b"__dropped" in spaces_of(store)
    assert kv.check() == []
    catalog.create_table(NAME, NUMBERS).append(numbers(7))  # of the same name, with another uuid
    assert kv.check() == []

    kv.expire_snapshots(NAME, 0)

    assert b"__dropped" not in spaces_of(store)
    assert kv.store.read(lambda tx: rows_of(tx, table.metadata.table_uuid)) == []
    assert catalog.load_table(NAME).scan().to_arrow()["n"].to_pylist() == [7]
    assert kv.check() == []


def test_rows_of_a_lost_record_are_no_pending_deletions(kv: KVCatalog, table: Table, store: Counting) -> None:
    die_in_drop(kv, store, 1)
    del store.rows[dropped_key(table.metadata.table_uuid)]

    assert any("rows of a table that is not there" in line for line in kv.check())


def test_a_mark_on_an_existing_table_is_a_finding(kv: KVCatalog, table: Table, store: Counting) -> None:
    rows = dict(store.rows)
    die_in_drop(kv, store, 1)
    store.rows |= rows

    assert any("a table that is there is marked so" in line for line in kv.check())


# The same table again.


def test_a_registered_table_replaces_one_of_its_name_if_that_is_asked_for(catalog: EndiveCatalog, table: Table) -> None:
    first = table.metadata_location
    table.refresh().append(numbers(9))

    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table(NAME, first)
    again = catalog.register_table(NAME, first, overwrite=True)

    assert again.metadata_location == first
    assert sorted(catalog.load_table(NAME).scan().to_arrow()["n"].to_pylist()) == [0, 1, 2, 3]
    assert catalog.kv.check() == []


def test_a_table_that_is_registered_again_has_nothing_of_its_former_life(
    catalog: EndiveCatalog, table: Table, store: Counting
) -> None:
    first = table.metadata_location
    before = catalog.kv.commit(NAME, (), (), commit_id="monday")
    table.refresh().append(numbers(9))
    shown = catalog.kv.files.read(first)
    die_in_drop(catalog.kv, store, 1)

    again = catalog.register_table(("db", "again"), first)

    assert again.metadata == shown
    assert sorted(again.scan().to_arrow()["n"].to_pylist()) == [0, 1, 2, 3]
    assert not [key for key in store.rows if key.startswith(b"__commits/")]
    assert before.commit_id == "monday"
    assert catalog.kv.check() == []


def test_a_slow_clean_up_deletes_nothing_of_the_table_that_was_registered_again(
    catalog: EndiveCatalog, table: Table, store: Counting
) -> None:
    uuid, location = table.metadata.table_uuid, table.metadata_location
    die_in_drop(catalog.kv, store, 1)
    keys = store.read(lambda tx: rows_of(tx, uuid))  # and now it is slow
    catalog.register_table(NAME, location)

    assert store.transact(lambda tx: _clear_batch(tx, uuid, keys)) is False

    assert sorted(catalog.load_table(NAME).scan().to_arrow()["n"].to_pylist()) == [0, 1, 2, 3]
    assert catalog.kv.check() == []


def test_a_mark_stays_while_there_are_rows(catalog: EndiveCatalog, table: Table, store: Counting) -> None:
    """Who was slow to clear knows the rows of one life of a table; it may have come back, got more, and gone again."""
    uuid, location = table.metadata.table_uuid, table.metadata_location

    def another_life() -> None:
        catalog.kv.register_table(NAME, location)
        catalog.load_table(NAME).append(numbers(9))
        die_in_drop(catalog.kv, store, 1)

    die_in_drop(catalog.kv, store, 1)
    store.before = another_life
    clear_rows(store, uuid)

    assert store.read(lambda tx: rows_of(tx, uuid))
    assert catalog.kv.check() == []
    assert catalog.kv.clear_dropped() == 1
    assert spaces_of(store) == {b"__catalog", b"__namespaces"}


def test_a_table_that_is_created_again_has_nothing_of_its_former_life(catalog: EndiveCatalog, store: Counting) -> None:
    staged = catalog.create_table_transaction(NAME, NUMBERS)
    staged.append(numbers(1))
    change = TableChange(NAME, (AssertCreate(),), staged._updates)
    catalog.kv.commit_many([change])
    catalog.kv.update_properties(NAME, {"a": "1"})
    die_in_drop(catalog.kv, store, 1)

    catalog.kv.commit_many([change])

    assert catalog.kv.load_table(NAME).version == 0
    assert len([key for key in store.rows if b"/id/" in key]) == 1
    assert catalog.kv.check() == []


def test_remaining_rows_are_checked_inside_the_transaction(
    catalog: EndiveCatalog, store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = catalog.create_table_transaction(NAME, NUMBERS)
    change = TableChange(NAME, (AssertCreate(),), staged._updates)
    catalog.kv.commit_many([change])
    location = catalog.kv.load_table(NAME).metadata_location
    die_in_drop(catalog.kv, store, 1)
    monkeypatch.setattr(purge, "clear_rows", lambda *_: None)  # as if it was dropped just after the look

    with pytest.raises(AlreadyInCatalogError, match="its rows are still being cleared"):
        catalog.kv.commit_many([change])
    with pytest.raises(AlreadyInCatalogError, match="its rows are still being cleared"):
        catalog.kv.register_table(NAME, location)
    assert len(list(Path(location.removeprefix("file://")).parent.glob("*.json"))) == 1


# Files.


def test_a_purge_with_an_unknown_outcome_deletes_the_files(kv: KVCatalog, table: Table, store: Counting) -> None:
    def lose() -> None:
        raise OutcomeUnknownError("wal/1")

    store.after = lose
    kv.drop_table(NAME, purge=True)

    assert files_of(table) == []
    assert spaces_of(store) == {b"__catalog", b"__namespaces"}


@pytest.mark.parametrize("deletes", [0, 1, 4, 5, 8, 9, 12, 13])
@pytest.mark.parametrize("way", ["retry", "maintenance"])
def test_a_purge_that_was_interrupted_can_be_finished(
    catalog: EndiveCatalog, table: Table, monkeypatch: pytest.MonkeyPatch, deletes: int, way: str
) -> None:
    count = iter(range(deletes))
    delete = PyArrowFileIO.delete

    def die(self: PyArrowFileIO, location: str) -> None:
        if next(count, None) is None:
            raise Died
        delete(self, location)

    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFileIO, "delete", die)
        with pytest.raises(Died):
            catalog.purge_table(NAME)
    assert files_of(table)
    assert catalog.kv.check() == []

    if way == "retry":
        try:
            catalog.purge_table(NAME)
        except FileNotFoundError:
            assert deletes > 4  # of the four data files; then it cannot tell who has deleted manifests
    else:
        assert catalog.kv.clear_dropped() == 1

    assert files_of(table) == []
    with pytest.raises(NotInCatalogError):
        catalog.kv.drop_table(NAME, purge=True)


def test_two_that_finish_one_purge_are_not_in_each_others_way(
    catalog: EndiveCatalog, table: Table, store: Counting
) -> None:
    die_in_drop(catalog.kv, store, 1, purge=True)
    store.before = catalog.kv.clear_dropped

    assert catalog.kv.clear_dropped() == 1

    assert files_of(table) == []
    assert spaces_of(store) == {b"__catalog", b"__namespaces"}


def test_a_table_whose_files_are_going_does_not_come_back(
    catalog: EndiveCatalog, table: Table, store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_in_drop(catalog.kv, store, 1, purge=True)  # the files went, and nobody could note it
    catalog.kv.files.write(table.metadata, table.metadata_location)

    with pytest.raises(AlreadyInCatalogError, match="its files are still being deleted"):
        catalog.kv.register_table(NAME, table.metadata_location)


def test_a_plain_drop_is_not_purged_by_a_retry(catalog: EndiveCatalog, table: Table, store: Counting) -> None:
    die_in_drop(catalog.kv, store, 1)

    with pytest.raises(NotInCatalogError):
        catalog.kv.drop_table(NAME, purge=True)

    assert files_of(table)


def test_a_dropped_table_is_not_indexed(catalog: EndiveCatalog, table: Table, store: Counting) -> None:
    store.before = lambda: die_in_drop(catalog.kv, store, 1)
    with pytest.raises(NotInCatalogError, match="dropped or renamed meanwhile"):
        catalog.kv.index_files(NAME)


def test_a_table_that_lost_its_name_is_not_indexed(catalog: EndiveCatalog, table: Table, store: Counting) -> None:
    def replaced() -> None:
        die_in_drop(catalog.kv, store, 1)
        catalog.create_table(NAME, NUMBERS)

    store.before = replaced
    with pytest.raises(NotInCatalogError, match="dropped or renamed meanwhile"):
        catalog.kv.index_files(NAME)


def test_a_snapshot_that_has_expired_is_not_indexed(catalog: EndiveCatalog, table: Table, store: Counting) -> None:
    def expired() -> None:
        catalog.load_table(NAME).append(numbers(9))
        catalog.kv.expire_snapshots(NAME, FAR)

    store.before = expired
    with pytest.raises(NotInCatalogError, match="it has expired meanwhile"):
        catalog.kv.index_files(NAME)
    assert catalog.kv.check() == []
