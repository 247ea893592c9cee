"""Writes a task's rows: Parquet files with field ids, of the target size, one or more for each partition.

File names contain the job's write id, the Spark partition and the attempt, so two attempts at one partition never write
the same file. An attempt that fails deletes its files; one that is killed leaves files that no snapshot references, for
`endive catalog orphans`.

This module uses private parts of PyIceberg: the conversion of a batch to a table's columns by field id, nested ones
included, and the arguments that its writer passes to PyArrow.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.io.fileformat import FileFormatFactory, FileFormatWriter
from pyiceberg.io.pyarrow import ParquetFormatWriter, pyarrow_to_schema
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import partition_record_value
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.utils.properties import property_as_int
from pyspark.sql.types import StructType

from endive.catalog.iceberg import nested_column, set_writer_argument, to_requested_schema
from endive.spark.source.encoding import dictionary_columns
from endive.spark.source.types import arrow_schema

CHUNK_BYTES = 128 * 2**20
"""Rows are collected up to this size, or to the table's row group size, and then written as a row group."""

OPEN_FILES_MAX = 64
"""Of a task, for a table with many partitions. Beyond it, the file that was written to least recently is finished."""


@dataclass(frozen=True)
class WriteJob:
    """The input of every task of a write."""

    metadata: TableMetadata
    io: FileIO
    struct: StructType
    write_id: str


def write_rows(job: WriteJob, batches: Iterable[pa.RecordBatch], task: str) -> tuple[DataFile, ...]:
    """Write a task's rows and return the files. On an error everything it has written is deleted."""
    files = _TaskFiles(job, task)
    try:
        for chunk in _chunks(batches, job):
            for partition, rows in _by_partition(job.metadata, chunk):
                files.write(partition, rows)
        return files.finish()
    except BaseException:  # a task that is interrupted too
        files.discard()
        raise


def delete_files(io: FileIO, paths: Iterable[str]) -> None:
    """Delete files that no snapshot references. A file that cannot be deleted is left to `endive catalog orphans`."""
    for path in paths:
        with suppress(Exception):  # each store has errors of its own
            io.delete(path)


def _chunks(batches: Iterable[pa.RecordBatch], job: WriteJob) -> Iterator[pa.Table]:
    """Collect batches into tables of a row group's size."""
    schema = arrow_schema(job.struct)
    rows_max = _integer(
        job.metadata, TableProperties.PARQUET_ROW_GROUP_LIMIT, TableProperties.PARQUET_ROW_GROUP_LIMIT_DEFAULT
    )
    collected: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        for part in _cut(batch, rows_max - rows, rows_max):
            collected.append(part)
            rows, size_bytes = rows + part.num_rows, size_bytes + part.nbytes
            if rows >= rows_max or size_bytes >= CHUNK_BYTES:
                yield pa.Table.from_batches(collected).cast(schema)
                collected, rows, size_bytes = [], 0, 0
    if rows:
        yield pa.Table.from_batches(collected).cast(schema)


