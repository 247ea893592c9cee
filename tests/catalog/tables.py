"""Schemas and rows for the catalog's tests."""

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, IntegerType, LongType, NestedField, StringType

NAME = ("db", "t")
"""Of the table that most tests have."""

SIMPLE = Schema(
    NestedField(1, "foo", StringType(), required=False),
    NestedField(2, "bar", IntegerType(), required=True),
    NestedField(3, "baz", BooleanType(), required=False),
    identifier_field_ids=[2],
)
NUMBERS = Schema(NestedField(1, "n", LongType(), required=False))


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def simple_row(bar: int = 1) -> pa.Table:
    schema = pa.schema(
        [pa.field("foo", pa.large_string()), pa.field("bar", pa.int32(), nullable=False), pa.field("baz", pa.bool_())]
    )
    return pa.table({"foo": ["a"], "bar": [bar], "baz": [True]}, schema=schema)
