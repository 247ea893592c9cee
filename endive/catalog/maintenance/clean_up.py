"""File rows when snapshots expire: handed over before the commit, swept after it, both in bounded pieces.

**Before.** A snapshot whose parent goes must list all its files itself (`files`). What a snapshot has never changes, so
the rows can be put at any time, some at once, and are right whether the expiry follows or not. The last piece says so
in the snapshot's record; the commit then finds nothing left to hand over. What is few is left to the commit.

**After.** The commit notes the snapshots that are gone in the table's record (`unswept`). Nothing reads their file rows
any more: reading begins at snapshots. The rows go piece by piece, the note last.

**What can race.** Every piece looks at the table's record and at the snapshot's, or the note, inside its transaction. A
snapshot with a noted id is not added again. A commit that was worked out before the note was taken back brings it
back: there is nothing to sweep then. A crash leaves the note; the next expiry or removal of orphans sweeps.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from pyiceberg.table.update import RemoveSnapshotsUpdate

from endive.catalog.commit.changes import TableChange
from endive.catalog.model.file_rows import ALL, CHANGES, Chain, Row, files_by_snapshot, heirs_of, inherited
from endive.catalog.model.keys import files_of, snapshot_key, table_key
from endive.catalog.model.names import Identifier
from endive.catalog.model.records import SnapshotRecord, TableRecord
from endive.catalog.model.transaction import Transaction, TransactionalStore
from endive.catalog.operations import dropped_tables as dropped
from endive.catalog.operations.dropped_tables import pieces
from endive.catalog.operations.tables import find_table, whole_view
from endive.protocol.requests import Steps


def removed_by(change: TableChange) -> frozenset[int]:
    """Return the snapshots that a change removes."""
    if RemoveSnapshotsUpdate not in change.kinds:
        return frozenset()
    return frozenset(
        one for update in change.updates if isinstance(update, RemoveSnapshotsUpdate) for one in update.snapshot_ids
    )


# Before the commit.


def hand_over(store: TransactionalStore, change: TableChange) -> None:
    """Let the heirs of the snapshots that a change removes list all their files, if those are many."""
    gone = removed_by(change)
    if not gone:
        return
    snapshots, rows = store.read(lambda tx: _look(tx, change.identifier, gone))
    for heir in heirs_of(snapshots, gone):
        found = inherited(snapshots, heir, rows)
        if found is not None and len(found) > dropped.PIECE_ROWS:
            _inherit(store, change.identifier, heir, found)


def _look(tx: Transaction, identifier: Identifier, gone: frozenset[int]) -> Steps[tuple[Chain, dict[int, list[bytes]]]]:
    record = yield from find_table(tx, identifier)
    if record is None:
        return (), {}
    view = yield from whole_view(tx, record)
    rows = (yield from files_by_snapshot(tx, record.uuid)) if heirs_of(view.snapshots, gone) else {}
    return view.snapshots, rows


def _inherit(store: TransactionalStore, identifier: Identifier, heir: SnapshotRecord, rows: Sequence[Row]) -> None:
    left = len(rows)
    for piece in pieces(rows):
        left -= len(piece)
        is_last = left == 0

        def put(tx: Transaction, piece: Sequence[Row] = piece, is_last: bool = is_last) -> Steps[bool]:
            done = yield from _inherit_piece(tx, identifier, heir, piece, is_last)
            return done

        if not store.transact(put):
            return  # dropped, expired, or done by somebody else


def _inherit_piece(
    tx: Transaction, identifier: Identifier, heir: SnapshotRecord, rows: Sequence[Row], is_last: bool
) -> Steps[bool]:
    key = snapshot_key(heir.table_uuid, heir.snapshot.snapshot_id)
    record = yield from find_table(tx, identifier)
    body = yield from tx.get(key)
    now = SnapshotRecord.decoded(body) if body is not None else None
    if record is None or record.uuid != heir.table_uuid or now is None or now.files != CHANGES:
        return False
    for row_key, value in rows:
        tx.put(row_key, value)
    if is_last:
        tx.put(key, replace(now, files=ALL).encoded())
    return True


# After it.


def sweep(store: TransactionalStore, identifier: Identifier) -> None:
    """Delete the file rows of a table's snapshots that have expired."""
    record = store.read(lambda tx: find_table(tx, identifier))
    if record is not None:
        for snapshot_id in record.unswept:
            _sweep_snapshot(store, identifier, record.uuid, snapshot_id)


def _sweep_snapshot(store: TransactionalStore, identifier: Identifier, uuid: UUID, snapshot_id: int) -> None:
    rows = store.read(lambda tx: tx.scan(files_of(uuid, snapshot_id)))
    for piece in pieces([key for key, _ in rows]):

        def clear(tx: Transaction, keys: Sequence[bytes] = piece) -> Steps[bool]:
            record = yield from _noting(tx, identifier, uuid, snapshot_id)
            for key in keys if record is not None else ():
                tx.delete(key)
            return record is not None

        if not store.transact(clear):
            return  # dropped or renamed, or swept by somebody else

    def forget(tx: Transaction) -> Steps[None]:
        record = yield from _noting(tx, identifier, uuid, snapshot_id)
        left = yield from tx.scan(files_of(uuid, snapshot_id))
        if record is not None and not left:
            unswept = tuple(one for one in record.unswept if one != snapshot_id)
            tx.put(table_key(identifier), replace(record, unswept=unswept).encoded())

    store.transact(forget)


def _noting(tx: Transaction, identifier: Identifier, uuid: UUID, snapshot_id: int) -> Steps[TableRecord | None]:
    """Return the table's record if it notes that a snapshot's file rows are to go."""
    record = yield from find_table(tx, identifier)
    fits = record is not None and record.uuid == uuid and snapshot_id in record.unswept
    return record if fits else None
