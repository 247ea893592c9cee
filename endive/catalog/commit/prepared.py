"""A change ready for the transaction, and the rows that it puts and deletes.

All of it is pure: from a change and its base to rows. PyIceberg's code applies the updates; this module gives it no
more of the table's past than it needs, and finds the rows that differ afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import SnapshotLogEntry
from pyiceberg.table.update import RemoveSnapshotsUpdate

from endive.catalog.commit.base import narrowed
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.updates import applied
from endive.catalog.iceberg import with_log_entry
from endive.catalog.model.catalog_records import SnapshotRecord, TableRecord, encoded_history
from endive.catalog.model.file_rows import NO_FILES, NONE, file_rows
from endive.catalog.model.keys import history_key, snapshot_key, snapshots_of
from endive.catalog.model.transaction import KeyValue
from endive.catalog.operations.refs import keeping_retention
from endive.catalog.operations.table_rows import TableView

NO_VERSION = -1
"""Version of a table before it is created; the first version is 0."""


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The rows of a change, computed on one version of the table."""

    record: TableRecord
    """The table's record after the change."""
    base_uuid: UUID | None
    """None: the table must not exist."""
    base_version: int
    puts: Sequence[KeyValue]
    """Without the row of the table itself, which is `record`."""
    deletes: Sequence[bytes]
    snapshot_id: int | None
    """The last snapshot that was added; without one, the snapshot of `main` afterwards."""
    after: TableMetadata
    """The metadata after the change, with as much of the past as the change needed."""
    removes_snapshots: bool = False
    """Whether snapshots were removed."""
    snapshots_before: tuple[SnapshotRecord, ...] = ()
    """The snapshots of the base."""
    base_updated_ms: int = 0
    """When the base was updated (`TableRecord.state`)."""
    digest: str = ""
    """Of the client's request (`TableChange.digest`)."""
    computed_unix_ms: int = 0
    """When the rows were computed."""
    is_whole: bool = False
    """Whether `after` has the whole past."""

    @property
    def is_empty(self) -> bool:
        """Whether the change has no effect."""
        return self.base_uuid is not None and self.record.version == self.base_version

    def fits(self, record: TableRecord | None) -> bool:
        """Whether the table is in the state that the rows were computed on."""
        if record is None:
            return self.base_uuid is None
        return record.state == (self.base_uuid, self.base_version, self.base_updated_ms)

    def named(self, location: str, previous: str, previous_unix_ms: int, beside: bool = False) -> "ChangedRows":
        """Return the rows with the metadata file that shows the result; `previous`: the file before it, if any.

        `beside`: the file is written at the same time as the rows.
        """
        after, metadata = self.after, self.record.metadata
        if previous:
            log = {"metadata_log": with_log_entry(after, previous, previous_unix_ms).metadata_log}
            after, metadata = after.model_copy(update=log), metadata.model_copy(update=log)
        record = replace(
            self.record,
            metadata=metadata,
            metadata_location=location,
            metadata_version=self.record.version,
            metadata_unix_ms=metadata.last_updated_ms,
            is_written_beside=beside,
        )
        return replace(self, record=record, after=after)


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A change ready for the transaction."""

    change: TableChange
    rows: ChangedRows | None = None
    """None: computed in the transaction."""


def compute_rows(change: TableChange, base: TableView | None, now_ms: int) -> ChangedRows:
    """Return the rows of a change on its base (or on the whole table), after `decide` has accepted the change.

    The record still names the metadata file of the base: see `ChangedRows.named`.
    """
    if base is None:
        new = applied(change, None, "", now_ms)
        return _rows(change, None, TableRecord(change.identifier, NO_VERSION, new, "", NO_VERSION), new, now_ms)
    old = base.record
    updates = keeping_retention(change.updates, old.metadata)
    change = change if updates is change.updates else replace(change, updates=updates)
    base = narrowed(base, change)
    new = applied(change, base.metadata, "", now_ms)
    if new is base.metadata:
        updated_ms = old.metadata.last_updated_ms
        return ChangedRows(
            old,
            old.uuid,
            old.version,
            (),
            (),
            new.current_snapshot_id,
            new,
            base_updated_ms=updated_ms,
            digest=change.digest,
        )
    return _rows(change, base, old, new, now_ms)


def advanced(view: TableView | None, rows: ChangedRows) -> TableView:
    """Return a view of a table, with a part of its past, after the rows of a change that removes no snapshot."""
    if view is not None and rows.is_empty:
        return view
    known = {one.snapshot.snapshot_id: one for one in view.snapshots} if view is not None else {}
    prefix = snapshots_of(rows.record.uuid)
    for body in (body for key, body in rows.puts if key.startswith(prefix)):
        record = SnapshotRecord.decoded(body)
        known[record.snapshot.snapshot_id] = record
    return TableView(rows.record, tuple(sorted(known.values(), key=lambda one: one.ordinal)), ())


def whole_metadata(past: TableMetadata | None, changes: Sequence[ChangedRows], after: TableMetadata) -> TableMetadata:
    """Return the metadata after changes with its whole past. `past`: with the whole past before them.

    None: the first of the changes has the whole past. `after`: the metadata with a part of its past.
    """
    snapshots = list(past.snapshots) if past is not None else []
    log = list(past.snapshot_log) if past is not None else []
    for rows in changes:
        if rows.is_whole:
            snapshots, log = list(rows.after.snapshots), list(rows.after.snapshot_log)
        elif not rows.is_empty:
            before = {one.snapshot.snapshot_id for one in rows.snapshots_before}
            snapshots += [one for one in rows.after.snapshots if one.snapshot_id not in before]
            log += rows.after.snapshot_log
    return after.model_copy(update={"snapshots": snapshots, "snapshot_log": log})


def _rows(
    change: TableChange, base: TableView | None, old: TableRecord, new: TableMetadata, now_ms: int
) -> ChangedRows:
    """Return the rows that differ between a base and the metadata after the change."""
    uuid = new.table_uuid
    puts: list[KeyValue] = []
    deletes: list[bytes] = []
    snapshots_made, history_length, pending = old.snapshots_made, old.history_length, old.pending_deletions
    if base is None or new.snapshots is not base.metadata.snapshots:
        before = {one.snapshot.snapshot_id: one for one in base.snapshots} if base is not None else {}
        snapshots_made += _put_snapshots(puts, change, new, before, snapshots_made)
        remaining = {one.snapshot_id for one in new.snapshots}
        gone = [one for one in before if one not in remaining]
        deletes += [snapshot_key(uuid, one) for one in gone]
        pending = (*pending, *(one for one in gone if before[one].files != NONE))
    if base is None or new.snapshot_log is not base.metadata.snapshot_log:
        removed_lines, added_lines = _history_changes(base, new)
        deletes += removed_lines
        puts += [
            (history_key(uuid, number), encoded_history(entry))
            for number, entry in enumerate(added_lines, start=history_length)
        ]
        history_length += len(added_lines)
    has_past = new.snapshots or new.snapshot_log
    record = TableRecord(
        old.identifier,
        version=old.version + 1,
        metadata=new.model_copy(update={"snapshots": [], "snapshot_log": []}) if has_past else new,
        metadata_location=old.metadata_location,
        metadata_version=old.metadata_version,
        metadata_unix_ms=old.metadata_unix_ms,
        snapshots_made=snapshots_made,
        history_length=history_length,
        pending_deletions=pending,
        stored_parts=old.stored_parts,
        is_written_beside=old.is_written_beside,
    )
    added = change.added_snapshots
    return ChangedRows(
        record,
        old.uuid if base is not None else None,
        old.version,
        puts,
        deletes,
        added[-1].snapshot_id if added else new.current_snapshot_id,
        new,
        RemoveSnapshotsUpdate in change.kinds,
        base.snapshots if base is not None else (),
        old.metadata.last_updated_ms,
        change.digest,
        now_ms,
        base is None or base.is_whole,
    )


def _put_snapshots(
    puts: list[KeyValue], change: TableChange, new: TableMetadata, before: dict[int, SnapshotRecord], first: int
) -> int:
    """Put rows of snapshots that are new or different; return how many are new. `first`: the ordinal of the first."""
    uuid, made = new.table_uuid, 0
    for snapshot in new.snapshots:
        known = before.get(snapshot.snapshot_id)
        if known is None:
            files = change.files.get(snapshot.snapshot_id, NO_FILES)
            puts.append(_snapshot_row(SnapshotRecord(uuid, first + made, snapshot, files.kind)))
            puts += file_rows(uuid, snapshot, files)
            made += 1
        elif known.snapshot != snapshot:
            puts.append(_snapshot_row(replace(known, snapshot=snapshot)))
    return made


def _snapshot_row(record: SnapshotRecord) -> KeyValue:
    return snapshot_key(record.table_uuid, record.snapshot.snapshot_id), record.encoded()


def _history_changes(base: TableView | None, new: TableMetadata) -> tuple[list[bytes], list[SnapshotLogEntry]]:
    """Return the keys of removed lines, and the new lines: updates only filter and append."""
    remaining = list(new.snapshot_log)
    gone = []
    for key, entry in base.history if base is not None else ():
        if remaining and remaining[0] == entry:
            remaining.pop(0)
        else:
            gone.append(key)
    return gone, remaining
