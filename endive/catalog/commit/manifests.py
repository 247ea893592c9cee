"""Manifests and manifest lists: reading those of a snapshot that is about to be committed, and writing new ones.

Lists are read past PyIceberg's cache, which goes by a manifest's path alone: a rebased commit gives the same manifest
another sequence number in another list, and the cache would return the old one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from pyiceberg.avro.codecs import AvroCompressionCodec
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import (
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from endive.catalog.commit.manifest_lists import BytesFile, keeps_all_manifests, on_top, own_manifests_of
from endive.catalog.model.file_rows import (
    ADDED,
    ALL,
    CHANGES,
    DELETED,
    ENTRIES_MAX,
    EXISTING,
    NO_FILES,
    FileEntry,
    FilesOfSnapshot,
    entry_of,
)
from endive.errors import CorruptObjectError, EndiveError

CHANGE_STATUS = {ManifestEntryStatus.ADDED: ADDED, ManifestEntryStatus.DELETED: DELETED}


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Name a file that cannot be read in the error: PyIceberg's decoder raises whatever the bytes lead it to."""
    try:
        yield
    except (OSError, EndiveError):
        raise
    except Exception as error:
        problem = f"cannot be read as Iceberg's Avro ({type(error).__name__}: {error})"
        raise CorruptObjectError(path, f"{problem}; `endive catalog check` says what else is damaged") from error


def read_list(io: FileIO, manifest_list: str) -> tuple[ManifestFile, ...]:
    """Return the manifests of a list."""
    with reading(manifest_list):
        return tuple(read_manifest_list(io.new_input(manifest_list)))


def read_bytes(io: FileIO, location: str) -> bytes:
    """Return the content of a file."""
    with io.new_input(location).open() as stream:
        return bytes(stream.read())


