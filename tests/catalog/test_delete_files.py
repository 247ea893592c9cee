"""Tables with delete files: rebase, planning, expiry, purge, orphans and check must not lose or misapply them."""

from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    SetPartitionStatisticsUpdate,
    SetStatisticsUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record

from endive.catalog import KVCatalog
from endive.catalog.commit.decision import last_sequence_number
from endive.catalog.model.file_rows import ALL, EXISTING, FileEntry, FilesOfSnapshot, decoded_file, file_rows
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from tests.catalog.commits.interrupted import files_of, rows_of
from tests.catalog.delete_files import change_of, copied, data_paths, deletes_of, entry
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME, NUMBERS, numbers

FAR = 2**62


@pytest.fixture
def table(catalog: EndiveCatalog) -> Table:
    """Numbers 1 to 4 in two files, of which 2 is deleted by a delete file."""
    table = catalog.create_table(NAME, NUMBERS)
    table.append(numbers(1, 2))
    table.append(numbers(3, 4))
    delete(catalog, table, deletes=[(data_paths(table)[0], 1)])
    return table


def delete(catalog: EndiveCatalog, table: Table, deletes: list[tuple[str, int]]) -> None:
    """Commit delete files, one for each row."""
    entries = [entry(deletes_of(table, path, position)) for path, position in deletes]
    catalog.kv.commit_many([change_of(table.refresh(), entries)])


def plain(tasks: list[FileScanTask]) -> list[tuple[str, list[str]]]:
    return sorted((one.file.file_path, sorted(each.file_path for each in one.delete_files)) for one in tasks)


def assert_same_plans(catalog: EndiveCatalog) -> None:
    table = catalog.load_table(NAME)
    for snapshot in table.snapshots():
        real = plain(list(table.scan(snapshot_id=snapshot.snapshot_id).plan_files()))
        assert plain(catalog.kv.plan_files(NAME, snapshot_id=snapshot.snapshot_id)) == real
    assert catalog.kv.check() == []


def test_deleted_rows_are_not_read(catalog: EndiveCatalog, table: Table) -> None:
    assert rows_of(table) == [1, 3, 4]
    assert_same_plans(catalog)


def test_a_rebase_keeps_the_delete_manifests_of_the_branch(catalog: EndiveCatalog, table: Table) -> None:
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(5))
    delete(catalog, table, deletes=[(data_paths(table)[1], 0)])

    late.commit_transaction()

    assert rows_of(table) == [1, 4, 5]
    assert_same_plans(catalog)


def test_a_rebase_keeps_the_delete_manifests_of_the_append_itself(catalog: EndiveCatalog, table: Table) -> None:
    """A snapshot of operation `append` may bring delete files: for rows that it adds itself, and nothing older."""
    stale = catalog.load_table(NAME)
    own = change_of(stale, [entry(deletes_of(table, data_paths(table)[1], 1))], operation=Operation.APPEND)
    table.append(numbers(5))

    catalog.kv.commit_many([own])

    assert rows_of(table) == [1, 3, 5]
    assert_same_plans(catalog)


def test_two_appends_of_one_transaction_keep_the_delete_manifests(catalog: EndiveCatalog, table: Table) -> None:
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(5))
    late.append(numbers(6))
    delete(catalog, table, deletes=[(data_paths(table)[1], 0)])

    late.commit_transaction()

    assert rows_of(table) == [1, 4, 5, 6]
    assert_same_plans(catalog)


