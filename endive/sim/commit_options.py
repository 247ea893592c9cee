"""Options of a commit: cost model, backoff, retries, manifest-list layout, sizes."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from endive.sim.catalog import APPENDS_MAX
from endive.sim.cost import NOTHING, SPEC, Behind, ConflictCost, CostModel
from endive.sim.latency import FixedLatency, LatencyDistribution
from endive.timing import to_ms, to_ticks

METADATA_KINDS = frozenset({"metadata_reads", "metadata_writes"})


@dataclass(frozen=True)
class Backoff:
    """Waits that grow with each retry, up to a limit, and then up to `jitter` longer, at random."""

    base_ms: float = 10.0
    multiplier: float = 2.0
    max_ms: float = 5000.0
    jitter: float = 0.1
    before_read: bool = False
    """Wait before the catalog is read again, instead of after the conflict is resolved."""

    def delay_ms(self, retry: int, u: float) -> float:
        """Return the wait before retry number `retry`, from 1; `u` places it within the jitter."""
        return to_ms(to_ticks(self.capped_ms(retry) * (1.0 + self.jitter * u)))

    def capped_ms(self, retry: int) -> float:
        """Return the wait before retry number `retry`, from 1, without jitter."""
        try:
            return min(self.base_ms * self.multiplier ** (retry - 1), self.max_ms)
        except OverflowError:
            return self.max_ms


@dataclass(frozen=True)
class ManifestListAppend:
    """ML+: manifest-list entries are appended before the commit, and count only if it succeeds."""

    entry_bytes: int = 50
    seal_bytes: int = 0
    """A list longer than this is sealed and must be rewritten. 0: never."""
    keeps_entries: bool = False
    """A false conflict leaves the tentative entry valid: the retry makes no manifest-list requests."""
    per_partition: bool = False
    """Each partition has a manifest list of its own."""


@dataclass(frozen=True)
class CommitOptions:
    """All options of a commit."""

    cost_model: CostModel = SPEC
    behind: Behind | None = None
    """None: as the cost model says."""
    serializable: bool = False
    """Tables and partitions read must be unchanged too (serializable isolation)."""
    real_conflict: Literal["abort", "merge", "restart"] = "abort"
    conflicting_manifests: LatencyDistribution = field(default_factory=lambda: FixedLatency(1.0))
    """How many manifest files a merged conflict reads and writes; a distribution of counts, not of time."""
    backoff: Backoff | None = None
    retry_timeout_ms: float | None = None
    """No retry starts later than this after the first attempt. None: no such limit."""
    append_attempts: int = APPENDS_MAX
    """Appends of an attempt to the catalog's log, or of an entry to a manifest list: a refused one is repeated."""
    reads_metadata_root: bool = False
    """Resolving a conflict begins with reading the metadata root of each written table."""
    max_parallel: int = 1
    """Historical manifest lists and manifest files are read and written in batches of so many."""
    metadata_inlined: bool = True
    """Table metadata is part of the catalog, and costs no requests of its own."""
    manifest_list_append: ManifestListAppend = ManifestListAppend()
    table_manifests: int = 1
    """Manifests that a table has, for the cost models that count them."""
    merge_min_manifests: int = 0
    """Manifests of a table from which on Iceberg's operations merge them. 0: never."""
    manifest_list_bytes: int = 10 * 1024
    manifest_list_growth_bytes: int = 0
    """Bytes of a manifest in its table's manifest list, beyond those that the table has at first."""
    manifest_file_bytes: int = 100 * 1024
    table_metadata_bytes: int = 10 * 1024
    snapshot_bytes: int = 0
    """Bytes of a snapshot in the table metadata. 0: its size does not change."""
    table_snapshots: int = 0
    """Snapshots that the metadata of a table has at first, not counted in `table_metadata_bytes`."""
    snapshots_kept: int = 1
    """Snapshots that an expiry leaves."""
    entry_bytes: int = 100
    """Size of an intention in an append catalog's log."""

    _known_prices: dict[tuple[str, bool, int, int], "Prices"] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def prices(self, operation: str, ml_append_mode: bool, tables: int, only_read: int = 0) -> "Prices":
        """Return the requests of a transaction that writes so many tables, and only reads so many others. Cached."""
        key = (operation, ml_append_mode, tables, only_read)
        if key not in self._known_prices:
            self._known_prices[key] = Prices.of(self, *key)
        return self._known_prices[key]

    def layout(self, ml_append_mode: bool) -> frozenset[str]:
        """Return the kinds of request that the chosen layout does not need."""
        appended = frozenset({"manifest_list_writes"}) if ml_append_mode else frozenset()
        return appended | METADATA_KINDS if self.metadata_inlined else appended


@dataclass(frozen=True)
class Prices:
    """Requests of one type of operation, in the chosen layout and for all tables of the transaction."""

    first: ConflictCost
    retry: ConflictCost
    beside: tuple[ConflictCost, ConflictCost]
    check: ConflictCost
    publish: ConflictCost

    @cached_property
    def attempts(self) -> tuple[ConflictCost, ConflictCost]:
        """All requests of the first attempt, and of a retry, without those that merge manifests."""
        beside = sum((*self.beside, self.publish), NOTHING)
        return self.first + beside, self.retry + beside

    @classmethod
    def constant(cls, attempt: ConflictCost) -> "Prices":
        """Return the same requests for every attempt, and no others."""
        return cls(attempt, attempt, (NOTHING, NOTHING), NOTHING, NOTHING)

    @classmethod
    def of(
        cls, options: CommitOptions, operation: str, ml_append_mode: bool, tables: int, only_read: int = 0
    ) -> "Prices":
        """Compute the prices of every transaction of that type and number of tables."""
        model, unneeded = options.cost_model, options.layout(ml_append_mode)
        row, times = model.row(operation), tables if model.per_table else 1
        manifests = row.per_manifest.times(options.table_manifests)

        def due(cost: ConflictCost) -> ConflictCost:
            needed = cost.without(unneeded)
            metadata = needed.only(METADATA_KINDS).times(tables)  # every table has its own, in any model
            return needed.without(METADATA_KINDS).times(times) + metadata

        left, right = row.beside
        loaded = 0 if model.loads_metadata or options.metadata_inlined else only_read
        return cls(
            due(row.first + manifests) + ConflictCost(metadata_reads=loaded),
            due(row.retry + manifests),
            (due(left), due(right)),
            due(ConflictCost(metadata_reads=1)),
            due(model.publish),
        )
