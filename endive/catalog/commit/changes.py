"""What a change does to a table: requirements checked, updates applied, and the rows that make it true.

All of it is pure: from a change and as much of the table as it needs to rows. Iceberg's own code (PyIceberg's) checks
and applies; this module gives it no more of a table's past than it looks at, and tells which rows differ afterwards.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from uuid import UUID

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssertCreate,
    AssertRefSnapshotId,
    AssignUUIDUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    UpgradeFormatVersionUpdate,
    update_table_metadata,
)

from endive.catalog.commit.updates import updated
from endive.catalog.model.file_rows import NO_FILES, NONE, FilesOfSnapshot, file_rows
from endive.catalog.model.keys import (
    history_key,
    snapshot_key,
    table_key,
)
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.records import SnapshotRecord, TableRecord, encoded_history
from endive.catalog.model.transaction import Transaction
from endive.catalog.operations.refs import keeping_retention
from endive.catalog.operations.tables import TableView, partial_view, whole_view
from endive.errors import CommitConflictError, NotInCatalogError
from endive.protocol.requests import Steps

NO_VERSION = -1
"""Of a table that is not there yet; its first one is the next."""


@dataclass(frozen=True)
class TableChange:
    """What somebody wants done to a table: Iceberg's requirements and updates."""

    identifier: Identifier
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]
    files: Mapping[int, FilesOfSnapshot] = field(default_factory=dict)
    """By snapshot id, what the snapshots that are added change; without an entry, `__files` has nothing of it."""

    @property
    def creates(self) -> bool:
        """Whether the table is to be created by this."""
        return any(isinstance(one, AssertCreate) for one in self.requirements)

    @cached_property
    def kinds(self) -> frozenset[type[TableUpdate]]:
        """Which updates there are: most questions about a change are whether it has one of a kind."""
        return frozenset(map(type, self.updates))


@dataclass(frozen=True, slots=True)
class Staged:
    """A change worked out on one version of a table: the rows that make it true."""

    record: TableRecord
    """As it will be."""
    base_uuid: UUID | None
    """None: there must be no such table."""
    base_version: int
    puts: tuple[tuple[bytes, bytes], ...]
    deletes: tuple[bytes, ...]
    snapshot_id: int | None
    """The last snapshot that was added; without one, what `main` points to afterwards."""
    after: TableMetadata
    """The metadata with as much of the past as the change needed."""
    rewrites_past: bool = False
    """Whether snapshots were removed; `after` has the whole past then."""
    snapshots_before: tuple[SnapshotRecord, ...] = ()
    """The snapshots before some were removed."""

    @property
    def changes_nothing(self) -> bool:
        """Whether the table was as wanted before."""
        return self.base_uuid is not None and self.record.version == self.base_version


def view_for(tx: Transaction, record: TableRecord | None, change: TableChange) -> Steps[TableView | None]:
    """Return as much of a table as checking and applying a change needs; None if there is no such table."""
    if record is None:
        if not change.creates:
            raise NotInCatalogError(
                "Table", text_of(change.identifier), "it may have been dropped or renamed since it was loaded"
            )
        return None
    if _removes_snapshots(change) or not record.metadata.refs:
        view = yield from whole_view(tx, record)
        return view
    view = yield from partial_view(tx, record, _named_snapshots(record, change))
    return view


def _named_snapshots(record: TableRecord, change: TableChange) -> set[int]:
    named = {ref.snapshot_id for ref in record.metadata.refs.values()}
    for update in change.updates:
        if isinstance(update, AddSnapshotUpdate):
            named.add(update.snapshot.snapshot_id)
        elif isinstance(update, SetSnapshotRefUpdate):
            named.add(update.snapshot_id)
    return named


def added_snapshots(change: TableChange) -> list[Snapshot]:
    """Return the snapshots that a change adds, in order."""
    if AddSnapshotUpdate not in change.kinds:
        return []
    return [update.snapshot for update in change.updates if isinstance(update, AddSnapshotUpdate)]


def failed_requirements(change: TableChange, metadata: TableMetadata | None) -> list[tuple[TableRequirement, str]]:
    """Return the requirements that do not hold, with Iceberg's words for it."""
    failed = []
    for requirement in change.requirements:
        try:
            requirement.validate(metadata)
        except CommitFailedException as error:
            failed.append((requirement, str(error)))
    return failed


def check_requirements(change: TableChange, view: TableView | None) -> None:
    """Raise if a requirement does not hold; the error names both sides."""
    metadata = view.metadata if view is not None else None
    failed = failed_requirements(change, metadata)
    added = added_snapshots(change)
    twice = [one for one in added if metadata is not None and metadata.snapshot_by_id(one.snapshot_id)]
    leaving = [one.snapshot_id for one in added if view is not None and one.snapshot_id in view.record.unswept]
    if leaving:
        problem = f"snapshot {leaving[0]} was in the table and has expired; its rows are still being deleted"
        raise CommitConflictError(text_of(change.identifier), problem)
    if twice:
        problem = f"snapshot {twice[0].snapshot_id} is in the table already: this commit has happened"
        raise CommitConflictError(text_of(change.identifier), problem)
    if failed:
        problem = "; ".join(words for _, words in failed)
        if metadata is not None and any(isinstance(one, AssertRefSnapshotId) for one, _ in failed):
            problem += "".join(both_sides(change, metadata, one) for one, _ in failed)
        raise CommitConflictError(text_of(change.identifier), problem)


