"""A transaction's storage requests: made one by one or in batches, and counted."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from math import ceil

from endive.errors import InvariantError
from endive.sim.catalog import CatalogSnapshot, Partitions, TableMetadata
from endive.sim.commit_options import CommitOptions
from endive.sim.cost import ConflictCost
from endive.sim.storage import StorageProvider
from endive.timing import Latency, to_ticks, together

BATCHED = frozenset({"historical_ml_reads", "manifest_file_reads", "manifest_file_writes"})
"""Kinds that `max_parallel` applies to."""

OBJECTS: Mapping[str, str] = {
    "metadata_reads": "table_metadata",
    "metadata_writes": "table_metadata",
    "manifest_list_reads": "manifest_list",
    "manifest_list_writes": "manifest_list",
    "historical_ml_reads": "manifest_list",
    "manifest_file_reads": "manifest_file",
    "manifest_file_writes": "manifest_file",
    "heads": "head",
    "metadata_root_reads": "metadata_root",
}


@dataclass(frozen=True)
class SeenSnapshot(CatalogSnapshot):
    """The catalog as a transaction saw it that appends to manifest lists."""

    list_bytes: int = 0
    """Bytes of the entries in the longest of its lists."""


class Requests:
    """Makes the requests of one transaction and counts those that have completed."""

    def __init__(
        self,
        storage: StorageProvider,
        options: CommitOptions,
        tables: Collection[int],
        partitions: Partitions | None,
        ml_append: bool = False,
    ) -> None:
        self._storage = storage
        self._options = options
        self._ml_append = ml_append
        self._tables = sorted(tables)
        self._partitions = partitions if options.manifest_list_append.per_partition else None
        self._lists = self._list_keys(partitions)
        self._known: dict[str, tuple[int, bool]] = {}
        self.made: Counter[str] = Counter()

    def _list_keys(self, partitions: Partitions | None) -> list[str]:
        """Name the manifest lists that this transaction appends to under ML+."""
        if not self._options.manifest_list_append.per_partition or partitions is None:
            return [f"manifest_list/{table}" for table in self._tables]
        return [f"manifest_list/{table}/{part}" for table in self._tables for part in sorted(partitions.get(table, ()))]

    def make(self, cost: ConflictCost, snapshot: CatalogSnapshot) -> Latency[None]:
        """Make the requests of `cost`. Those of one kind are one wait, and are counted when it is over."""
        for kind, count in cost.due:
            yield from self._repeat(kind, count, snapshot)
            self._completed(kind, count)

    def make_beside(self, left: ConflictCost, right: ConflictCost, snapshot: CatalogSnapshot) -> Latency[None]:
        """Make two series of requests at the same time."""
        yield from together([self._series(left, snapshot), self._series(right, snapshot)])
        for kind, count in (*left.due, *right.due):
            self._completed(kind, count)

    def _series(self, cost: ConflictCost, snapshot: CatalogSnapshot) -> Latency[None]:
        for kind, count in cost.due:
            yield from self._repeat(kind, count, snapshot)

    def _completed(self, kind: str, count: int) -> None:
        self.made[kind] += count
        if kind == "manifest_list_reads":
            self._known = {key: self._storage.objects.state(key) for key in self._lists}

    def _repeat(self, kind: str, count: int, snapshot: CatalogSnapshot) -> Latency[None]:
        """Make `count` requests of one kind; a batch takes as long as its longest request."""
        operation, key = "write" if kind.endswith("writes") else "read", OBJECTS[kind]
        batch = self._options.max_parallel if kind in BATCHED else 1
        size_bytes, varies = self._size_bytes(key, snapshot), self._varies(key)
        result = yield from self._storage.repeat(operation, key, size_bytes, count, batch, varies)
        floor_ticks = to_ticks(self._storage.floor_ms(operation, key)) * ceil(count / batch)
        if to_ticks(result.latency_ms) < floor_ticks:
            raise InvariantError("minimum latency", f"a request of {kind} was faster than {self._storage.name} can be")

    def _varies(self, key: str) -> bool:
        """Whether the objects of this kind change in size during a run."""
        if key == "table_metadata":
            return self._options.snapshot_bytes > 0
        return key == "manifest_list" and (self._options.manifest_list_growth_bytes > 0 or self._ml_append)

    def _size_bytes(self, kind: str, snapshot: CatalogSnapshot) -> int:
        options = self._options
        if kind == "manifest_list":
            more = max(self._more_manifests(snapshot.get_table(table)) for table in self._tables)
            appended = snapshot.list_bytes if isinstance(snapshot, SeenSnapshot) else 0
            return max(options.manifest_list_bytes + more * options.manifest_list_growth_bytes, 0) + appended
        if kind == "table_metadata":
            retained = max(snapshot.get_table(table).retained for table in self._tables)
            return options.table_metadata_bytes + (options.table_snapshots + retained) * options.snapshot_bytes
        return options.manifest_file_bytes if kind == "manifest_file" else 0

    def _more_manifests(self, table: TableMetadata) -> int:
        """Return the manifests in the list of a table beyond those at first; of lists by partition, the longest."""
        if self._partitions is None:
            return table.manifests - self._options.table_manifests
        written = self._partitions.get(table.table_id, ())
        return max((table.partition_versions[part] for part in written), default=0)

    # ML+: manifest lists that grow by appends.

    def with_lengths(self, snapshot: CatalogSnapshot) -> CatalogSnapshot:
        """Return the snapshot with the present lengths of the lists that this transaction appends to."""
        if not self._ml_append:
            return snapshot
        longest = max((self._storage.objects.lengths[key] for key in self._lists), default=0)
        return SeenSnapshot(snapshot.seq, snapshot.tables, snapshot.timestamp_ms, longest)

    def append_entries(self, snapshot: CatalogSnapshot, is_late: Callable[[], bool]) -> Latency[bool]:
        """Append a tentative entry to each manifest list. It counts for readers only once the commit succeeds.

        False: a list was so contended that the attempt gave up. `is_late` says when no append is to be repeated.
        """
        size_bytes = self._size_bytes("manifest_list", snapshot)
        for key in self._lists:
            if not (yield from self._append_entry(key, size_bytes, is_late)):
                return False
        return True

    def _append_entry(self, key: str, size_bytes: int, is_late: Callable[[], bool]) -> Latency[bool]:
        """Append at the offset last seen; a failed append reports the new one, so the retry costs no read."""
        offset, sealed = self._known[key]
        entry_bytes = self._options.manifest_list_append.entry_bytes
        for sent in range(self._options.append_attempts):
            if sent and is_late():
                return False
            if sealed:
                yield from self._storage.read(key, size_bytes)
                self.made["manifest_list_reads"] += 1
                result = yield from self._storage.renew(key, size_bytes, entry_bytes)
                self.made["manifest_list_writes"] += 1
                outcome = "manifest_append_sealed_rewrite"
            else:
                result = yield from self._storage.conditional(
                    "append", key, entry_bytes, partial(self._land, key, offset)
                )
                outcome = "manifest_append_physical_success"
            if result.success:
                self.made[outcome] += 1
                return True
            self.made["manifest_append_physical_failure"] += 1
            offset, sealed = result.offset, result.sealed
        return False

    def _land(self, key: str, offset: int) -> bool:
        """Decide one append; the one that makes the list too long seals it."""
        settings, objects = self._options.manifest_list_append, self._storage.objects
        if not objects.extend(key, offset, settings.entry_bytes):
            return False
        if 0 < settings.seal_bytes < objects.lengths[key]:
            objects.sealed.add(key)
        return True
