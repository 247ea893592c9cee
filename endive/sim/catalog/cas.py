"""The simulated catalog's interface, and the two catalogs that commit by compare-and-swap."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Self

from endive.rng import RandomSource, Stream
from endive.sim.catalog.state import CatalogState
from endive.sim.catalog.types import CatalogSnapshot, CommitResult, IntentionRecord
from endive.sim.storage import FixedLatency, Profile, ProfiledProvider, StorageProvider
from endive.timing import Latency


class Catalog(ABC):
    """A simulated catalog as transactions use it: `read()` and `commit()` only."""

    @abstractmethod
    def read(self, timestamp_ms: float = 0.0) -> Latency[CatalogSnapshot]:
        """Return the catalog's state as of the end of the round trip."""

    @abstractmethod
    def commit(
        self,
        expected_seq: int,
        writes: Mapping[int, int],
        timestamp_ms: float = 0.0,
        intention: IntentionRecord | None = None,
    ) -> Latency[CommitResult]:
        """Install `writes` (table to new version) unless something they depend on changed since `expected_seq`.

        On success `seq` has advanced by exactly one. On failure nothing changed, and the result carries no state.
        `intention` adds the transaction's id, the partitions written and the tables that must not have changed. None:
        partitions are not tracked.
        """

    @property
    @abstractmethod
    def seq(self) -> int:
        """Number of commits so far."""

    @property
    def counters(self) -> Counter[str]:
        """Outcomes by name, for the report at the end of a run. None by default."""
        return Counter()

    def keep_time(self, clock: Callable[[], int]) -> None:  # noqa: B027 - a catalog without limits has no use for it
        """Take the function that returns the present tick."""

    def session(self, rng: RandomSource) -> Self:  # noqa: ARG002 - a catalog without randomness has no use for it
        """Return this catalog as one transaction uses it: the same state, latencies from `rng`."""
        return self


class StoredCatalog(Catalog):
    """A catalog on a storage provider: its state is shared by all sessions, its latencies are each session's own."""

    def __init__(self, storage: StorageProvider, state: CatalogState) -> None:
        self._storage = storage
        self._state = state

    def session(self, rng: RandomSource) -> Self:
        view = copy(self)
        view._storage = self._storage.with_rng(rng)
        return view

    def keep_time(self, clock: Callable[[], int]) -> None:
        self._storage.objects.clock = clock

    @property
    def seq(self) -> int:
        return self._state.seq

    @property
    def counters(self) -> Counter[str]:
        return self._state.counters


class CASCatalog(StoredCatalog):
    """One object, swapped by a single conditional write."""

    KEY = "catalog"

    def __init__(
        self,
        storage: StorageProvider,
        num_tables: int,
        partitions_per_table: Sequence[int],
        granularity: str = "catalog",
        table_groups: int = 1,
        manifests: int = 1,
    ) -> None:
        state = CatalogState(num_tables, partitions_per_table, granularity, table_groups, manifests)
        super().__init__(storage, state)

    def read(self, timestamp_ms: float = 0.0) -> Latency[CatalogSnapshot]:
        result = yield from self._storage.read(self.KEY, 0)
        self._state.counters["catalog_reads"] += 1
        return self._state.snapshot(timestamp_ms + result.latency_ms)

    def commit(
        self,
        expected_seq: int,
        writes: Mapping[int, int],
        timestamp_ms: float = 0.0,  # noqa: ARG002 - a compare-and-swap leaves no timestamp
        intention: IntentionRecord | None = None,
    ) -> Latency[CommitResult]:
        proposal = intention or IntentionRecord(-1, expected_seq, writes)
        key = self.KEY if self._state.pointers == 1 else f"{self.KEY}/{self._state.pointer(proposal.tables_written)}"
        result = yield from self._storage.conditional("cas", key, 0, _Swap(self._state, proposal).decide)
        self._state.counters["cas_success" if result.success else "cas_failure"] += 1
        return CommitResult(result.success, result.latency_ms)


class _Swap:
    """One commit's proposal, as the catalog decides it."""

    def __init__(self, state: CatalogState, proposal: IntentionRecord) -> None:
        self._state = state
        self._proposal = proposal

    def decide(self) -> bool | None:
        """Install the proposal. None: it lost, but nothing overlaps; it is rebased and may be decided again."""
        if not self._state.conflicts(self._proposal):
            self._state.apply(self._proposal)
            return True
        if self._state.overlaps(self._proposal):
            return False
        self._proposal = self._state.rebased(self._proposal)
        return None


class ServiceCatalog(CASCatalog):
    """A catalog behind a server: its latencies, limits and workers are those of `profile`, not of the object store."""

    def __init__(
        self,
        profile: Profile,
        num_tables: int,
        partitions_per_table: Sequence[int],
        granularity: str = "table",
        table_groups: int = 1,
        manifests: int = 1,
    ) -> None:
        storage = ProfiledProvider(profile, Stream(0))
        super().__init__(storage, num_tables, partitions_per_table, granularity, table_groups, manifests)

    @property
    def counters(self) -> Counter[str]:
        return self._state.counters + self._storage.objects.counters


class InstantCatalog(CASCatalog):
    """A compare-and-swap of fixed latency, for tests and for questions in which the catalog is not the bottleneck."""

    def __init__(
        self,
        num_tables: int,
        partitions_per_table: Sequence[int],
        latency_ms: float = 1.0,
        granularity: str = "catalog",
        table_groups: int = 1,
        manifests: int = 1,
    ) -> None:
        fixed = FixedLatency(latency_ms)
        storage = ProfiledProvider(Profile("instant-catalog", {"read": fixed, "cas": fixed}), Stream(0))
        super().__init__(storage, num_tables, partitions_per_table, granularity, table_groups, manifests)
