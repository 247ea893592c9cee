"""`__files`: planning from records gives what planning from manifests gives, file for file."""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
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
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from endive.catalog import KVCatalog
from endive.catalog.model import file_rows as files
from endive.catalog.model.file_rows import _plain, _unplain
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME, NUMBERS, numbers

WIDE = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "at", TimestampType(), required=False),
    NestedField(4, "day", DateType(), required=False),
)
ARROW = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us")), ("day", pa.date32())])
TRANSFORMS: dict[str, tuple[str, Transform[Any, Any]]] = {
    "identity": ("name", IdentityTransform()),
    "bucket": ("id", BucketTransform(3)),
    "truncate": ("name", TruncateTransform(1)),
    "year": ("day", YearTransform()),
    "month": ("day", MonthTransform()),
    "day": ("at", DayTransform()),
    "hour": ("at", HourTransform()),
}
EVERYTHING = "id is null or id is not null"
START = datetime(2024, 1, 30)


def rows_of(ids: list[int | None]) -> pa.Table:
    moments = [None if one is None else START + timedelta(hours=7 * one) for one in ids]
    return pa.table(
        {
            "id": ids,
            "name": [None if one is None else "abc"[one % 3] * 2 for one in ids],
            "at": moments,
            "day": [None if one is None else one.date() for one in moments],
        },
        schema=ARROW,
    )


def plain(tasks: list[FileScanTask]) -> list[tuple[str, int, int, str]]:
    """What a reader needs of a plan."""
    return sorted((one.file.file_path, one.file.record_count, one.file.spec_id, repr(one.residual)) for one in tasks)


def assert_same_plans(catalog: EndiveCatalog, row_filter: str) -> None:
    table = catalog.load_table(NAME)
    for snapshot in table.snapshots():
        real = table.scan(row_filter, snapshot_id=snapshot.snapshot_id).plan_files()
        assert plain(catalog.kv.plan_files(NAME, row_filter, snapshot.snapshot_id)) == plain(list(real))
    assert catalog.kv.check() == []


FILTERS = st.sampled_from(
    [
        EVERYTHING,
        "id = 4",
        "id >= 5",
        "name < 'bb'",
        "name is null",
        "id is not null",
        "day >= '2024-02-01'",
        "at < '2024-02-01T00:00:00' and name = 'aa'",
    ]
)
IDS = st.lists(st.none() | st.integers(0, 12), min_size=1, max_size=4)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), IDS),
        st.tuples(st.just("delete"), st.sampled_from(["id < 4", "name = 'bb'", "id is null"])),
        st.tuples(st.just("overwrite"), IDS),
        st.tuples(st.just("spec"), st.sampled_from(sorted(TRANSFORMS))),
        st.tuples(st.just("branch"), st.just("dev")),
        st.tuples(st.just("roll back"), st.just(0)),
        st.tuples(st.just("expire"), st.just(0)),
    ),
    min_size=1,
    max_size=6,
)


def perform(table: Table, catalog: EndiveCatalog, kind: str, given_value: object) -> None:
    kv = catalog.kv
    match kind, given_value:
        case "append", list(ids):
            table.append(rows_of(ids))
        case "overwrite", list(ids):
            table.overwrite(rows_of(ids))
        case "delete", str(words):
            table.delete(words)
        case "spec", str(name):
            source, transform = TRANSFORMS[name]
            if WIDE.find_field(source).field_id not in {field.source_id for field in table.spec().fields}:
                with table.update_spec() as update:
                    update.add_field(source, transform, f"{name}_{len(table.specs())}")
        case "branch", str(name):
            if name not in table.refs() and table.current_snapshot() is not None:
                kv.create_branch(NAME, name)
        case "roll back", _:
            parent = current.parent_snapshot_id if (current := table.current_snapshot()) is not None else None
            if parent is not None:
                kv.roll_back(NAME, parent)
        case "expire", _:
            kv.expire_snapshots(NAME, 2**62)


def check_steps(steps: list[tuple[str, object]], row_filter: str, where: Path) -> None:
    kv = KVCatalog(DictStore(), f"file://{where}", create=True)
    kv.create_namespace("db")
    catalog = EndiveCatalog.on(kv)
    catalog.create_table(NAME, WIDE)
    for kind, given_value in steps:
        perform(catalog.load_table(NAME), catalog, kind, given_value)
    assert_same_plans(catalog, row_filter)
    kv.close()


RANDOM = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@settings(RANDOM, max_examples=15)
@given(steps=STEPS, row_filter=FILTERS)
def test_plans_from_records_equal_plans_from_manifests(
    steps: list[tuple[str, object]], row_filter: str, tmp_path: Path
) -> None:
    check_steps(steps, row_filter, tmp_path)


@pytest.mark.campaign
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("part", range(10))
@settings(RANDOM, max_examples=150)
@given(steps=STEPS, row_filter=FILTERS)
def test_many_plans_from_records_equal_plans_from_manifests(
    steps: list[tuple[str, object]],
    row_filter: str,
    part: int,  # each draws its own
    tmp_path: Path,
) -> None:
    check_steps(steps, row_filter, tmp_path)


