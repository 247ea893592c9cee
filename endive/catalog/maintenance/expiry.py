"""Maintenance of tables with their files: expire snapshots, remove orphan files, index the files of imported tables."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pyiceberg.table.snapshots import Snapshot

from endive.catalog.commit.change import TableChange
from endive.catalog.commit.manifests import all_files, read_list
from endive.catalog.connection import open_place
from endive.catalog.maintenance.candidates import named_by, orphans, overlaps, reachable, unneeded
from endive.catalog.maintenance.clean_up import delete_pending
from endive.catalog.maintenance.protection import (
    deletable,
    held_by,
    locations_at,
    other_locations,
    owned,
    owned_location,
)
from endive.catalog.maintenance.purge import clear_dropped, delete_files, require_gc_enabled
from endive.catalog.maintenance.retention import expiring, removal
from endive.catalog.model.catalog_records import SnapshotRecord
from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.model.file_rows import ALL, file_rows
from endive.catalog.model.keys import snapshot_key
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.checkpoint_rows import holding
from endive.catalog.operations.table_rows import TableView, all_tables, find_table, load_table
from endive.catalog.operations.tables_in_store import LoadedTable, TablesInStore
from endive.errors import ConfigurationError, EndiveError, NotInCatalogError
from endive.protocol.requests import Steps

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExpiredSnapshots:
    """The result of an expiry."""

    snapshot_ids: tuple[int, ...] = ()
    deleted_files: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    """Branches and tags past their age."""


def expire(
    tables: TablesInStore,
    commit: Callable[[list[TableChange]], object],
    name: Identifier,
    now_ms: int,
    older_than_unix_ms: int | None,
    keep_last: int | None,
) -> ExpiredSnapshots:
    """Remove old branches, tags and snapshots from a table, then the files that no other snapshot needs."""
    table = tables.load(name)
    require_gc_enabled(name, table.metadata)
    clear_dropped(tables.store, tables.files, now_ms)
    clean_up(tables.store, name)
    expiry = expiring(table.metadata, now_ms, older_than_unix_ms, keep_last)
    if not expiry:
        return ExpiredSnapshots()
    commit([TableChange(name, *removal(table.metadata, expiry))])
    gone = [one for one in table.metadata.snapshots if one.snapshot_id in expiry.snapshot_ids]
    deleted = _delete_unneeded(tables, table, gone, now_ms) if gone else ()
    return ExpiredSnapshots(expiry.snapshot_ids, deleted, expiry.refs)


def _delete_unneeded(
    tables: TablesInStore, table: LoadedTable, gone: Sequence[Snapshot], now_ms: int
) -> tuple[str, ...]:
    """Delete the files of removed snapshots that neither the table nor a checkpoint needs."""
    name = table.identifier
    (view, location), checkpoints = holding(tables.store, lambda tx: _view_and_location(tx, name), now_ms)
    _require_same(table.uuid, view, name)
    held = held_by(tables.store, checkpoints, table.uuid)
    remaining = {one.snapshot_id: one for one in (*view.metadata.snapshots, *held.snapshots)}
    io = tables.files.io(table.metadata.location, table.metadata.properties)
    others = tables.store.read_cached(lambda tx: other_locations(tx, table.uuid))
    found = owned(unneeded(io, gone, list(remaining.values())), location)
    return delete_files(io, deletable(found, table.metadata, others))


def _view_and_location(tx: StoreTransaction, name: Identifier) -> Steps[tuple[TableView, str | None]]:
    """Return a table, and where its own files are if it is cloned."""
    view = yield from load_table(tx, name)
    location = yield from owned_location(tx, view.record.uuid)
    return view, location


def remove_orphans(
    tables: TablesInStore, name: Identifier, older_than_unix_ms: int, dry_run: bool, now_ms: int
) -> tuple[str, ...]:
    """Delete old files below a table's location that neither the table nor a checkpoint needs; return them."""
    before = tables.load(name)
    location = before.metadata.location
    place = open_place(location, tables.files.properties)
    # An empty object may be PyArrow's marker of a folder on S3, which it creates when it deletes a file there.
    listed = [(f"{location}/{one.path}", one.modified_unix_ms) for one in place.list("") if one.size_bytes]
    if not dry_run:
        _require_settled(tables.store, name)
    # After the listing: commits in between are seen.
    (view, own), checkpoints = holding(tables.store, lambda tx: _view_and_location(tx, name), now_ms)
    _require_same(before.uuid, view, name)
    _require_alone(tables.store, name, view.record.uuid, location, checkpoints)
    metadata = view.metadata
    if not dry_run:
        require_gc_enabled(name, metadata)
    io = tables.files.io(location, metadata.properties)
    needed = reachable(io, metadata.snapshots).paths | named_by(metadata, view.record.metadata_location)
    needed |= held_by(tables.store, checkpoints, view.record.uuid).paths(io, metadata.snapshots)
    found = tuple(owned(orphans(listed, needed, older_than_unix_ms), own))
    if dry_run:
        return found
    clear_dropped(tables.store, tables.files, now_ms)
    clean_up(tables.store, name)
    return delete_files(io, found)


