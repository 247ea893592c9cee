"""Expiry of snapshots with many files: rows are handed over and swept in pieces, and crashes leave nothing wrong."""

from contextlib import suppress
from dataclasses import replace
from uuid import UUID

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotsUpdate

from endive.catalog import KVCatalog, TableChange
from endive.catalog.maintenance import expiry
from endive.catalog.maintenance.check import check
from endive.catalog.maintenance.clean_up import delete_pending, reparent_many
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.keys import files_of as file_keys
from endive.catalog.operations import dropped_tables as dropped
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import CommitConflictError
from tests.catalog.stand_in import Counting, Died
from tests.catalog.tables import NAME, NUMBERS, numbers

FAR = 2**62
FILES = 8


@pytest.fixture
def store() -> Counting:
    return Counting()


@pytest.fixture(params=["before-acknowledgement", "background"])
def catalog(kv: KVCatalog, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> EndiveCatalog:
    """Metadata files are written when a test asks for them: a thread that dies in the place of another is no crash."""
    monkeypatch.setattr(kv._publisher, "remind", lambda *_, **__: None)
    kv.create_namespace("db")
    kv.files.properties["endive.metadata-json"] = request.param
    return EndiveCatalog.on(kv)


@pytest.fixture
def table(catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch) -> Table:
    """Eight files in as many snapshots, and one that deletes what the first brought."""
    monkeypatch.setattr(dropped, "BATCH_ROWS", 4)
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
    return TableRecord.decoded(store.rows[b"__tables/db/t"]).pending_deletions


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
    assert check(kv.store, kv.files).pending_deletions == 0
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


def test_the_check_does_not_report_pending_deletions_as_damage(
    catalog: EndiveCatalog, table: Table, store: Counting
) -> None:
    crash_after_the_commit(catalog.kv, store)
    catalog.kv.export_metadata(NAME)
    report = check(catalog.kv.store, catalog.kv.files)
    assert report.findings == []
    assert report.pending_deletions > 0
    stray = file_keys(table.metadata.table_uuid, 7) + b"s"
    store.rows[stray] = next(body for key, body in store.rows.items() if key.startswith(b"__files/"))

    assert any(
        "row of a snapshot that is not there" in str(fault)
        for fault in check(catalog.kv.store, catalog.kv.files).findings
    )


def test_the_removal_of_orphans_cleans_up_and_an_append_in_between_does_no_harm(
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


def expired(catalog: EndiveCatalog, table: Table, store: Counting) -> TableChange:
    """Let a snapshot expire, and crash before its rows are swept; return what had added it."""
    transaction = table.refresh().transaction()
    transaction.append(numbers(50))
    change = TableChange(NAME, (), transaction._updates)
    catalog.kv.commit_many([change])
    table.refresh().delete("n = 50")
    crash_after_the_commit(catalog.kv, store)
    return change


def test_a_snapshot_whose_rows_are_being_deleted_is_not_added_again(
    catalog: EndiveCatalog, table: Table, store: Counting
) -> None:
    change = expired(catalog, table, store)

    with pytest.raises(CommitConflictError, match="has expired; its rows are still being deleted"):
        catalog.kv.commit_many([change])


def test_a_slow_clean_up_deletes_nothing_of_a_snapshot_that_was_added_again(
    catalog: EndiveCatalog, table: Table, store: Counting
) -> None:
    change = expired(catalog, table, store)

    def swept_and_back() -> None:
        delete_pending(store, NAME)
        catalog.kv.commit_many([change])

    store.before = swept_and_back
    delete_pending(store, NAME)

    expected = sorted(task.file.file_path for task in table.refresh().scan().plan_files())
    assert len(expected) == FILES
    assert planned(catalog.kv) == expected
    catalog.kv.export_metadata(NAME)
    assert catalog.kv.check() == []


def test_a_note_is_kept_while_there_are_rows(catalog: EndiveCatalog, table: Table, store: Counting) -> None:
    """Who was slow to sweep knows the rows of one life of a snapshot; it may have come back, got more, and expired."""
    crash_after_the_commit(catalog.kv, store)
    first = unswept(store)[0]
    store.before = lambda: add_row(table, store, first)

    delete_pending(store, NAME)

    assert unswept(store) == (first,)
    delete_pending(store, NAME)
    assert unswept(store) == ()
    assert catalog.kv.check() == []


def add_row(table: Table, store: Counting, snapshot_id: int) -> None:
    body = next(body for key, body in store.rows.items() if key.startswith(b"__files/"))
    store.rows[file_keys(table.metadata.table_uuid, snapshot_id) + b"more"] = body


def test_a_pending_deletion_is_removed_only_from_its_own_table(
    catalog: EndiveCatalog, table: Table, store: Counting
) -> None:
    """A copy of the table has its name now, with snapshots of the same ids, and rows of its own."""
    crash_after_the_commit(catalog.kv, store)

    def replaced() -> None:
        record = TableRecord.decoded(store.rows[b"__tables/db/t"])
        metadata = record.metadata.model_copy(update={"table_uuid": UUID(int=7)})
        store.rows[b"__tables/db/t"] = replace(record, metadata=metadata).encoded()

    store.before = replaced
    before = dict(store.rows)
    delete_pending(store, NAME)

    assert store.rows.keys() == before.keys()
    assert unswept(store)


@pytest.mark.parametrize("meanwhile", ["dropped", "replaced", "registered again", "expired"])
def test_nothing_is_handed_over_to_a_snapshot_that_is_not_as_it_was(
    catalog: EndiveCatalog, table: Table, store: Counting, meanwhile: str
) -> None:
    """One of a table that was registered again has no rows of its own, and would be said to list all its files."""
    kv, after = catalog.kv, {}
    *gone, _, _ = (one.snapshot_id for one in kv.snapshots(NAME))
    assert len(gone) > dropped.BATCH_ROWS
    location = kv.load_table(NAME).metadata_location

    def interrupt() -> None:
        if meanwhile == "expired":
            kv.expire_snapshots(NAME, FAR)
        else:
            store.left = 1 if meanwhile in {"dropped", "replaced"} else None  # the rows are still there
            with suppress(Died):
                kv.drop_table(NAME)
            store.left = None
        if meanwhile == "replaced":
            kv.create_table(NAME, NUMBERS)
        elif meanwhile == "registered again":
            kv.register_table(NAME, location)
        after.update(store.rows)

    store.before = interrupt
    reparent_many(store, TableChange(NAME, (), (RemoveSnapshotsUpdate(snapshot_ids=gone),)))

    assert after
    assert store.rows == after


def test_a_snapshot_without_rows_leaves_no_pending_deletion(
    catalog: EndiveCatalog, table: Table, store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = catalog.kv.load_table(NAME).metadata_location
    catalog.kv.drop_table(NAME)
    catalog.kv.register_table(NAME, location)
    monkeypatch.setattr(expiry, "delete_pending", lambda *_: None)

    assert len(catalog.kv.expire_snapshots(NAME, FAR).snapshot_ids) == FILES

    assert unswept(store) == ()


def test_pyicebergs_own_expiry_is_tidied_up_after(catalog: EndiveCatalog, table: Table, store: Counting) -> None:
    expected = planned(catalog.kv)
    first = catalog.kv.snapshots(NAME)[0].snapshot_id

    table.refresh().maintenance.expire_snapshots().by_id(first).commit()

    assert not [key for key in store.rows if key.startswith(file_keys(table.metadata.table_uuid, first))]
    assert planned(catalog.kv) == expected
    catalog.kv.export_metadata(NAME)
    assert catalog.kv.check() == []