def _check_removals(change: TableChange, metadata: TableMetadata) -> None:
    """Refuse to remove a snapshot that somebody has given a branch or tag since; Iceberg would remove that too."""
    if not _removes_snapshots(change):
        return
    removed = {
        one for update in change.updates if isinstance(update, RemoveSnapshotsUpdate) for one in update.snapshot_ids
    }
    dropped = {update.ref_name for update in change.updates if isinstance(update, RemoveSnapshotRefUpdate)}
    for name, ref in metadata.refs.items():
        if ref.snapshot_id in removed and name not in dropped:
            problem = f"snapshot {ref.snapshot_id} cannot be removed: {ref.snapshot_ref_type} {name} points to it"
            raise CommitConflictError(text_of(change.identifier), problem)


def _check_sequence(change: TableChange, metadata: TableMetadata) -> None:
    """Refuse a snapshot whose sequence number was used up since, on another branch: deletes go by the order."""
    if isinstance(metadata, TableMetadataV1):
        return
    last = metadata.last_sequence_number
    for snapshot in added_snapshots(change):
        if (snapshot.sequence_number or 0) <= last:
            mine = _words(snapshot.snapshot_id, snapshot.summary)
            problem = f"{mine}, has sequence number {snapshot.sequence_number}; {last} was given out since"
            raise CommitConflictError(text_of(change.identifier), problem)


def both_sides(change: TableChange, metadata: TableMetadata, requirement: TableRequirement) -> str:
    """Return who collided with whom, for people."""
    if not isinstance(requirement, AssertRefSnapshotId):
        return ""
    theirs = metadata.snapshot_by_name(requirement.ref)
    ours = added_snapshots(change)
    mine = ", ".join(_words(one.snapshot_id, one.summary) for one in ours) or "this commit adds no snapshot"
    other = _words(theirs.snapshot_id, theirs.summary) if theirs is not None else "which has no snapshot"
    return f" (this commit: {mine}; {requirement.ref} is now at: {other})"


def _words(snapshot_id: int, summary: object) -> str:
    operation = getattr(summary, "operation", None)
    return f"snapshot {snapshot_id}" + (f", {operation.value}" if operation is not None else "")


def stage(
    change: TableChange, view: TableView | None, now_ms: int, name_file: Callable[[TableMetadata], str] | None
) -> Staged:
    """Work a change out on what `view_for` returned, or on the whole table.

    `name_file`: returns where the file that shows the result will be by then; None: the file follows later.
    """
    check_requirements(change, view)
    if view is not None:
        _check_removals(change, view.record.metadata)
        _check_sequence(change, view.record.metadata)
        updates = keeping_retention(change.updates, view.record.metadata)
        change = change if updates is change.updates else replace(change, updates=updates)
        view = _narrowed(view, change)
    base = view.metadata if view is not None else None
    previous = view.record.metadata_location if view is not None and name_file is not None else ""
    new = applied(change, base, previous, now_ms)
    location = name_file(new) if name_file is not None else ""
    if view is not None and new is base:
        return Staged(view.record, view.record.uuid, view.record.version, (), (), new.current_snapshot_id, new)
    return _with_rows(change, view, new, location)


def _removes_snapshots(change: TableChange) -> bool:
    return RemoveSnapshotsUpdate in change.kinds


def _narrowed(view: TableView, change: TableChange) -> TableView:
    """Return the view with no more of the past than the change needs: applying updates copies all there is."""
    if _removes_snapshots(change) or not view.record.metadata.refs:
        return view
    named = _named_snapshots(view.record, change)
    return TableView(view.record, tuple(one for one in view.snapshots if one.snapshot.snapshot_id in named), ())


def whole_metadata(view: TableView | None, staged: Staged) -> TableMetadata:
    """Return the metadata after a change, with its whole past; `view` has the whole past before it."""
    handed_out = {"properties": dict(staged.after.properties)}  # while records are shared
    if view is None or staged.rewrites_past or not view.record.metadata.refs:
        return staged.after.model_copy(update=handed_out)
    before = {one.snapshot.snapshot_id for one in view.snapshots}
    return staged.after.model_copy(
        update={
            **handed_out,
            "snapshots": [one.snapshot for one in view.snapshots]
            + [one for one in staged.after.snapshots if one.snapshot_id not in before],
            "snapshot_log": [entry for _, entry in view.history] + staged.after.snapshot_log,
        }
    )


