"""Iceberg's retention policy, of the table and of each branch and tag: the snapshots, branches and tags that expire.

In the order of Iceberg's table specification: branches and tags whose snapshot is older than `max-ref-age-ms` go, but
never `main`. What the others point to stays. Of every branch the ancestors stay that are younger than the branch's
`max-snapshot-age-ms`, or among its first `min-snapshots-to-keep`. Any other snapshot goes once it is old enough.

**Precedence.** A branch's or tag's own value comes first, then the caller's arguments, then the table's properties
(`history.expire.…`), then Iceberg's default. `keep_last` is a promise of the caller for every branch: a branch may keep
more, and not fewer. Ages are those of snapshots: that is all that Iceberg notes of a branch or tag.
"""

from dataclasses import dataclass

from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    TableRequirement,
    TableUpdate,
)

from endive.catalog.operations.refs import RequirementsAndUpdates, ancestors
from endive.errors import ConfigurationError

MAX_AGE_MS = TableProperties.MAX_SNAPSHOT_AGE_MS
MIN_TO_KEEP = TableProperties.MIN_SNAPSHOTS_TO_KEEP
MAX_REF_AGE_MS = "history.expire.max-ref-age-ms"
"""Table property: of branches and tags that do not say. Without it they stay for ever."""
FOR_EVER_MS = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Expiry:
    """The snapshots, branches and tags that expire."""

    snapshot_ids: tuple[int, ...] = ()
    refs: tuple[str, ...] = ()
    """Branches and tags."""

    def __bool__(self) -> bool:
        return bool(self.snapshot_ids or self.refs)


def expiring(
    metadata: TableMetadata, now_ms: int, older_than_unix_ms: int | None = None, keep_last: int | None = None
) -> Expiry:
    """Return what expires at a moment. None: as the table's properties say, or Iceberg's defaults."""
    limit_ms, at_least = older_than_unix_ms, keep_last
    if limit_ms is None:
        limit_ms = now_ms - _number(metadata, MAX_AGE_MS, TableProperties.MAX_SNAPSHOT_AGE_MS_DEFAULT)
    if at_least is None:
        at_least = _number(metadata, MIN_TO_KEEP, TableProperties.MIN_SNAPSHOTS_TO_KEEP_DEFAULT)
    gone = tuple(name for name, ref in metadata.refs.items() if _is_past_its_age(metadata, name, ref, now_ms))
    kept: set[int] = set()
    for name, ref in metadata.refs.items():
        if name not in gone:
            kept |= _kept_by(metadata, ref, now_ms, limit_ms, at_least)
    referenced = {
        one.snapshot_id
        for name, ref in metadata.refs.items()
        if name not in gone
        for one in ancestors(metadata, ref.snapshot_id)
    }
    ids = tuple(
        one.snapshot_id
        for one in metadata.snapshots
        if one.snapshot_id not in kept and (one.snapshot_id in referenced or one.timestamp_ms < limit_ms)
    )
    return Expiry(ids, gone)


def _number(metadata: TableMetadata, name: str, default: int) -> int:
    """Return the value of a table's property."""
    text = metadata.properties.get(name, "").strip()
    if text and not text.isdecimal():
        raise ConfigurationError(name, [f"the table has {text!r}, which is not a number"])
    return int(text) if text else default


def _is_past_its_age(metadata: TableMetadata, name: str, ref: SnapshotRef, now_ms: int) -> bool:
    if name == MAIN_BRANCH:
        return False
    age_ms = ref.max_ref_age_ms or _number(metadata, MAX_REF_AGE_MS, FOR_EVER_MS)
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    return snapshot is not None and snapshot.timestamp_ms < now_ms - age_ms


def _kept_by(metadata: TableMetadata, ref: SnapshotRef, now_ms: int, limit_ms: int, at_least: int) -> set[int]:
    """Return the snapshots that a branch or tag keeps."""
    kept = {ref.snapshot_id}
    if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        return kept
    own_limit_ms = now_ms - ref.max_snapshot_age_ms if ref.max_snapshot_age_ms is not None else limit_ms
    count = max(at_least, ref.min_snapshots_to_keep or 1)
    for place, one in enumerate(ancestors(metadata, ref.snapshot_id)):
        if place < count or one.timestamp_ms >= own_limit_ms:
            kept.add(one.snapshot_id)
    return kept


def removal(metadata: TableMetadata, expiry: Expiry) -> RequirementsAndUpdates:
    """Remove what expires; refused if a removed ref has moved, or another ref points to a removed snapshot."""
    requirements: list[TableRequirement] = [AssertTableUUID(uuid=metadata.table_uuid)]
    requirements += [AssertRefSnapshotId(ref=name, snapshot_id=metadata.refs[name].snapshot_id) for name in expiry.refs]
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=name) for name in expiry.refs]
    if expiry.snapshot_ids:
        updates.append(RemoveSnapshotsUpdate(snapshot_ids=list(expiry.snapshot_ids)))
    return tuple(requirements), tuple(updates)
