"""The decision about a change: apply it in the transaction, prepare it, or rebase it; or refuse it.

`decide` is the one place where this is decided: before the transaction, on the state that the process knows, and inside
it, on the newest state.

* **Apply** the change in the transaction: nothing has to be written before. This is the way of tables whose metadata
  file is written in the background. Commits of many threads to one table become one batch.
* **Prepare** the change: compute its rows on the known version, write the metadata file that shows the result, and put
  the rows if the table is still at that version.
* **Rebase** the change: it is an append, and its branch has moved on. Appends commute: files that one commit adds
  cannot contradict another commit. The catalog writes a manifest list on top of the newest snapshot, and decides again.

**Not rebased** are overwrites and deletes: they were computed from the files of the state that they read, and their
clients must read again; also those that found nothing to delete and only add files (`AssertUnmoved`). Nor a branch that
is gone, tables whose owner wants to see every conflict (`commit.retry.num-retries=0`), and tables of format 3, whose
row ids PyIceberg cannot assign yet.
"""

from collections.abc import Callable, Mapping
from enum import Enum

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssignUUIDUpdate,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
)

from endive.catalog.commit.change import TableChange
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.names import text_of
from endive.catalog.operations.table_rows import TableView
from endive.catalog.settings import REBASE
from endive.errors import CommitConflictError, NotInCatalogError

RETRIES = TableProperties.COMMIT_NUM_RETRIES

WritesFileFirst = Callable[[Mapping[str, str]], bool]
"""Whether the metadata file of a table with these properties is written before the commit is acknowledged."""


class Decision(Enum):
    """The way in which a change is committed."""

    APPLY = "apply in the transaction"
    PREPARE = "prepare before the transaction"
    REBASE = "rebase, then decide again"


class AssertUnmoved(AssertRefSnapshotId):
    """Requires that a branch has not moved, of a change that was computed from its files and must not be rebased."""


def decide(change: TableChange, base: TableView | None, writes_file_first: WritesFileFirst) -> Decision:
    """Return how a change is committed on a base; raise `CommitConflictError` if it contradicts the base.

    Without a base, the table does not exist: `NotInCatalogError`, unless the change creates it.
    """
    if base is None and not change.creates:
        hint = "it may have been dropped or renamed since it was loaded"
        raise NotInCatalogError("Table", text_of(change.identifier), hint)
    if base is not None and must_rebase(change, base.metadata):
        return Decision.REBASE
    _check_snapshots(change, base)
    _check_requirements(change, base)
    if base is None:
        return Decision.PREPARE
    _check_uuid(change, base.record)
    _check_removals(change, base.record.metadata)
    _check_sequence_numbers(change, base.record.metadata)
    file_first = writes_file_first(change.properties_after(base.record.metadata.properties))
    return Decision.PREPARE if file_first else Decision.APPLY


# Rebase.


def must_rebase(change: TableChange, metadata: TableMetadata) -> bool:
    """Whether a change fits the table after a rebase, and not before."""
    if not _is_append(change) or metadata.format_version > 2 or metadata.properties.get(RETRIES) == "0":
        return False
    if any(metadata.snapshot_by_id(one.snapshot_id) is not None for one in change.added_snapshots):
        return False  # it is already committed
    branch = branch_of(change)
    failed = [requirement for requirement, _ in _failed_requirements(change, metadata)]
    if any(not isinstance(one, AssertRefSnapshotId) or one.ref != branch for one in failed):
        return False
    expected = {one.ref: one.snapshot_id for one in change.requirements if isinstance(one, AssertRefSnapshotId)}
    if expected.get(branch) is not None and branch not in metadata.refs:
        return False  # the branch was removed: there is nothing to append to
    return bool(failed) or bool(_used_sequence_numbers(change, metadata))


def branch_of(append: TableChange) -> str:
    """Return the branch that an append adds files to."""
    return next(update.ref_name for update in append.updates if isinstance(update, SetSnapshotRefUpdate))


def _is_append(change: TableChange) -> bool:
    """Whether a change only adds files to one branch, whatever the branch contains.

    A change that removes a branch before it adds to it replaces the table, as `CREATE OR REPLACE TABLE` does.
    """
    if AddSnapshotUpdate not in change.kinds or AssertUnmoved in change.required:
        return False
    if RemoveSnapshotRefUpdate in change.kinds:
        return False  # it replaces the table's content
    snapshots = change.added_snapshots
    moves = [update for update in change.updates if isinstance(update, SetSnapshotRefUpdate)]
    return (
        len({update.ref_name for update in moves}) == 1
        and {update.snapshot_id for update in moves} <= {one.snapshot_id for one in snapshots}  # no roll-back
        and all(_only_adds(one) for one in snapshots)
    )


