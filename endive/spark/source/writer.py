"""The writer of one job: created in Spark's planning process, unpickled in tasks and in the committing process."""

import secrets
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.table import Table, TableProperties
from pyiceberg.types import DoubleType, FloatType, IcebergType
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from endive.errors import ConfigurationError
from endive.spark.source.committing import Written, abandon, commit
from endive.spark.source.options import Place, WriteOptions
from endive.spark.source.types import misfits
from endive.spark.source.views import without_history
from endive.spark.source.writing import WriteJob, write_rows

QUERY_ID = "sql.streaming.queryId"
"""A task's property that names its stream, the same after every restart from the stream's checkpoint."""


class EndiveWriter(DataSourceArrowWriter):
    """Writes a frame: tasks write files, then one commit makes them visible."""

    def __init__(self, place: Place, options: WriteOptions, struct: StructType) -> None:
        self._place = place
        self._options = options
        self._job = job_of(place, options, struct)
        self._commit_id = options.commit_id or self._job.write_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return written(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit(self._place, self._options, [one for one in messages if isinstance(one, Written)], self._commit_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abandon(self._place, [one if isinstance(one, Written) else None for one in messages])


def job_of(place: Place, options: WriteOptions, struct: StructType) -> WriteJob:
    """Check that the frame fits the table, and return the input of its tasks. All errors are reported at once."""
    with place.table() as table:
        errors = _errors(table, options, struct)
        if errors:
            raise ConfigurationError(str(place), errors)
        return WriteJob(without_history(table.metadata), table.io, struct, secrets.token_hex(8))


def _errors(table: Table, options: WriteOptions, struct: StructType) -> list[str]:
    errors = misfits(table.schema(), struct)
    form = table.properties.get(TableProperties.WRITE_FILE_FORMAT, TableProperties.WRITE_FILE_FORMAT_DEFAULT)
    if form.lower() != "parquet":
        errors.append(f"the table's files are {form}; only Parquet can be written")
    if options.mode == "dynamic" and table.spec().is_unpartitioned():
        errors.append("overwrite-mode=dynamic replaces partitions, and the table has none")
    if options.mode == "dynamic" and any(isinstance(kind, FloatType | DoubleType) for kind in _partition_types(table)):
        # NaN equals nothing, and PyIceberg 0.12 rounds a double in a partition: files would be taken for others.
        errors.append("overwrite-mode=dynamic cannot distinguish partitions of floating-point numbers")
    return errors


def _partition_types(table: Table) -> list[IcebergType]:
    return [field.field_type for field in table.spec().partition_type(table.schema()).fields]


def written(job: WriteJob, batches: Iterator[pa.RecordBatch]) -> Written:
    """Run a task: write its rows and return its message."""
    context = TaskContext.get()
    partition, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    files = write_rows(job, batches, f"{partition:05}-{attempt}")
    query_id = context.getLocalProperty(QUERY_ID) if context else None
    uuid = str(job.metadata.table_uuid)
    return Written(partition, files, uuid, job.metadata.default_spec_id, job.write_id, query_id)
