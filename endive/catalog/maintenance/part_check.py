"""The check of the rows that belong to tables' records: their parts, and the index of their uuids."""

from collections.abc import Callable, Sequence

from endive.catalog.maintenance.findings import Finding
from endive.catalog.model import keys
from endive.catalog.model.catalog_records import CatalogRecord, TableRecord, decode_table
from endive.catalog.model.table_parts import digest_of
from endive.catalog.model.transaction import KeyValue

Rows = Sequence[KeyValue]


def record_decoder(parts: Rows) -> Callable[[bytes], TableRecord]:
    """Return a decoder of tables' records with these parts, past the cache of records."""
    by_digest = {key.rpartition(b"/")[2].decode(errors="replace"): body for key, body in parts}
    return lambda body: decode_table(body, by_digest)


def check_parts(records: Sequence[TableRecord], parts: Rows) -> list[Finding]:
    """Check that every part has its digest, and that those that records name are there."""
    findings = [
        Finding(key.decode(errors="backslashreplace"), "the part of a table's record is damaged")
        for key, body in parts
        if not key.endswith(b"/" + digest_of(body).encode())
    ]
    there = {key for key, _ in parts}
    for record in records:
        for digest in sorted(record.stored_parts):
            key = keys.parts_of(record.uuid) + digest.encode()
            if key not in there:
                findings.append(Finding(key.decode(), "a part of the table's record is not there"))
    return findings


def check_uuids(catalog: CatalogRecord | None, records: Sequence[TableRecord], index: Rows) -> list[Finding]:
    """Check that the index has every table and no other, if it counts."""
    if catalog is None or not catalog.has_uuid_index:
        return []
    wanted = {keys.uuid_key(record.uuid): keys.table_key(record.identifier) for record in records}
    found = dict(index)
    return [
        Finding(key.decode(errors="backslashreplace"), "the index of uuids does not have the table's name")
        for key in sorted(wanted.keys() | found.keys())
        if wanted.get(key) != found.get(key)
    ]
