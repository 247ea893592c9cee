"""Time travel, branches, tags and roll-back: snapshots by name and time, and changes of refs.

All of it is pure: from a table's metadata to a snapshot, or to Iceberg's requirements and updates.
"""

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from endive.errors import AlreadyInCatalogError, ConfigurationError, NotInCatalogError
from endive.wording import utc

RequirementsAndUpdates = tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]


def snapshot_by_id(metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    """Return a snapshot, or raise if the table has none of this id."""
    found = metadata.snapshot_by_id(snapshot_id)
    if found is None:
        raise NotInCatalogError("Snapshot", str(snapshot_id), "it may have been expired")
    return found


def snapshot_by_ref(metadata: TableMetadata, ref: str) -> Snapshot:
    """Return the snapshot of a branch or tag."""
    if ref not in metadata.refs:
        raise NotInCatalogError("Branch or tag", ref)
    return snapshot_by_id(metadata, metadata.refs[ref].snapshot_id)


def snapshot_at(metadata: TableMetadata, unix_ms: int) -> Snapshot:
    """Return the snapshot that was current at a moment, by the table's history."""
    entries = [entry for entry in metadata.snapshot_log if entry.timestamp_ms <= unix_ms]
    if not entries:
        raise NotInCatalogError("Snapshot", f"at {utc(unix_ms, precise=True)} UTC", _beginning(metadata))
    return snapshot_by_id(metadata, entries[-1].snapshot_id)


def _beginning(metadata: TableMetadata) -> str:
    """Say when a table's history begins."""
    if not metadata.snapshot_log:
        return "the table has no history: nothing was written to it"
    begins = utc(metadata.snapshot_log[0].timestamp_ms, precise=True)
    return f"the table's history begins later, at {begins} UTC; earlier snapshots may have expired"


def ancestors(metadata: TableMetadata, snapshot_id: int | None) -> list[Snapshot]:
    """Return a snapshot and those that it comes from, as far as they are in the table, newest first."""
    by_id = {one.snapshot_id: one for one in metadata.snapshots}
    found: list[Snapshot] = []
    next_id = snapshot_id
    while next_id is not None and (one := by_id.pop(next_id, None)) is not None:  # popped: a cycle of parents must end
        found.append(one)
        next_id = one.parent_snapshot_id
    return found


def is_ancestor(metadata: TableMetadata, snapshot_id: int) -> bool:
    """Whether the current snapshot is, or comes from, this one."""
    return any(one.snapshot_id == snapshot_id for one in ancestors(metadata, metadata.current_snapshot_id))


def roll_back(metadata: TableMetadata, snapshot_id: int | None, unix_ms: int | None = None) -> RequirementsAndUpdates:
    """Make an earlier snapshot of `main` current, by id or by time; later ones stay in the table until they expire."""
    if snapshot_id is None:
        target = snapshot_at(metadata, unix_ms or 0).snapshot_id
    else:
        target = snapshot_by_id(metadata, snapshot_id).snapshot_id
    if not is_ancestor(metadata, target):
        raise ConfigurationError(
            f"snapshot {target}",
            [f"it is not an ancestor of the current snapshot {metadata.current_snapshot_id}; use set_current_snapshot"],
        )
    return set_ref(metadata, MAIN_BRANCH, target, SnapshotRefType.BRANCH)


def create_ref(
    metadata: TableMetadata,
    name: str,
    snapshot_id: int | None,
    kind: SnapshotRefType,
    max_ref_age_ms: int | None = None,
) -> RequirementsAndUpdates:
    """Create a branch or tag at a snapshot, or at the current one."""
    if name in metadata.refs:
        raise AlreadyInCatalogError("Branch or tag", name)
    target = snapshot_id if snapshot_id is not None else metadata.current_snapshot_id
    if target is None:
        raise NotInCatalogError("Snapshot", "the current one", "the table is empty")
    snapshot_by_id(metadata, target)
    return set_ref(metadata, name, target, kind, max_ref_age_ms)


def set_ref(
    metadata: TableMetadata,
    name: str,
    snapshot_id: int,
    kind: SnapshotRefType,
    max_ref_age_ms: int | None = None,
) -> RequirementsAndUpdates:
    """Point a branch or tag at a snapshot, if it still is where `metadata` has it. One that moves is kept as long."""
    known = metadata.refs.get(name)
    update = SetSnapshotRefUpdate(
        ref_name=name,
        type=kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=max_ref_age_ms,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    kept = _kept_as_long(update, known)
    return _requirements(metadata, name, known.snapshot_id if known is not None else None), (kept,)


def _kept_as_long(update: SetSnapshotRefUpdate, known: SnapshotRef | None) -> SetSnapshotRefUpdate:
    """Return the update of a branch with the retention that the branch has, unless it brings one."""
    own = (update.max_ref_age_ms, update.max_snapshot_age_ms, update.min_snapshots_to_keep)
    if known is None or any(own) or update.type != known.snapshot_ref_type:
        return update
    return update.model_copy(
        update={
            "max_ref_age_ms": known.max_ref_age_ms,
            "max_snapshot_age_ms": known.max_snapshot_age_ms,
            "min_snapshots_to_keep": known.min_snapshots_to_keep,
        }
    )


def keeping_retention(updates: tuple[TableUpdate, ...], metadata: TableMetadata) -> tuple[TableUpdate, ...]:
    """Return the updates, with the retention of branches that are moved to a snapshot which comes with them.

    PyIceberg moves a branch without saying how long it and its snapshots are kept, and an append would undo that.
    """
    if not any(
        one.max_ref_age_ms or one.max_snapshot_age_ms or one.min_snapshots_to_keep for one in metadata.refs.values()
    ):
        return updates
    added = {one.snapshot.snapshot_id for one in updates if isinstance(one, AddSnapshotUpdate)}
    return tuple(
        _kept_as_long(one, metadata.refs.get(one.ref_name))
        if isinstance(one, SetSnapshotRefUpdate) and one.snapshot_id in added
        else one
        for one in updates
    )


def remove_ref(metadata: TableMetadata, name: str) -> RequirementsAndUpdates:
    """Remove a branch or tag; `main` stays."""
    if name == MAIN_BRANCH:
        raise ConfigurationError(name, ["the main branch cannot be removed"])
    if name not in metadata.refs:
        raise NotInCatalogError("Branch or tag", name)
    return _requirements(metadata, name, metadata.refs[name].snapshot_id), (RemoveSnapshotRefUpdate(ref_name=name),)


def _requirements(metadata: TableMetadata, name: str, snapshot_id: int | None) -> tuple[TableRequirement, ...]:
    return AssertTableUUID(uuid=metadata.table_uuid), AssertRefSnapshotId(ref=name, snapshot_id=snapshot_id)
