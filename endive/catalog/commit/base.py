"""The base of changes: as much of the table's current state as checking and applying them needs.

A commit reads in proportion to the change: of the table's past only the snapshots that refs and updates name.
Removing snapshots is the exception, since it changes the parents of the others.
"""

from collections.abc import Sequence

from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from endive.catalog.commit.change import PROPERTY_UPDATES, TableChange
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.names import Identifier
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.table_rows import TableView, find_table, partial_view, whole_view
from endive.protocol.requests import Steps


def load_base(tx: StoreTransaction, identifier: Identifier, changes: Sequence[TableChange]) -> Steps[TableView | None]:
    """Return the base of changes of one table; None if the table does not exist."""
    record = yield from find_table(tx, identifier)
    base = yield from base_of(tx, record, changes)
    return base


def base_of(
    tx: StoreTransaction, record: TableRecord | None, changes: Sequence[TableChange]
) -> Steps[TableView | None]:
    """Return the base of changes of the table with this record; None if the table does not exist."""
    if record is None:
        return None
    named: set[int] = set()
    for change in changes:
        needed = snapshots_needed(record, change)
        if needed is None:
            view = yield from whole_view(tx, record)
            return view
        named |= needed
    view = yield from partial_view(tx, record, named)
    return view


def snapshots_needed(record: TableRecord, change: TableChange) -> set[int] | None:
    """Return the ids of the snapshots that checking and applying a change needs; None: the whole past.

    A change that removes snapshots rewrites old rows. Without refs, Iceberg's updates rewrite the history.
    """
    if change.kinds <= PROPERTY_UPDATES and not any(
        isinstance(one, AssertRefSnapshotId) for one in change.requirements
    ):
        return set()
    if RemoveSnapshotsUpdate in change.kinds or not record.metadata.refs:
        return None
    named = {ref.snapshot_id for ref in record.metadata.refs.values()}
    for update in change.updates:
        if isinstance(update, AddSnapshotUpdate):
            named.add(update.snapshot.snapshot_id)
        elif isinstance(update, SetSnapshotRefUpdate):
            named.add(update.snapshot_id)
    return named


def is_alone(record: TableRecord | None, change: TableChange) -> bool:
    """Whether a change cannot share a transaction with others: it creates the table, or needs its whole past."""
    if record is None or change.creates:
        return True
    return bool(record.snapshots_made) and snapshots_needed(record, change) is None


def narrowed(view: TableView, change: TableChange) -> TableView:
    """Return a view with no more of the past than a change needs: applying updates copies all there is."""
    needed = snapshots_needed(view.record, change)
    if not view.snapshots or needed is None:
        return view
    return TableView(view.record, tuple(one for one in view.snapshots if one.snapshot.snapshot_id in needed), ())
