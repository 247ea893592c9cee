"""Reading through the data source, without Spark: it is called as Spark calls it. Types, filters, time travel."""

import datetime as dt
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg import types as ice
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField
from pyspark.sql import datasource as push
from pyspark.sql import types as spark

from endive.errors import ConfigurationError
from endive.spark.source.data_source import PushingReader
from endive.spark.source.filters import pushed
from endive.spark.source.scanning import FilePartition
from endive.spark.source.types import arrow_schema, misfits, struct_of
from tests.pipeline.lakes import ROWS, Lake, append, frame, read_all


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create()
    return lake


def ids(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(row["id"] for row in rows)


# Views.


def test_an_empty_table_has_no_rows(lake: Lake) -> None:
    assert lake.read() == []


def test_a_reader_reads_the_snapshot_of_the_frames_creation(lake: Lake) -> None:
    append(lake, 1)
    source = lake.source()
    schema = source.schema()
    append(lake, 2)

    assert ids(read_all(pickle.loads(pickle.dumps(source)).reader(schema))) == [1]  # noqa: S301 - our own


def test_a_snapshot_a_time_a_tag_and_a_branch_are_read_as_of_then(lake: Lake) -> None:
    first = append(lake, 1)
    with lake.table() as table:
        table.manage_snapshots().create_tag(first, "then").create_branch(first, "side").commit()
        head = table.current_snapshot()
        assert head is not None
        when_ms = head.timestamp_ms
    append(lake, 2)

    assert ids(lake.read(snapshot_id=str(first))) == [1]
    assert ids(lake.read(tag="then")) == [1]
    assert ids(lake.read(branch="side")) == [1]
    assert ids(lake.read(as_of_timestamp=str(when_ms))) == [1]
    when = dt.datetime.fromtimestamp(when_ms / 1000, dt.UTC)
    assert ids(lake.read(as_of_timestamp=when.isoformat())) == [1]
    assert ids(lake.read()) == [1, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"snapshot_id": "7"}, "there is no snapshot 7"),
        ({"as_of_timestamp": "7"}, "no snapshot as old as 7"),
        ({"branch": "x"}, "no branch or tag 'x'; there are: main"),
        ({"columns": "id,nane"}, "there is no column 'nane'; there are id, name"),
        ({"snapshot_id": "7", "branch": "x"}, "snapshot-id and branch contradict each other"),
        ({"as_of_timestamp": "yesterday"}, "neither Unix milliseconds nor an ISO time"),
        ({"as_of_timestamp": "2026-01-01T00:00:00"}, "with its zone"),
        ({"snapshot_id": "abc"}, "snapshot-id 'abc' is not a number"),
        ({"snapshotid": "7"}, "there is no option 'snapshotid'; did you mean 'snapshot-id'?"),
        ({"filter": "id >"}, "filter 'id >' cannot be read"),
        ({"push_filters": "yes"}, "push-filters 'yes' is neither true nor false"),
    ],
)
def test_a_wrong_option_is_reported(lake: Lake, options: dict[str, str], message: str) -> None:
    append(lake, 1)
    with pytest.raises(ConfigurationError, match=message):
        lake.reader(**options)


def test_all_errors_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Lake(Path("/nowhere")).source("t", catlog="x").schema()

    assert len(caught.value.errors) == 2


def test_a_url_without_a_catalog_is_reported_and_none_is_created(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="no catalog"):
        Lake(tmp_path / "elsewhere").reader()

    assert not (tmp_path / "elsewhere").exists()


def test_rows_that_a_delete_file_takes_away_are_not_read(lake: Lake) -> None:
    append(lake, 1, 2, 3)
    (partition,) = lake.reader().partitions()
    assert isinstance(partition, FilePartition)
    (task,) = partition.tasks
    path = lake.path / "deletes.parquet"
    pq.write_table(pa.table({"file_path": [task.file.file_path], "pos": pa.array([1], pa.int64())}), path)
    task.delete_files = {
        DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=path.as_uri(),
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=1,
            file_size_in_bytes=path.stat().st_size,
        )
    }

    assert [row["id"] for batch in partition.batches() for row in batch.to_pylist()] == [1, 3]