def _require_settled(store: TransactionalStore, name: Identifier) -> None:
    """Carry out what processes have announced before they died: it may refer to files that nothing refers to yet."""
    left = store.settle()
    if left:
        problem = f"{len(left)} announced commits are of a newer version of Endive: remove orphans with that version"
        raise ConfigurationError(text_of(name), [problem])


def index_files(tables: TablesInStore, name: Identifier) -> int:
    """Add rows for all files of a table's current snapshot, read from its manifests."""
    table = tables.load(name)
    current = table.metadata.current_snapshot()
    if current is None:
        return 0
    io = tables.files.io(table.metadata.location, table.metadata.properties)
    files = all_files(io, read_list(io, current.manifest_list), table.metadata)
    rows = file_rows(table.uuid, current, files)

    def put(tx: StoreTransaction) -> Steps[None]:
        key = snapshot_key(table.uuid, current.snapshot_id)
        record = yield from find_table(tx, name)
        if record is None or record.uuid != table.uuid:
            raise NotInCatalogError("Table", text_of(name), "it was dropped or renamed meanwhile")
        body = yield from tx.get(key)
        if body is None:
            raise NotInCatalogError("Snapshot", str(current.snapshot_id), "it has expired meanwhile")
        for row_key, value in rows:
            tx.put(row_key, value)
        tx.put(key, replace(SnapshotRecord.decoded(body), files=ALL).encoded())

    tables.store.transact(put)
    return len(rows)


def clean_up(store: TransactionalStore, name: Identifier) -> None:
    """Delete file rows of expired snapshots; rows that cannot be deleted are left for the next time."""
    try:
        delete_pending(store, name)
    except EndiveError:
        logger.warning("file rows of expired snapshots of %s are left", text_of(name), exc_info=True)


def _require_same(uuid: UUID, view: TableView, name: Identifier) -> None:
    """Raise if it is another table of the same name, with other files."""
    if view.record.uuid != uuid:
        raise NotInCatalogError("Table", text_of(name), "another table has this name now")


def _require_alone(
    store: TransactionalStore, name: Identifier, uuid: UUID, location: str, checkpoints: Sequence[CheckpointRecord]
) -> None:
    """Raise if another table, of the catalog or of a checkpoint, is in the same location."""
    others = {record.uuid: (text_of(record.identifier), record.metadata.location) for record in store.read(all_tables)}
    others = locations_at(store, checkpoints) | others
    problems = [
        f"{other} is in the same location, so that no file can be called an orphan"
        for each, (other, place) in others.items()
        if each != uuid and overlaps(location, place)
    ]
    if problems:
        raise ConfigurationError(text_of(name), problems)