@pytest.mark.parametrize("transform", sorted(TRANSFORMS))
def test_every_transform(catalog: EndiveCatalog, transform: str) -> None:
    source, function = TRANSFORMS[transform]
    field = PartitionField(WIDE.find_field(source).field_id, 1000, function, "part")
    table = catalog.create_table(NAME, WIDE, partition_spec=PartitionSpec(field))
    table.append(rows_of([0, 1, 5, 9, None]))

    for row_filter in ("id = 5", "day >= '2024-02-01'", "name is null"):
        assert_same_plans(catalog, row_filter)
    assert len(catalog.kv.plan_files(NAME, "id = 5")) < len(catalog.kv.plan_files(NAME))


def test_partition_values_of_every_type(catalog: EndiveCatalog) -> None:
    types = {
        "b": (BooleanType(), pa.bool_(), [True, False, None]),
        "d": (DoubleType(), pa.float64(), [1.5, float("inf"), None]),
        "m": (DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-2.25"), None]),
        "u": (UUIDType(), pa.binary(16), [UUID(int=1).bytes, UUID(int=2).bytes, None]),
        "x": (BinaryType(), pa.large_binary(), [b"\x00/\xff", b"", None]),
        "z": (TimestamptzType(), pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, tzinfo=UTC), None, None]),
    }
    schema = Schema(*(NestedField(i, name, one[0], required=False) for i, (name, one) in enumerate(types.items(), 1)))
    spec = PartitionSpec(
        *(PartitionField(i, 999 + i, IdentityTransform(), f"p{name}") for i, name in enumerate(types, 1) if name != "u")
    )
    table = catalog.create_table(NAME, schema, partition_spec=spec)
    table.append(pa.table({name: pa.array(one[2], one[1]) for name, one in types.items()}))

    assert_same_plans(catalog, "b is null or b is not null")
    assert_same_plans(catalog, "d >= 1.5")
    assert len(catalog.kv.plan_files(NAME, "d = 1.5")) == 1


@given(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.uuids()
    | st.decimals(allow_nan=False, allow_infinity=False)
)
def test_partition_values_survive(value: object) -> None:
    assert _unplain(_plain(value)) == value
    assert type(_unplain(_plain(value))) is type(value)


def test_a_promoted_partition_column_is_read_as_before(catalog: EndiveCatalog) -> None:
    schema = Schema(NestedField(1, "n", IntegerType(), required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "n"))
    table = catalog.create_table(NAME, schema, partition_spec=spec)
    table.append(pa.table({"n": pa.array([1, 2], pa.int32())}))
    with table.update_schema() as update:
        update.update_column("n", LongType())

    assert_same_plans(catalog, "n = 2")


def test_planning_reads_no_avro(catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = catalog.create_table(NAME, NUMBERS)
    table.append(numbers(1, 2))
    table.append(numbers(30, 40))

    def refuse(*_: object) -> None:
        raise AssertionError("a file was opened")

    monkeypatch.setattr("pyiceberg.io.pyarrow.PyArrowFileIO.new_input", refuse)
    (task,) = catalog.kv.plan_files(NAME, "n > 10")
    assert task.file.record_count == 2


def test_a_registered_table_is_planned_from_manifests_until_it_is_indexed(catalog: EndiveCatalog) -> None:
    original = catalog.create_table(NAME, NUMBERS)
    original.append(numbers(1))
    original.append(numbers(2))
    catalog.drop_table(NAME)
    registered = catalog.register_table(NAME, original.metadata_location)
    assert_same_plans(catalog, "n is not null")
    registered.append(numbers(3))
    assert_same_plans(catalog, "n >= 2")

    assert catalog.kv.index_files(NAME) == 3
    registered.append(numbers(4))
    registered.delete("n = 1")
    assert_same_plans(catalog, "n >= 2")


def test_a_commit_of_very_many_files_is_not_indexed(catalog: EndiveCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endive.catalog.commit.manifests.ENTRIES_MAX", 0)
    catalog.create_table(NAME, NUMBERS).append(numbers(1))

    assert_same_plans(catalog, "n is not null")


def test_the_records_have_the_fields_of_the_specification(catalog: EndiveCatalog, store: DictStore) -> None:
    table = catalog.create_table(NAME, NUMBERS)
    table.append(numbers(1))
    records = {
        space: [json.loads(body) for key, body in store.rows.items() if key.startswith(f"__{space}/".encode())]
        for space in ("tables", "snapshots", "files")
    }

    (one,) = records["tables"]
    assert one["table_name"] == "t"
    assert one["table_uuid"] == str(table.metadata.table_uuid)
    assert {"format_version", "location", "current_snapshot_id", "last_updated_time", "properties"} <= set(one)
    assert {"schema", "partition_specs"} <= set(one)
    (one,) = records["snapshots"]
    assert {"snapshot_id", "timestamp_ms", "operation", "manifest_list", "summary", "parent_snapshot_id"} <= set(one)
    (one,) = records["files"]
    assert {"snapshot_id", "file_path", "file_format", "record_count"} <= set(one)
    assert {"file_size_bytes", "partition_values"} <= set(one)
    assert files.decoded_file(json.dumps(one).encode()).file.file_path == one["file_path"]
