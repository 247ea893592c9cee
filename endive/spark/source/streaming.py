"""Streams: read appended rows snapshot by snapshot, and write every batch exactly once.

**Reading.** An offset is a snapshot id. A batch holds the files appended after one snapshot up to another, along the
chain of parents; Spark keeps both ids in its checkpoint, and the same ids always give the same files. Rewrites that
change no row (`replace`) are skipped. A snapshot that overwrites or deletes is not a set of added rows, so the stream
ends with an error there, unless `skip-overwrites` is set. If the last snapshot read has been expired or rolled back,
the appended rows are unknown, and the stream ends with an error too.

**Writing.** After a crash Spark repeats a batch with the same number and the same rows. The query's id and the number
identify the commit, so a repetition is recognised (see `committing`) as long as its snapshot exists: keep snapshots
longer than a stream may be down. Spark creates a new writer for each commit, so the tasks' messages carry everything
that the commit needs.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import FileScanTask, IncrementalAppendScan, Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from endive.errors import ConfigurationError
from endive.spark.source.committing import Written, abandon, commit
from endive.spark.source.options import Place, ReadOptions, WriteOptions, open_catalog
from endive.spark.source.scanning import FilePartition, partitions, planned, shape_of
from endive.spark.source.views import View
from endive.spark.source.writer import job_of, written

NOTHING = -1
"""The offset before the first snapshot: the stream begins with the whole table."""

Offset = dict[str, int]


class SnapshotReader(DataSourceStreamReader):
    """Reads a table's appends as they are committed."""

    def __init__(self, place: Place, options: ReadOptions, struct: StructType) -> None:
        if options.snapshot_id is not None or options.as_of_ms is not None:
            problem = "a stream has no snapshot-id and no as-of-timestamp; stream-from says where it begins"
            raise ConfigurationError(str(place), [problem])
        self._place = place
        self._options = options
        self._struct = struct
        self._catalog: Catalog | None = None

    def _table(self) -> Table:
        """Return the current table. The catalog stays open between batches."""
        if self._catalog is None:
            self._catalog = open_catalog(self._place.properties)
        return self._catalog.load_table(self._place.identifier)

    def stop(self) -> None:
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def __getstate__(self) -> dict[str, object]:
        """Leave out the catalog: tasks get the reader too."""
        return {**self.__dict__, "_catalog": None}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        start = self._options.stream_from
        if start == "table":
            return {"snapshot": NOTHING}
        return self.latestOffset() if start == "now" else {"snapshot": int(start)}

    def latestOffset(self) -> Offset:  # noqa: N802
        head = self._head(self._table())
        return {"snapshot": head.snapshot_id if head else NOTHING}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the files that were added after `start`, up to `end`."""
        if start == end:
            return []
        table = self._table()
        view = View(str(self._place), table.metadata, end["snapshot"], table.io)
        shape = shape_of(view, self._struct, AlwaysTrue())
        tasks = (
            planned(view) if start["snapshot"] == NOTHING else self._added(table, start["snapshot"], end["snapshot"])
        )
        return partitions(view, shape, tasks)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        return partition.batches() if isinstance(partition, FilePartition) else iter(())

    def _head(self, table: Table) -> Snapshot | None:
        if self._options.ref is None:
            return table.current_snapshot()
        head = table.snapshot_by_name(self._options.ref)
        if head is None:
            raise ConfigurationError(str(self._place), [f"there is no branch {self._options.ref!r}"])
        return head

    def _added(self, table: Table, start: int, end: int) -> list[FileScanTask]:
        for snapshot in self._between(table, start, end):
            operation = snapshot.summary.operation if snapshot.summary else None
            if operation in (Operation.OVERWRITE, Operation.DELETE) and not self._options.skip_overwrites:
                problem = (
                    f"snapshot {snapshot.snapshot_id} is a commit of kind {operation.value}, which a stream of "
                    "appended rows cannot represent; skip such commits with skip-overwrites=true, or restart "
                    f"after it with stream-from={snapshot.snapshot_id} and another checkpoint"
                )
                raise ConfigurationError(str(self._place), [problem])
        scan = IncrementalAppendScan(table.metadata, table.io, from_snapshot_id=start, to_snapshot_id=end)
        return list(scan.plan_files())

    def _between(self, table: Table, start: int, end: int) -> Iterator[Snapshot]:
        """Yield the snapshots after `start` up to `end`, the newest first."""
        snapshot = table.snapshot_by_id(end)
        while snapshot is not None:
            yield snapshot
            if snapshot.parent_snapshot_id == start:
                return
            parent = snapshot.parent_snapshot_id
            snapshot = table.snapshot_by_id(parent) if parent is not None else None
        problem = (
            f"the stream has read up to snapshot {start}, which is no longer an ancestor of {end}: snapshots were "
            "expired or rolled back. Restart with another checkpoint, and stream-from"
        )
        raise ConfigurationError(str(self._place), [problem])


class BatchWriter(DataSourceStreamArrowWriter):
    """Writes a stream's batches, each in one commit."""

    def __init__(self, place: Place, options: WriteOptions, struct: StructType) -> None:
        if options.commit_id is not None or options.validate_from is not None:
            problem = "a stream has no commit-id and no validate-from-snapshot-id: each batch has its own"
            raise ConfigurationError(str(place), [problem])
        self._place = place
        self._options = options
        self._job = job_of(place, options, struct)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return written(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        received = [one for one in messages if isinstance(one, Written)]
        if received and received[0].query_id is None:
            problem = "Spark does not identify the stream, so a batch could be confused with that of another stream"
            raise ConfigurationError(str(self._place), [problem])
        if received:
            commit(self._place, self._options, received, f"{received[0].query_id}:{batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        abandon(self._place, [one if isinstance(one, Written) else None for one in messages])
