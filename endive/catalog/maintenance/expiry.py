"""Upkeep of a catalog's tables, with files: expire, find orphans, purge."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssignUUIDUpdate
from pyiceberg.utils.properties import property_as_bool

from endive.catalog.commit.changes import TableChange
from endive.catalog.commit.manifests import all_files, read_list
from endive.catalog.connection import open_place
from endive.catalog.maintenance.candidates import named_by, orphans, overlaps, reachable, unneeded
from endive.catalog.maintenance.clean_up import hand_over, removed_by, sweep
from endive.catalog.maintenance.retention import expiring, removal
from endive.catalog.model.file_rows import ALL, file_rows
from endive.catalog.model.keys import TABLES, snapshot_key
from endive.catalog.model.names import Identifier, table_of, text_of
from endive.catalog.model.records import SnapshotRecord, TableRecord
from endive.catalog.model.transaction import Transaction
from endive.catalog.operations.dropped_tables import DroppedTable, clear_rows, dropped_tables, find_dropped, note_purged
from endive.catalog.operations.tables import TableView, find_table, whole_view
from endive.errors import ConfigurationError, CorruptObjectError, EndiveError, NotInCatalogError
from endive.protocol.requests import Steps

if TYPE_CHECKING:
    from endive.catalog.table_catalog import LoadedTable, TableCatalog

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExpiredSnapshots:
    """What expiry removed."""

    snapshot_ids: tuple[int, ...] = ()
    deleted_files: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    """Branches and tags past their age."""


def delete_files(io: FileIO, locations: Iterable[str]) -> tuple[str, ...]:
    """Delete files that nothing needs; return those that are gone by us. What cannot be deleted stays as an orphan."""
    deleted = []
    for location in locations:
        try:
            io.delete(location)
            deleted.append(location)
        except FileNotFoundError:
            pass
        except OSError:
            logger.warning("could not delete %s, which nothing needs", location, exc_info=True)
    return tuple(deleted)


KEPT = "its property gc.enabled=false forbids deleting its files"


def is_collectable(metadata: TableMetadata) -> bool:
    """Whether the table's owner allows deleting its files: others may share them."""
    return property_as_bool(metadata.properties, "gc.enabled", True)


def require_collectable(name: Identifier, metadata: TableMetadata) -> None:
    """Raise if the table's owner forbids deleting its files."""
    if not is_collectable(metadata):
        raise ConfigurationError(text_of(name), [KEPT])


def expire(
    catalog: "TableCatalog", identifier: str | Identifier, older_than_unix_ms: int | None, keep_last: int | None
) -> ExpiredSnapshots:
    """Remove old branches, tags and snapshots from a table, then the files that nothing else needs."""
    table = catalog.load_table(identifier)
    require_collectable(table.identifier, table.metadata)
    clear_dropped(catalog)
    sweep_quietly(catalog, table.identifier)
    expiry = expiring(table.metadata, catalog.now_ms(), older_than_unix_ms, keep_last)
    if not expiry:
        return ExpiredSnapshots()
    catalog.commit_many([TableChange(table.identifier, *removal(table.metadata, expiry))])
    gone = [one for one in table.metadata.snapshots if one.snapshot_id in expiry.snapshot_ids]
    remaining = _same(table, catalog.load_table(table.identifier)).metadata.snapshots
    io = catalog.files.io(table.metadata.location, table.metadata.properties)
    deleted = delete_files(io, unneeded(io, gone, remaining)) if gone else ()
    return ExpiredSnapshots(expiry.snapshot_ids, deleted, expiry.refs)


def remove_orphans(
    catalog: "TableCatalog", identifier: str | Identifier, older_than_unix_ms: int, dry_run: bool
) -> tuple[str, ...]:
    """Delete files below a table's location that are old and that the table does not need; return them."""
    name = table_of(identifier)
    before = catalog.load_table(name)
    location = before.metadata.location
    _require_alone(catalog, name, location)
    place = open_place(location, catalog.properties)
    # An empty object may be PyArrow's mark of a folder on S3, which it makes when it deletes a file there.
    listed = [(f"{location}/{one.path}", one.modified_unix_ms) for one in place.list("") if one.size_bytes]
    table = _same(before, catalog.load_table(name))  # after the listing: what was committed meanwhile is seen
    if not dry_run:
        require_collectable(name, table.metadata)
    io = catalog.files.io(location, table.metadata.properties)
    needed = reachable(io, table.metadata.snapshots).paths | named_by(table.metadata, table.metadata_location)
    found = orphans(listed, needed, older_than_unix_ms)
    if dry_run:
        return found
    clear_dropped(catalog)
    sweep_quietly(catalog, name)
    return delete_files(io, found)


def index_files(catalog: "TableCatalog", identifier: str | Identifier) -> int:
    """Let the records list all files of a table's current snapshot, as its manifests do."""
    table = catalog.load_table(identifier)
    current = table.metadata.current_snapshot()
    if current is None:
        return 0
    io = catalog.files.io(table.metadata.location, table.metadata.properties)
    files = all_files(io, read_list(io, current.manifest_list), table.metadata)
    rows = file_rows(table.uuid, current, files)

    def put(tx: Transaction) -> Steps[None]:
        key = snapshot_key(table.uuid, current.snapshot_id)
        record = yield from find_table(tx, table.identifier)
        if record is None or record.uuid != table.uuid:
            raise NotInCatalogError("Table", text_of(table.identifier), "it was dropped or renamed meanwhile")
        body = yield from tx.get(key)
        if body is None:
            raise NotInCatalogError("Snapshot", str(current.snapshot_id), "it has expired meanwhile")
        for row_key, value in rows:
            tx.put(row_key, value)
        tx.put(key, replace(SnapshotRecord.decoded(body), files=ALL).encoded())

    catalog.store.transact(put)
    return len(rows)