def own_list(io: FileIO, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests that a snapshot brings itself; without reading its list if this process has written it."""
    known = own_manifests_of.get(snapshot.manifest_list)
    if known is None:
        return own_manifests(read_list(io, snapshot.manifest_list), snapshot.snapshot_id)
    found = read_manifest_list(BytesFile(snapshot.manifest_list, known))
    return own_manifests(tuple(found), snapshot.snapshot_id)


def list_body(
    metadata: TableMetadata, snapshot: Snapshot, own: Sequence[ManifestFile], parent: Snapshot | None, below: bytes
) -> bytes:
    """Return the manifest list of an append: its own manifests, and those of its parent's list, `below`."""
    if parent is None:
        return encoded_list(metadata, snapshot, own)
    with reading(parent.manifest_list):
        body = on_top(encoded_list(metadata, snapshot, own), below) if keeps_all_manifests(parent) else None
        if body is not None:
            return body
        manifests = tuple(read_manifest_list(BytesFile(parent.manifest_list, below)))
    kept = [one for one in manifests if one.has_added_files() or one.has_existing_files()]
    return encoded_list(metadata, snapshot, [*own, *kept])


def encoded_list(metadata: TableMetadata, snapshot: Snapshot, manifests: Sequence[ManifestFile]) -> bytes:
    """Return a manifest list with these manifests."""
    file = BytesFile(snapshot.manifest_list)
    _write_list(file, metadata, snapshot, manifests)
    return file.body


def write_body(io: FileIO, location: str, body: bytes) -> None:
    """Write a file whose name is unique."""
    with io.new_output(location).create(overwrite=True) as stream:
        stream.write(body)


def read_entries(io: FileIO, manifest: ManifestFile, discard_deleted: bool = True) -> list[ManifestEntry]:
    """Return the entries of a manifest, without those of deleted files unless they are wanted."""
    with reading(manifest.manifest_path):
        return manifest.fetch_manifest_entry(io, discard_deleted=discard_deleted)


def own_manifests(manifests: Sequence[ManifestFile], snapshot_id: int) -> list[ManifestFile]:
    """Return the manifests that a snapshot brought itself."""
    return [one for one in manifests if one.added_snapshot_id == snapshot_id]


def own_entries(io: FileIO, manifest: ManifestFile, snapshot_id: int) -> list[ManifestEntry]:
    """Return what a snapshot added and deleted by one of its manifests; entries it only copied are not among them.

    Numbers that are inherited are left open, since the snapshot may still be put after another.
    """
    entries = [
        entry
        for entry in read_entries(io, manifest, discard_deleted=False)
        if entry.snapshot_id == snapshot_id and entry.status in CHANGE_STATUS
    ]
    return [_open_numbers(entry, manifest) for entry in entries]


def _open_numbers(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    inherits = entry.status == ManifestEntryStatus.ADDED and entry.sequence_number == manifest.sequence_number
    return ManifestEntry.from_args(
        status=entry.status,
        snapshot_id=entry.snapshot_id,
        sequence_number=None if inherits else entry.sequence_number,
        file_sequence_number=None if inherits else entry.file_sequence_number,
        data_file=entry.data_file,
    )


def changed_files(
    io: FileIO, own: Sequence[ManifestFile], snapshot: Snapshot, metadata: TableMetadata
) -> FilesOfSnapshot:
    """Return what a snapshot changes, read from the manifests it brought."""
    count = sum((one.added_files_count or 0) + (one.deleted_files_count or 0) for one in own)
    if count > ENTRIES_MAX or metadata.format_version > 2:  # rows do not hold what format 3 adds
        return NO_FILES
    specs, schema = metadata.specs(), metadata.schema()
    entries: list[FileEntry] = []
    for manifest in own:
        entries += [
            entry_of(entry, CHANGE_STATUS[entry.status], specs[manifest.partition_spec_id], schema)
            for entry in own_entries(io, manifest, snapshot.snapshot_id)
        ]
    return FilesOfSnapshot(CHANGES, tuple(entries))


def all_files(io: FileIO, manifests: Sequence[ManifestFile], metadata: TableMetadata) -> FilesOfSnapshot:
    """Return all live files of a snapshot, read from all its manifests."""
    specs, schema = metadata.specs(), metadata.schema()
    entries = [
        entry_of(entry, EXISTING, specs[manifest.partition_spec_id], schema)
        for manifest in manifests
        for entry in read_entries(io, manifest)
    ]
    return FilesOfSnapshot(ALL, tuple(entries))


def assigned(manifest: ManifestFile, sequence_number: int) -> ManifestFile:
    """Return a manifest that a snapshot brings, with the sequence number that its entries inherit."""
    fresh = ManifestFile(*(manifest[place] for place in range(len(manifest))))  # copy() would share its fields
    fresh.sequence_number = sequence_number
    fresh.min_sequence_number = sequence_number
    return fresh


def metadata_path(metadata: TableMetadata, name: str) -> str:
    """Return where a file of a table's metadata goes."""
    return load_location_provider(metadata.location, metadata.properties).new_metadata_location(name)


def write_added(
    io: FileIO, metadata: TableMetadata, manifest: ManifestFile, snapshot_id: int, path: str
) -> ManifestFile:
    """Write a manifest with only the files that a snapshot added by `manifest`."""
    with write_manifest(
        metadata.format_version,
        metadata.specs()[manifest.partition_spec_id],
        metadata.schema(),
        io.new_output(path),
        snapshot_id,
        compression(metadata),
    ) as writer:
        for entry in own_entries(io, manifest, snapshot_id):
            if entry.status == ManifestEntryStatus.ADDED:
                writer.add(entry)
    return writer.to_manifest_file()


def write_list(
    io: FileIO,
    metadata: TableMetadata,
    snapshot: Snapshot,
    manifests: Sequence[ManifestFile],
) -> None:
    """Write a snapshot's manifest list; manifests without a sequence number get the snapshot's."""
    _write_list(io.new_output(snapshot.manifest_list), metadata, snapshot, manifests)


def _write_list(
    file: OutputFile, metadata: TableMetadata, snapshot: Snapshot, manifests: Sequence[ManifestFile]
) -> None:
    with write_manifest_list(
        metadata.format_version,
        file,
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        snapshot.sequence_number,
        compression(metadata),
    ) as writer:
        writer.add_manifests(list(manifests))


def compression(metadata: TableMetadata) -> AvroCompressionCodec:
    """Return how a table's Avro files are compressed."""
    key, default = TableProperties.WRITE_AVRO_COMPRESSION, TableProperties.WRITE_AVRO_COMPRESSION_DEFAULT
    return cast("AvroCompressionCodec", metadata.properties.get(key, default))
