"""File rows when snapshots expire: copied to children before the commit, deleted after it, both in bounded batches.

**Before.** A snapshot whose parent is removed must list all its files itself (`endive.catalog.model.file_rows`). The
files of a snapshot never change, so the rows can be put at any time, and are right whether the expiry follows or not.
The last batch says so in the snapshot's record; the commit then has nothing left to copy. Few rows are left to the
commit.

**After.** The commit adds the removed snapshots to the pending deletions in the table's record. Nothing reads their
file rows any more: reading begins at snapshots. The rows are deleted in batches, and then the entry.

**Races.** Every batch reads the table's record and the snapshot's, or the pending deletions, inside its transaction. A
snapshot whose id is pending is not added again. A commit that was prepared before an entry was removed brings the entry
back, with no rows to delete. A crash leaves the entry; the next expiry or removal of orphans cleans up.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from endive.catalog.commit.change import TableChange
from endive.catalog.model.catalog_records import SnapshotRecord, TableRecord
from endive.catalog.model.file_rows import ALL, CHANGES, Chain, children_of, files_by_snapshot, rows_for_child
from endive.catalog.model.keys import files_of, snapshot_key
from endive.catalog.model.names import Identifier
from endive.catalog.model.transaction import KeyValue, StoreTransaction, TransactionalStore
from endive.catalog.operations import dropped_tables as dropped
from endive.catalog.operations.dropped_tables import batches
from endive.catalog.operations.stored_tables import put_record
from endive.catalog.operations.table_rows import find_table, whole_view
from endive.protocol.requests import Steps

# Before the commit.


def reparent_many(store: TransactionalStore, change: TableChange) -> None:
    """Copy the file rows of the snapshots that a change removes to their children, if they are many."""
    removed = change.removed_snapshots
    if not removed:
        return
    snapshots, rows = store.read(lambda tx: _children_rows(tx, change.identifier, removed))
    for child in children_of(snapshots, removed):
        found = rows_for_child(snapshots, child, rows)
        if found is not None and len(found) > dropped.BATCH_ROWS:
            _copy(store, change.identifier, child, found)


def _children_rows(
    tx: StoreTransaction, identifier: Identifier, removed: frozenset[int]
) -> Steps[tuple[Chain, dict[int, list[bytes]]]]:
    record = yield from find_table(tx, identifier)
    if record is None:
        return (), {}
    view = yield from whole_view(tx, record)
    rows = (yield from files_by_snapshot(tx, record.uuid)) if children_of(view.snapshots, removed) else {}
    return view.snapshots, rows


def _copy(store: TransactionalStore, identifier: Identifier, child: SnapshotRecord, rows: Sequence[KeyValue]) -> None:
    left = len(rows)
    for batch in batches(rows):
        left -= len(batch)
        is_last = left == 0

        def put(tx: StoreTransaction, batch: Sequence[KeyValue] = batch, is_last: bool = is_last) -> Steps[bool]:
            done = yield from _copy_batch(tx, identifier, child, batch, is_last)
            return done

        if not store.transact(put):
            return  # dropped, expired, or already copied


def _copy_batch(
    tx: StoreTransaction, identifier: Identifier, child: SnapshotRecord, rows: Sequence[KeyValue], is_last: bool
) -> Steps[bool]:
    key = snapshot_key(child.table_uuid, child.snapshot.snapshot_id)
    record = yield from find_table(tx, identifier)
    body = yield from tx.get(key)
    now = SnapshotRecord.decoded(body) if body is not None else None
    if record is None or record.uuid != child.table_uuid or now is None or now.files != CHANGES:
        return False
    for row_key, value in rows:
        tx.put(row_key, value)
    if is_last:
        tx.put(key, replace(now, files=ALL).encoded())
    return True


# After the commit.


def delete_pending(store: TransactionalStore, identifier: Identifier) -> None:
    """Delete the file rows of a table's expired snapshots."""
    record = store.read(lambda tx: find_table(tx, identifier))
    if record is not None:
        for snapshot_id in record.pending_deletions:
            _delete_rows(store, identifier, record.uuid, snapshot_id)


def _delete_rows(store: TransactionalStore, identifier: Identifier, uuid: UUID, snapshot_id: int) -> None:
    rows = store.read(lambda tx: tx.scan(files_of(uuid, snapshot_id)))
    for batch in batches([key for key, _ in rows]):

        def delete(tx: StoreTransaction, keys: Sequence[bytes] = batch) -> Steps[bool]:
            record = yield from _record_if_pending(tx, identifier, uuid, snapshot_id)
            for key in keys if record is not None else ():
                tx.delete(key)
            return record is not None

        if not store.transact(delete):
            return  # dropped or renamed, or already cleaned up

    def remove_entry(tx: StoreTransaction) -> Steps[None]:
        record = yield from _record_if_pending(tx, identifier, uuid, snapshot_id)
        left = yield from tx.scan(files_of(uuid, snapshot_id))
        if record is not None and not left:
            pending = tuple(one for one in record.pending_deletions if one != snapshot_id)
            yield from put_record(tx, replace(record, pending_deletions=pending))

    store.transact(remove_entry)


def _record_if_pending(
    tx: StoreTransaction, identifier: Identifier, uuid: UUID, snapshot_id: int
) -> Steps[TableRecord | None]:
    """Return the table's record if the deletion of a snapshot's file rows is pending."""
    record = yield from find_table(tx, identifier)
    fits = record is not None and record.uuid == uuid and snapshot_id in record.pending_deletions
    return record if fits else None
