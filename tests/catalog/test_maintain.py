"""`KVCatalog.maintain`: everything at once, by the tables' own policies, and nothing that a table needs is lost."""

from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform

from endive.catalog import KVCatalog, MaintenanceOptions
from endive.catalog.commit.decision import last_sequence_number
from endive.catalog.commit.manifests import read_list
from endive.catalog.operations.table_rows import drop_table
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import NotInCatalogError
from tests.catalog.commits.interrupted import files_of, rows_of
from tests.catalog.delete_files import change_of, data_paths, deletes_of, entry
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME, NUMBERS, numbers

AGED = {"history.expire.max-snapshot-age-ms": "0", "commit.manifest.min-count-to-merge": "3"}
EVERYTHING = MaintenanceOptions(orphan_age_ms=-(10**15))
"""Orphans of any age, which is safe here: no other process writes."""


@pytest.fixture
def table(catalog: EndiveCatalog) -> Table:
    """Numbers 1 to 4 in four files and manifests; everything but the current snapshot has expired."""
    table = catalog.create_table(NAME, NUMBERS, properties=AGED)
    for number in (1, 2, 3, 4):
        table.append(numbers(number))
    return table


def manifests_of(table: Table) -> int:
    head = table.refresh().current_snapshot()
    assert head is not None
    return len(read_list(table.io, head.manifest_list))


def test_a_table_is_maintained_by_its_own_policy(kv: KVCatalog, table: Table) -> None:
    (done,) = kv.maintain(EVERYTHING).tables

    assert (done.manifests_before, done.manifests_after) == (4, 1)
    assert done.snapshots == 4
    assert done.error == done.skipped == ""
    assert rows_of(table) == [1, 2, 3, 4]
    assert len(table.metadata.snapshots) == 1
    assert kv.check() == []
    assert [path for path in files_of(table) if path.endswith(".parquet")] != []
    assert kv.maintain(EVERYTHING).tables[0].snapshots == 0


def test_a_dry_run_changes_nothing_and_foretells_what_is_done(kv: KVCatalog, table: Table, store: DictStore) -> None:
    rows, files = dict(store.rows), files_of(table)
    orphan = Path(table.location().removeprefix("file://")) / "data" / "lost.parquet"
    orphan.write_bytes(b"rows of a writer that died")

    (foretold,) = kv.maintain(MaintenanceOptions(True, EVERYTHING.orphan_age_ms)).tables

    assert (store.rows, files_of(table)) == (rows, files | {orphan.name})
    (done,) = kv.maintain(EVERYTHING).tables
    assert (foretold.manifests_before, foretold.manifests_after) == (done.manifests_before, done.manifests_after)
    assert foretold.snapshots == 3  # the rewrite adds a snapshot, and the one before it expires as well
    assert foretold.orphans == 1
    assert not orphan.exists()


def test_without_a_policy_nothing_young_goes(kv: KVCatalog, catalog: EndiveCatalog) -> None:
    table = catalog.create_table(NAME, NUMBERS)
    for number in (1, 2, 3):
        table.append(numbers(number))
    before = files_of(table)

    (done,) = kv.maintain().tables

    assert (done.snapshots, done.files, done.orphans, done.manifests_before) == (0, 0, 0, 0)
    assert files_of(table) == before


def test_old_metadata_files_go(kv: KVCatalog, catalog: EndiveCatalog) -> None:
    kept = {"write.metadata.previous-versions-max": "2", "write.metadata.delete-after-commit.enabled": "false"}
    table = catalog.create_table(NAME, NUMBERS, properties=kept)
    for number in range(5):
        kv.update_properties(NAME, {"k": str(number)})

    (done,) = kv.maintain(EVERYTHING).tables

    assert done.metadata_files == done.orphans == 3
    named = {entry.metadata_file.rpartition("/")[2] for entry in table.refresh().metadata.metadata_log}
    assert files_of(table) == named | {table.metadata_location.rpartition("/")[2]}


def test_a_table_whose_owner_forbids_it_keeps_its_files(kv: KVCatalog, table: Table) -> None:
    kv.update_properties(NAME, {"gc.enabled": "false"})
    before = files_of(table)

    (done,) = kv.maintain(MaintenanceOptions(manifests=False, orphan_age_ms=EVERYTHING.orphan_age_ms)).tables

    assert done.skipped == "gc.enabled is false"
    assert files_of(table) == before


def test_tables_that_cannot_be_maintained_do_not_keep_others_from_it(
    kv: KVCatalog, catalog: EndiveCatalog, table: Table
) -> None:
    other = catalog.create_table("db.a", NUMBERS, properties=AGED)
    other.append(numbers(1))
    other.append(numbers(2))
    list_path = Path(other.metadata.snapshots[0].manifest_list.removeprefix("file://"))
    list_path.write_bytes(b"damaged")

    report = kv.maintain(EVERYTHING)

    failed, done = report.tables
    assert report.has_failed
    assert list_path.name in failed.error
    assert (done.table, done.error, done.snapshots) == ("db.t", "", 4)
    assert rows_of(table) == [1, 2, 3, 4]


