"""Restoring a catalog to a checkpoint: which rows to put and delete, computed and applied in one transaction.

**A restored table goes on.** It gets the schema, partition spec, sort order, properties, branches, tags and current
snapshot of the checkpoint in a new version. Its later snapshots stay until they expire; sequence numbers and ids of
columns are not used twice. Snapshots that have expired since come back: the checkpoint has kept their files. They have
no rows in `__files`, so that their manifests are read.

**A table that was dropped** comes back with its uuid. If its rows have been deleted, its version continues at a number
that it never had, the time in milliseconds: a commit that was prepared before the drop must not fit. **A table that was
created since** is dropped without deleting its files. **A renamed table** has its old name again, and namespaces are as
they were.

The transaction checks that the checkpoint still exists. So all files that the restored tables need are there: any
process that deletes files sees the checkpoint, or the restored tables.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import SnapshotLogEntry

from endive.catalog.model.catalog_records import SnapshotRecord, TableRecord, encoded_history
from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.model.file_rows import NONE
from endive.catalog.model.keys import (
    NAMESPACES,
    TABLES,
    VIEWS,
    cloned_key,
    dropped_key,
    history_key,
    imported_key,
    namespace_from,
    snapshot_key,
    snapshots_of,
    table_key,
    uuid_key,
    view_from,
)
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.model.view_records import ViewRecord
from endive.catalog.operations.checkpoint_rows import find_checkpoint
from endive.catalog.operations.dropped_tables import DroppedTable, find_dropped
from endive.catalog.operations.outbox import note_end
from endive.catalog.operations.stored_tables import put_record, read_record, read_records
from endive.catalog.operations.table_rows import TableView, whole_view
from endive.catalog.operations.uuid_index import put_uuid
from endive.errors import NotInCatalogError
from endive.protocol.requests import Steps


@dataclass(frozen=True)
class TableState:
    """A table at a checkpoint, with the rows that it needs if it comes back."""

    view: TableView
    extra: Mapping[bytes, bytes] = field(default_factory=dict)
    """Rows under its uuid that say where it comes from."""

    @property
    def record(self) -> TableRecord:
        """The table's record."""
        return self.view.record


