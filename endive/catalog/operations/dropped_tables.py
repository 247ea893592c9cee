"""Dropped tables: one small transaction drops the table, and its rows are deleted afterwards, in bounded batches.

A table may have hundreds of thousands of rows, and other commits wait for a transaction that deletes them. So a drop
removes the table's record and puts a mark under the table's uuid. The mark holds the table's record, and whether its
files are to be deleted: any process can finish a drop that crashed or whose outcome was unknown.

**Races.** Two rules keep the rows of a marked uuid apart from those of any table:

* a table is created (registered again, with its old uuid) only if there is no mark;
* rows are deleted only if there is one.

Both are checked inside the transaction. No other operation adds rows: commits and everything else read the table's
record first. The mark is deleted last, when no row is left.

**A crash** leaves a mark and rows that nothing reads. The next expiry, removal of orphans or `clear_dropped` finishes
the drop, and the check does not report them as damage.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from pydantic_core import from_json, to_json

from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.encoding import decodes
from endive.catalog.model.keys import (
    DROPPED,
    cloned_key,
    commits_of,
    dropped_key,
    files_of,
    history_of,
    imported_key,
    parts_of,
    snapshots_of,
)
from endive.catalog.model.names import text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.errors import AlreadyInCatalogError
from endive.protocol.requests import Steps

T = TypeVar("T")

BATCH_ROWS = 500
"""Rows that one transaction puts or deletes: a few milliseconds, as much as a commit of that many files."""


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A dropped table with rows or files left."""

    table: TableRecord
    purge: bool
    """Whether its files are to be deleted."""
    is_confined: bool = False
    """Whether only files below the table's location are: the caller may not delete others."""

    @property
    def uuid(self) -> UUID:
        """The table's uuid."""
        return self.table.uuid

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json({"purge": self.purge, "confined": self.is_confined, "table": from_json(self.table.encoded())})

    @staticmethod
    @decodes("a dropped table's record")
    def decoded(body: bytes) -> "DroppedTable":
        """Return the record of a JSON."""
        fields = from_json(body)
        table = TableRecord.decoded(to_json(fields["table"]))
        return DroppedTable(table, fields["purge"], fields.get("confined", False))


def batches(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return the rows in bounded batches."""
    for start in range(0, len(rows), BATCH_ROWS):
        yield rows[start : start + BATCH_ROWS]


# Transaction functions.


def find_dropped(tx: StoreTransaction, uuid: UUID) -> Steps[DroppedTable | None]:
    """Return the mark of a dropped table; None if there is none."""
    body = yield from tx.get(dropped_key(uuid))
    return None if body is None else DroppedTable.decoded(body)


def dropped_tables(tx: StoreTransaction) -> Steps[tuple[DroppedTable, ...]]:
    """Return the dropped tables with rows or files left."""
    rows = yield from tx.scan(DROPPED.encode())
    return tuple(DroppedTable.decoded(body) for _, body in rows)


def require_cleared(tx: StoreTransaction, uuid: UUID) -> Steps[None]:
    """Raise if rows of a dropped table with this uuid may be left: they would become rows of the new table."""
    found = yield from find_dropped(tx, uuid)
    if found is not None:
        left = "its files are still being deleted" if found.purge else "its rows are still being cleared"
        raise AlreadyInCatalogError("Table", f"{text_of(found.table.identifier)}, of uuid {uuid}: dropped, but {left}")


def rows_of(tx: StoreTransaction, uuid: UUID) -> Steps[list[bytes]]:
    """Return the keys of all rows under a table's uuid."""
    keys: list[bytes] = []
    for prefix in (parts_of(uuid), snapshots_of(uuid), history_of(uuid), files_of(uuid), commits_of(uuid)):
        rows = yield from tx.scan(prefix)
        keys += [key for key, _ in rows]
    for key in (imported_key(uuid), cloned_key(uuid)):
        body = yield from tx.get(key)
        keys += [key] if body is not None else []
    return keys


def _clear_batch(tx: StoreTransaction, uuid: UUID, keys: Sequence[bytes]) -> Steps[bool]:
    """Delete rows of a dropped table; False if the table is not, or no longer, dropped."""
    found = yield from find_dropped(tx, uuid)
    if found is None:
        return False
    for key in keys:
        tx.delete(key)
    return True


def _delete_mark(tx: StoreTransaction, uuid: UUID) -> Steps[None]:
    left = yield from rows_of(tx, uuid)
    if not left:
        tx.delete(dropped_key(uuid))


def note_purged(tx: StoreTransaction, uuid: UUID) -> Steps[None]:
    """Record that a dropped table's files are deleted."""
    found = yield from find_dropped(tx, uuid)
    if found is not None:
        tx.put(dropped_key(uuid), replace(found, purge=False).encoded())


# In batches.


def clear_rows(store: TransactionalStore, uuid: UUID) -> None:
    """Delete a dropped table's rows, then its mark. Several processes may do it at once."""
    keys = store.read(lambda tx: rows_of(tx, uuid))
    for batch in batches(keys):
        if not store.transact(lambda tx, batch=batch: _clear_batch(tx, uuid, batch)):  # type: ignore[misc]
            return  # already cleared, and the uuid may be a table's again
    store.transact(lambda tx: _delete_mark(tx, uuid))