# Columns.


def test_only_the_columns_asked_for_are_read(lake: Lake) -> None:
    append(lake, 1)

    assert lake.read(columns="name") == [{"name": "n1"}]
    assert lake.read(columns="name, id") == [{"name": "n1", "id": 1}]
    assert lake.read(columns='["id"]') == [{"id": 1}]
    only = spark.StructType().add("name", "string")
    assert read_all(lake.source().reader(only)) == [{"name": "n1"}]


@pytest.mark.parametrize(
    ("struct", "message"),
    [
        (spark.StructType().add("id", "string"), "column 'id' is bigint, not string"),
        (spark.StructType().add("name", "string", nullable=False), "column 'name' may be null"),
        (spark.StructType().add("nane", "string"), "no column 'nane'"),
    ],
)
def test_a_schema_that_the_table_does_not_have_is_reported(lake: Lake, struct: spark.StructType, message: str) -> None:
    append(lake, 1)
    with pytest.raises(ConfigurationError, match=message):
        read_all(lake.source().reader(struct))


def test_files_from_before_a_change_of_columns_are_read_by_field_id(lake: Lake) -> None:
    first = append(lake, 1)
    with lake.table() as table:
        with table.update_schema() as update:
            update.rename_column("name", "called")
            update.add_column("size", ice.IntegerType())
        with table.update_schema() as update:
            update.add_column("name", ice.StringType())

    assert lake.read() == [{"id": 1, "called": "n1", "size": None, "name": None}]
    assert lake.read(snapshot_id=str(first)) == [{"id": 1, "name": "n1"}]  # with the columns of its day
    assert lake.read(snapshot_id=str(first), filter="name = 'n1'") == [{"id": 1, "name": "n1"}]
    assert lake.read(filter="called = 'n1'") == lake.read()


EVERY = Schema(
    NestedField(1, "flag", ice.BooleanType()),
    NestedField(2, "small", ice.IntegerType()),
    NestedField(3, "large", ice.LongType()),
    NestedField(4, "single", ice.FloatType()),
    NestedField(5, "double", ice.DoubleType()),
    NestedField(6, "money", ice.DecimalType(12, 2)),
    NestedField(7, "day", ice.DateType()),
    NestedField(8, "local", ice.TimestampType()),
    NestedField(9, "moment", ice.TimestamptzType()),
    NestedField(10, "text", ice.StringType()),
    NestedField(11, "bytes", ice.BinaryType()),
    NestedField(12, "list", ice.ListType(20, ice.LongType(), element_required=False)),
    NestedField(13, "map", ice.MapType(21, ice.StringType(), 22, ice.DoubleType(), value_required=False)),
    NestedField(
        14,
        "inner",
        ice.StructType(
            NestedField(23, "x", ice.IntegerType()),
            NestedField(24, "deep", ice.ListType(25, ice.StructType(NestedField(26, "y", ice.StringType())), False)),
        ),
    ),
)
ROW = {
    "flag": True,
    "small": -(2**31),
    "large": 2**62,
    "single": 0.5,
    "double": -1.5e300,
    "money": Decimal("-1234567890.12"),
    "day": dt.date(1582, 10, 15),
    "local": dt.datetime(2026, 3, 29, 2, 30, 0, 123456),
    "moment": dt.datetime(2026, 3, 29, 2, 30, 0, 123456, dt.UTC),
    "text": "größer 🌊",
    "bytes": b"\x00\xff",
    "list": [1, None, 3],
    "map": [("a", 1.0), ("b", None)],
    "inner": {"x": 1, "deep": [{"y": "z"}, None]},
}
NULLS: dict[str, Any] = dict.fromkeys(ROW)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
def test_every_type_and_nulls_come_back_as_they_were_written(tmp_path: Path, zone: str) -> None:
    lake = Lake(tmp_path)
    lake.create(schema=EVERY)
    struct = struct_of(EVERY, "t")
    writer = lake.writer(struct)
    batch = pa.RecordBatch.from_pylist([ROW, NULLS], schema=arrow_schema(struct))
    moment = batch.schema.get_field_index("moment")
    # Spark hands times over in the zone of its session.
    batch = batch.set_column(moment, "moment", batch["moment"].cast(pa.timestamp("us", tz=zone)))
    writer.commit([writer.write(iter([batch]))])

    assert lake.read() == [ROW, NULLS]
    assert lake.read()[0] == lake.rows()[1] or lake.read()[0] == lake.rows()[0]  # as PyIceberg reads it
    (batch,) = [batch for one in lake.reader().partitions() for batch in lake.reader().read(one)]
    assert batch.schema == arrow_schema(struct)


