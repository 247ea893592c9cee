"""Files that a compaction would rewrite, by Iceberg's rules and from the records alone."""

from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from typer.testing import CliRunner

from endive.catalog import KVCatalog
from endive.catalog.maintenance.rewritable_files import RewritableFiles, rewritable_files
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.cli.app import app
from tests.catalog.tables import NAME, NUMBERS, numbers

TARGET = "write.target-file-size-bytes"
BY_NUMBER = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "n"))


@pytest.mark.parametrize(("appends", "found"), [(0, 0), (1, 0), (4, 0), (5, 5), (7, 7)])
def test_five_small_files_are_worth_a_compaction(
    kv: KVCatalog, catalog: EndiveCatalog, appends: int, found: int
) -> None:
    table = catalog.create_table(NAME, NUMBERS)
    for number in range(appends):
        table.append(numbers(number))

    assert rewritable_files(kv.tables, NAME) == RewritableFiles(found)


def test_the_target_decides_which_files_are_small_or_large(kv: KVCatalog, catalog: EndiveCatalog) -> None:
    table = catalog.create_table(NAME, NUMBERS)
    for number in range(5):
        table.append(numbers(number))
    size = next(iter(table.inspect.files()["file_size_in_bytes"].to_pylist()))

    def with_target(target: int) -> int:
        table.refresh().transaction().set_properties({TARGET: str(target)}).commit_transaction()
        return rewritable_files(kv.tables, NAME).data_files

    assert with_target(size) == 0
    assert with_target(2 * size) == 5
    assert with_target(size // 2) == 5  # each is larger than a file should be


def test_files_are_counted_by_partition(kv: KVCatalog, catalog: EndiveCatalog) -> None:
    table = catalog.create_table(NAME, NUMBERS, partition_spec=BY_NUMBER)
    for number in (1, 1, 1, 1, 1, 2, 2):
        table.append(numbers(number))

    assert rewritable_files(kv.tables, NAME) == RewritableFiles(5)


def test_no_manifest_is_read(kv: KVCatalog, catalog: EndiveCatalog) -> None:
    table = catalog.create_table(NAME, NUMBERS)
    for number in range(5):
        table.append(numbers(number))
    for path in Path(table.location().removeprefix("file://")).glob("metadata/*.avro"):
        path.unlink()

    assert rewritable_files(kv.tables, NAME) == RewritableFiles(5)


def test_a_dry_run_names_the_tables_and_counts_their_files(tmp_path: Path) -> None:
    with EndiveCatalog("lake", uri=str(tmp_path / "lake")) as catalog:
        catalog.create_namespace("db")
        for name, count in (("many", 6), ("few", 2)):
            table = catalog.create_table(("db", name), NUMBERS)
            for number in range(count):
                table.append(numbers(number))

    told = CliRunner().invoke(app, ["catalog", "maintain", str(tmp_path / "lake"), "--compact-files", "--dry-run"])

    assert told.exit_code == 0, told.output
    assert "db.many: 6 data files would be compacted" in told.output
    assert "db.few: " not in told.output
    assert "6 data files to compact" in told.output
