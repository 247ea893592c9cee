"""The files of snapshots: rows of `__files`, and how they are read.

The rows of a snapshot are its changes: files `added`, files `deleted`. The files of a snapshot are found by walking
from its oldest ancestor, adding and deleting. One scan reads all rows of a table, however long the walk.

Two kinds of snapshots end the walk early. A snapshot whose record says `all` lists all its files: those it added
itself, and those that were copied from expired ancestors (`existing`). A snapshot whose record says `none` has no rows:
it came with a registered table, or changed more files than `ENTRIES_MAX`. Then the manifests are read instead; they are
the authority in any case, since every commit writes them.

A row holds what planning needs: partition, counts and bounds, as in Iceberg's manifests. Values of partitions keep
their Python types, so that a later promotion of a column's type does not change how they are read.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isfinite
from typing import Any
from uuid import UUID

from pydantic_core import from_json, to_json
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record

from endive.catalog.model.catalog_records import SnapshotRecord
from endive.catalog.model.encoding import decodes
from endive.catalog.model.keys import file_key, files_of
from endive.catalog.model.transaction import KeyValue, StoreTransaction
from endive.protocol.requests import Steps

CHANGES, ALL, NONE = "changes", "all", "none"
"""Kinds of rows that a snapshot has; see `SnapshotRecord.files`."""
ENTRIES_MAX = 10_000
"""A commit of more files than this is not indexed: a transaction should stay small."""
ADDED, EXISTING, DELETED = "added", "existing", "deleted"
STATUS = {
    ADDED: ManifestEntryStatus.ADDED,
    EXISTING: ManifestEntryStatus.EXISTING,
    DELETED: ManifestEntryStatus.DELETED,
}
COUNTS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
BOUNDS = ("lower_bounds", "upper_bounds")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file that a snapshot added, deleted, or has from an expired ancestor."""

    status: str
    file: DataFile
    partition_values: Mapping[str, str]
    """The partition's values as readable text, by field name."""
    added_snapshot_id: int | None = None
    """The snapshot that added the file; None: the snapshot of this row."""
    sequence_number: int | None = None
    """Data sequence number; None: that of the snapshot, which is assigned by the commit."""
    file_sequence_number: int | None = None


@dataclass(frozen=True, slots=True)
class FilesOfSnapshot:
    """The file rows of a snapshot."""

    kind: str
    entries: tuple[FileEntry, ...]


NO_FILES = FilesOfSnapshot(NONE, ())


def entry_of(entry: ManifestEntry, status: str, spec: PartitionSpec, schema: Schema) -> FileEntry:
    """Return a manifest's entry as a record."""
    types = spec.partition_type(schema).fields
    values = {
        field.name: field.transform.to_human_string(kind.field_type, entry.data_file.partition[place])
        for place, (field, kind) in enumerate(zip(spec.fields, types, strict=True))
    }
    return FileEntry(
        status, entry.data_file, values, entry.snapshot_id, entry.sequence_number, entry.file_sequence_number
    )


# JSON.


def file_rows(uuid: UUID, snapshot: Snapshot, files: FilesOfSnapshot) -> list[tuple[bytes, bytes]]:
    """Return the rows of a snapshot's files; sequence numbers that are not assigned become the snapshot's."""
    number = snapshot.sequence_number or 0
    settled = (
        replace(
            entry,
            added_snapshot_id=entry.added_snapshot_id or snapshot.snapshot_id,
            sequence_number=number if entry.sequence_number is None else entry.sequence_number,
            file_sequence_number=number if entry.file_sequence_number is None else entry.file_sequence_number,
        )
        for entry in files.entries
    )
    return [
        (file_key(uuid, snapshot.snapshot_id, entry.file.file_path), encoded_file(uuid, snapshot.snapshot_id, entry))
        for entry in settled
    ]


def encoded_file(uuid: UUID, snapshot_id: int, entry: FileEntry) -> bytes:
    """Return the JSON of a file's record."""
    file = entry.file
    fields: dict[str, Any] = {
        "table_uuid": uuid,
        "snapshot_id": snapshot_id,
        "file_path": file.file_path,
        "file_format": file.file_format.value,
        "record_count": file.record_count,
        "file_size_bytes": file.file_size_in_bytes,
        "partition_values": entry.partition_values,
        "status": entry.status,
        "added_snapshot_id": entry.added_snapshot_id,
        "sequence_number": entry.sequence_number,
        "file_sequence_number": entry.file_sequence_number,
        "content": int(file.content),
        "spec_id": file.spec_id,
        "partition": [_plain(file.partition[place]) for place in range(len(file.partition))],
        "split_offsets": file.split_offsets,
        "equality_ids": file.equality_ids,
        "sort_order_id": file.sort_order_id,
    }
    fields |= {name: _counts(getattr(file, name)) for name in COUNTS}
    fields |= {name: _encoded_bounds(getattr(file, name)) for name in BOUNDS}
    return to_json({name: value for name, value in fields.items() if value is not None})


@decodes("a file's record")
def decoded_file(body: bytes) -> FileEntry:
    """Return the record of a JSON."""
    fields = from_json(body)
    arguments: dict[str, Any] = dict(
        content=DataFileContent(fields["content"]),
        file_path=fields["file_path"],
        file_format=FileFormat(fields["file_format"]),
        partition=Record(*(_unplain(value) for value in fields["partition"])),
        record_count=fields["record_count"],
        file_size_in_bytes=fields["file_size_bytes"],
        key_metadata=None,
        split_offsets=fields.get("split_offsets"),
        equality_ids=fields.get("equality_ids"),
        sort_order_id=fields.get("sort_order_id"),
        **{name: _by_field_id(fields.get(name)) for name in COUNTS},
        **{name: _decoded_bounds(fields.get(name)) for name in BOUNDS},
    )
    file = DataFile.from_args(**arguments)
    file.spec_id = fields["spec_id"]
    return FileEntry(
        fields["status"],
        file,
        fields["partition_values"],
        fields.get("added_snapshot_id"),
        fields.get("sequence_number"),
        fields.get("file_sequence_number"),
    )