@dataclass(frozen=True)
class CatalogState:
    """All tables and namespaces at a checkpoint."""

    tables: Mapping[UUID, TableState]
    namespaces: Mapping[bytes, bytes]
    views: Mapping[bytes, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class RestoreReport:
    """The changes of a restore, by the names of tables and namespaces."""

    checkpoint: str
    changed: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    """Tables that had been dropped."""
    dropped: tuple[str, ...] = ()
    """Tables that had been created since; their files stay."""
    renamed: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    """Namespaces that are created, changed or removed."""
    views: tuple[str, ...] = ()
    """Views that are created, changed or removed."""
    undo: str = ""
    """The checkpoint of the state before: restoring it undoes this."""
    written: tuple[Identifier, ...] = ()
    """Tables whose metadata file is to be written."""

    def __bool__(self) -> bool:
        return any((self.changed, self.created, self.dropped, self.renamed, self.namespaces, self.views))


@dataclass(frozen=True)
class NotCleared:
    """Rows of a dropped table, or of expired snapshots, are still being deleted: clear them, then try again."""

    table: str


@dataclass
class Plan:
    """The rows of a restore."""

    report: RestoreReport
    puts: dict[bytes, bytes] = field(default_factory=dict)
    tables: list[TableRecord] = field(default_factory=list)
    """Records of tables, which are put with their parts and their uuids."""
    deletes: set[bytes] = field(default_factory=set)
    dropped: list[TableRecord] = field(default_factory=list)
    """Tables that are dropped."""
    not_cleared: NotCleared | None = None


# The state at a checkpoint.


def load_state(tx: StoreTransaction) -> Steps[CatalogState]:
    """Return all tables and namespaces."""
    rows = yield from tx.scan(TABLES.encode())
    tables: dict[UUID, TableState] = {}
    for _, body in rows:
        record = yield from read_record(tx, body)
        view = yield from whole_view(tx, record)
        extra: dict[bytes, bytes] = {}
        for key in (imported_key(record.uuid), cloned_key(record.uuid)):
            value = yield from tx.get(key)
            extra |= {key: value} if value is not None else {}
        tables[record.uuid] = TableState(view, extra)
    namespaces = yield from tx.scan(NAMESPACES.encode())
    views = yield from tx.scan(VIEWS.encode())
    return CatalogState(tables, dict(namespaces), dict(views))


# The plan.


def plan(tx: StoreTransaction, state: CatalogState, checkpoint: CheckpointRecord, now_ms: int) -> Steps[Plan]:
    """Return the rows that make the catalog as it was."""
    found = yield from find_checkpoint(tx, checkpoint.name)
    if found is None or found.id != checkpoint.id:
        raise NotInCatalogError("Checkpoint", checkpoint.name, "it was deleted or has expired meanwhile")
    rows = yield from tx.scan(TABLES.encode())
    records = yield from read_records(tx, rows)
    now = {record.uuid: record for record in records}
    planned = Plan(RestoreReport(checkpoint.name))
    dropped = planned.dropped = [record for uuid, record in now.items() if uuid not in state.tables]
    for record in dropped:
        planned.puts[dropped_key(record.uuid)] = DroppedTable(record, False).encoded()
        planned.deletes |= {table_key(record.identifier), uuid_key(record.uuid)}
    renamed: list[str] = []
    changed: list[str] = []
    created: list[str] = []
    written: list[Identifier] = []
    for uuid, table in state.tables.items():
        current = now.get(uuid)
        name = text_of(table.record.identifier)
        mark = (yield from find_dropped(tx, uuid)) if current is None else None
        if current is None and mark is not None and not mark.purge:
            planned.not_cleared = NotCleared(name)
        elif current is None and mark is None:
            _come_back(planned, table, now_ms)
            created.append(name)
            written.append(table.record.identifier)
        else:
            base = current if current is not None else mark.table  # type: ignore[union-attr]
            if mark is not None:  # to be purged, which the checkpoint has prevented: all its rows are there
                planned.deletes.add(dropped_key(uuid))
                created.append(name)
            elif base.identifier != table.record.identifier:
                renamed.append(f"{text_of(base.identifier)} to {name}")
                planned.deletes.add(table_key(base.identifier))
            has_changed = yield from _go_back(tx, planned, base, table, now_ms, is_back=mark is not None)
            if has_changed:
                written.append(table.record.identifier)
                changed += [name] if mark is None else []
    namespaces = yield from _plan_namespaces(tx, planned, state)
    views = yield from _plan_views(tx, planned, state, now_ms)
    names = {table_key(record.identifier) for record in planned.tables}  # a name may be another table's now
    planned.deletes -= planned.puts.keys() | names
    planned.report = replace(
        planned.report,
        changed=tuple(changed),
        created=tuple(created),
        dropped=tuple(text_of(record.identifier) for record in dropped),
        renamed=tuple(renamed),
        namespaces=namespaces,
        views=views,
        written=tuple(written),
    )
    return planned


def apply_restore(
    tx: StoreTransaction, state: CatalogState, checkpoint: CheckpointRecord, now_ms: int
) -> Steps[RestoreReport | NotCleared]:
    """Restore the catalog, or put nothing and say what has to be cleared first."""
    planned = yield from plan(tx, state, checkpoint, now_ms)
    if planned.not_cleared is not None:
        return planned.not_cleared
    for record in planned.dropped:
        yield from note_end(tx, record, "table-dropped")
    for key in planned.deletes:
        tx.delete(key)
    for key, value in planned.puts.items():
        tx.put(key, value)
    for record in planned.tables:
        yield from put_record(tx, record)
        put_uuid(tx, record.uuid, record.identifier)
    return planned.report


def _plan_namespaces(tx: StoreTransaction, planned: Plan, state: CatalogState) -> Steps[tuple[str, ...]]:
    rows = yield from tx.scan(NAMESPACES.encode())
    now = dict(rows)
    differing = [
        key for key in sorted(now.keys() | state.namespaces.keys()) if now.get(key) != state.namespaces.get(key)
    ]
    for key in differing:
        if key in state.namespaces:
            planned.puts[key] = state.namespaces[key]
        else:
            planned.deletes.add(key)
    return tuple(text_of(namespace_from(key)) for key in differing)


def _plan_views(tx: StoreTransaction, planned: Plan, state: CatalogState, now_ms: int) -> Steps[tuple[str, ...]]:
    """Put views as they were, in versions that they never had. Their metadata files are never deleted."""
    rows = yield from tx.scan(VIEWS.encode())
    now = {key: ViewRecord.decoded(body) for key, body in rows}
    differing: list[str] = []
    for key, body in state.views.items():
        before, there = ViewRecord.decoded(body), now.pop(key, None)
        if there is None or replace(there, version=0) != replace(before, version=0):
            version = max(before.version + 1, now_ms) if there is None else max(before.version, there.version) + 1
            planned.puts[key] = replace(before, version=version).encoded()
            differing.append(text_of(before.identifier))
    planned.deletes |= now.keys()
    return (*differing, *(text_of(view_from(key)) for key in now))


def _come_back(planned: Plan, table: TableState, now_ms: int) -> None:
    """Put all rows of a table that is not there any more."""
    record, uuid = table.record, table.record.uuid
    snapshots = table.view.snapshots
    planned.puts |= {_key(one): replace(one, files=NONE).encoded() for one in snapshots}
    planned.puts |= {key: encoded_history(entry) for key, entry in table.view.history}
    planned.puts |= table.extra
    back = replace(record, version=max(record.version + 1, now_ms), pending_deletions=())
    planned.tables.append(replace(back, stored_parts=frozenset()))  # the rows of its parts are gone as well
    planned.deletes.discard(dropped_key(uuid))


def _go_back(
    tx: StoreTransaction, planned: Plan, base: TableRecord, table: TableState, now_ms: int, is_back: bool
) -> Steps[bool]:
    """Put the rows that differ between a table and its state at the checkpoint; False if it is the same."""
    target, uuid = table.record, base.uuid
    rows = yield from tx.scan(snapshots_of(uuid))
    there = {key for key, _ in rows}
    missing = [one for one in table.view.snapshots if _key(one) not in there]
    if any(one.snapshot.snapshot_id in base.pending_deletions for one in missing):
        planned.not_cleared = NotCleared(text_of(base.identifier))
        return False
    metadata = _as_before(base.metadata, target.metadata)
    has_changed = bool(missing) or metadata != base.metadata
    if not has_changed and not is_back and base.identifier == target.identifier:
        return False
    planned.puts |= {_key(one): replace(one, files=NONE).encoded() for one in missing}
    length, current = base.history_length, metadata.current_snapshot_id
    now_ms = max(now_ms, base.metadata.last_updated_ms + 1)
    if current is not None and current != base.metadata.current_snapshot_id:
        entry = SnapshotLogEntry(snapshot_id=current, timestamp_ms=now_ms)
        planned.puts[history_key(uuid, length)] = encoded_history(entry)
        length += 1
    changes = {"metadata": metadata.model_copy(update={"last_updated_ms": now_ms})} if has_changed else {}
    record = replace(base, identifier=target.identifier, history_length=length, **changes)  # type: ignore[arg-type]
    planned.tables.append(replace(record, version=base.version + 1 if has_changed or is_back else base.version))
    return has_changed or is_back


def _key(one: SnapshotRecord) -> bytes:
    return snapshot_key(one.table_uuid, one.snapshot.snapshot_id)


def _as_before(now: TableMetadata, before: TableMetadata) -> TableMetadata:
    """Return a table's metadata as it was, with all schemas and specs of later snapshots; no number is used twice."""
    update = {
        "current_schema_id": before.current_schema_id,
        "default_spec_id": before.default_spec_id,
        "default_sort_order_id": before.default_sort_order_id,
        "properties": before.properties,
        "location": before.location,
        "refs": before.refs,
        "current_snapshot_id": before.current_snapshot_id,
        "schemas": _union(now.schemas, before.schemas, "schema_id"),
        "partition_specs": _union(now.partition_specs, before.partition_specs, "spec_id"),
        "sort_orders": _union(now.sort_orders, before.sort_orders, "order_id"),
        "statistics": _union(now.statistics, before.statistics, "snapshot_id"),
        "partition_statistics": _union(now.partition_statistics, before.partition_statistics, "snapshot_id"),
    }
    return now.model_copy(update=update)


def _union(now: list, before: list, key: str) -> list:  # type: ignore[type-arg]
    """Return the values of both, by a key."""
    known = {getattr(one, key) for one in now}
    missing = [one for one in before if getattr(one, key) not in known]
    return [*now, *missing] if missing else now
