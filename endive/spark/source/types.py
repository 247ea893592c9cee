"""Iceberg's types as Spark's, Spark's as Arrow's, and whether a frame fits a table.

| Iceberg | Spark | | Iceberg | Spark |
|---|---|---|---|---|
| boolean | boolean | | timestamp | timestamp_ntz |
| int | int | | timestamptz | timestamp |
| long | bigint | | string | string |
| float, double | float, double | | binary, fixed | binary |
| decimal(p, s) | decimal(p, s) | | struct, list, map | struct, array, map |
| date | date | | | |

The others (time, uuid, nanoseconds, geometry) have no counterpart on which Spark, Arrow and Parquet agree; a
table that has them can be read without these columns, with the option `columns`.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyiceberg import types as iceberg
from pyiceberg.schema import Schema
from pyspark.sql import types as spark

from endive.errors import ConfigurationError

SIMPLE: dict[type[iceberg.IcebergType], spark.DataType] = {
    iceberg.BooleanType: spark.BooleanType(),
    iceberg.IntegerType: spark.IntegerType(),
    iceberg.LongType: spark.LongType(),
    iceberg.FloatType: spark.FloatType(),
    iceberg.DoubleType: spark.DoubleType(),
    iceberg.DateType: spark.DateType(),
    iceberg.TimestampType: spark.TimestampNTZType(),
    iceberg.TimestamptzType: spark.TimestampType(),
    iceberg.StringType: spark.StringType(),
    iceberg.BinaryType: spark.BinaryType(),
    iceberg.FixedType: spark.BinaryType(),
}

ARROW: dict[type[spark.DataType], pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.DateType: pa.date32(),
    spark.TimestampNTZType: pa.timestamp("us"),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.StringType: pa.string(),
    spark.BinaryType: pa.binary(),
}

WIDER: dict[type[spark.DataType], tuple[type[iceberg.IcebergType], ...]] = {
    spark.ByteType: (iceberg.IntegerType, iceberg.LongType),
    spark.ShortType: (iceberg.IntegerType, iceberg.LongType),
    spark.IntegerType: (iceberg.IntegerType, iceberg.LongType),
    spark.FloatType: (iceberg.FloatType, iceberg.DoubleType),
    spark.BinaryType: (iceberg.BinaryType,),
}
"""Table types that a column may be written to, if there are others than its own."""

FIELD_ID = "parquet.field.id"
"""Metadata key from which Spark's Parquet reader takes a column's field id."""


def struct_of(schema: Schema, source: str, with_field_ids: bool = False) -> spark.StructType:
    """Return a table's schema as Spark's. `ConfigurationError` names all columns that Spark cannot have."""
    errors: list[str] = []
    struct = _struct(schema.as_struct(), "", with_field_ids, errors)
    if errors:
        raise ConfigurationError(source, errors)
    return struct


def _struct(struct: iceberg.StructType, path: str, with_ids: bool, errors: list[str]) -> spark.StructType:
    return spark.StructType(
        [
            spark.StructField(
                field.name,
                _spark_type(field.field_type, f"{path}{field.name}", with_ids, errors),
                field.optional,
                {FIELD_ID: field.field_id} if with_ids else {},
            )
            for field in struct.fields
        ]
    )


def _spark_type(kind: iceberg.IcebergType, path: str, with_ids: bool, errors: list[str]) -> spark.DataType:
    match kind:
        case iceberg.StructType():
            return _struct(kind, f"{path}.", with_ids, errors)
        case iceberg.ListType():
            element = _spark_type(kind.element_type, f"{path}.element", with_ids, errors)
            return spark.ArrayType(element, not kind.element_required)
        case iceberg.MapType():
            key = _spark_type(kind.key_type, f"{path}.key", with_ids, errors)
            value = _spark_type(kind.value_type, f"{path}.value", with_ids, errors)
            return spark.MapType(key, value, not kind.value_required)
        case iceberg.DecimalType():
            return spark.DecimalType(kind.precision, kind.scale)
    if type(kind) not in SIMPLE:
        errors.append(f"column {path} is {kind}, which Spark has no type for; leave it out with the option `columns`")
        return spark.NullType()
    return SIMPLE[type(kind)]


def arrow_schema(struct: spark.StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of batches of this schema, nullability included."""
    return pa.schema(_arrow_fields(struct))


def _arrow_fields(struct: spark.StructType) -> list[pa.Field]:
    return [pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in struct.fields]


def arrow_type(kind: spark.DataType) -> pa.DataType:
    """Return Spark's type as Arrow's. `ConfigurationError`: one that no table can have."""
    match kind:
        case spark.StructType():
            return pa.struct(_arrow_fields(kind))
        case spark.ArrayType():
            return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
        case spark.MapType():
            value = pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull)
            return pa.map_(pa.field("key", arrow_type(kind.keyType), nullable=False), value)
        case spark.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case spark.CharType() | spark.VarcharType():
            return pa.string()
    if type(kind) not in ARROW:
        raise ConfigurationError("schema", [f"{kind.simpleString()} is not a type that tables have"])
    return ARROW[type(kind)]


def misfits(schema: Schema, struct: spark.StructType) -> list[str]:
    """Return why a frame cannot be written to a table; empty if it can.

    Columns are matched by name. One that the table does not require may be missing and is null then. A column that
    Spark calls nullable may go into a required one: Spark calls nearly all so. A null in it fails the task that meets
    it.
    """
    return list(_misfits(schema.as_struct(), struct, ""))


def _misfits(table: iceberg.StructType, frame: spark.StructType, path: str) -> Iterator[str]:
    fields = {field.name: field for field in table.fields}
    for column in frame.fields:
        place = f"{path}{column.name}"
        if column.name in fields:
            yield from _type_misfits(fields[column.name].field_type, column.dataType, place)
        else:
            same = [name for name in fields if name.lower() == column.name.lower()]
            rather = f"; it has {same[0]!r}" if same else "; add it to the table first: update_schema().union_by_name()"
            yield f"the table has no column {place!r}{rather}"
    missing = fields.keys() - set(frame.fieldNames())
    for name in sorted(missing):
        if fields[name].required and fields[name].initial_default is None:
            yield f"the frame has no column {path + name!r}, which the table requires"


def _type_misfits(table: iceberg.IcebergType, frame: spark.DataType, path: str) -> Iterator[str]:
    match table, frame:
        case iceberg.StructType(), spark.StructType():
            yield from _misfits(table, frame, f"{path}.")
        case iceberg.ListType(), spark.ArrayType():
            yield from _type_misfits(table.element_type, frame.elementType, f"{path}.element")
        case iceberg.MapType(), spark.MapType():
            yield from _type_misfits(table.key_type, frame.keyType, f"{path}.key")
            yield from _type_misfits(table.value_type, frame.valueType, f"{path}.value")
        case _ if not _fits(table, frame):
            yield f"column {path!r} is {table} in the table, {frame.simpleString()} in the frame; cast it"


def _fits(table: iceberg.IcebergType, frame: spark.DataType) -> bool:
    if isinstance(table, iceberg.DecimalType) and isinstance(frame, spark.DecimalType):
        return table.scale == frame.scale and table.precision >= frame.precision
    if type(frame) in WIDER:
        return isinstance(table, WIDER[type(frame)])
    if isinstance(frame, spark.CharType | spark.VarcharType):
        return isinstance(table, iceberg.StringType)
    same: Any = SIMPLE.get(type(table))
    return same is not None and type(same) is type(frame)