def test_all_types_that_spark_does_not_have_are_reported() -> None:
    schema = Schema(NestedField(1, "a", ice.UUIDType()), NestedField(2, "b", ice.TimeType()))

    with pytest.raises(ConfigurationError) as caught:
        struct_of(schema, "db.t")

    assert [error.split(",")[0] for error in caught.value.errors] == ["column a is uuid", "column b is time"]


# Frames that fit.


TABLE = Schema(
    NestedField(1, "id", ice.LongType(), required=True),
    NestedField(2, "share", ice.DoubleType()),
    NestedField(3, "money", ice.DecimalType(10, 2)),
    NestedField(4, "inner", ice.StructType(NestedField(5, "x", ice.LongType()))),
)


@pytest.mark.parametrize(
    "struct",
    [
        frame(id="long"),
        frame(id="integer", share="float"),
        frame(id="short", money="decimal(8,2)"),
        frame(id="byte").add("inner", frame(x="integer")),
    ],
)
def test_a_frame_fits_that_has_fewer_columns_or_narrower_types(struct: spark.StructType) -> None:
    assert misfits(TABLE, struct) == []


@pytest.mark.parametrize(
    ("struct", "message"),
    [
        (frame(share="double"), "the frame has no column 'id', which the table requires"),
        (frame(id="string"), "column 'id' is long in the table, string in the frame; cast it"),
        (frame(id="long", money="decimal(12,2)"), "column 'money' is decimal(10, 2) in the table"),
        (frame(id="long", money="decimal(10,3)"), "column 'money' is decimal(10, 2) in the table"),
        (frame(id="long", ID="long"), "the table has no column 'ID'; it has 'id'"),
        (frame(id="long", more="long"), "the table has no column 'more'; add it to the table first"),
        (frame(id="long").add("inner", frame(x="string")), "column 'inner.x' is long in the table"),
        (frame(id="long").add("inner", frame(z="long")), "the table has no column 'inner.z'"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_with_the_reason(struct: spark.StructType, message: str) -> None:
    (error,) = misfits(TABLE, struct)

    assert error.startswith(message)


def test_a_null_in_a_required_column_fails_the_task_and_leaves_nothing(lake: Lake) -> None:
    writer = lake.writer(ROWS)
    batch = pa.RecordBatch.from_pylist([{"id": None, "name": "x"}], schema=arrow_schema(ROWS))

    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        writer.write(iter([batch]))

    assert lake.data_files() == set()


# Filters: which files are opened.


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of data files that are opened from now on."""
    names: list[str] = []
    new_input = PyArrowFileIO.new_input

    def watched(self: PyArrowFileIO, location: str) -> Any:
        if location.endswith(".parquet"):
            names.append(location)
        return new_input(self, location)

    monkeypatch.setattr(PyArrowFileIO, "new_input", watched)
    return names


def test_a_filter_opens_only_files_that_may_have_rows_that_match(lake: Lake, opened: list[str]) -> None:
    for start in (0, 10, 20):
        append(lake, *range(start, start + 10))
    opened.clear()

    assert ids(lake.read(filter="id >= 25")) == [25, 26, 27, 28, 29]
    assert len(opened) == 1


def test_conditions_of_the_query_are_pushed_if_asked_for(lake: Lake, opened: list[str]) -> None:
    for start in (0, 10, 20):
        append(lake, *range(start, start + 10))
    opened.clear()
    reader = lake.reader(push_filters="true")
    assert isinstance(reader, PushingReader)
    condition = push.EqualTo(("id",), 13)

    assert list(reader.pushFilters([condition])) == [condition]  # Spark applies it again
    assert ids(read_all(reader)) == [13]
    assert len(opened) == 1


def test_a_filter_reads_only_row_groups_that_may_match(tmp_path: Path) -> None:
    """Rows of row groups that cannot match are damaged on purpose: whoever read them would fail."""
    lake = Lake(tmp_path)
    lake.create(properties={"write.parquet.row-group-limit": "1000"})
    append(lake, *range(3000))
    (path,) = lake.data_files()
    groups = pq.ParquetFile(path).metadata
    assert groups.num_row_groups == 3
    column = groups.row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    body = bytearray(path.read_bytes())
    body[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    path.write_bytes(bytes(body))

    assert ids(lake.read(filter="id >= 2990")) == list(range(2990, 3000))
    with pytest.raises(OSError, match=r".+"):
        lake.read()


NUMBERS = Schema(
    NestedField(1, "id", ice.LongType()),
    NestedField(2, "share", ice.DoubleType()),
    NestedField(3, "day", ice.DateType()),
    NestedField(4, "moment", ice.TimestamptzType()),
    NestedField(5, "local", ice.TimestampType()),
    NestedField(6, "text", ice.StringType()),
    NestedField(7, "inner", ice.StructType(NestedField(8, "x", ice.LongType()))),
)
NOON = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("condition", "becomes"),
    [
        (push.EqualTo(("id",), 1), "EqualTo(term=Reference(name='id'), literal=LongLiteral(1))"),
        (push.Not(push.LessThan(("id",), 1)), "GreaterThanOrEqual("),
        (push.Not(push.In(("id",), (1, 2))), "NotIn("),
        (push.EqualNullSafe(("id",), None), "IsNull("),
        (push.Not(push.EqualNullSafe(("id",), 1)), "Or(left=NotEqualTo("),
        (push.LessThan(("share",), 0.5), "LessThan("),
        (push.StringStartsWith(("text",), "ab"), "StartsWith("),
        (push.EqualTo(("day",), NOON.date()), "EqualTo("),
        (push.EqualTo(("moment",), NOON), "EqualTo("),
        (push.EqualTo(("local",), NOON.replace(tzinfo=None)), "EqualTo("),
        (push.IsNotNull(("text",)), "NotNull("),
    ],
)
def test_conditions_in_pyicebergs_words(condition: push.Filter, becomes: str) -> None:
    assert repr(pushed([condition], NUMBERS)).startswith(becomes)


@pytest.mark.parametrize(
    "condition",
    [
        push.StringEndsWith(("text",), "ab"),
        push.StringContains(("text",), "ab"),
        push.EqualTo(("inner", "x"), 1),
        push.EqualTo(("share",), float("nan")),
        push.GreaterThan(("share",), 0.5),
        push.Not(push.EqualTo(("share",), 0.25)),
        push.Not(push.LessThan(("share",), 0.5)),
        push.In(("share",), (1.0, float("nan"))),
        push.EqualTo(("gone",), 1),
        push.EqualTo(("moment",), "no time"),
        push.EqualTo(("id",), None),
    ],
)
def test_conditions_that_stay_with_spark(condition: push.Filter) -> None:
    assert repr(pushed([condition], NUMBERS)) == "AlwaysTrue()"


def test_rows_with_nan_are_kept_where_spark_would_keep_them(tmp_path: Path) -> None:
    """To Spark NaN is larger than every number; a file's bounds do not tell of it."""
    lake = Lake(tmp_path)
    lake.create(schema=NUMBERS)
    struct = frame(id="long", share="double")
    writer = lake.writer(struct)
    rows = [{"id": 1, "share": 0.25}, {"id": 2, "share": float("nan")}]
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema(struct))
    writer.commit([writer.write(iter([batch]))])
    reader = lake.reader(push_filters="true")
    assert isinstance(reader, PushingReader)
    reader.pushFilters([push.GreaterThan(("share",), 0.5), push.Not(push.EqualTo(("share",), 0.25))])

    assert 2 in ids(read_all(reader))
