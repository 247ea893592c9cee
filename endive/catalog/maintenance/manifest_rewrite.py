"""Rewriting of manifests: many small ones of a table's current snapshot become a few large ones.

A commit adds a manifest, and every reader of the table opens all of them. The rewrite commits a snapshot of the
operation `replace`, which changes no row: its manifests have the same files, with their snapshots and sequence numbers.
Iceberg's properties say when it is worth it: `commit.manifest.min-count-to-merge` manifests (100) that are smaller than
`commit.manifest.target-size-bytes` (8 MB). Manifests of delete files stay as they are: PyIceberg cannot write them.

**Races.** The snapshot requires that `main` has not moved. If it has, the files of the attempt are deleted, and the
next maintenance tries again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile, write_manifest
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate
from pyiceberg.utils.properties import property_as_int

from endive.catalog.commit.change import TableChange
from endive.catalog.commit.decision import last_sequence_number
from endive.catalog.commit.manifests import compression, metadata_path, read_entries, read_list, write_list
from endive.catalog.model.names import Identifier
from endive.catalog.operations.refs import set_ref
from endive.catalog.operations.tables_in_store import TablesInStore
from endive.errors import CommitConflictError

FORMAT_MAX = 2
"""PyIceberg cannot write manifests of later formats."""


@dataclass(frozen=True, slots=True)
class RewrittenManifests:
    """How many manifests the current snapshot had and has."""

    before: int = 0
    after: int = 0

    def __bool__(self) -> bool:
        return self.after < self.before


def plan_rewrite(io: FileIO, metadata: TableMetadata) -> tuple[list[list[ManifestFile]], list[ManifestFile]]:
    """Return the manifests of the current snapshot to merge, each list into one, and those that stay."""
    head = metadata.snapshot_by_name(MAIN_BRANCH)
    if head is None or metadata.format_version > FORMAT_MAX:
        return [], []
    manifests = list(read_list(io, head.manifest_list))
    size_bytes = _number(metadata, TableProperties.MANIFEST_TARGET_SIZE_BYTES, 8 * 1024 * 1024)
    count_min = _number(metadata, TableProperties.MANIFEST_MIN_MERGE_COUNT, 100)
    groups: dict[int, list[ManifestFile]] = {}
    for one in manifests:
        if one.content == ManifestContent.DATA and one.manifest_length < size_bytes:
            groups.setdefault(one.partition_spec_id, []).append(one)
    merged = [
        part
        for spec_id, group in groups.items()
        if len(group) >= max(count_min, 2) and _can_write(metadata, spec_id)
        for part in _parts(group, size_bytes)
        if len(part) > 1
    ]
    paths = {one.manifest_path for part in merged for one in part}
    return merged, [one for one in manifests if one.manifest_path not in paths]


def _number(metadata: TableMetadata, name: str, default: int) -> int:
    found = property_as_int(metadata.properties, name, default)
    return default if found is None else found


def _can_write(metadata: TableMetadata, spec_id: int) -> bool:
    """Whether the columns that a partition spec refers to still exist."""
    fields = metadata.specs()[spec_id].fields
    return all(metadata.schema().find_column_name(field.source_id) is not None for field in fields)


def _parts(manifests: Sequence[ManifestFile], size_bytes: int) -> Iterator[list[ManifestFile]]:
    """Cut manifests into lists whose sizes add up to at most the target."""
    part: list[ManifestFile] = []
    for one in manifests:
        if part and sum(each.manifest_length for each in part) + one.manifest_length > size_bytes:
            yield part
            part = []
        part.append(one)
    if part:
        yield part


def rewrite_manifests(
    tables: TablesInStore,
    commit: Callable[[list[TableChange]], object],
    name: Identifier,
    commit_uuid: UUID,
    now_ms: int,
) -> RewrittenManifests:
    """Merge small manifests of a table's current snapshot; nothing if there are few, or if `main` moves meanwhile."""
    metadata = tables.load(name).metadata
    io = tables.files.io(metadata.location, metadata.properties)
    merged, kept = plan_rewrite(io, metadata)
    if not merged:
        return RewrittenManifests()
    written: list[str] = []
    change = _rewritten(io, metadata, name, merged, kept, commit_uuid, now_ms, written)
    try:
        commit([change])
    except CommitConflictError:
        for path in written:
            tables.files.delete(path)
        return RewrittenManifests()
    return RewrittenManifests(sum(map(len, merged)) + len(kept), len(merged) + len(kept))


def _rewritten(
    io: FileIO,
    metadata: TableMetadata,
    name: Identifier,
    merged: Sequence[Sequence[ManifestFile]],
    kept: Sequence[ManifestFile],
    commit_uuid: UUID,
    now_ms: int,
    written: list[str],
) -> TableChange:
    """Write the merged manifests and a list of them, and return the change that makes it the current snapshot."""
    head = metadata.snapshot_by_name(MAIN_BRANCH)
    if head is None:
        raise AssertionError("a table without a snapshot has no manifests")
    snapshot_id, last = metadata.new_snapshot_id(), last_sequence_number(metadata)
    manifests = []
    for number, part in enumerate(merged):
        written.append(metadata_path(metadata, f"{commit_uuid}-m{number}.avro"))
        manifests.append(_merge(io, metadata, part, snapshot_id, written[-1]))
    totals = head.summary.additional_properties if head.summary is not None else {}
    figures = {key: value for key, value in totals.items() if key.startswith("total-")}
    counts = {"created": len(manifests), "kept": len(kept), "replaced": sum(map(len, merged))}
    figures |= {f"manifests-{what}": str(count) for what, count in counts.items()}
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=0 if last is None else last + 1,
        timestamp_ms=max(now_ms, head.timestamp_ms),
        manifest_list=metadata_path(metadata, f"snap-{snapshot_id}-0-{commit_uuid}.avro"),
        summary=Summary(Operation.REPLACE, **figures),
        schema_id=metadata.current_schema_id,
    )
    written.append(snapshot.manifest_list)
    write_list(io, metadata, snapshot, [*manifests, *kept])
    requirements, moves = set_ref(metadata, MAIN_BRANCH, snapshot_id, SnapshotRefType.BRANCH)
    return TableChange(name, requirements, (AddSnapshotUpdate(snapshot=snapshot), *moves))


def _merge(
    io: FileIO, metadata: TableMetadata, part: Sequence[ManifestFile], snapshot_id: int, path: str
) -> ManifestFile:
    """Write the live files of several manifests as one."""
    spec = metadata.specs()[part[0].partition_spec_id]
    output = io.new_output(path)
    with write_manifest(
        metadata.format_version, spec, metadata.schema(), output, snapshot_id, compression(metadata)
    ) as writer:
        for manifest in part:
            for entry in read_entries(io, manifest):
                writer.existing(entry)
    return writer.to_manifest_file()