def applied(change: TableChange, base: TableMetadata | None, previous: str, now_ms: int) -> TableMetadata:
    """Return the metadata after the updates; `base` itself if they change nothing.

    `previous`: the metadata file that goes into the log, if any.
    """
    try:
        if base is None:
            empty = MetastoreCatalog._empty_table_metadata()
            new = update_table_metadata(empty, change.updates, enforce_validation=True)
        else:
            now_ms = max(now_ms, base.last_updated_ms + 1)  # time does not go backwards in a table
            new = updated(base, change.updates, previous, now_ms)
    except KeyError as error:
        problem = f"property {error.args[0]!r} cannot be removed: somebody else did"
        raise CommitConflictError(text_of(change.identifier), problem) from error
    return _stamped(new, base, now_ms)


STRUCTURE = (
    AssignUUIDUpdate,
    UpgradeFormatVersionUpdate,
    AddSchemaUpdate,
    SetCurrentSchemaUpdate,
    AddPartitionSpecUpdate,
    SetDefaultSpecUpdate,
    AddSortOrderUpdate,
    SetDefaultSortOrderUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
)


def structure_after(change: TableChange, base: TableMetadata | None) -> TableMetadata:
    """Return the metadata with a change's schemas, specs and properties, but without its snapshots."""
    updates = tuple(update for update in change.updates if isinstance(update, STRUCTURE))
    if base is not None and not updates:
        return base
    return update_table_metadata(base if base is not None else MetastoreCatalog._empty_table_metadata(), updates)


def _stamped(new: TableMetadata, base: TableMetadata | None, now_ms: int) -> TableMetadata:
    """Return the metadata with the time that was given instead of the time of this very moment.

    A work may depend on nothing but what it reads and was given.
    """
    if new is base or new.last_updated_ms == now_ms:
        return new
    if any(new.last_updated_ms == one.timestamp_ms for one in new.snapshots):
        return new
    log_length = len(base.snapshot_log) if base is not None else 0
    log = [
        entry.model_copy(update={"timestamp_ms": now_ms})
        if number >= log_length and entry.timestamp_ms == new.last_updated_ms
        else entry
        for number, entry in enumerate(new.snapshot_log)
    ]
    return new.model_copy(update={"last_updated_ms": now_ms, "snapshot_log": log})


def _with_rows(change: TableChange, view: TableView | None, new: TableMetadata, location: str) -> Staged:
    """Return the rows that differ between a view and the metadata after the change, which a file may show."""
    old = view.record if view is not None else TableRecord(change.identifier, NO_VERSION, new, "", NO_VERSION)
    uuid = new.table_uuid
    before = {one.snapshot.snapshot_id: one for one in view.snapshots} if view is not None else {}
    after = {one.snapshot_id: one for one in new.snapshots}
    puts: list[tuple[bytes, bytes]] = []
    made = old.snapshots_made
    for snapshot in new.snapshots:
        known = before.get(snapshot.snapshot_id)
        if known is None:
            files = change.files.get(snapshot.snapshot_id, NO_FILES)
            puts.append(_snapshot_row(SnapshotRecord(uuid, made, snapshot, files.kind)))
            puts += file_rows(uuid, snapshot, files)
            made += 1
        elif known.snapshot != snapshot:
            puts.append(_snapshot_row(replace(known, snapshot=snapshot)))
    gone = [snapshot_id for snapshot_id in before if snapshot_id not in after]
    deletes = [snapshot_key(uuid, snapshot_id) for snapshot_id in gone]
    deleted_history, added_history = _history_changes(view, new)
    deletes += deleted_history
    for number, entry in enumerate(added_history, start=old.history_length):
        puts.append((history_key(uuid, number), encoded_history(entry)))
    has_past = new.snapshots or new.snapshot_log
    bare = new.model_copy(update={"snapshots": [], "snapshot_log": []}) if has_past else new
    record = TableRecord(
        old.identifier,
        version=old.version + 1,
        metadata=bare,
        metadata_location=location or old.metadata_location,
        metadata_version=old.version + 1 if location else old.metadata_version,
        metadata_unix_ms=new.last_updated_ms if location else old.metadata_unix_ms,
        snapshots_made=made,
        history_length=old.history_length + len(added_history),
        unswept=(*old.unswept, *(one for one in gone if before[one].files != NONE)),
    )
    puts.append((table_key(record.identifier), record.encoded()))
    added = added_snapshots(change)
    return Staged(
        record,
        old.uuid if view is not None else None,
        old.version,
        tuple(puts),
        tuple(deletes),
        added[-1].snapshot_id if added else new.current_snapshot_id,
        new,
        _removes_snapshots(change),
        view.snapshots if view is not None else (),
    )


def _snapshot_row(record: SnapshotRecord) -> tuple[bytes, bytes]:
    return snapshot_key(record.table_uuid, record.snapshot.snapshot_id), record.encoded()


def _history_changes(view: TableView | None, new: TableMetadata) -> tuple[list[bytes], list[SnapshotLogEntry]]:
    """Return the keys of lines that are gone, and the lines that are new: updates only filter and append."""
    remaining = list(new.snapshot_log)
    gone = []
    for key, entry in view.history if view is not None else ():
        if remaining and remaining[0] == entry:
            remaining.pop(0)
        else:
            gone.append(key)
    return gone, remaining
