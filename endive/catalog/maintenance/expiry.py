"""Maintenance of tables with their files: expire snapshots, remove orphan files, index the files of imported tables."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from endive.catalog.commit.change import TableChange
from endive.catalog.commit.manifests import all_files, read_list
from endive.catalog.connection import open_place
from endive.catalog.maintenance.candidates import named_by, orphans, overlaps, reachable, unneeded
from endive.catalog.maintenance.clean_up import delete_pending
from endive.catalog.maintenance.purge import clear_dropped, delete_files, require_gc_enabled
from endive.catalog.maintenance.retention import expiring, removal
from endive.catalog.model.catalog_records import SnapshotRecord
from endive.catalog.model.file_rows import ALL, file_rows
from endive.catalog.model.keys import snapshot_key
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.table_rows import all_tables, find_table
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
    clear_dropped(tables.store, tables.files)
    clean_up(tables.store, name)
    expiry = expiring(table.metadata, now_ms, older_than_unix_ms, keep_last)
    if not expiry:
        return ExpiredSnapshots()
    commit([TableChange(name, *removal(table.metadata, expiry))])
    gone = [one for one in table.metadata.snapshots if one.snapshot_id in expiry.snapshot_ids]
    remaining = _same(table, tables.load(name)).metadata.snapshots
    io = tables.files.io(table.metadata.location, table.metadata.properties)
    deleted = delete_files(io, unneeded(io, gone, remaining)) if gone else ()
    return ExpiredSnapshots(expiry.snapshot_ids, deleted, expiry.refs)


def remove_orphans(tables: TablesInStore, name: Identifier, older_than_unix_ms: int, dry_run: bool) -> tuple[str, ...]:
    """Delete old files below a table's location that the table does not need; return them."""
    before = tables.load(name)
    location = before.metadata.location
    _require_alone(tables.store, name, location)
    place = open_place(location, tables.files.properties)
    # An empty object may be PyArrow's marker of a folder on S3, which it creates when it deletes a file there.
    listed = [(f"{location}/{one.path}", one.modified_unix_ms) for one in place.list("") if one.size_bytes]
    if not dry_run:
        _require_settled(tables.store, name)
    table = _same(before, tables.load(name))  # after the listing: commits in between are seen
    if not dry_run:
        require_gc_enabled(name, table.metadata)
    io = tables.files.io(location, table.metadata.properties)
    needed = reachable(io, table.metadata.snapshots).paths | named_by(table.metadata, table.metadata_location)
    found = orphans(listed, needed, older_than_unix_ms)
    if dry_run:
        return found
    clear_dropped(tables.store, tables.files)
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


def _same(before: LoadedTable, now: LoadedTable) -> LoadedTable:
    """Return the table as it is now; raise if it is another table of the same name, with other files."""
    if now.uuid != before.uuid:
        raise NotInCatalogError("Table", text_of(before.identifier), "another table has this name now")
    return now


def _require_alone(store: TransactionalStore, name: Identifier, location: str) -> None:
    others = [
        text_of(record.identifier)
        for record in store.read(all_tables)
        if record.identifier != name and overlaps(location, record.metadata.location)
    ]
    if others:
        problems = [f"{other} is in the same location, so that no file can be called an orphan" for other in others]
        raise ConfigurationError(text_of(name), problems)
