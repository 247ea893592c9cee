"""Dropped tables: one small transaction decides, and the rows go afterwards, in bounded pieces.

A table may have hundreds of thousands of rows, and whoever commits meanwhile waits for a transaction that deletes them.
So a drop removes the table's record and puts a mark in its place, under the table's uuid. The mark says what the table
was, and whether its files are to be deleted: a drop whose answer was lost, or that crashed, can be finished by anybody.

**What can race.** Two rules keep the rows of a marked uuid apart from those of any table:

* who creates a table (registers one again, with the uuid it had) does it only where there is no mark;
* who deletes rows does it only where there is one.

Both are looked at inside the transaction. Nobody else adds rows: commits and everything else ask for the table's
record first. The mark goes last, when no row is left.

**A crash** leaves a mark and rows that nothing reads. The next expiry, removal of orphans or `clear_dropped` finishes
it, and the check tells them from damage.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from pydantic_core import from_json, to_json

from endive.catalog.model.keys import DROPPED, commits_of, dropped_key, files_of, history_of, imported_key, snapshots_of
from endive.catalog.model.names import text_of
from endive.catalog.model.records import TableRecord, readable
from endive.catalog.model.transaction import Transaction, TransactionalStore
from endive.errors import AlreadyInCatalogError
from endive.protocol.requests import Steps

T = TypeVar("T")

PIECE_ROWS = 500
"""Rows that one transaction puts or deletes: a few milliseconds of it, and as much as a commit of that many files."""


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table that was dropped, and of which rows or files are left."""

    table: TableRecord
    purge: bool
    """Whether its files are still to be deleted."""

    @property
    def uuid(self) -> UUID:
        """The table's."""
        return self.table.uuid

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json({"purge": self.purge, "table": from_json(self.table.encoded())})

    @staticmethod
    @readable("a dropped table's record")
    def decoded(body: bytes) -> "DroppedTable":
        """Return the record of a JSON."""
        fields = from_json(body)
        return DroppedTable(TableRecord.decoded(to_json(fields["table"])), fields["purge"])


def pieces(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Return the rows in bounded pieces."""
    for start in range(0, len(rows), PIECE_ROWS):
        yield rows[start : start + PIECE_ROWS]


# Works.


def find_dropped(tx: Transaction, uuid: UUID) -> Steps[DroppedTable | None]:
    """Return the mark of a dropped table; None if there is none."""
    body = yield from tx.get(dropped_key(uuid))
    return None if body is None else DroppedTable.decoded(body)


def dropped_tables(tx: Transaction) -> Steps[tuple[DroppedTable, ...]]:
    """Return the tables of which something is left."""
    rows = yield from tx.scan(DROPPED.encode())
    return tuple(DroppedTable.decoded(body) for _, body in rows)


def require_cleared(tx: Transaction, uuid: UUID) -> Steps[None]:
    """Raise if rows of a dropped table with this uuid may be left: they would become the new table's."""
    found = yield from find_dropped(tx, uuid)
    if found is not None:
        left = "its files are still being deleted" if found.purge else "its rows are still being cleared"
        raise AlreadyInCatalogError("Table", f"{text_of(found.table.identifier)}, of uuid {uuid}: dropped, but {left}")


def rows_of(tx: Transaction, uuid: UUID) -> Steps[list[bytes]]:
    """Return the keys of all rows that go by a table's uuid."""
    keys: list[bytes] = []
    for prefix in (snapshots_of(uuid), history_of(uuid), files_of(uuid), commits_of(uuid)):
        rows = yield from tx.scan(prefix)
        keys += [key for key, _ in rows]
    imported = yield from tx.get(imported_key(uuid))
    return keys if imported is None else [*keys, imported_key(uuid)]


def _clear_piece(tx: Transaction, uuid: UUID, keys: Sequence[bytes]) -> Steps[bool]:
    """Delete rows of a dropped table; False: it is not, or no longer, a dropped one."""
    found = yield from find_dropped(tx, uuid)
    if found is None:
        return False
    for key in keys:
        tx.delete(key)
    return True


def _forget(tx: Transaction, uuid: UUID) -> Steps[None]:
    left = yield from rows_of(tx, uuid)
    if not left:
        tx.delete(dropped_key(uuid))


def note_purged(tx: Transaction, uuid: UUID) -> Steps[None]:
    """Take note that a dropped table's files are gone."""
    found = yield from find_dropped(tx, uuid)
    if found is not None:
        tx.put(dropped_key(uuid), replace(found, purge=False).encoded())


# Piece by piece.


def clear_rows(store: TransactionalStore, uuid: UUID) -> None:
    """Delete a dropped table's rows, then its mark. Anybody may do it, also several at once."""
    keys = store.read(lambda tx: rows_of(tx, uuid))
    for piece in pieces(keys):
        if not store.transact(lambda tx, piece=piece: _clear_piece(tx, uuid, piece)):  # type: ignore[misc]
            return  # somebody else has cleared it all, and the uuid may be a table's again
    store.transact(lambda tx: _forget(tx, uuid))