def _same(before: "LoadedTable", now: "LoadedTable") -> "LoadedTable":
    """Return the table as it is now. What another table of the same name needs says nothing of this one's files."""
    if now.uuid != before.uuid:
        raise NotInCatalogError("Table", text_of(before.identifier), "another table has this name now")
    return now


def _require_alone(catalog: "TableCatalog", name: Identifier, location: str) -> None:
    others = [
        text_of(record.identifier)
        for record in catalog.store.read(all_tables)
        if record.identifier != name and overlaps(location, record.metadata.location)
    ]
    if others:
        faults = [f"{other} lives in the same place, so that no file can be called an orphan" for other in others]
        raise ConfigurationError(text_of(name), faults)


def all_tables(tx: Transaction) -> Steps[tuple[TableRecord, ...]]:
    """Return the records of all tables."""
    rows = yield from tx.scan(TABLES.encode())
    return tuple(TableRecord.decoded(body) for _, body in rows)


# Around commits.


def prepare(catalog: "TableCatalog", change: TableChange) -> None:
    """Do what would make a commit large, or what is in its way, in transactions of its own."""
    for update in change.updates if change.creates else ():
        if isinstance(update, AssignUUIDUpdate):
            clear_if_dropped(catalog, update.uuid)
    hand_over(catalog.store, change)


def tidy_up_after(catalog: "TableCatalog", change: TableChange) -> None:
    """Delete the rows that a commit has left behind. It has happened, and no error may look as if it had not."""
    if removed_by(change):
        sweep_quietly(catalog, change.identifier)


def sweep_quietly(catalog: "TableCatalog", name: Identifier) -> None:
    """Delete file rows of snapshots that have expired; what cannot be deleted is left for the next time."""
    try:
        sweep(catalog.store, name)
    except EndiveError:
        logger.warning("file rows of expired snapshots of %s are left", text_of(name), exc_info=True)


# Dropped tables.


def finish_drop(catalog: "TableCatalog", uuid: UUID) -> None:
    """Delete a dropped table's files if they are to be purged, then its rows. Anybody may do it, again and again.

    Files that are named and not there are passed over: an earlier try may have deleted them. The first that was to be
    read and was not there, or is damaged, is raised when everything else is gone.
    """
    found = catalog.store.read(lambda tx: _dropped_view(tx, uuid))
    if found is None:
        return
    dropped, view = found
    problem = _purge(catalog, view) if dropped.purge else None
    try:
        if dropped.purge:
            catalog.store.transact(lambda tx: note_purged(tx, uuid))
        clear_rows(catalog.store, uuid)
    except EndiveError:  # the table is dropped all the same
        logger.warning("rows of the dropped table %s are left", text_of(dropped.table.identifier), exc_info=True)
    if problem is not None:
        raise problem


def _dropped_view(tx: Transaction, uuid: UUID) -> Steps[tuple[DroppedTable, TableView] | None]:
    dropped = yield from find_dropped(tx, uuid)
    if dropped is None:
        return None
    view = yield from whole_view(tx, dropped.table)
    return dropped, view


def _purge(catalog: "TableCatalog", view: TableView) -> FileNotFoundError | CorruptObjectError | None:
    """Delete all files of a table that is no longer in the catalog; return why some could not be found.

    Data files first, then what names them: what is left after a crash can still be found.
    """
    metadata = view.metadata
    problems: list[FileNotFoundError | CorruptObjectError] = []
    files = files_to_purge(catalog, metadata, view.record.metadata_location, problems)
    delete_files(catalog.files.io(metadata.location, metadata.properties), files)
    return problems[0] if problems else None


def files_to_purge(
    catalog: "TableCatalog",
    metadata: TableMetadata,
    metadata_location: str,
    problems: list[FileNotFoundError | CorruptObjectError],
) -> list[str]:
    """Return all files of a table, wherever they are: data files, then what names them. Reads all its manifests.

    `problems`: where what is missing or damaged is noted.
    """
    io = catalog.files.io(metadata.location, metadata.properties)
    needed = reachable(io, metadata.snapshots, problems=problems)
    groups = (needed.files, needed.manifests, needed.lists, named_by(metadata, metadata_location))
    return [path for group in groups for path in sorted(group)]


def clear_dropped(catalog: "TableCatalog") -> int:
    """Finish drops that were interrupted; return how many. One that fails is left for the next time."""
    finished = 0
    for one in catalog.store.read(dropped_tables):
        name = text_of(one.table.identifier)
        try:
            finish_drop(catalog, one.uuid)
        except FileNotFoundError:
            pass  # deleted by the try that was interrupted
        except (CorruptObjectError, OSError):
            logger.warning("not all files of the dropped table %s could be deleted", name, exc_info=True)
            continue
        finished += 1
    return finished


def clear_if_dropped(catalog: "TableCatalog", uuid: UUID) -> None:
    """Clear rows of a dropped table that is to come back; one whose files are going stays dropped."""
    dropped = catalog.store.read(lambda tx: find_dropped(tx, uuid))
    if dropped is not None and not dropped.purge:
        clear_rows(catalog.store, uuid)
