"""Rebase of an append that lost its race: a manifest list on top of the snapshot that won.

When the only problem of an append is that its branch has moved on (`endive.catalog.commit.decision`), the catalog does
what Iceberg's clients do in that case, where the newest state is at hand: it writes a manifest list of the branch's
manifests and the append's manifests, with the next sequence number, the new parent and new totals.

**Kept** are the snapshot id and the manifests: their entries have no sequence number of their own, and inherit the one
in the list. Two cases need new manifests: a manifest that was merged with older files (only the added ones belong to
the append), and several snapshots in one commit (PyIceberg has read the first one's list by then, and its cache goes by
the manifests' paths).

**Deleted** are the files written for an attempt that certainly failed, and after success the list that the client
wrote, which nothing refers to any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile, clear_manifest_cache
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary, update_snapshot_summaries
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, TableRequirement, TableUpdate

from endive.catalog.commit.change import TableChange
from endive.catalog.commit.decision import branch_of, last_sequence_number
from endive.catalog.commit.manifests import (
    assigned,
    list_body,
    metadata_path,
    own_list,
    read_bytes,
    write_added,
    write_body,
)
from endive.stages import stage


@dataclass(frozen=True, slots=True)
class NewList:
    """A manifest list that is to be written."""

    location: str
    body: bytes


class KnownLists:
    """The newest manifest list of a table, so that it need not be read."""

    def __init__(self) -> None:
        self._known: NewList | None = None

    def body(self, io: FileIO, location: str) -> bytes:
        """Return a list."""
        known = self._known
        return known.body if known is not None and known.location == location else read_bytes(io, location)

    def add(self, written: NewList) -> None:
        """Take note of a list that is to be written; only the newest is kept."""
        self._known = written


def rebase(
    change: TableChange,
    metadata: TableMetadata,
    io: FileIO,
    commit_uuid: UUID,
    attempt: int,
    now_ms: int,
    written: list[str],
    known: KnownLists,
) -> tuple[TableChange, list[NewList]]:
    """Put an append on top of `metadata`; return the changed append and its manifest lists. Only if `must_rebase`.

    `written`: gets every file, so that the caller can delete them if the commit fails. The lists are to be written by
    the caller (`write_lists`), manifests have been.
    """
    branch = branch_of(change)
    head = metadata.snapshot_by_name(branch)
    below = known.body(io, head.manifest_list) if head is not None else b""
    moved: dict[int, Snapshot] = {}
    lists: list[NewList] = []
    snapshots = change.added_snapshots
    last = last_sequence_number(metadata)
    for number, old in enumerate(snapshots, start=1):
        sequence_number = last + number if last is not None else 0
        fresh: list[ManifestFile] = []
        for one in own_list(io, old):
            if len(snapshots) == 1 and not one.existing_files_count and one.has_added_files():
                fresh.append(assigned(one, sequence_number))
            elif one.has_added_files():
                written.append(metadata_path(metadata, f"{commit_uuid}-m{len(written)}.avro"))
                added = write_added(io, metadata, one, old.snapshot_id, written[-1])
                fresh.append(assigned(added, sequence_number))
        name = f"snap-{old.snapshot_id}-{attempt}-{commit_uuid}.avro"
        new = _moved(old, head, metadata_path(metadata, name), sequence_number, now_ms)
        below = list_body(metadata, new, fresh, head, below)
        lists.append(NewList(new.manifest_list, below))
        known.add(lists[-1])
        moved[old.snapshot_id], head = new, new
    clear_manifest_cache()
    written += [one.location for one in lists]
    return _on_top(change, moved, metadata, branch), lists


def write_lists(io: FileIO, lists: Sequence[NewList]) -> None:
    """Write manifest lists."""
    for one in lists:
        with stage("commit.manifest_list"):
            write_body(io, one.location, one.body)


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
