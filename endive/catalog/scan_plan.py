"""Scan plans for the server: data files with their delete files and residuals, from the `__files` records.

PyIceberg's own planner gives no equality deletes, since it cannot read them; other engines can. So data files are
matched with delete files here, by Iceberg's rules ("Scan Planning" in its specification):

* a position delete file applies to data files of its partition with the same or an older data sequence number;
* an equality delete file applies to data files with an older data sequence number, of its partition, or of all
  partitions if its spec is unpartitioned.

A client does not see sequence numbers: the matching must be exact in them, and may give too many files otherwise.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from pyiceberg.expressions import BooleanExpression
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import DataScan
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import KeyDefaultDict

from endive.catalog.commit.manifests import read_list
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.maintenance.protection import in_own_folders, other_locations, owned_location, without_others
from endive.catalog.model.catalog_records import SnapshotRecord
from endive.catalog.model.file_rows import ADDED, NONE, FileEntry, decoded_file, files_by_snapshot, live_files
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.refs import snapshot_by_id
from endive.catalog.operations.table_rows import TableView, imported_from, load_table
from endive.catalog.planner import RecordPlanner
from endive.errors import ConfigurationError
from endive.protocol.requests import Steps

PATH_FIELD = 2147483546
"""Iceberg's reserved id of the column `file_path` in position delete files."""
FORMAT_MAX = 2
"""The records do not hold what format 3 adds to files: deletion vectors and row ids."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The snapshot, or the snapshots between two, and the rows that a scan wants."""

    row_filter: BooleanExpression
    snapshot_id: int | None = None
    """None: the current snapshot."""
    start_snapshot_id: int | None = None
    """With `end_snapshot_id`: only the files that appends after this snapshot added."""
    end_snapshot_id: int | None = None
    case_sensitive: bool = True
    use_snapshot_schema: bool = False
    """Read with the schema of the snapshot, not with the current one."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file to read."""

    file: DataFile
    deletes: tuple[DataFile, ...]
    residual: BooleanExpression
    """The part of the filter that the file's partition does not decide."""


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """The files that a scan reads, by path."""

    metadata: TableMetadata
    files: tuple[PlannedFile, ...]


@dataclass(frozen=True, slots=True)
class _Found:
    view: TableView
    target: int | None
    entries: tuple[FileEntry, ...] | None
    """None: the records do not have the snapshot's files."""


def plan_scan(store: TransactionalStore, files: MetadataFiles, name: Identifier, request: ScanRequest) -> ScanPlan:
    """Return the files that a scan reads. Reads manifests only where the records do not have the snapshot's files."""
    found = store.read(partial(_look, name=name, request=request))
    metadata = found.view.metadata
    if metadata.format_version > FORMAT_MAX:
        raise ConfigurationError(
            text_of(name),
            [f"the server plans no scans of tables of format {metadata.format_version}: plan in the client"],
        )
    if found.target is None:
        return ScanPlan(metadata, ())
    snapshot = snapshot_by_id(metadata, found.target)
    if request.use_snapshot_schema and snapshot.schema_id is not None:
        metadata = metadata.model_copy(update={"current_schema_id": snapshot.schema_id})
    if found.entries is None:
        _require_own_manifests(store, files, name, metadata, snapshot.manifest_list)
        return _from_manifests(files, metadata, found.target, request)
    return ScanPlan(metadata, tuple(_planned(files, metadata, found.entries, request)))


def _look(tx: StoreTransaction, name: Identifier, request: ScanRequest) -> Steps[_Found]:
    view = yield from load_table(tx, name)
    if request.end_snapshot_id is not None and request.start_snapshot_id is not None:
        chosen = _between(name, view.snapshots, request.start_snapshot_id, request.end_snapshot_id)
        rows = yield from files_by_snapshot(tx, view.record.uuid)
        return _Found(view, request.end_snapshot_id, _appended(chosen, rows))
    target = request.snapshot_id if request.snapshot_id is not None else view.record.metadata.current_snapshot_id
    entries = (yield from live_files(tx, view.snapshots, target)) if target is not None else ()
    return _Found(view, target, entries)


def _between(name: Identifier, snapshots: Iterable[SnapshotRecord], start: int, end: int) -> list[SnapshotRecord]:
    """Return the appends after a snapshot up to another one, which must be its descendant."""
    by_id = {one.snapshot.snapshot_id: one for one in snapshots}
    chosen: list[SnapshotRecord] = []
    next_id: int | None = end
    while next_id != start:
        one = by_id.pop(next_id, None) if next_id is not None else None  # popped: a cycle of parents must end
        if one is None:
            raise ConfigurationError(text_of(name), [f"snapshot {start} is no ancestor of snapshot {end}"])
        if one.snapshot.summary is not None and one.snapshot.summary.operation is Operation.APPEND:
            chosen.append(one)
        next_id = one.snapshot.parent_snapshot_id
    unknown = next((one.snapshot.snapshot_id for one in chosen if one.files == NONE), None)
    if unknown is not None:
        raise ConfigurationError(text_of(name), [f"the records do not have the files of snapshot {unknown}"])
    return chosen