def test_deletes_apply_by_the_data_sequence_number_of_a_file(catalog: EndiveCatalog, table: Table) -> None:
    """A compacted file keeps the data sequence number of the rows in it, and is younger by its file sequence number."""
    (first, second), before = data_paths(table), last_sequence_number(table.refresh().metadata)
    file = next(one.file for one in catalog.kv.plan_files(NAME) if one.file.file_path == second)
    compacted = copied(table, file, "compacted")
    delete(catalog, table, deletes=[(compacted.file_path, 0)])
    catalog.kv.commit_many([change_of(table.refresh(), data=[entry(compacted, sequence_number=1)])])

    tasks = {one.file.file_path: one for one in catalog.kv.plan_files(NAME)}

    assert last_sequence_number(table.refresh().metadata) == (before or 0) + 2
    assert len(tasks[compacted.file_path].delete_files) == 1
    assert len(tasks[first].delete_files) == 1
    assert rows_of(table) == [1, 3, 4, 4]
    assert_same_plans(catalog)


def test_deletes_do_not_apply_to_files_that_are_younger(catalog: EndiveCatalog, table: Table) -> None:
    """The same with the file sequence number as its data sequence number: the older delete file does not apply."""
    second = data_paths(table)[1]
    file = next(one.file for one in catalog.kv.plan_files(NAME) if one.file.file_path == second)
    younger = copied(table, file, "younger")
    delete(catalog, table, deletes=[(younger.file_path, 0)])
    catalog.kv.commit_many([change_of(table.refresh(), data=[entry(younger)])])

    tasks = {one.file.file_path: one for one in catalog.kv.plan_files(NAME)}

    assert tasks[younger.file_path].delete_files == set()
    assert rows_of(table) == [1, 3, 3, 4, 4]
    assert_same_plans(catalog)


def test_deletes_in_a_partition_are_planned_with_its_files(catalog: EndiveCatalog) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "n"))
    table = catalog.create_table(NAME, NUMBERS, partition_spec=spec)
    table.append(numbers(1, 1, 2))
    by_partition = {one.file.partition[0]: one.file.file_path for one in catalog.kv.plan_files(NAME)}
    gone = deletes_of(table, by_partition[1], 0, partition=Record(1))
    catalog.kv.commit_many([change_of(table.refresh(), [entry(gone)])])

    found = {task.file.partition[0]: len(task.delete_files) for task in catalog.kv.plan_files(NAME)}

    assert found == {1: 1, 2: 0}
    assert [one.file.file_path for one in catalog.kv.plan_files(NAME, "n = 2")] == [by_partition[2]]
    assert rows_of(table) == [1, 2]
    assert_same_plans(catalog)


# Deletion of files.


def test_delete_files_of_remaining_snapshots_survive_an_expiry(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(5))

    gone = catalog.kv.expire_snapshots(NAME, FAR)

    assert len(gone.snapshot_ids) == 3
    assert [path for path in gone.deleted_files if path.endswith(".parquet")] == []
    assert rows_of(table) == [1, 3, 4, 5]
    assert_same_plans(catalog)


def test_delete_files_that_nothing_needs_go_with_an_expiry(catalog: EndiveCatalog, table: Table) -> None:
    (deleted,) = next(one.delete_files for one in catalog.kv.plan_files(NAME) if one.delete_files)
    first, _, head = catalog.kv.snapshots(NAME)
    catalog.kv.set_current_snapshot(NAME, first.snapshot_id)

    gone = catalog.kv.expire_snapshots(NAME, FAR)

    assert head.snapshot_id in gone.snapshot_ids
    assert deleted.file_path in gone.deleted_files
    assert rows_of(table) == [1, 2]
    assert_same_plans(catalog)


def test_a_purge_deletes_delete_files(catalog: EndiveCatalog, table: Table) -> None:
    catalog.purge_table(NAME)

    assert list(Path(table.location().removeprefix("file://")).rglob("*.parquet")) == []


def test_delete_files_and_their_manifests_are_no_orphans(catalog: EndiveCatalog, table: Table) -> None:
    before = files_of(table)

    assert catalog.kv.remove_orphan_files(NAME, FAR) == []
    assert files_of(table) == before