def _only_adds(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    return (
        summary is not None
        and summary.operation == Operation.APPEND
        and summary.additional_properties.get(REBASE) != "false"
    )


# Conflicts.


def _check_snapshots(change: TableChange, base: TableView | None) -> None:
    if base is None or AddSnapshotUpdate not in change.kinds:
        return
    for one in change.added_snapshots:
        if one.snapshot_id in base.record.pending_deletions:
            problem = f"snapshot {one.snapshot_id} was in the table and has expired; its rows are still being deleted"
            raise CommitConflictError(text_of(change.identifier), problem)
        if base.metadata.snapshot_by_id(one.snapshot_id) is not None:
            problem = f"snapshot {one.snapshot_id} is already in the table: this change has been committed before"
            raise CommitConflictError(text_of(change.identifier), problem)


def _check_requirements(change: TableChange, base: TableView | None) -> None:
    metadata = base.metadata if base is not None else None
    failed = _failed_requirements(change, metadata)
    if failed:
        problem = "; ".join(message for _, message in failed)
        if metadata is not None:
            problem += "".join(_both_sides(change, metadata, requirement) for requirement, _ in failed)
        raise CommitConflictError(text_of(change.identifier), problem)


def _failed_requirements(change: TableChange, metadata: TableMetadata | None) -> list[tuple[TableRequirement, str]]:
    """Return the requirements that do not hold, with PyIceberg's messages."""
    failed = []
    for requirement in change.requirements:
        try:
            requirement.validate(metadata)
        except CommitFailedException as error:
            failed.append((requirement, str(error)))
    return failed


def _check_uuid(change: TableChange, record: TableRecord) -> None:
    """Refuse another uuid for a table: all its rows but its record are under its uuid, and would be lost."""
    if AssignUUIDUpdate not in change.kinds:
        return
    for update in change.updates:
        if isinstance(update, AssignUUIDUpdate) and update.uuid != record.uuid:
            problem = f"its uuid {record.uuid} cannot be changed to {update.uuid}"
            raise CommitConflictError(text_of(change.identifier), problem)


def _check_removals(change: TableChange, metadata: TableMetadata) -> None:
    """Refuse to remove a snapshot that a branch or tag points to: Iceberg would remove the branch or tag as well."""
    removed = change.removed_snapshots
    if not removed:
        return
    dropped = {update.ref_name for update in change.updates if isinstance(update, RemoveSnapshotRefUpdate)}
    for name, ref in metadata.refs.items():
        if ref.snapshot_id in removed and name not in dropped:
            problem = f"snapshot {ref.snapshot_id} cannot be removed: {ref.snapshot_ref_type} {name} points to it"
            raise CommitConflictError(text_of(change.identifier), problem)


def _check_sequence_numbers(change: TableChange, metadata: TableMetadata) -> None:
    """Refuse a snapshot whose sequence number was assigned to another one: deletes depend on the order.

    A snapshot without a parent has no older files, so its number may be any, as in Iceberg's library: a replaced table.
    """
    used = [one for one in _used_sequence_numbers(change, metadata) if one.parent_snapshot_id is not None]
    for snapshot in used:
        number = f"has sequence number {snapshot.sequence_number}; {last_sequence_number(metadata)} is already assigned"
        raise CommitConflictError(text_of(change.identifier), f"{_described(snapshot)}, {number}")


def _used_sequence_numbers(change: TableChange, metadata: TableMetadata) -> list[Snapshot]:
    """Return the added snapshots whose sequence number is already assigned, perhaps on another branch."""
    last = last_sequence_number(metadata)
    return [] if last is None else [one for one in change.added_snapshots if (one.sequence_number or 0) <= last]


def last_sequence_number(metadata: TableMetadata) -> int | None:
    """Return the newest sequence number; None for tables of format 1, which have none."""
    return None if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number


def _both_sides(change: TableChange, metadata: TableMetadata, requirement: TableRequirement) -> str:
    """Return which snapshots collided, for the message of a conflict."""
    if not isinstance(requirement, AssertRefSnapshotId):
        return ""
    head = metadata.snapshot_by_name(requirement.ref)
    mine = ", ".join(map(_described, change.added_snapshots)) or "this commit adds no snapshot"
    other = _described(head) if head is not None else "no snapshot"
    return f" (this commit: {mine}; {requirement.ref} is now at: {other})"


def _described(snapshot: Snapshot) -> str:
    operation = f", {snapshot.summary.operation.value}" if snapshot.summary is not None else ""
    return f"snapshot {snapshot.snapshot_id}{operation}"
