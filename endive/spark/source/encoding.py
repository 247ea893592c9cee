"""Which columns of a file get a dictionary.

PyArrow begins every column of every row group with a dictionary and drops it when it has grown too large, which a
column of ever new values always does. Its first 2 MiB are looked up value by value then, by the writer and by every
reader, for nothing. Spark's own writer looks at the first page and decides; this is the same idea.
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
    without = {name for name in sample.column_names if _is_ever_new(sample[name])}
    return [path for path in parquet_path_to_id_mapping(schema) if path not in without]


def _is_ever_new(column: pa.ChunkedArray) -> bool:
    if pa.types.is_nested(column.type) or len(column) < SAMPLE_ROWS:
        return False
    return int(pc.count_distinct(column, mode="only_valid").as_py()) > DISTINCT_MAX * len(column)
