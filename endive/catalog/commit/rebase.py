"""An append that lost its race, put on top of what won.

Appends commute: files that one adds cannot contradict what another did. So when the only thing wrong with a commit is
that its branch has moved on, the catalog does what Iceberg's clients do in that case, where the newest state is at
hand: it writes a manifest list of the branch's manifests and the manifests of the append, with the next sequence
number, the new parent and new totals, and commits that.

**What is kept.** The snapshot id, and the manifests: their entries have no sequence number of their own, and inherit
the one in the list. Two cases need manifests of their own: one that was merged with older files (only the added ones
belong to the append), and several snapshots in one commit (PyIceberg has read the first one's list by then, and its
cache goes by the manifests' paths).

**What is refused.** Anything that is not an append: overwrites and deletes were decided on the files of the state that
they saw, and their authors must look again; also those that found nothing to delete, and only add (`AssertUnmoved`). A
branch that is gone. Tables whose owner wants to hear of every conflict (`commit.retry.num-retries=0`). Tables of format
3, whose row ids PyIceberg cannot assign yet.

**What may be deleted.** What was written for an attempt that certainly failed; and after success the list that the
client wrote, which nothing names any more.
"""

from dataclasses import replace
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, clear_manifest_cache
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from endive.catalog.commit.changes import TableChange, added_snapshots, failed_requirements
from endive.catalog.commit.manifests import metadata_path, own_manifests, read_list, unassigned, write_added, write_list

RETRIES = TableProperties.COMMIT_NUM_RETRIES

MAY_MOVE = "endive.rebase"
"""In a snapshot's summary: `false` if it was decided on the state that it was built on, and must not follow another."""


class AssertUnmoved(AssertRefSnapshotId):
    """A branch is where it was, and what is committed was decided on that: it must not follow if the branch moves."""


def is_append(change: TableChange) -> bool:
    """Whether all that a change does to a table's branches is to add files to one, whatever is there."""
    snapshots = added_snapshots(change)
    moves = [update for update in change.updates if isinstance(update, SetSnapshotRefUpdate)]
    return (
        bool(snapshots)
        and len({update.ref_name for update in moves}) == 1
        and {update.snapshot_id for update in moves} <= {one.snapshot_id for one in snapshots}  # no roll-back
        and all(_adds_only(one) for one in snapshots)
        and not any(isinstance(one, AssertUnmoved) for one in change.requirements)
    )


def _adds_only(snapshot: Snapshot) -> bool:
    """Whether a snapshot adds files, and does not depend on what was there before."""
    summary = snapshot.summary
    return (
        summary is not None
        and summary.operation == Operation.APPEND
        and summary.additional_properties.get(MAY_MOVE) != "false"
    )


def must_rebase(change: TableChange, metadata: TableMetadata) -> bool:
    """Whether a change fits the state once it is rebased, and not before."""
    if not is_append(change) or metadata.format_version > 2 or metadata.properties.get(RETRIES) == "0":
        return False
    if any(metadata.snapshot_by_id(one.snapshot_id) is not None for one in added_snapshots(change)):
        return False  # it has happened
    failed = failed_requirements(change, metadata)
    if any(not isinstance(requirement, AssertRefSnapshotId) for requirement, _ in failed):
        return False
    expected = {one.ref: one.snapshot_id for one in change.requirements if isinstance(one, AssertRefSnapshotId)}
    branch = _branch(change)
    if expected.get(branch) is not None and branch not in metadata.refs:
        return False  # the branch was dropped: there is nothing to append to
    return bool(failed) or _sequence_is_taken(change, metadata)


def _branch(change: TableChange) -> str:
    return next(update.ref_name for update in change.updates if isinstance(update, SetSnapshotRefUpdate))


def _sequence_is_taken(change: TableChange, metadata: TableMetadata) -> bool:
    """Whether somebody, on another branch perhaps, has used up the sequence number."""
    last = _last_sequence_number(metadata)
    return last is not None and any((one.sequence_number or 0) <= last for one in added_snapshots(change))


def _last_sequence_number(metadata: TableMetadata) -> int | None:
    """Return the newest sequence number; None for tables of format 1, which have none."""
    return None if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number


def rebase(
    change: TableChange,
    metadata: TableMetadata,
    io: FileIO,
    commit_uuid: UUID,
    attempt: int,
    now_ms: int,
    written: list[str],
) -> TableChange:
    """Write what a change needs on top of `metadata`, and return it. Call only if `must_rebase` says so.

    `written`: where every file is noted before it is written, for who has to delete them if this or what follows fails.
    """
    branch = _branch(change)
    head = metadata.snapshot_by_name(branch)
    manifests: list[ManifestFile] = list(read_list(io, head.manifest_list)) if head is not None else []
    moved: dict[int, Snapshot] = {}
    snapshots = added_snapshots(change)
    last = _last_sequence_number(metadata)
    for number, old in enumerate(snapshots, start=1):
        sequence_number = last + number if last is not None else 0
        own = own_manifests(read_list(io, old.manifest_list), old.snapshot_id)
        fresh: list[ManifestFile] = []
        for one in own:
            if len(snapshots) == 1 and not one.existing_files_count and one.has_added_files():
                fresh.append(unassigned(one))
            elif one.has_added_files():
                written.append(metadata_path(metadata, f"{commit_uuid}-m{len(written)}.avro"))
                fresh.append(write_added(io, metadata, one, old.snapshot_id, written[-1]))
        name = f"snap-{old.snapshot_id}-{attempt}-{commit_uuid}.avro"
        new = _moved(old, head, metadata_path(metadata, name), sequence_number, now_ms)
        kept = [one for one in manifests if one.has_added_files() or one.has_existing_files()]
        written.append(new.manifest_list)
        write_list(io, metadata, new, [*fresh, *kept])
        manifests = list(read_list(io, new.manifest_list)) if len(snapshots) > 1 else []
        moved[old.snapshot_id], head = new, new
    clear_manifest_cache()
    return _on_top(change, moved, metadata, branch)


def _moved(old: Snapshot, parent: Snapshot | None, manifest_list: str, sequence_number: int, now_ms: int) -> Snapshot:
    return old.model_copy(
        update={
            "parent_snapshot_id": parent.snapshot_id if parent is not None else None,
            "sequence_number": sequence_number,
            "timestamp_ms": max(now_ms, parent.timestamp_ms) if parent is not None else now_ms,
            "manifest_list": manifest_list,
            "summary": _summary(old, parent),
        }
    )


def _summary(old: Snapshot, parent: Snapshot | None) -> Summary:
    """Return the summary with totals that count from the new parent."""
    properties = old.summary.additional_properties if old.summary is not None else {}
    added = {name: value for name, value in properties.items() if not name.startswith("total-")}
    previous = parent.summary if parent is not None else None
    return update_snapshot_summaries(Summary(Operation.APPEND, **added), previous)


def _on_top(change: TableChange, moved: dict[int, Snapshot], metadata: TableMetadata, branch: str) -> TableChange:
    updates: list[TableUpdate] = [
        AddSnapshotUpdate(snapshot=moved[update.snapshot.snapshot_id])
        if isinstance(update, AddSnapshotUpdate)
        else update
        for update in change.updates
    ]
    known = metadata.refs.get(branch)
    requirements: list[TableRequirement] = [
        one for one in change.requirements if not (isinstance(one, AssertRefSnapshotId) and one.ref == branch)
    ]
    requirements.append(AssertRefSnapshotId(ref=branch, snapshot_id=known.snapshot_id if known is not None else None))
    return replace(change, requirements=tuple(requirements), updates=tuple(updates))
