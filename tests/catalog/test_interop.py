"""Tables of the plug-in are ordinary Iceberg tables: other readers see the same rows, and others' tables come in."""

import importlib.resources
import warnings
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from endive.catalog.pyiceberg.catalog import EndiveCatalog

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
    NestedField(4, "zoned", TimestamptzType(), required=False),
    NestedField(5, "day", DateType(), required=False),
    NestedField(6, "price", DecimalType(9, 2), required=False),
    NestedField(7, "share", DoubleType(), required=False),
    NestedField(8, "good", BooleanType(), required=False),
)
TRANSFORMS: dict[str, tuple[int, Transform[Any, Any]]] = {
    "identity": (2, IdentityTransform()),
    "bucket": (1, BucketTransform(4)),
    "truncate": (2, TruncateTransform(2)),
    "year": (5, YearTransform()),
    "month": (3, MonthTransform()),
    "day": (4, DayTransform()),
    "hour": (3, HourTransform()),
}
READERS = ["static table", "duckdb", "polars"]
pytestmark = pytest.mark.slow


def rows(*ids: int) -> pa.Table:
    columns: dict[str, list[Any]] = {
        "id": list(ids),
        "name": [None if one % 5 == 0 else f"name {one}" for one in ids],
        "at": [datetime(2024, 1 + one % 3, 1, one % 24) for one in ids],
        "zoned": [datetime(2024, 1, 1 + one % 20, tzinfo=UTC) for one in ids],
        "day": [date(2020 + one % 4, 2, 1) for one in ids],
        "price": [Decimal(one) / 4 for one in ids],
        "share": [one / 8 for one in ids],
        "good": [one % 2 == 0 for one in ids],
    }
    return pa.table(columns, schema=ARROW)


ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("at", pa.timestamp("us")),
        ("zoned", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("share", pa.float64()),
        ("good", pa.bool_()),
    ]
)


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        package = importlib.resources.files(f"duckdb_extension_{name}")
        connection.execute(f"LOAD '{package}/extensions/v{duckdb.__version__}/{name}.duckdb_extension'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def read(reader: str, table: Table, request: pytest.FixtureRequest) -> pa.Table:
    location = table.metadata_location
    if reader == "static table":
        return StaticTable.from_metadata(location).scan().to_arrow()
    if reader == "polars":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", pl.exceptions.PerformanceWarning)  # of its plug-in for planning
            return pl.scan_iceberg(location).collect().to_arrow()
    duck: duckdb.DuckDBPyConnection = request.getfixturevalue("duck")
    path = location.removeprefix("file://")
    return duck.execute(f"SELECT * FROM iceberg_scan('{path}')").to_arrow_table()  # noqa: S608 - our own path


def plain(found: pa.Table) -> list[tuple[Any, ...]]:
    names = sorted(found.column_names)
    return sorted(
        (tuple(row[name] for name in names) for row in found.to_pylist()), key=lambda row: tuple(map(str, row))
    )


def assert_read_by(reader: str, table: Table, request: pytest.FixtureRequest) -> None:
    assert plain(read(reader, table, request)) == plain(table.scan().to_arrow())


@pytest.fixture
def catalog(endive: EndiveCatalog) -> EndiveCatalog:
    endive.create_namespace("db")
    return endive


@pytest.mark.parametrize("reader", READERS)
def test_appends_overwrites_deletes_and_upserts(
    catalog: EndiveCatalog, reader: str, request: pytest.FixtureRequest
) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    late = catalog.load_table("db.t")
    table.append(rows(1, 2, 3, 4, 5))
    late.append(rows(6, 7))  # put on top
    table.refresh().delete("id = 2")
    table.overwrite(rows(8, 9), overwrite_filter="id = 3")
    table.upsert(rows(9, 10), join_cols=["id"])

    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 4, 5, 6, 7, 8, 9, 10]
    assert_read_by(reader, table, request)
    assert catalog.kv.check() == []


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("transform", sorted(TRANSFORMS))
def test_every_transform(catalog: EndiveCatalog, reader: str, transform: str, request: pytest.FixtureRequest) -> None:
    source, function = TRANSFORMS[transform]
    spec = PartitionSpec(PartitionField(source, 1000, function, "part"))
    table = catalog.create_table("db.t", SCHEMA, partition_spec=spec)
    table.append(rows(*range(1, 12)))
    table.dynamic_partition_overwrite(rows(3)) if transform == "identity" else table.append(rows(20))

    assert_read_by(reader, table, request)


@pytest.mark.parametrize("reader", READERS)
def test_schema_and_spec_evolution(catalog: EndiveCatalog, reader: str, request: pytest.FixtureRequest) -> None:
    table = catalog.create_table("db.t", SCHEMA)
    table.append(rows(1, 2))
    with table.update_schema() as update:
        update.rename_column("name", "title").add_column("added", LongType()).delete_column("share")
        update.move_first("good")
    with table.update_spec() as spec:
        spec.add_field("day", YearTransform(), "years").add_field("id", BucketTransform(2), "buckets")
    more = rows(3, 4).rename_columns(["id", "title", "at", "zoned", "day", "price", "share", "good"])
    table.append(more.drop_columns(["share"]).append_column("added", pa.array([30, 40])))
    with table.update_spec() as spec:
        spec.remove_field("years")
    table.delete("id = 1")

    assert table.scan().to_arrow()["added"].to_pylist().count(None) == 1
    assert_read_by(reader, table, request)


def test_a_table_of_another_catalog_comes_in_and_goes_back(catalog: EndiveCatalog, tmp_path: Path) -> None:
    sql = SqlCatalog("sql", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}/sql")
    sql.create_namespace("db")
    theirs = sql.create_table("db.t", SCHEMA)
    theirs.append(rows(1, 2))
    theirs.delete("id = 1")

    ours = catalog.register_table("db.t", theirs.metadata_location)
    assert ours.scan().to_arrow() == theirs.scan().to_arrow()
    assert ours.metadata == theirs.metadata
    ours.append(rows(3))
    ours.delete("id = 2")
    assert catalog.load_table("db.t").metadata.metadata_log[-1].metadata_file != ""
    assert catalog.kv.check() == []

    sql.drop_table("db.t")
    back = sql.register_table("db.t", ours.metadata_location)
    assert back.scan().to_arrow()["id"].to_pylist() == [3]
    assert [one.snapshot_id for one in back.history()] == [one.snapshot_id for one in ours.history()]
    sql.close()


def test_format_1_tables(catalog: EndiveCatalog, request: pytest.FixtureRequest) -> None:
    table = catalog.create_table("db.t", SCHEMA, properties={"format-version": "1"})
    late = catalog.load_table("db.t")
    table.append(rows(1, 2))
    late.append(rows(3))
    table.refresh().transaction().upgrade_table_version(2).commit_transaction()
    table.refresh().append(rows(4))

    assert catalog.load_table("db.t").format_version == 2
    assert_read_by("static table", table, request)
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
