"""Transaction functions on tables: find, load, list, create, drop, rename.

A table's record is under its name, all its other rows under its uuid. So a rename moves one row, and a table that is
created under the name of a dropped one shares nothing with it. A client with an old name finds no table, or a table
with another uuid; commits carry the uuid of their table, and fail.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import SnapshotLogEntry

from endive.catalog.model.catalog_records import SnapshotRecord, TableRecord, decoded_history
from endive.catalog.model.grants import Place
from endive.catalog.model.keys import (
    TABLES,
    dropped_key,
    history_of,
    imported_key,
    snapshot_key,
    snapshots_of,
    table_from,
    table_key,
    tables_in,
    uuid_key,
    view_key,
)
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import KeyValue, StoreTransaction
from endive.catalog.operations.dropped_tables import DroppedTable, require_cleared, rows_of
from endive.catalog.operations.grant_rows import forget_place
from endive.catalog.operations.namespaces import require_namespace
from endive.catalog.operations.outbox import named, note, note_end
from endive.catalog.operations.stored_tables import put_record, read_record, read_records
from endive.catalog.operations.uuid_index import put_uuid, require_unused_uuid
from endive.errors import AlreadyInCatalogError, CommitConflictError, NotInCatalogError
from endive.protocol.requests import Steps


@dataclass(frozen=True)
class TableView:
    """A table at one version, with all or a part of its past."""

    record: TableRecord
    snapshots: tuple[SnapshotRecord, ...]
    history: tuple[tuple[bytes, SnapshotLogEntry], ...]
    """Lines of history with their keys."""
    is_whole: bool = False
    """Whether this is the table's whole past."""

    @cached_property
    def metadata(self) -> TableMetadata:
        """Iceberg's table metadata, with the snapshots and the history of this view. It is shared: do not change it."""
        if not self.snapshots and not self.history:
            return self.record.metadata
        past = {
            "snapshots": [one.snapshot for one in self.snapshots],
            "snapshot_log": [entry for _, entry in self.history],
        }
        return self.record.metadata.model_copy(update=past)


def find_table(tx: StoreTransaction, identifier: Identifier) -> Steps[TableRecord | None]:
    """Return a table's record; None if there is no such table."""
    body = yield from tx.get(table_key(identifier))
    if body is None:
        return None
    record = yield from read_record(tx, body)
    return record


def require_table(tx: StoreTransaction, identifier: Identifier, hint: str = "") -> Steps[TableRecord]:
    """Return a table's record, or raise."""
    record = yield from find_table(tx, identifier)
    if record is None:
        raise NotInCatalogError("Table", text_of(identifier), hint)
    return record


def imported_from(tx: StoreTransaction, uuid: UUID) -> Steps[str | None]:
    """Return the metadata file that a table was registered by; None if it was created here, or long ago."""
    body = yield from tx.get(imported_key(uuid))
    return None if body is None else body.decode()


def table_exists(tx: StoreTransaction, identifier: Identifier) -> Steps[bool]:
    """Whether there is such a table."""
    body = yield from tx.get(table_key(identifier))
    return body is not None


def load_table(tx: StoreTransaction, identifier: Identifier) -> Steps[TableView]:
    """Return a table with its whole past."""
    record = yield from require_table(tx, identifier)
    view = yield from whole_view(tx, record)
    return view


def whole_view(tx: StoreTransaction, record: TableRecord) -> Steps[TableView]:
    """Return the view of a table with all its snapshots and all its history."""
    if not record.snapshots_made and not record.history_length:
        return TableView(record, (), (), is_whole=True)
    rows, lines = yield from tx.scan_many((snapshots_of(record.uuid), history_of(record.uuid)))
    snapshots = sorted((SnapshotRecord.decoded(body) for _, body in rows), key=lambda one: one.ordinal)
    history = tuple((key, decoded_history(body)) for key, body in lines)
    return TableView(record, tuple(snapshots), history, is_whole=True)


def named_view(tx: StoreTransaction, record: TableRecord) -> Steps[TableView]:
    """Return the view of a table with the snapshots that its branches and tags name, and all its history."""
    view = yield from partial_view(tx, record, (ref.snapshot_id for ref in record.metadata.refs.values()))
    lines = yield from tx.scan(history_of(record.uuid))
    return TableView(record, view.snapshots, tuple((key, decoded_history(body)) for key, body in lines))


def partial_view(tx: StoreTransaction, record: TableRecord, snapshot_ids: Iterable[int]) -> Steps[TableView]:
    """Return the view of a table with some of its snapshots, those that exist, and without history."""
    found = []
    for snapshot_id in sorted(set(snapshot_ids)):
        body = yield from tx.get(snapshot_key(record.uuid, snapshot_id))
        if body is not None:
            found.append(SnapshotRecord.decoded(body))
    return TableView(record, tuple(sorted(found, key=lambda one: one.ordinal)), ())


def list_tables(tx: StoreTransaction, namespace: Identifier) -> Steps[tuple[Identifier, ...]]:
    """Return the tables of a namespace that exists."""
    yield from require_namespace(tx, namespace)
    rows = yield from tx.scan(tables_in(namespace))
    return tuple(table_from(key) for key, _ in rows)


