"""What tasks write, without Spark: which partitions rows go to, and how they are cut into files and row groups."""

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import types as spark

from endive.spark.source.encoding import SAMPLE_ROWS, dictionary_columns
from endive.spark.source.types import arrow_schema
from tests.pipeline.lakes import ROWS, Lake, append, batch_of, frame

NUMBERS = Schema(
    NestedField(1, "id", ice.LongType()),
    NestedField(2, "day", ice.DateType()),
    NestedField(3, "moment", ice.TimestamptzType()),
    NestedField(4, "text", ice.StringType()),
)
NOON = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("column", "transform"),
    [
        ("id", "identity"),
        ("id", "bucket[3]"),
        ("id", "truncate[10]"),
        ("text", "truncate[1]"),
        ("day", "identity"),
        ("moment", "year"),
        ("moment", "month"),
        ("moment", "day"),
        ("moment", "hour"),
        ("id", "void"),
    ],
)
def test_rows_go_to_the_partitions_that_pyiceberg_puts_them_into(tmp_path: Path, column: str, transform: str) -> None:
    struct = frame(id="long", day="date", moment="timestamp", text="string")
    rows = [
        {"id": n, "day": dt.date(2026, 1, 1 + n % 3), "moment": NOON + dt.timedelta(hours=7 * n), "text": "abc"[n % 3]}
        for n in range(30)
    ] + [dict.fromkeys(struct.fieldNames())]
    table = pa.Table.from_pylist(rows, schema=arrow_schema(struct))
    lake = Lake(tmp_path)
    for name in ("db.ours", "db.theirs"):
        lake.create(name, NUMBERS, by={column: transform})
    writer = lake.writer(struct, "db.ours")
    writer.commit([writer.write(iter(table.to_batches(max_chunksize=7)))])
    with lake.table("db.theirs") as theirs:
        theirs.append(table)

    def partitions(name: str) -> dict[str, int]:
        with lake.table(name) as one:
            files = [task.file for task in one.scan().plan_files()]
        return {str(file.partition): file.record_count for file in files}

    assert partitions("db.ours") == partitions("db.theirs")
    assert lake.rows("db.ours") == lake.rows("db.theirs")


def test_two_partition_fields_of_one_column(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create(schema=NUMBERS, by={"id": "bucket[2]"})
    with lake.table() as table, table.update_spec() as update:
        update.add_field("id", "truncate[10]", "tens")
    struct = frame(id="long")
    writer = lake.writer(struct)
    batch = pa.RecordBatch.from_pylist([{"id": n} for n in range(20)], schema=arrow_schema(struct))
    writer.commit([writer.write(iter([batch]))])

    assert lake.ids() == list(range(20))
    assert len(lake.live_files()) == 4


def test_large_output_is_cut_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endive.spark.source.writing.CHUNK_BYTES", 1000)
    lake = Lake(tmp_path)
    lake.create(properties={"write.target-file-size-bytes": "5000"})
    append(lake, *range(10))
    writer = lake.writer(ROWS)
    writer.commit([writer.write(iter([batch_of(range(n, n + 100)) for n in range(10, 1010, 100)]))])

    assert lake.ids() == list(range(1010))
    assert len(lake.live_files()) > 3


def test_many_open_partitions_do_not_open_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endive.spark.source.writing.OPEN_FILES_MAX", 3)
    lake = Lake(tmp_path)
    lake.create(by={"id": "identity"})
    append(lake, *(n % 10 for n in range(40)))

    assert lake.ids() == sorted(n % 10 for n in range(40))
    assert len(lake.live_files()) == 10


def test_row_groups_are_full_whatever_batches_spark_sends(tmp_path: Path) -> None:
    """Spark's batches do not divide a row group; a remainder of each must not become a row group of its own."""
    lake = Lake(tmp_path)
    lake.create(properties={"write.parquet.row-group-limit": "1000"})
    writer = lake.writer(ROWS)
    writer.commit([writer.write(iter([batch_of(range(n, n + 300)) for n in range(0, 4200, 300)]))])
    (path,) = lake.data_files()
    groups = pq.ParquetFile(path).metadata

    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [1000, 1000, 1000, 1000, 200]
    assert lake.ids() == list(range(4200))


def test_a_batch_may_be_larger_than_a_row_group(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create(properties={"write.parquet.row-group-limit": "1000"})
    writer = lake.writer(ROWS)
    writer.commit([writer.write(iter([batch_of(range(2500)), batch_of(range(2500, 2600))]))])
    (path,) = lake.data_files()
    groups = pq.ParquetFile(path).metadata

    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [1000, 1000, 600]
    assert lake.ids() == list(range(2600))


def test_columns_of_ever_new_values_have_no_dictionary(tmp_path: Path) -> None:
    schema = Schema(
        NestedField(1, "id", ice.LongType()),
        NestedField(2, "kind", ice.StringType()),
        NestedField(3, "inner", ice.StructType(NestedField(4, "x", ice.LongType()))),
        NestedField(5, "tags", ice.ListType(6, ice.LongType())),
    )
    lake = Lake(tmp_path)
    lake.create(schema=schema)
    struct = (
        frame(id="long", kind="string").add("inner", frame(x="long")).add("tags", spark.ArrayType(spark.LongType()))
    )
    numbers = range(SAMPLE_ROWS)
    rows = [{"id": n, "kind": "ab"[n % 2], "inner": {"x": n % 5}, "tags": [n % 3]} for n in numbers]
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(struct))
    writer = lake.writer(struct)
    writer.commit([writer.write(iter([batch]))])
    (path,) = lake.data_files()
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = {column.path_in_schema: column for column in map(group.column, range(group.num_columns))}

    assert {name for name, column in columns.items() if "RLE_DICTIONARY" not in column.encodings} == {"id"}
    assert len(columns) == 4
    assert lake.rows()[0] == rows[0]
    assert lake.ids() == list(numbers)


def test_a_few_rows_are_no_sample() -> None:
    """Of a small first batch nothing is concluded."""
    schema = Schema(NestedField(1, "id", ice.LongType()))

    assert dictionary_columns(schema, pa.table({"id": [1, 2, 3]})) == ["id"]