def _cut(batch: pa.RecordBatch, first: int, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch after `first` rows, then after every `rows_max`.

    A row group that is begun is filled exactly: the few rows of a batch that are too many for it would become a row
    group of their own, which costs readers as much as a full one.
    """
    yield batch.slice(0, first)
    for start in range(first, batch.num_rows, rows_max):
        yield batch.slice(start, rows_max)


def _by_partition(metadata: TableMetadata, chunk: pa.Table) -> Iterator[tuple[Record, pa.Table]]:
    """Split rows by partition. Sorted once, whatever the number of partitions; the order within one is kept."""
    spec, schema = metadata.spec(), metadata.schema()
    if spec.is_unpartitioned():
        yield Record(), chunk
        return
    values = []
    for part in spec.fields:
        source = schema.find_field(part.source_id)
        column = nested_column(chunk, str(schema.find_column_name(part.source_id)))
        values.append(part.transform.pyarrow_transform(source.field_type)(column))
    codes = _codes(values)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        first = int(order[start])
        record = Record(
            *(
                partition_record_value(part, column[first].as_py(), schema)
                for part, column in zip(spec.fields, values, strict=True)
            )
        )
        yield record, chunk.take(pa.array(order[start:end]))


def _codes(columns: list[pa.ChunkedArray]) -> np.ndarray:
    """Return a number for each row that is the same where all columns are the same, nulls included."""
    codes: np.ndarray = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        encoded = pc.dictionary_encode(array, null_encoding="encode")
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        pairs = codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy()
        codes = np.unique(pairs, return_inverse=True)[1]  # small again, before the next column multiplies them
    return codes


@dataclass
class _OpenFile:
    path: str
    partition: Record
    writer: FileFormatWriter
    size_bytes: int = 0
    """Of the rows in memory, as PyIceberg counts `write.target-file-size-bytes`; on disk it is a third or less."""


@dataclass
class _TaskFiles:
    """The files of one task, finished and open."""

    job: WriteJob
    task: str
    finished: list[DataFile] = field(default_factory=list)
    open: dict[Record, _OpenFile] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)

    def write(self, partition: Record, rows: pa.Table) -> None:
        """Add rows to the partition's open file, and finish it when it is large enough."""
        table = self._as_table(rows)
        file = self.open.pop(partition, None) or self._new(partition, table)
        self.open[partition] = file  # last in the order of use
        file.writer.write(table)
        file.size_bytes += table.nbytes
        if file.size_bytes >= self._target_bytes():
            self._finish(self.open.pop(partition))
        elif len(self.open) > OPEN_FILES_MAX:
            self._finish(self.open.pop(next(iter(self.open))))

    def finish(self) -> tuple[DataFile, ...]:
        """Finish all files and return them."""
        for partition in list(self.open):
            self._finish(self.open.pop(partition))
        return tuple(self.finished)

    def discard(self) -> None:
        """Delete everything."""
        for file in self.open.values():
            with suppress(Exception):  # the file is deleted in any case
                file.writer.close()
        delete_files(self.job.io, self.paths)

    def _new(self, partition: Record, first: pa.Table) -> _OpenFile:
        metadata = self.job.metadata
        name = f"{self.task}-{self.job.write_id}-{len(self.paths):05}.parquet"
        if not metadata.spec().is_unpartitioned():
            name = f"{metadata.spec().partition_to_path(partition, metadata.schema())}/{name}"
        path = load_location_provider(metadata.location, metadata.properties).new_data_location(name)
        self.paths.append(path)
        schema = sanitize_column_names(metadata.schema())
        writer = ParquetFormatWriter(self.job.io.new_output(path), schema, metadata.properties)
        set_writer_argument(writer, "use_dictionary", dictionary_columns(schema, first))
        return _OpenFile(path, partition, writer)

    def _as_table(self, rows: pa.Table) -> pa.Table:
        """Return rows with the table's columns, types and field ids; what the frame lacks is null."""
        schema = self.job.metadata.schema()
        batch = to_requested_schema(
            requested_schema=sanitize_column_names(schema),
            file_schema=pyarrow_to_schema(rows.schema, name_mapping=schema.name_mapping),
            batch=rows,
            include_field_ids=True,
            format_model=FileFormatFactory.get(FileFormat.PARQUET),
        )
        return pa.Table.from_batches([batch])

    def _finish(self, file: _OpenFile) -> None:
        file.writer.close()
        statistics = file.writer.result()
        self.finished.append(
            DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=file.path,
                file_format=FileFormat.PARQUET,
                partition=file.partition,
                file_size_in_bytes=len(self.job.io.new_input(file.path)),
                sort_order_id=None,
                spec_id=self.job.metadata.default_spec_id,
                equality_ids=None,
                key_metadata=None,
                **statistics.to_serialized_dict(),
            )
        )

    def _target_bytes(self) -> int:
        name = TableProperties.WRITE_TARGET_FILE_SIZE_BYTES
        return _integer(self.job.metadata, name, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT)


def _integer(metadata: TableMetadata, name: str, default: int) -> int:
    return property_as_int(metadata.properties, name, default) or default
