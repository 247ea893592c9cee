"""Dropped tables: deletion of their files, if they are to be purged, and of their rows."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.properties import property_as_bool

from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.maintenance.candidates import named_by, reachable
from endive.catalog.maintenance.protection import deletable, held_by, other_locations, owned, owned_location
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.checkpoint_rows import holding
from endive.catalog.operations.dropped_tables import DroppedTable, clear_rows, dropped_tables, find_dropped, note_purged
from endive.catalog.operations.table_rows import TableView, whole_view
from endive.errors import ConfigurationError, CorruptObjectError, EndiveError
from endive.protocol.requests import Steps

logger = logging.getLogger(__name__)

GC_DISABLED = "its property gc.enabled=false forbids deleting its files"


def is_gc_enabled(metadata: TableMetadata) -> bool:
    """Whether the table's owner allows deleting its files: other tables may share them."""
    return property_as_bool(metadata.properties, "gc.enabled", True)


def require_gc_enabled(name: Identifier, metadata: TableMetadata) -> None:
    """Raise if the table's owner forbids deleting its files."""
    if not is_gc_enabled(metadata):
        raise ConfigurationError(text_of(name), [GC_DISABLED])


def delete_files(io: FileIO, locations: Iterable[str]) -> tuple[str, ...]:
    """Delete files that nothing refers to; return those that this call deleted. Others stay as orphans."""
    deleted = []
    for location in locations:
        try:
            io.delete(location)
            deleted.append(location)
        except FileNotFoundError:
            pass
        except OSError:
            logger.warning("could not delete %s, which nothing refers to", location, exc_info=True)
    return tuple(deleted)


def finish_drop(store: TransactionalStore, files: MetadataFiles, uuid: UUID, now_ms: int) -> bool:
    """Delete a dropped table's files if they are to be purged, then its rows. Idempotent, from any process.

    False: a checkpoint needs the files, so that they stay until the checkpoint is gone. Missing files are skipped: an
    earlier try may have deleted them. The first metadata file, list or manifest that is missing or damaged is raised
    when everything else is deleted.
    """
    found, checkpoints = holding(store, lambda tx: _dropped_view(tx, uuid), now_ms)
    if found is None:
        return True
    if found.dropped.purge and (held := held_by(store, checkpoints, uuid)).names:
        name, words = text_of(found.dropped.table.identifier), "its files are kept until the checkpoint is gone"
        logger.info("%s: dropped, but %s has it: %s", name, ", ".join(held.names), words)
        return False
    problem = _purge(files, found) if found.dropped.purge else None
    try:
        if found.dropped.purge:
            store.transact(lambda tx: note_purged(tx, uuid))
        clear_rows(store, uuid)
    except EndiveError:  # the table is dropped all the same
        logger.warning("rows of the dropped table %s are left", text_of(found.dropped.table.identifier), exc_info=True)
    if problem is not None:
        raise problem
    return True


@dataclass(frozen=True, slots=True)
class _DroppedView:
    dropped: DroppedTable
    view: TableView
    location: str | None
    """Where its own files are, if it is cloned."""
    others: tuple[str, ...]
    """The locations of other tables."""


def _dropped_view(tx: StoreTransaction, uuid: UUID) -> Steps[_DroppedView | None]:
    dropped = yield from find_dropped(tx, uuid)
    if dropped is None:
        return None
    view = yield from whole_view(tx, dropped.table)
    location = yield from owned_location(tx, uuid)
    others = yield from other_locations(tx, uuid)
    return _DroppedView(dropped, view, location, others)


def _purge(files: MetadataFiles, found: _DroppedView) -> FileNotFoundError | CorruptObjectError | None:
    """Delete all files of a dropped table; return the first that could not be found or read."""
    metadata = found.view.metadata
    problems: list[FileNotFoundError | CorruptObjectError] = []
    io = files.io(metadata.location, metadata.properties)
    paths = files_to_purge(io, metadata, found.view.record.metadata_location, problems)
    if found.dropped.is_confined:
        paths = owned(paths, metadata.location)
    delete_files(io, deletable(owned(paths, found.location), metadata, found.others))
    return problems[0] if problems else None


def files_to_purge(
    io: FileIO,
    metadata: TableMetadata,
    metadata_location: str,
    problems: list[FileNotFoundError | CorruptObjectError],
) -> list[str]:
    """Return all files that a table names, wherever they are. Reads all its manifests.

    Data files first, then the files that refer to them: after a crash the rest can still be found. `problems`: gets the
    missing and damaged ones.
    """
    needed = reachable(io, metadata.snapshots, problems=problems)
    groups = (needed.files, needed.manifests, needed.lists, named_by(metadata, metadata_location))
    return [path for group in groups for path in sorted(group)]


def clear_dropped(store: TransactionalStore, files: MetadataFiles, now_ms: int) -> int:
    """Finish interrupted drops; return how many. One that fails, or that a checkpoint holds, is left."""
    finished = 0
    for one in store.read(dropped_tables):
        name = text_of(one.table.identifier)
        try:
            if not finish_drop(store, files, one.uuid, now_ms):
                continue
        except FileNotFoundError:
            pass  # deleted by the interrupted try
        except (CorruptObjectError, OSError):
            logger.warning("not all files of the dropped table %s could be deleted", name, exc_info=True)
            continue
        finished += 1
    return finished


def clear_if_dropped(store: TransactionalStore, uuid: UUID) -> None:
    """Delete the rows of a dropped table that is to be registered again; a table being purged stays dropped."""
    dropped = store.read(lambda tx: find_dropped(tx, uuid))
    if dropped is not None and not dropped.purge:
        clear_rows(store, uuid)
