"""Chooses the columns of a file that get a dictionary.

PyArrow begins every column of every row group with a dictionary and drops it when it has grown too large, as it always
does for a column of distinct values. The first 2 MiB of such a column are then encoded and decoded through a useless
dictionary. Spark's own writer decides by the first page; this module does the same.
"""

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import parquet_path_to_id_mapping
from pyiceberg.schema import Schema

SAMPLE_ROWS = 2**16

DISTINCT_MAX = 0.9
"""Of a sample of values drawn at random from n, this share is distinct at n = 300,000: about what 2 MiB can hold."""


def dictionary_columns(schema: Schema, rows: pa.Table) -> list[str]:
    """Return the columns, as Parquet names them, that a file which begins with these rows has dictionaries for.

    Columns within structs, lists and maps always have one.
    """
    sample = rows.slice(0, SAMPLE_ROWS)
    without = {name for name in sample.column_names if _is_mostly_distinct(sample[name])}
    return [path for path in parquet_path_to_id_mapping(schema) if path not in without]


def _is_mostly_distinct(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type) or len(column) < SAMPLE_ROWS:
        return False
    return int(pc.count_distinct(column, mode="only_valid").as_py()) > DISTINCT_MAX * len(column)
