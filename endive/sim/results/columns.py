"""The columns of a result, one row for each transaction.

Engines and sums use integers: times in ticks, words by their place in a list. Files and tables have milliseconds and
words. Both forms carry the same information, since every time is a whole number of ticks. The columns of the
specification come first; `class`, `writer` and `table` follow.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from endive.sim.operations import OPERATION_TYPES
from endive.sim.outcome import DEFAULT_CLASS, NO_WRITER
from endive.timing import TICKS_PER_MS

Array = npt.NDArray[Any]
Columns = Mapping[str, Array]
"""Integer columns by name."""

STATUSES = ("executing", "committing", "committed", "aborted")
REASONS = (None, "max_retries_exceeded", "validation_exception", "retry_timeout")

_Kind = tuple[str | None, ...]
_COUNT: _Kind = ()
_TIME: _Kind = ("ms",)
_CLASS: _Kind = ("class",)
"""A word that depends on the configuration: the place in the list of its classes."""
COLUMNS: Mapping[str, _Kind] = {
    "txn_id": _COUNT,
    "t_submit": _TIME,
    "t_runtime": _TIME,
    "t_commit": _TIME,
    "commit_latency": _TIME,
    "total_latency": _TIME,
    "n_retries": _COUNT,
    "status": STATUSES,
    "operation_type": OPERATION_TYPES,
    "abort_reason": REASONS,
    "manifest_list_reads": _COUNT,
    "manifest_list_writes": _COUNT,
    "manifest_file_reads": _COUNT,
    "manifest_file_writes": _COUNT,
    "catalog_read_ms": _TIME,
    "per_attempt_io_ms": _TIME,
    "conflict_io_ms": _TIME,
    "catalog_commit_ms": _TIME,
    "class": _CLASS,
    "writer": _COUNT,
    "table": _COUNT,
}
"""Name and kind: a count, a time, one of these words, or a class."""

LABELS = {"class": DEFAULT_CLASS, "writer": NO_WRITER, "table": 0}
"""Columns that were added later, with their values in results that were written before they existed."""

REQUESTS = tuple(name for name in COLUMNS if name.startswith("manifest_"))
TIME_PURPOSES = (*(name.removesuffix("_ms") for name in COLUMNS if name.endswith("_ms")), "backoff")

_TYPES = {_COUNT: pa.int64(), _TIME: pa.float64()}
SCHEMA = pa.schema([(name, _TYPES.get(kind, pa.string())) for name, kind in COLUMNS.items()])
"""Times are in milliseconds; `t_commit` is -1 for a transaction that did not commit, `writer` if arrivals are open."""


def to_table(columns: Columns, classes: Sequence[str] = (DEFAULT_CLASS,)) -> pa.Table:
    """Return integer columns as a table, in the order of the transactions' numbers."""
    order = np.argsort(columns["txn_id"], kind="stable")
    words = {_CLASS: tuple(classes)}
    return pa.table(
        [_outside(words.get(kind, kind), columns[name][order]) for name, kind in COLUMNS.items()], schema=SCHEMA
    )


def _outside(kind: _Kind, values: Array) -> Any:  # noqa: ANN401 - PyArrow has no types
    if kind in _TYPES:
        return pa.array(values / TICKS_PER_MS if kind == _TIME else values)
    return pa.array(kind, pa.string()).take(pa.array(values))


def to_columns(table: pa.Table, classes: Sequence[str] | None = None) -> Columns:
    """Return a table as integer columns. Classes are numbered as given, or as `class_names` has them."""
    words = {_CLASS: class_names(table) if classes is None else tuple(classes)}
    return {name: _inside(words.get(kind, kind), table[name]) for name, kind in COLUMNS.items()}


def class_names(table: pa.Table) -> tuple[str, ...]:
    """Return the classes that occur in a table, by name."""
    return tuple(sorted(pc.unique(table["class"]).to_pylist()))


def with_labels(table: pa.Table) -> pa.Table:
    """Return a table with the columns that were added later, which older results do not have."""
    for name, value in LABELS.items():
        if name not in table.column_names:
            table = table.append_column(SCHEMA.field(name), pa.array([value] * table.num_rows, SCHEMA.field(name).type))
    return table


def _inside(kind: _Kind, column: pa.ChunkedArray) -> Array:
    if kind in _TYPES:
        values: Array = column.to_numpy()
        return np.rint(values * TICKS_PER_MS).astype(np.int64) if kind == _TIME else values
    codes: Array = pc.index_in(column, pa.array(kind, pa.string())).fill_null(-1).to_numpy()
    return codes  # -1: a word of a transaction type that is not Endive's own