def all_tables(tx: StoreTransaction) -> Steps[tuple[TableRecord, ...]]:
    """Return the records of all tables."""
    rows = yield from tx.scan(TABLES.encode())
    records = yield from read_records(tx, rows)
    return tuple(records)


def create_table(
    tx: StoreTransaction,
    rows: Sequence[KeyValue],
    record: TableRecord,
    has_new_uuid: bool,
    is_retry: bool,
) -> Steps[int]:
    """Create a table from its record and its other rows; return its version.

    `is_retry`: the outcome of an earlier try is unknown.
    """
    yield from require_namespace(tx, record.identifier[:-1])
    there = yield from find_table(tx, record.identifier)
    if there is not None and is_retry and there.uuid == record.uuid:
        return there.version
    if there is not None:
        raise AlreadyInCatalogError("Table", text_of(record.identifier))
    yield from require_no_view(tx, record.identifier)
    if not has_new_uuid:
        yield from require_unused_uuid(tx, record.uuid)
        yield from require_cleared(tx, record.uuid)
    yield from _put_table(tx, rows, record)
    return record.version


def _put_table(tx: StoreTransaction, rows: Sequence[KeyValue], record: TableRecord) -> Steps[None]:
    for key, value in rows:
        tx.put(key, value)
    yield from put_record(tx, record)
    put_uuid(tx, record.uuid, record.identifier)


def replace_table(
    tx: StoreTransaction, rows: Sequence[KeyValue], record: TableRecord, has_new_uuid: bool, is_retry: bool
) -> Steps[int]:
    """Create a table in place of the one with its name, if there is one; return its version.

    If both have the same uuid, it is the same table with another metadata file: its rows are replaced, and its version
    goes on, so that no two states have the same one.
    """
    there = yield from find_table(tx, record.identifier)
    if there is None:
        version = yield from create_table(tx, rows, record, has_new_uuid, is_retry)
        return version
    if is_retry and there.metadata_location == record.metadata_location:
        return there.version
    if there.uuid == record.uuid:
        yield from note_end(tx, there, "table-replaced")
        old = yield from rows_of(tx, record.uuid)
        for key in old:
            tx.delete(key)
        record = replace(record, version=there.version + 1, metadata_version=there.version + 1)
        yield from _put_table(tx, rows, record)
        return record.version
    yield from drop_table(tx, record.identifier, there.uuid)
    version = yield from create_table(tx, rows, record, has_new_uuid, is_retry)
    return version


def require_no_view(tx: StoreTransaction, identifier: Identifier) -> Steps[None]:
    """Raise if a view has this name: tables and views share their names."""
    if (yield from tx.get(view_key(identifier))) is not None:
        raise AlreadyInCatalogError("View with same name", text_of(identifier))


def rename_taken(kind: str, source: Identifier, target: Identifier) -> AlreadyInCatalogError:
    """Return the error of a rename to a name that another table or view has."""
    text = text_of(target)
    return AlreadyInCatalogError(kind, text, f"Cannot rename {text_of(source)} to {text}. {kind} already exists")


def drop_table(
    tx: StoreTransaction,
    identifier: Identifier,
    uuid: UUID | None,
    version: int | None = None,
    purge: bool = False,
    is_confined: bool = False,
) -> Steps[TableRecord]:
    """Remove a table and return its record; its other rows are deleted later, and with `purge` its files.

    `uuid`, `version`: only if the table has this uuid and this version. `is_confined`: no files outside its location.
    """
    record = yield from require_table(tx, identifier)
    if uuid is not None and record.uuid != uuid:
        raise NotInCatalogError("Table", text_of(identifier), "another table has this name now")
    if version is not None and record.version != version:
        problem = f"it is being written: version {version} was to be dropped, and it is at {record.version} now"
        raise CommitConflictError(text_of(identifier), f"{problem}; stop its writers, then drop it")
    yield from note_end(tx, record, "table-dropped")
    tx.put(dropped_key(record.uuid), DroppedTable(record, purge, is_confined).encoded())
    tx.delete(table_key(identifier))
    tx.delete(uuid_key(record.uuid))
    yield from forget_place(tx, Place("table", uuid=str(record.uuid)))
    return record


def rename_table(tx: StoreTransaction, source: Identifier, target: Identifier, uuid: UUID | None) -> Steps[UUID]:
    """Move a table to another name, in the same namespace or another; return its uuid.

    `uuid`: the table that an earlier try of this rename, with unknown outcome, was to move.
    """
    yield from require_namespace(tx, target[:-1])
    there = yield from find_table(tx, target)
    if there is not None and there.uuid == uuid:
        return there.uuid
    record = yield from require_table(tx, source)
    if there is not None:
        raise AlreadyInCatalogError("Table", text_of(target))
    if (yield from tx.get(view_key(target))) is not None:
        raise rename_taken("View", source, target)
    tx.delete(table_key(source))
    yield from put_record(tx, replace(record, identifier=target))
    put_uuid(tx, record.uuid, target)
    before = {"id": "", "old-namespace": source[:-1], "old-table": source[-1]}
    yield from note(tx, named("table-renamed", target, record.uuid, record.version, **before))
    return record.uuid
