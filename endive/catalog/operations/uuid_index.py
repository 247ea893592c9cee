"""Tables by their uuid: an index, so that registering a table does not read all others.

A row `__uuids/{uuid}` has the table's name. Every operation that creates, renames, drops or restores a table keeps it
up to date. The index counts once the catalog's record says that it is complete; before, all tables are read. The first
call that needs it in a catalog of more than `INDEX_FROM` tables completes it, in its own transaction. An older Endive
does not keep the index, so the catalog gets format 2 with it.
"""

from dataclasses import replace
from uuid import UUID

from endive.catalog.model.catalog_records import FORMAT_VERSION, TableRecord
from endive.catalog.model.keys import CATALOG, TABLES, UUIDS, table_key, uuid_key
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.stored_tables import catalog_record, read_record, uuid_in
from endive.errors import AlreadyInCatalogError
from endive.protocol.requests import Steps

INDEX_FROM = 100
"""Tables that are read without an index: a few milliseconds."""


def put_uuid(tx: StoreTransaction, uuid: UUID, identifier: Identifier) -> None:
    """Put the name of a table that is created, renamed or restored."""
    tx.put(uuid_key(uuid), table_key(identifier))


def find_by_uuid(tx: StoreTransaction, uuid: UUID) -> Steps[TableRecord | None]:
    """Return the record of a table by its uuid; None if there is none."""
    catalog = yield from catalog_record(tx)
    if catalog is not None and catalog.has_uuid_index:
        key = yield from tx.get(uuid_key(uuid))
        body = (yield from tx.get(key)) if key is not None else None
        if body is None:
            return None
        record = yield from read_record(tx, body)
        return record
    text = str(uuid).encode()
    rows = yield from tx.scan(TABLES.encode())
    for body in (body for _, body in rows if text in body):
        record = yield from read_record(tx, body)
        if record.uuid == uuid:
            return record
    return None


def require_unused_uuid(tx: StoreTransaction, uuid: UUID) -> Steps[None]:
    """Raise if a table of this uuid is in the catalog: both would share their rows, and a drop would delete them."""
    found = yield from find_by_uuid(tx, uuid)
    if found is not None:
        raise AlreadyInCatalogError("Table", f"{text_of(found.identifier)}, with the same uuid {uuid}")
    yield from _complete_index(tx)


def _complete_index(tx: StoreTransaction) -> Steps[None]:
    """Put the rows of all tables, if they are many and the index does not count yet."""
    catalog = yield from catalog_record(tx)
    if catalog is None or catalog.has_uuid_index:
        return
    tables = yield from tx.scan(TABLES.encode())
    if len(tables) <= INDEX_FROM:
        return
    names = {uuid_key(uuid_in(body)): key for key, body in tables}
    for key, _ in (yield from tx.scan(UUIDS.encode())):
        if key not in names:
            tx.delete(key)  # an older Endive has dropped its table
    for key, name in names.items():
        tx.put(key, name)
    tx.put(CATALOG, replace(catalog, format_version=FORMAT_VERSION, has_uuid_index=True).encoded())
