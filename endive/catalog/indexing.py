"""Files of a snapshot that came without rows in `__files`: read from its manifests, and put there.

**What can race.** The rows go in by several transactions, since a table may have more files than one should hold. Until
the last of them the snapshot's record says `none`, and nobody looks at the rows. Each transaction makes sure that the
table and the snapshot are still there: whoever drops the table or expires the snapshot removes the rows that are in,
and none come after. A crash leaves rows that nobody looks at; the next call puts the same ones.
"""

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from endive.catalog import tables
from endive.catalog.files import ALL, EXISTING, FileEntry, FilesOfSnapshot, chain_of, entry_of, file_rows
from endive.catalog.keys import snapshot_key
from endive.catalog.manifests import read_list
from endive.catalog.names import Identifier, table_of, text_of
from endive.catalog.records import SnapshotRecord
from endive.catalog.refs import snapshot_by_id
from endive.catalog.works import Transaction
from endive.errors import ConfigurationError, NotInCatalogError
from endive.protocol.requests import Steps

if TYPE_CHECKING:
    from endive.catalog.catalog import KVCatalog

ROWS_AT_ONCE = 2000
"""Of one transaction: about a megabyte."""

Rows = tuple[tuple[bytes, bytes], ...]


def index_files(catalog: "KVCatalog", identifier: str | Identifier, snapshot_id: int | None) -> int:
    """Put the files of a snapshot into `__files`, unless they are there; return how many it has."""
    name = table_of(identifier)
    view = catalog.store.read(lambda tx: tables.load_table(tx, name))
    metadata = view.metadata
    target = snapshot_id if snapshot_id is not None else metadata.current_snapshot_id
    if target is None:
        return 0
    snapshot = snapshot_by_id(metadata, target)
    if metadata.format_version > 2:
        raise ConfigurationError(text_of(name), ["records do not hold what Iceberg's format 3 adds"])
    if chain_of(view.snapshots, target) is not None:
        return len(catalog.plan_files(name, snapshot_id=target))
    entries = _entries(catalog, metadata, snapshot)
    rows = file_rows(view.record.uuid, snapshot, FilesOfSnapshot(ALL, entries))
    for first in range(0, len(rows), ROWS_AT_ONCE):
        _put(catalog, name, view.record.uuid, target, tuple(rows[first : first + ROWS_AT_ONCE]), is_last=False)
    _put(catalog, name, view.record.uuid, target, (), is_last=True)
    return len(entries)


def _entries(catalog: "KVCatalog", metadata: TableMetadata, snapshot: Snapshot) -> tuple[FileEntry, ...]:
    io = catalog.files.io(metadata.location, metadata.properties)
    specs, schema = metadata.specs(), metadata.schema()
    return tuple(
        entry_of(entry, EXISTING, specs[manifest.partition_spec_id], schema)
        for manifest in read_list(io, snapshot.manifest_list)
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)
    )


def _put(catalog: "KVCatalog", name: Identifier, uuid: UUID, snapshot_id: int, rows: Rows, is_last: bool) -> None:
    catalog._transact(lambda tx: put_rows(tx, name, uuid, snapshot_id, rows, is_last))


def put_rows(
    tx: Transaction, identifier: Identifier, uuid: UUID, snapshot_id: int, rows: Rows, is_last: bool
) -> Steps[None]:
    """Put rows of a snapshot's files; after the last ones its record says that all are there."""
    record = yield from tables.require_table(tx, identifier, "it was dropped or renamed while its files were read")
    key = snapshot_key(uuid, snapshot_id)
    body = yield from tx.get(key)
    if record.uuid != uuid or body is None:
        raise NotInCatalogError("Snapshot", str(snapshot_id), "it went while its files were read")
    for row_key, row in rows:
        tx.put(row_key, row)
    if is_last:
        tx.put(key, replace(SnapshotRecord.decoded(body), files=ALL).encoded())
