"""Planning a scan from records: PyIceberg's evaluators on files that were never read from Avro."""

from collections.abc import Iterable, Iterator

from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import FileScanTask, ManifestGroupPlanner
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import KeyDefaultDict

from endive.catalog.model.file_rows import STATUS, FileEntry


class RecordPlanner(ManifestGroupPlanner):
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
        fits_partition = KeyDefaultDict(self._build_partition_evaluator)
        fits_metrics = self._build_metrics_evaluator()
        yield [
            _manifest_entry(entry)
            for entry in self._entries
            if fits_partition[entry.file.spec_id](entry.file) and fits_metrics(entry.file)
        ]

    def plan(self) -> list[FileScanTask]:
        """Return the files to read, with their delete files and what remains of the filter."""
        return list(self.plan_files(()))


def _manifest_entry(entry: FileEntry) -> ManifestEntry:
    return ManifestEntry.from_args(
        status=STATUS[entry.status],
        snapshot_id=entry.added_snapshot_id,
        sequence_number=entry.sequence_number,
        file_sequence_number=entry.file_sequence_number,
        data_file=entry.file,
    )