def _plain(value: Any) -> Any:  # noqa: ANN401 - any partition value
    """Return what JSON can hold, with the type beside it where JSON would lose it."""
    if isinstance(value, bytes):
        return {"bytes": b64encode(value).decode()}
    if isinstance(value, float) and not isfinite(value):
        return {"float": str(value)}
    if isinstance(value, Decimal | UUID):
        return {type(value).__name__: str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"not a partition's value: {value!r}")


def _unplain(value: Any) -> Any:  # noqa: ANN401 - any partition value
    if not isinstance(value, dict):
        return value
    ((kind, text),) = value.items()
    makers: dict[str, Callable[[str], Any]] = {"bytes": b64decode, "float": float, "Decimal": Decimal, "UUID": UUID}
    return makers[kind](text)


def _counts(counts: Mapping[int, int] | None) -> dict[int, int] | None:
    return None if counts is None else dict(counts.items())


def _encoded_bounds(bounds: Mapping[int, bytes] | None) -> dict[int, str] | None:
    return None if bounds is None else {key: b64encode(value).decode() for key, value in bounds.items()}


def _decoded_bounds(bounds: Mapping[str, str] | None) -> dict[int, bytes] | None:
    return None if bounds is None else {int(key): b64decode(value) for key, value in bounds.items()}


def _by_field_id(counts: Mapping[str, int] | None) -> dict[int, int] | None:
    return None if counts is None else {int(key): value for key, value in counts.items()}


# Reading, and copying to children.

Chain = tuple[SnapshotRecord, ...]


def chain_of(snapshots: Iterable[SnapshotRecord], snapshot_id: int) -> Chain | None:
    """Return the snapshots whose rows give a snapshot's files, oldest first; None if rows are missing."""
    by_id = {one.snapshot.snapshot_id: one for one in snapshots}
    chain: list[SnapshotRecord] = []
    next_id: int | None = snapshot_id
    while next_id is not None:
        one = by_id.pop(next_id, None)  # popped: a cycle of parents must end
        if one is None or one.files == NONE:
            return None
        chain.append(one)
        next_id = one.snapshot.parent_snapshot_id if one.files == CHANGES else None
    return tuple(reversed(chain))


def files_by_snapshot(tx: StoreTransaction, uuid: UUID) -> Steps[dict[int, list[bytes]]]:
    """Return the bodies of a table's file rows, by snapshot id."""
    prefix = files_of(uuid)
    rows = yield from tx.scan(prefix)
    found: dict[int, list[bytes]] = {}
    for key, body in rows:
        found.setdefault(int(key[len(prefix) :].partition(b"/")[0]), []).append(body)
    return found


def walked(chain: Chain, rows: Mapping[int, list[bytes]]) -> dict[str, FileEntry]:
    """Return the files at the end of a chain, by path."""
    files: dict[str, FileEntry] = {}
    for one in chain:
        entries = [decoded_file(body) for body in rows.get(one.snapshot.snapshot_id, ())]
        for entry in entries:
            if entry.status == DELETED:
                files.pop(entry.file.file_path, None)
        for entry in entries:
            if entry.status != DELETED:
                files[entry.file.file_path] = entry
    return files


def live_files(tx: StoreTransaction, snapshots: Chain, snapshot_id: int) -> Steps[tuple[FileEntry, ...] | None]:
    """Return the files of a snapshot; None if rows are missing."""
    chain = chain_of(snapshots, snapshot_id)
    if chain is None:
        return None
    rows = yield from files_by_snapshot(tx, chain[-1].table_uuid)
    return tuple(walked(chain, rows).values())


def children_of(snapshots: Chain, removed: frozenset[int]) -> list[SnapshotRecord]:
    """Return the remaining snapshots whose rows are changes since a removed parent."""
    return [
        one
        for one in snapshots
        if one.snapshot.parent_snapshot_id in removed
        and one.snapshot.snapshot_id not in removed
        and one.files == CHANGES
    ]


def rows_for_child(snapshots: Chain, child: SnapshotRecord, rows: Mapping[int, list[bytes]]) -> list[KeyValue] | None:
    """Return the rows that complete a snapshot's own to the list of all its files; None if rows are missing.

    Rows of files that the snapshot itself added or deleted stay as they are.
    """
    snapshot_id = child.snapshot.snapshot_id
    chain = chain_of(snapshots, snapshot_id)
    if chain is None:
        return None
    own = {decoded_file(body).file.file_path for body in rows.get(snapshot_id, ())}
    return [
        (
            file_key(child.table_uuid, snapshot_id, path),
            encoded_file(child.table_uuid, snapshot_id, replace(entry, status=EXISTING)),
        )
        for path, entry in walked(chain[:-1], rows).items()
        if path not in own
    ]


def reparent(tx: StoreTransaction, snapshots: Chain, removed: frozenset[int]) -> Steps[dict[int, str]]:
    """Copy the file rows of removed snapshots to their children; return the new kind of rows of each child.

    To be called while the rows of the removed snapshots still exist.
    """
    children = children_of(snapshots, removed)
    if not children:
        return {}
    rows = yield from files_by_snapshot(tx, children[0].table_uuid)
    kinds: dict[int, str] = {}
    for child in children:
        found = rows_for_child(snapshots, child, rows)
        for key, value in found or ():
            tx.put(key, value)
        kinds[child.snapshot.snapshot_id] = NONE if found is None else ALL
    return kinds