def _appended(chosen: Sequence[SnapshotRecord], rows: Mapping[int, list[bytes]]) -> tuple[FileEntry, ...]:
    entries = [decoded_file(body) for one in chosen for body in rows.get(one.snapshot.snapshot_id, ())]
    return tuple(one for one in entries if one.status == ADDED and one.file.content == DataFileContent.DATA)


def _require_own_manifests(
    store: TransactionalStore, files: MetadataFiles, name: Identifier, metadata: TableMetadata, manifest_list: str
) -> None:
    """Refuse a list that names manifests of another table: a writer can replace the list after its commit.

    Manifests are in the table's folders; only a table that was registered or cloned has them elsewhere.
    """
    manifests = read_list(files.io(metadata.location, metadata.properties), manifest_list)
    paths = [manifest_list, *(one.manifest_path for one in manifests)]
    others, has_own_only = store.read_cached(partial(_places, uuid=metadata.table_uuid))
    if has_own_only:
        found = in_own_folders(paths, metadata, others)
    else:
        found = without_others(paths, metadata.location, others)
    if len(found) < len(paths):
        raise ConfigurationError(text_of(name), ["its manifest list names manifests of another table"])


def _places(tx: StoreTransaction, uuid: UUID) -> Steps[tuple[tuple[str, ...], bool]]:
    """Return the locations of other tables, and whether the table was created here."""
    others = yield from other_locations(tx, uuid)
    imported = yield from imported_from(tx, uuid)
    cloned = yield from owned_location(tx, uuid)
    return others, imported is None and cloned is None


def _from_manifests(files: MetadataFiles, metadata: TableMetadata, target: int, request: ScanRequest) -> ScanPlan:
    io = files.io(metadata.location, metadata.properties)
    scan = DataScan(metadata, io, request.row_filter, case_sensitive=request.case_sensitive, snapshot_id=target)
    tasks = sorted(scan.plan_files(), key=lambda task: task.file.file_path)
    return ScanPlan(metadata, tuple(PlannedFile(one.file, tuple(one.delete_files), one.residual) for one in tasks))


def _planned(
    files: MetadataFiles, metadata: TableMetadata, entries: Sequence[FileEntry], request: ScanRequest
) -> list[PlannedFile]:
    io = files.io(metadata.location, metadata.properties)
    planner = RecordPlanner((), metadata, io, request.row_filter, request.case_sensitive)
    fits_partition, fits_metrics = KeyDefaultDict(planner.partition_evaluator), planner.metrics_evaluator()
    deletes = _Deletes([one for one in entries if one.file.content != DataFileContent.DATA], metadata)
    data = [one for one in entries if one.file.content == DataFileContent.DATA]
    return [
        PlannedFile(one.file, deletes.of(one), planner.residual_of(one.file))
        for one in sorted(data, key=lambda entry: entry.file.file_path)
        if fits_partition[one.file.spec_id](one.file) and fits_metrics(one.file)
    ]


Key = tuple[int, tuple[object, ...]]


class _Deletes:
    """The delete files of a snapshot, by partition."""

    def __init__(self, entries: Sequence[FileEntry], metadata: TableMetadata) -> None:
        everywhere = {spec.spec_id for spec in metadata.partition_specs if spec.is_unpartitioned()}
        self._positions: dict[Key, list[FileEntry]] = {}
        self._equalities: dict[Key, list[FileEntry]] = {}
        self._global: list[FileEntry] = []
        for one in entries:
            if one.file.content == DataFileContent.POSITION_DELETES:
                self._positions.setdefault(_key(one.file), []).append(one)
            elif one.file.spec_id in everywhere:
                self._global.append(one)
            else:
                self._equalities.setdefault(_key(one.file), []).append(one)

    def of(self, data: FileEntry) -> tuple[DataFile, ...]:
        """Return the delete files that apply to a data file."""
        key, number = _key(data.file), data.sequence_number or 0
        positions = [
            one.file
            for one in self._positions.get(key, ())
            if (one.sequence_number or 0) >= number and _may_name(one.file, data.file.file_path)
        ]
        equalities = [
            one.file for one in (*self._equalities.get(key, ()), *self._global) if (one.sequence_number or 0) > number
        ]
        return (*positions, *equalities)


def _key(file: DataFile) -> Key:
    return file.spec_id, tuple(file.partition[place] for place in range(len(file.partition)))


def _may_name(deletes: DataFile, path: str) -> bool:
    """Whether a position delete file may have rows about a data file: the bounds of its paths tell."""
    lower, upper = (deletes.lower_bounds or {}).get(PATH_FIELD), (deletes.upper_bounds or {}).get(PATH_FIELD)
    encoded = path.encode()
    return (lower is None or lower <= encoded) and (upper is None or encoded <= upper)
