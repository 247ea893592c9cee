"""Scan planning from records: PyIceberg's evaluators on file entries that are not read from Avro."""

from collections.abc import Iterable, Iterator

from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import KeyDefaultDict

from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.iceberg import PlannerWithEvaluators
from endive.catalog.model.file_rows import STATUS, FileEntry, live_files
from endive.catalog.model.names import Identifier
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.refs import snapshot_by_id
from endive.catalog.operations.table_rows import TableView, load_table
from endive.protocol.requests import Steps


class RecordPlanner(PlannerWithEvaluators):
    """PyIceberg's planner with another source of entries."""

    def __init__(
        self,
        entries: Iterable[FileEntry],
        metadata: TableMetadata,
        io: FileIO,
        row_filter: str | BooleanExpression,
        case_sensitive: bool,
    ) -> None:
        super().__init__(metadata, io, row_filter, case_sensitive)
        self._entries = entries

    def plan_manifest_entries(self, manifests: Iterable[ManifestFile]) -> Iterator[list[ManifestEntry]]:  # noqa: ARG002
        fits_partition = KeyDefaultDict(self.partition_evaluator)
        fits_metrics = self.metrics_evaluator()
        yield [
            _manifest_entry(entry)
            for entry in self._entries
            if fits_partition[entry.file.spec_id](entry.file) and fits_metrics(entry.file)
        ]

    def plan(self) -> list[FileScanTask]:
        """Return the files to read, with their delete files and the residual of the filter."""
        return list(self.plan_files(()))


def _manifest_entry(entry: FileEntry) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=STATUS[entry.status],
        snapshot_id=entry.added_snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.file,
    )


def plan_files(
    store: TransactionalStore,
    files: MetadataFiles,
    name: Identifier,
    row_filter: str | BooleanExpression,
    snapshot_id: int | None,
    case_sensitive: bool,
) -> list[FileScanTask]:
    """Return the files of a snapshot that may have matching rows; None: of the current snapshot."""

    def look(tx: StoreTransaction) -> Steps[tuple[TableView, int | None, tuple[FileEntry, ...] | None]]:
        view = yield from load_table(tx, name)
        target = snapshot_id if snapshot_id is not None else view.record.metadata.current_snapshot_id
        found = (yield from live_files(tx, view.snapshots, target)) if target is not None else ()
        return view, target, found

    view, target, found = store.read(look)
    metadata = view.metadata
    io = files.io(metadata.location, metadata.properties)
    if target is not None:
        snapshot_by_id(metadata, target)
    if found is not None:
        return RecordPlanner(found, metadata, io, row_filter, case_sensitive).plan()
    scan = DataScan(metadata, io, row_filter, case_sensitive=case_sensitive, snapshot_id=target)
    return list(scan.plan_files())