def test_only_some_tables(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    catalog.create_table("db.u", NUMBERS)

    report = kv.maintain(MaintenanceOptions(tables=(NAME,)))

    assert [one.table for one in report.tables] == ["db.t"]
    with pytest.raises(NotInCatalogError):
        kv.maintain(MaintenanceOptions(tables=(("db", "nowhere"),)))


def test_drops_that_were_interrupted_are_finished(kv: KVCatalog, table: Table, store: DictStore) -> None:
    store.transact(lambda tx: drop_table(tx, NAME, None, purge=True))

    assert kv.maintain(MaintenanceOptions(dry_run=True)).dropped == 1
    assert kv.maintain().dropped == 1
    assert files_of(table) == set()
    assert kv.maintain().dropped == 0


# Manifests.


def test_merged_manifests_have_the_same_files_with_their_sequence_numbers(kv: KVCatalog, table: Table) -> None:
    table.delete("n = 2")
    before = {one["data_file"]["file_path"]: one for one in table.refresh().inspect.entries().to_pylist()}

    kv.maintain(MaintenanceOptions())

    head = table.refresh().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation == Operation.REPLACE
    assert head.summary.additional_properties["total-records"] == "3"
    assert head.sequence_number == last_sequence_number(table.metadata)
    after = {one["data_file"]["file_path"]: one for one in table.inspect.entries().to_pylist()}
    alive = {path: one for path, one in before.items() if one["status"] != 2}
    facts = ("snapshot_id", "sequence_number", "file_sequence_number", "data_file")
    assert {path: [one[fact] for fact in facts] for path, one in after.items()} == {
        path: [one[fact] for fact in facts] for path, one in alive.items()
    }
    assert manifests_of(table) == 1
    assert rows_of(table) == [1, 3, 4]
    assert kv.check() == []


def test_a_table_is_read_by_its_metadata_file_after_its_manifests_were_merged(kv: KVCatalog, table: Table) -> None:
    kv.maintain(EVERYTHING)

    plain = StaticTable.from_metadata(table.refresh().metadata_location)
    assert sorted(plain.scan().to_arrow()["n"].to_pylist()) == [1, 2, 3, 4]
    table.append(numbers(5))
    assert rows_of(table) == [1, 2, 3, 4, 5]
    assert kv.check() == []


def test_delete_manifests_are_kept_as_they_are(kv: KVCatalog, table: Table) -> None:
    kv.commit_many([change_of(table.refresh(), [entry(deletes_of(table, data_paths(table)[0], 0))])])

    kv.maintain(EVERYTHING)

    head = table.refresh().current_snapshot()
    assert head is not None
    kinds = [one.content for one in read_list(table.io, head.manifest_list)]
    assert sorted(kinds) == [ManifestContent.DATA, ManifestContent.DELETES]
    assert rows_of(table) == [2, 3, 4]
    assert kv.check() == []


def test_manifests_of_different_partition_specs_stay_apart(kv: KVCatalog, catalog: EndiveCatalog) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "n"))
    table = catalog.create_table(NAME, NUMBERS, partition_spec=spec, properties=AGED)
    for number in (1, 2, 3):
        table.append(numbers(number))
    with table.update_spec() as update:
        update.remove_field("n")
    for number in (4, 5, 6):
        table.append(numbers(number))

    kv.maintain(EVERYTHING)

    assert manifests_of(table) == 2
    assert [one.file.record_count for one in kv.plan_files(NAME, "n = 2")] == [1]
    assert rows_of(table) == [1, 2, 3, 4, 5, 6]
    assert kv.check() == []


def test_large_manifests_stay(kv: KVCatalog, table: Table) -> None:
    kv.update_properties(NAME, {"commit.manifest.target-size-bytes": "1"})

    (done,) = kv.maintain().tables

    assert done.manifests_before == 0
    assert manifests_of(table) == 4


def test_a_commit_that_comes_first_wins_and_the_files_of_the_rewrite_go(
    kv: KVCatalog, table: Table, store: DictStore
) -> None:
    kv.update_properties(NAME, {"history.expire.max-snapshot-age-ms": "1000000"})
    elsewhere = EndiveCatalog.on(KVCatalog(store)).load_table(NAME)
    store.before = lambda: elsewhere.append(numbers(5))

    (done,) = kv.maintain().tables

    assert (done.manifests_before, done.error) == (0, "")
    assert rows_of(table) == [1, 2, 3, 4, 5]
    assert kv.remove_orphan_files(NAME, 2**62) == []
    assert kv.check() == []


def test_a_table_of_format_1(kv: KVCatalog, catalog: EndiveCatalog) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={**AGED, "format-version": "1"})
    for number in (1, 2, 3):
        table.append(numbers(number))

    (done,) = kv.maintain(EVERYTHING).tables

    assert (done.manifests_before, done.manifests_after) == (3, 1)
    assert rows_of(table) == [1, 2, 3]
    assert kv.check() == []
