"""Files that may not be deleted: of checkpoints, of clones and their sources, and those outside a table's folders.

`endive.catalog.operations.checkpoint_rows` has the rule that makes it safe. The checkpoint of a clone lasts as long as
the clone, so that the source keeps every file that the clone refers to. The clone itself deletes only files that it has
written: those below the location that its table got when it was cloned.

A table's writer can name any file in a manifest: another table's, the catalog's own, one on the machine that maintains
the catalog. So a file is deleted only if it lies in a folder of the table that names it.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from endive.catalog.connection import FOLDER
from endive.catalog.maintenance.candidates import is_inside, named_by, path_of, reachable
from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.model.keys import cloned_key
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.table_rows import TableView, all_tables, whole_view
from endive.catalog.operations.uuid_index import find_by_uuid
from endive.errors import CheckpointGoneError
from endive.protocol.requests import Steps

logger = logging.getLogger(__name__)

PATH_PROPERTIES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""Iceberg's properties that name a folder of a table."""


@dataclass(frozen=True, slots=True)
class Held:
    """The snapshots and files of one table that checkpoints need."""

    snapshots: tuple[Snapshot, ...] = ()
    named: frozenset[str] = frozenset()
    """Metadata files and statistics."""
    names: tuple[str, ...] = ()
    """The checkpoints that have the table."""

    def paths(self, io: FileIO, known: Iterable[Snapshot] = ()) -> frozenset[str]:
        """Return all files; without those that only `known` snapshots need, which the caller keeps anyway."""
        ids = {one.snapshot_id for one in known}
        return reachable(io, [one for one in self.snapshots if one.snapshot_id not in ids]).paths | self.named


def held_by(store: TransactionalStore, checkpoints: Sequence[CheckpointRecord], uuid: UUID) -> Held:
    """Return what checkpoints need of a table."""
    snapshots: dict[int, Snapshot] = {}
    named: set[str] = set()
    names: list[str] = []
    for checkpoint in checkpoints:
        view = _table_at(store, checkpoint, uuid)
        if view is not None:
            snapshots |= {one.snapshot.snapshot_id: one.snapshot for one in view.snapshots}
            named |= named_by(view.metadata, view.record.metadata_location)
            names.append(checkpoint.name)
    return Held(tuple(snapshots.values()), frozenset(named), tuple(names))


def _table_at(store: TransactionalStore, checkpoint: CheckpointRecord, uuid: UUID) -> TableView | None:
    def look(tx: StoreTransaction) -> Steps[TableView | None]:
        record = yield from find_by_uuid(tx, uuid)
        if record is None:
            return None
        view = yield from whole_view(tx, record)
        return view

    try:
        with closing(store.at(checkpoint.store_checkpoint)) as past:
            return past.read(look)
    except CheckpointGoneError:
        return None  # it has expired and cannot be opened any more


def locations_at(store: TransactionalStore, checkpoints: Sequence[CheckpointRecord]) -> dict[UUID, tuple[str, str]]:
    """Return the names and locations of the tables that checkpoints have, by uuid."""
    found: dict[UUID, tuple[str, str]] = {}
    for checkpoint in checkpoints:
        with closing(store.at(checkpoint.store_checkpoint)) as past:
            for one in past.read(all_tables):
                found[one.uuid] = (".".join(one.identifier), one.metadata.location)
    return found


def owned_location(tx: StoreTransaction, uuid: UUID) -> Steps[str | None]:
    """Return the location below which a cloned table's own files are; None: all its files are its own."""
    body = yield from tx.get(cloned_key(uuid))
    return None if body is None else body.decode()


def owned(paths: Iterable[str], location: str | None) -> list[str]:
    """Return the files that a table owns."""
    if location is None:
        return list(paths)
    return [path for path in paths if is_inside(location, path)]


def own_folders(metadata: TableMetadata) -> tuple[str, ...]:
    """Return the folders of a table's files: its location, and those that its properties name."""
    named = (metadata.properties[name] for name in PATH_PROPERTIES if name in metadata.properties)
    return (metadata.location, *named)


def in_own_folders(paths: Iterable[str], metadata: TableMetadata, others: Iterable[str]) -> list[str]:
    """Return the files that lie in a folder of the table, not below another table's location, and not the catalog's."""
    folders = own_folders(metadata)
    own = [
        path
        for path in paths
        if f"/{FOLDER}/" not in path_of(path) and any(is_inside(folder, path) for folder in folders)
    ]
    return without_others(own, metadata.location, others)


def deletable(paths: Iterable[str], metadata: TableMetadata, others: Iterable[str]) -> list[str]:
    """Return the files that may be deleted with a table or its snapshots; log how many others there are."""
    named = list(paths)
    own = in_own_folders(named, metadata, others)
    if len(own) < len(named):
        words = "%d files outside the folders of the table at %s are not deleted: other tables may need them"
        logger.info(words, len(named) - len(own), metadata.location)
    return own


def other_locations(tx: StoreTransaction, uuid: UUID) -> Steps[tuple[str, ...]]:
    """Return the locations of all other tables."""
    records = yield from all_tables(tx)
    return tuple(one.metadata.location for one in records if one.uuid != uuid)


def without_others(paths: Iterable[str], location: str, others: Iterable[str]) -> list[str]:
    """Return the files that are not below another table's location.

    A table's writer can name any file in a manifest, and must not have the files of other tables deleted so. Of
    locations inside each other, the inner one decides.
    """
    own, folders = _folder(location), [_folder(one) for one in others]

    def is_own(path: str) -> bool:
        depth = len(own) if path.startswith(own) else 0
        return not any(path.startswith(folder) and len(folder) > depth for folder in folders)

    return [path for path in paths if is_own(path_of(path))]


def _folder(location: str) -> str:
    return path_of(location).rstrip("/") + "/"