def test_statistics_of_both_kinds_are_no_orphans(catalog: EndiveCatalog, table: Table) -> None:
    snapshot_id = table.refresh().metadata.current_snapshot_id
    assert snapshot_id is not None
    places = [f"{table.location()}/metadata/{name}" for name in ("of-table.puffin", "of-partitions.parquet")]
    for place in places:
        with table.io.new_output(place).create() as stream:
            stream.write(b"statistics")
    of_table = StatisticsFile(
        snapshot_id=snapshot_id,
        statistics_path=places[0],
        file_size_in_bytes=10,
        file_footer_size_in_bytes=1,
        blob_metadata=[],
    )
    of_partitions = PartitionStatisticsFile(snapshot_id=snapshot_id, statistics_path=places[1], file_size_in_bytes=10)
    updates = (
        SetStatisticsUpdate(statistics=of_table),
        SetPartitionStatisticsUpdate(partition_statistics=of_partitions),
    )
    catalog.kv.commit(NAME, (), updates)

    assert catalog.kv.remove_orphan_files(NAME, FAR) == []
    assert all(table.io.new_input(place).exists() for place in places)


# Sequence number 0: files from before format 2.


def test_files_of_a_table_of_format_1_keep_sequence_number_0(catalog: EndiveCatalog) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"format-version": "1"})
    table.append(numbers(1, 2))
    table.append(numbers(3))
    catalog.kv.commit(NAME, (), (UpgradeFormatVersionUpdate(format_version=2),))
    pair = next(one.file.file_path for one in catalog.kv.plan_files(NAME) if one.file.record_count == 2)
    delete(catalog, table, deletes=[(pair, 0)])
    location = table.refresh().metadata_location
    catalog.drop_table(NAME)
    catalog.register_table(NAME, location)
    catalog.kv.index_files(NAME)

    assert rows_of(catalog.load_table(NAME)) == [2, 3]
    assert_same_plans(catalog)
    catalog.load_table(NAME).delete("n = 3")
    catalog.kv.expire_snapshots(NAME, FAR)
    assert_same_plans(catalog)


def test_sequence_number_0_is_a_number_and_no_sequence_number_is_that_of_the_snapshot(
    kv: KVCatalog, catalog: EndiveCatalog, table: Table
) -> None:
    snapshot = kv.snapshots(NAME)[-1]
    file = kv.plan_files(NAME)[0].file
    numbered = {0: FileEntry(EXISTING, file, {}, 1, 0, 0), None: FileEntry(EXISTING, file, {}, 1, None, None)}

    for given, one in numbered.items():
        ((_, body),) = file_rows(table.metadata.table_uuid, snapshot, FilesOfSnapshot(ALL, (one,)))
        row = decoded_file(body)
        expected = snapshot.sequence_number if given is None else given
        assert (row.sequence_number, row.file_sequence_number) == (expected, expected)


def test_rows_of_delete_files_say_what_they_are(catalog: EndiveCatalog, table: Table, store: DictStore) -> None:
    rows = [decoded_file(body) for key, body in store.rows.items() if key.startswith(b"__files/")]

    assert sorted(int(one.file.content) for one in rows) == [0, 0, 1]


# The check, from parent to child.


def test_snapshots_of_several_branches_are_checked_by_their_own_lines(catalog: EndiveCatalog, table: Table) -> None:
    catalog.kv.create_branch(NAME, "side")
    for number in (5, 6):
        catalog.load_table(NAME).append(numbers(number), branch="side")
        catalog.load_table(NAME).append(numbers(number + 10))
    catalog.load_table(NAME).delete("n = 15")

    assert_same_plans(catalog)


def test_a_difference_is_reported_for_every_snapshot_that_has_it(
    catalog: EndiveCatalog, table: Table, store: DictStore
) -> None:
    first, second, third = (one.snapshot_id for one in catalog.kv.snapshots(NAME))
    (row,) = [key for key in store.rows if f"/{first}/".encode() in key and key.startswith(b"__files/")]
    del store.rows[row]

    findings = catalog.kv.check()

    assert len(findings) == 3
    for one in (first, second, third):
        assert any(f"snapshot {one}: __files lacks " in finding for finding in findings)
