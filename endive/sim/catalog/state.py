"""Server-side state of the simulated catalog.

A snapshot is identified by one number. Each unit of conflict (the whole catalog, a group of tables, a table, a
partition) remembers the `seq` of the last commit that touched it; a proposal built on snapshot `expected_seq` conflicts
exactly if one of its units was touched later than that.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from endive.errors import InvariantError
from endive.sim.catalog.types import CatalogSnapshot, IntentionRecord, Partitions, TableMetadata
from endive.sim.operations import SNAPSHOT_KINDS

_NONE: frozenset[int] = frozenset()


class CatalogState:
    """Tables, their versions and the `seq` of their last commit. Changed by `apply` only."""

    def __init__(
        self,
        num_tables: int,
        partitions_per_table: Sequence[int],
        granularity: str = "catalog",
        table_groups: int = 1,
        manifests: int = 1,
    ) -> None:
        self.seq = 0
        self.tables = tuple(
            TableMetadata(table, 0, count, (0,) * count, manifests=manifests)
            for table, count in zip(range(num_tables), partitions_per_table, strict=True)
        )
        self.counters: Counter[str] = Counter()
        self._granularity = granularity
        self._groups = table_groups
        self._group_seq = [0] * table_groups
        self._table_seq = [0] * num_tables
        self._partition_seq = [[0] * count for count in partitions_per_table]

    def snapshot(self, timestamp_ms: float) -> CatalogSnapshot:
        """Return the present state."""
        return CatalogSnapshot(self.seq, self.tables, timestamp_ms)

    def conflicts(self, proposal: IntentionRecord) -> bool:
        """Whether a unit that the proposal writes, or must find unchanged, was touched since its snapshot."""
        written = proposal.partitions_written
        if any(
            self._touched_seq(table, None if written is None else written.get(table, _NONE)) > proposal.expected_seq
            for table in proposal.tables_written
        ):
            return True
        return any(
            self._read_seq(table, partitions) > proposal.expected_seq for table, partitions in proposal.reads.items()
        )

    def overlaps(self, proposal: IntentionRecord) -> bool:
        """Whether a table or partition that the proposal depends on was touched since its snapshot."""
        written = proposal.partitions_written
        watched = [(table, None if written is None else written.get(table, _NONE)) for table in proposal.tables_written]
        watched += proposal.reads.items()
        return any(self._read_seq(table, partitions) > proposal.expected_seq for table, partitions in watched)

    def rebased(self, proposal: IntentionRecord) -> IntentionRecord:
        """Return the proposal on top of the present state. It must not overlap with what came between."""
        writes = {table: self.tables[table].version + 1 for table in proposal.tables_written}
        return replace(proposal, expected_seq=self.seq, tables_written=writes)

    def pointer(self, tables: Iterable[int]) -> int:
        """Return the number of the pointer that a commit to these tables swaps."""
        return min(tables) * self._groups // len(self.tables)

    @property
    def pointers(self) -> int:
        """Number of pointers: groups of tables."""
        return self._groups

    def _touched_seq(self, table: int, partitions: frozenset[int] | None) -> int:
        if self._granularity == "catalog":
            return self._group_seq[table * self._groups // len(self.tables)]
        return self._read_seq(table, partitions if self._granularity == "partition" else None)

    def _read_seq(self, table: int, partitions: frozenset[int] | None) -> int:
        if partitions is None:
            return self._table_seq[table]
        return max((self._partition_seq[table][p] for p in partitions), default=0)

    def apply(self, proposal: IntentionRecord) -> None:
        """Install a commit: `seq` and every written table advance by exactly one."""
        self.seq += 1
        tables = list(self.tables)
        for table, new_version in proposal.tables_written.items():
            advanced = self._advanced(tables[table], new_version, proposal.partitions_written)
            tables[table] = _with_snapshot(advanced, proposal)
            self._group_seq[table * self._groups // len(tables)] = self.seq
            self._table_seq[table] = self.seq
        self.tables = tuple(tables)

    def _advanced(self, table: TableMetadata, new_version: int, partitions: Partitions | None) -> TableMetadata:
        version = table.version + 1
        if new_version > version or (self._granularity != "partition" and new_version != version):
            raise InvariantError(
                "version monotonicity",
                f"table {table.table_id} at {table.version} asked to go to {new_version}",
            )
        touched = range(table.num_partitions) if partitions is None else partitions.get(table.table_id, _NONE)
        versions = list(table.partition_versions)
        for partition in touched:
            versions[partition] += 1
            self._partition_seq[table.table_id][partition] = self.seq
        return replace(table, version=version, partition_versions=tuple(versions))


def _with_snapshot(table: TableMetadata, proposal: IntentionRecord) -> TableMetadata:
    """Return the table with one more snapshot of the proposal's kind, and its manifest instead of those it merged."""
    if proposal.retained_max is not None:
        return replace(table, retained=min(table.retained, proposal.retained_max))
    kind = None if proposal.snapshot is None else SNAPSHOT_KINDS.index(proposal.snapshot)
    snapshots = tuple(count + (index == kind) for index, count in enumerate(table.snapshots))
    # At least its own: another transaction may have merged the same manifests, where the two did not overlap.
    manifests = max(table.manifests + 1 - proposal.manifests_merged.get(table.table_id, 0), 1)
    return replace(table, snapshots=snapshots, manifests=manifests, retained=table.retained + 1)
