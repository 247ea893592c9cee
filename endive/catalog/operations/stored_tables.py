"""Records of tables in the store: read with their parts, written without those that have not changed.

And the version of the catalog's format, which the first record with parts raises: an older Endive cannot read it.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID

from pydantic_core import from_json

from endive.catalog.model.catalog_records import FORMAT_VERSION, CatalogRecord, TableRecord, decode_table, decoded_table
from endive.catalog.model.encoding import decodes
from endive.catalog.model.keys import CATALOG, parts_of, table_key
from endive.catalog.model.table_parts import digests_in, own_bytes, parts_held
from endive.catalog.model.transaction import KeyValue, StoreTransaction
from endive.protocol.requests import Steps

HAS_PARTS = b'"parts":{'
"""In the JSON of a record with parts, and in no other: within a text, quotes are escaped."""


def read_record(tx: StoreTransaction, body: bytes) -> Steps[TableRecord]:
    """Return the record of a table's row. Parts that this process does not hold are read by one scan."""
    record = decoded_table.held(body)
    if record is None:
        rows = (yield from _missing_parts(tx, body)) if HAS_PARTS in body else {}
        record = decode_table(body, rows)
        decoded_table.add(body, record, own_bytes(record.stored_parts))
    return record


def read_records(tx: StoreTransaction, rows: Iterable[KeyValue]) -> Steps[list[TableRecord]]:
    """Return the records of several tables' rows."""
    records = []
    for _, body in rows:
        record = yield from read_record(tx, body)
        records.append(record)
    return records


def _missing_parts(tx: StoreTransaction, body: bytes) -> Steps[dict[str, bytes]]:
    fields = _fields(body)
    if all(parts_held.get(digest) is not None for digest in digests_in(fields)):
        return {}
    prefix = parts_of(fields["table_uuid"])
    rows = yield from tx.scan(prefix)
    return {key[len(prefix) :].decode(): part for key, part in rows}


@decodes("a table's record")
def _fields(body: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = from_json(body)
    return fields


def uuid_in(body: bytes) -> UUID:
    """Return the uuid in a table's row, without its parts."""
    return UUID(_fields(body)["table_uuid"])


def location_in(body: bytes) -> str:
    """Return the location in a table's row, without its parts."""
    return str(_fields(body)["location"])


def put_record(tx: StoreTransaction, record: TableRecord) -> Steps[None]:
    """Put a table's record, and those of its parts that have no row yet; delete the rows of parts that it lost."""
    body, parts = record.stored()
    prefix = parts_of(record.uuid)
    if parts and not record.stored_parts:
        yield from raise_format(tx)
    for digest in record.stored_parts - parts.keys():
        tx.delete(prefix + digest.encode())
    for digest in parts.keys() - record.stored_parts:
        tx.put(prefix + digest.encode(), parts[digest])
    tx.put(table_key(record.identifier), body)


def catalog_record(tx: StoreTransaction) -> Steps[CatalogRecord | None]:
    """Return the record of the catalog itself; None in a store without one."""
    body = yield from tx.get(CATALOG)
    return CatalogRecord.decoded(body) if body is not None else None


def raise_format(tx: StoreTransaction) -> Steps[None]:
    """Keep an Endive that knows only format 1 from opening the catalog."""
    record = yield from catalog_record(tx)
    if record is not None and record.format_version < FORMAT_VERSION:
        tx.put(CATALOG, replace(record, format_version=FORMAT_VERSION).encoded())
