"""From a view to rows: the files of a scan, their Spark tasks, and the reading of a task's files.

PyIceberg's public `ArrowScan.to_record_batches` loads all rows of a file into memory before it returns the first batch;
its private method behind `endive.catalog.iceberg.record_batches` streams them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from endive.catalog.iceberg import read_delete_files, record_batches
from endive.errors import ConfigurationError
from endive.spark.source.types import arrow_schema, struct_of
from endive.spark.source.views import View, without_history

BIN_BYTES = 128 * 2**20
"""Approximate input of a Spark task, as in Spark's own file sources; a larger file is one task."""

OPEN_BYTES = 4 * 2**20
"""Cost of opening a file, in bytes that could be read meanwhile."""


@dataclass(frozen=True)
class ScanShape:
    """The rows of a scan and their schema."""

    metadata: TableMetadata
    schema: Schema
    struct: StructType
    row_filter: BooleanExpression


class FilePartition(InputPartition):
    """The files of one Spark task, and everything needed to read them."""

    def __init__(self, shape: ScanShape, io: FileIO, tasks: Sequence[FileScanTask]) -> None:
        super().__init__(None)
        self.shape = shape
        self.io = io
        self.tasks = list(tasks)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the files: rows that match, in batches as Spark expects them."""
        shape, target = self.shape, arrow_schema(self.shape.struct)
        scan = ArrowScan(shape.metadata, self.io, shape.schema, shape.row_filter)
        deletes = read_delete_files(self.io, self.tasks)
        for batch in record_batches(scan, self.tasks, deletes):
            # FilePartition differ in their text types; Spark expects batches of exactly the declared schema.
            yield pa.RecordBatch.from_arrays(
                [column.cast(field.type) for column, field in zip(batch.columns, target, strict=True)], schema=target
            )


def shape_of(view: View, struct: StructType, row_filter: BooleanExpression) -> ScanShape:
    """Return the form of a scan that gives `struct`: the table's columns, or some of them."""
    schema = view.projected(tuple(struct.fieldNames()))
    own = struct_of(schema, view.name)
    errors = [
        f"column {asked.name!r} is {there.dataType.simpleString()}, not {asked.dataType.simpleString()}"
        for asked, there in zip(struct.fields, own.fields, strict=True)
        if asked.dataType.simpleString() != there.dataType.simpleString()
    ]
    errors += [
        f"column {asked.name!r} may be null in the table"
        for asked, there in zip(struct.fields, own.fields, strict=True)
        if there.nullable and not asked.nullable
    ]
    if errors:
        raise ConfigurationError(view.name, errors)
    return ScanShape(without_history(view.metadata), schema, struct, row_filter)


def planned(view: View, row_filter: BooleanExpression = AlwaysTrue()) -> list[FileScanTask]:  # noqa: B008 - a constant
    """Return the files of a view that may have rows that match."""
    if view.snapshot_id is None:
        return []
    return list(DataScan(view.metadata, view.io, row_filter, snapshot_id=view.snapshot_id).plan_files())


def partitions(view: View, shape: ScanShape, tasks: Iterable[FileScanTask]) -> list[FilePartition]:
    """Distribute files to Spark tasks of about `BIN_BYTES` each, the largest first to balance the end."""
    bins: list[FilePartition] = []
    collected: list[FileScanTask] = []
    collected_bytes = 0
    for task in sorted(tasks, key=lambda task: -_cost_bytes(task)):
        if collected and collected_bytes + _cost_bytes(task) > BIN_BYTES:
            bins.append(FilePartition(shape, view.io, collected))
            collected, collected_bytes = [], 0
        collected.append(task)
        collected_bytes += _cost_bytes(task)
    return [*bins, FilePartition(shape, view.io, collected)] if collected else bins


def _cost_bytes(task: FileScanTask) -> int:
    files = [task.file, *task.delete_files]
    return sum(file.file_size_in_bytes + OPEN_BYTES for file in files)
