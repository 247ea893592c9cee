"""Arrow's schemas as Spark's. They are always given to Spark, which would otherwise open every file to find them."""

from collections.abc import Iterable

import pyarrow as pa

SPARK_TYPES = {pa.string(): "string", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean"}
"""The types that files of ours have."""


def quoted(name: str) -> str:
    """Return a column's name as Spark takes it: parameters are named by dotted keys."""
    return f"`{name}`"


def spark_schema(fields: Iterable[pa.Field]) -> str:
    """Return Arrow fields as a Spark schema. `KeyError`: a type that no file of ours has."""
    return ", ".join(f"{quoted(field.name)} {SPARK_TYPES[field.type]}" for field in fields)
