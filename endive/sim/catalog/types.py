"""Immutable values of the simulated catalog: snapshots, tables, commit results."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from endive.sim.operations import SNAPSHOT_KINDS, SnapshotKind
from endive.timing import to_ticks

APPENDS_MAX = 2
"""Default of `transaction.append_attempts`: one repetition. More of them age the snapshot that a commit is based on."""

Partitions = Mapping[int, frozenset[int]]
"""Table to the partitions concerned. Where `| None` is allowed, None means *not tracked*: any change overlaps."""


@dataclass(frozen=True)
class TableMetadata:
    """A simulated table at one version. An unpartitioned table has one partition."""

    table_id: int
    version: int
    num_partitions: int
    partition_versions: tuple[int, ...]
    snapshots: tuple[int, ...] = (0,) * len(SNAPSHOT_KINDS)
    """Commits so far by the kind of their snapshot, in the order of `SNAPSHOT_KINDS`."""
    manifests: int = 1
    """Manifests of the current snapshot."""
    retained: int = 0
    """Snapshots in the table metadata, less those at the beginning of the run."""

    def with_version(self, new_version: int) -> "TableMetadata":
        """Return the table at another version."""
        return replace(self, version=new_version)

    def with_partition_version(self, partition_id: int, new_version: int) -> "TableMetadata":
        """Return the table with one partition at another version."""
        versions = list(self.partition_versions)
        versions[partition_id] = new_version
        return replace(self, partition_versions=tuple(versions))


@dataclass(frozen=True)
class CatalogSnapshot:
    """The catalog at `seq`: the only way in which a transaction observes it."""

    seq: int
    tables: tuple[TableMetadata, ...]
    timestamp_ms: float

    def get_table(self, table_id: int) -> TableMetadata:
        """Return one table as of this snapshot."""
        return self.tables[table_id]

    def get_partition_version(self, table_id: int, partition_id: int) -> int:
        """Return one partition's version as of this snapshot."""
        return self.tables[table_id].partition_versions[partition_id]


@dataclass(frozen=True)
class CommitResult:
    """Outcome of a commit. It carries no catalog state: that takes a `read()`, and its latency."""

    success: bool
    latency_ms: float


@dataclass(frozen=True)
class IntentionRecord:
    """Log entry of an append catalog: proposed writes and their preconditions."""

    txn_id: int
    expected_seq: int
    tables_written: Mapping[int, int]
    """Table to new version."""
    partitions_written: Partitions | None = None
    size_bytes: int = 100
    reads: Mapping[int, frozenset[int] | None] = field(default_factory=dict)
    """Serializable isolation: tables (and partitions, where tracked) that must not have changed either."""
    snapshot: SnapshotKind | None = "append"
    """Kind of the snapshot that the commit makes. None: it is maintenance."""
    manifests_merged: Mapping[int, int] = field(default_factory=dict)
    """Table to the manifests that the commit has merged into its own."""
    retained_max: int | None = None
    """The commit expires snapshots: at most so many are left, less those at the beginning. None: it adds one."""
    appends_max: int = APPENDS_MAX
    """Appends of this commit: a refused one is sent again, at the offset that the refusal reports."""
    deadline_ms: float | None = None
    """A refused append is not sent again after this time. None: there is no such limit."""

    def is_late(self, began_ms: float, elapsed_ms: float) -> bool:
        """Whether the deadline has passed, so long after the commit began."""
        if self.deadline_ms is None:
            return False
        return to_ticks(began_ms) + to_ticks(elapsed_ms) > to_ticks(self.deadline_ms)
