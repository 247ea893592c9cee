"""Files that may not be deleted: those of checkpoints and clones, and in a clone those that belong to its source.

`endive.catalog.operations.checkpoint_rows` has the rule that makes it safe. The checkpoint of a clone lasts as long as
the clone, so that the source keeps every file that the clone refers to. The clone itself deletes only files that it has
written: those below the location that its table got when it was cloned.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from endive.catalog.maintenance.candidates import named_by, path_of, reachable
from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.model.keys import cloned_key
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.table_rows import TableView, all_tables, whole_view
from endive.catalog.operations.uuid_index import find_by_uuid
from endive.errors import CheckpointGoneError
from endive.protocol.requests import Steps


@dataclass(frozen=True, slots=True)
class Held:
    """What checkpoints need of one table."""

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
        return None  # it has expired, and nobody can open it any more


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
    return [path for path in paths if path_of(path).startswith(_folder(location))]


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
