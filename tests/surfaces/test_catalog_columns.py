"""What people type: columns, partitions, moments and durations."""

import pytest
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType, TimestamptzType

from endive.cli.catalog.columns import parse_column, parse_partitions, parse_schema, parse_type
from endive.cli.catalog.times import duration_ms, iso, limit_ms, moment_ms
from endive.errors import ConfigurationError


def faults_of(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_schema(text)
    return list(caught.value.errors)


def partition_faults(text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        parse_partitions(text, parse_schema("id long, ts timestamptz, name string"))
    return list(caught.value.errors)


# Columns.


def test_a_column_is_a_name_and_a_type_and_optional_unless_it_says_required() -> None:
    schema = parse_schema('id long required, ts: timestamptz, "full name" String not null')

    assert schema.fields == (
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "ts", TimestamptzType(), required=False),
        NestedField(3, "full name", StringType(), required=True),
    )


@pytest.mark.parametrize(
    "text",
    [
        *("boolean", "int", "long", "float", "double", "date", "time", "timestamp", "timestamptz", "timestamp_ns"),
        *("timestamptz_ns", "string", "uuid", "binary", "fixed[16]", "decimal(10, 2)", "list<int>"),
        "map<string, list<long>>",
    ],
)
def test_every_type_is_read_as_iceberg_writes_it(text: str) -> None:
    assert str(parse_type(text, "--type")) == text


def test_nested_types_have_ids_of_their_own_and_may_be_required_inside() -> None:
    kind = parse_type("struct<a int, tags list<string required>, m map<string, struct<b long required>>>", "--type")

    assert isinstance(kind, StructType)
    tags, m = kind.fields[1].field_type, kind.fields[2].field_type
    assert isinstance(tags, ListType)
    assert tags.element_required
    assert isinstance(m, MapType)
    assert isinstance(m.value_type, StructType)
    assert m.value_type.fields[0].required
    ids = [one.field_id for one in (*kind.fields, *m.value_type.fields)] + [tags.element_id, m.key_id, m.value_id]
    assert len(set(ids)) == len(ids)


def test_all_errors_are_reported_at_once_each_with_its_remedy() -> None:
    faults = faults_of("a bigint, b strin, c, d int, d long, e list<foo>, f map<int>, g decimal(10,2)x, h fixed(3)")

    assert faults[0] == "a: no type 'bigint'; Iceberg calls it long"
    assert faults[1] == "b: no type 'strin'; did you mean 'string'?"
    assert faults[2].startswith("'c' is not a column")
    assert faults[3].startswith("e: no type 'foo'; known: boolean, int")
    assert faults[4] == "f: a map has a key and a value, as in map<string, long>, not 'int'"
    assert faults[5].startswith("g: no type 'decimal(10,2)x'")
    assert faults[6].startswith("h: ")
    assert faults[7] == "'d' is there 2 times"
    assert len(faults) == 8


@pytest.mark.parametrize("text", ["", " , ", "a list<int", "a box<int>", "a struct<b int, b int>", "a decimal(99, 2)"])
def test_an_invalid_schema_is_an_error_and_never_a_crash(text: str) -> None:
    assert faults_of(text)


def test_one_column_at_a_time_where_one_is_meant() -> None:
    assert parse_column("price decimal(10, 2)", "--add-column").name == "price"
    with pytest.raises(ConfigurationError, match="one column at a time, not 2"):
        parse_column("a int, b int", "--add-column")


# Partitions.


def test_partitions_are_columns_or_transforms_named_as_pyiceberg_names_them() -> None:
    schema = parse_schema("id long, ts timestamptz, name string")

    spec = parse_partitions("day(ts), bucket(16, id), truncate(4, name) as short, name, years(ts), hour(ts)", schema)

    assert [(field.name, str(field.transform), field.source_id) for field in spec.fields] == [
        ("ts_day", "day", 2),
        ("id_bucket_16", "bucket[16]", 1),
        ("short", "truncate[4]", 3),
        ("name", "identity", 3),
        ("ts_year", "year", 2),
        ("ts_hour", "hour", 2),
    ]
    assert len({field.field_id for field in spec.fields}) == 6


def test_all_errors_in_partitions_are_reported_at_once() -> None:
    faults = partition_faults("dai(ts), bucket(id), day(id), nam, , bucket(0, id), bucket(4, ts) as id, month(ts, 3)")

    assert faults == [
        "no transform 'dai'; did you mean 'day'?",
        "bucket takes a number and a column, as in bucket(16, id), not 'id'",
        "'day(id)': day does not go with id, which is long",
        "no column 'nam'; did you mean 'name'?",
        "an empty partition: write a column, or a transform of one, such as `day(ts)`",
        "bucket takes a number and a column, as in bucket(16, id), not '0, id'",
        "month takes a column, as in month(ts), not 'ts, 3'",
        "'id' is the name of a column; name it otherwise: … as NAME",
    ]


# Times.


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("30s", 30_000), ("15m", 900_000), ("1.5h", 5_400_000), ("7d", 604_800_000), ("2w", 1_209_600_000), ("5ms", 5)],
)
def test_durations(text: str, expected_ms: int) -> None:
    assert duration_ms(text, "--keep") == expected_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-02", 86_400_000),
        ("20240101", 1_704_067_200_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01 00:00:00.250", 250),
        ("1704067200000", 1_704_067_200_000),
    ],
)
def test_moments_without_a_zone_are_utc(text: str, expected_ms: int) -> None:
    assert moment_ms(text, "--at") == expected_ms
    assert moment_ms(iso(expected_ms), "--at") == expected_ms


def test_an_age_is_a_duration_before_now_or_a_moment() -> None:
    assert limit_ms("1s", 5000, "--older-than") == 4000
    assert limit_ms("1970-01-01T00:00:02Z", 5000, "--older-than") == 2000


@pytest.mark.parametrize("text", ["", "7", "d", "7 days", "-1d", "yesterday", "2024-13-01"])
def test_an_invalid_age_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigurationError, match="such as 7d"):
        limit_ms(text, 0, "--older-than")
    with pytest.raises(ConfigurationError, match="--keep"):
        duration_ms(text, "--keep")
