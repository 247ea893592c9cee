"""The base of a change: as much of the table's current state as checking and applying the change needs.

A commit reads in proportion to the change: of the table's past only the snapshots that refs and updates name.
Removing snapshots is the exception, since it changes the parents of the others.
"""

from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from endive.catalog.commit.change import PROPERTY_UPDATES, TableChange
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.names import text_of
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.table_rows import TableView, find_table, partial_view, whole_view
from endive.errors import NotInCatalogError
from endive.protocol.requests import Steps


def load_base(tx: StoreTransaction, change: TableChange) -> Steps[TableView | None]:
    """Return the base of a change; None if the table does not exist and the change creates it."""
    record = yield from find_table(tx, change.identifier)
    base = yield from base_of(tx, record, change)
    return base


def base_of(tx: StoreTransaction, record: TableRecord | None, change: TableChange) -> Steps[TableView | None]:
    """Return the base of a change of the table with this record; None if the change creates the table."""
    if record is None:
        if not change.creates:
            raise NotInCatalogError(
                "Table", text_of(change.identifier), "it may have been dropped or renamed since it was loaded"
            )
        return None
    if change.kinds <= PROPERTY_UPDATES and not _asserts_ref(change):
        return TableView(record, (), ())
    if _needs_whole_past(record, change):
        view = yield from whole_view(tx, record)
    else:
        view = yield from partial_view(tx, record, named_snapshots(record, change))
    return view


def narrowed(view: TableView, change: TableChange) -> TableView:
    """Return a view with no more of the past than a change needs: applying updates copies all there is."""
    if not view.snapshots or _needs_whole_past(view.record, change):
        return view
    named = named_snapshots(view.record, change)
    return TableView(view.record, tuple(one for one in view.snapshots if one.snapshot.snapshot_id in named), ())


def _asserts_ref(change: TableChange) -> bool:
    return any(isinstance(one, AssertRefSnapshotId) for one in change.requirements)


def _needs_whole_past(record: TableRecord, change: TableChange) -> bool:
    """Whether applying a change may rewrite old rows: without refs, Iceberg's updates rewrite the history."""
    return RemoveSnapshotsUpdate in change.kinds or not record.metadata.refs


def named_snapshots(record: TableRecord, change: TableChange) -> set[int]:
    """Return the ids of the snapshots that a change names, and of those that the table's branches and tags have."""
    named = {ref.snapshot_id for ref in record.metadata.refs.values()}
    for update in change.updates:
        if isinstance(update, AddSnapshotUpdate):
            named.add(update.snapshot.snapshot_id)
        elif isinstance(update, SetSnapshotRefUpdate):
            named.add(update.snapshot_id)
    return named
