"""Arrow schemas as Spark schemas. They are passed to Spark, which would otherwise open every file to infer them."""

from collections.abc import Iterable

import pyarrow as pa

SPARK_TYPES = {pa.string(): "string", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}
"""The types of a sweep's files."""


def quoted(name: str) -> str:
    """Return a column's name as Spark takes it: parameters are named by dotted keys."""
    return f"`{name}`"


def spark_schema(fields: Iterable[pa.Field]) -> str:
    """Return Arrow fields as a Spark schema. `KeyError`: a type that no file of a sweep has."""
    return ", ".join(f"{quoted(field.name)} {SPARK_TYPES[field.type]}" for field in fields)
