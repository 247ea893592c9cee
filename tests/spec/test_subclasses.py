"""Every abstract class can be subclassed with the members that the source documents give it, and no others."""

from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from endive.errors import UnsupportedOperationError
from endive.sim.catalog import (
    AppendCatalog,
    CASCatalog,
    Catalog,
    CatalogSnapshot,
    CommitResult,
    InstantCatalog,
    IntentionRecord,
    TableMetadata,
)
from endive.sim.config.configuration import PROVIDER_PROFILES
from endive.sim.conflict_detector import ProbabilisticConflictDetector
from endive.sim.cost import ConflictCost
from endive.sim.latency import FixedLatency, LatencyDistribution
from endive.sim.results.statistics import Statistics
from endive.sim.results.summary import Window, summarise
from endive.sim.selectors import PartitionSelector, TableSelector
from endive.sim.simulation import Simulation, SimulationConfig
from endive.sim.storage import StorageProvider, StorageResult, create_provider
from endive.sim.transaction import ConflictDetector, Transaction
from endive.sim.workload import Workload, WorkloadConfig

SEED = 7


@dataclass(frozen=True)
class Gamma(LatencyDistribution):
    """A distribution that draws with NumPy, as the source's own do."""

    mean_ms: float

    def sample(self, rng: Any) -> float:
        return float(rng.gamma(4.0, self.mean_ms / 4.0))


class OwnProvider(StorageProvider):
    """The five requests of the source, with versions and lengths of its own."""

    def __init__(self, rng: Any, latency: LatencyDistribution) -> None:
        super().__init__(rng)
        self.latency = latency
        self.versions: dict[str, int] = {}
        self.lengths: dict[str, int] = {}

    def _wait(self, size_bytes: int) -> Generator[float, None, StorageResult]:
        latency_ms = self.latency.sample(self._rng)
        yield latency_ms
        return StorageResult(True, latency_ms, size_bytes)

    def read(self, key: str, expected_size_bytes: int) -> Generator[float, None, StorageResult]:
        return (yield from self._wait(expected_size_bytes))

    def write(self, key: str, size_bytes: int) -> Generator[float, None, StorageResult]:
        return (yield from self._wait(size_bytes))

    def cas(self, key: str, expected_version: int, size_bytes: int) -> Generator[float, None, StorageResult]:
        result = yield from self._wait(size_bytes)
        success = self.versions.get(key, 0) == expected_version
        self.versions[key] = self.versions.get(key, 0) + success
        return StorageResult(success, result.latency_ms, size_bytes)

    def append(self, key: str, offset: int, size_bytes: int) -> Generator[float, None, StorageResult]:
        result = yield from self._wait(size_bytes)
        success = self.lengths.get(key, 0) == offset
        self.lengths[key] = self.lengths.get(key, 0) + size_bytes * success
        return StorageResult(success, result.latency_ms, size_bytes)

    def tail_append(self, key: str, size_bytes: int) -> Generator[float, None, StorageResult]:
        raise UnsupportedOperationError(self.name, "tail_append")


class OwnCatalog(Catalog):
    """One table, swapped in 5 ms."""

    def __init__(self) -> None:
        self._version = 0

    def read(self, timestamp_ms: float = 0.0) -> Generator[float, None, CatalogSnapshot]:
        yield 5.0
        table = TableMetadata(0, self._version, 1, (self._version,))
        return CatalogSnapshot(self._version, (table,), timestamp_ms)

    def commit(
        self,
        expected_seq: int,
        writes: Mapping[int, int],
        timestamp_ms: float = 0.0,
        intention: IntentionRecord | None = None,
    ) -> Generator[float, None, CommitResult]:
        yield 5.0
        success = expected_seq == self._version
        self._version += success
        return CommitResult(success, 5.0)

    @property
    def seq(self) -> int:
        return self._version


class OwnTransaction(Transaction):
    """An upsert that reads one manifest file for each snapshot missed."""

    operation_type = "upsert"

    def can_have_real_conflict(self) -> bool:
        return True

    def should_abort_on_real_conflict(self) -> bool:
        return True

    def get_conflict_cost(self, n_snapshots_behind: int, ml_append_mode: bool) -> ConflictCost:
        return ConflictCost(manifest_file_reads=n_snapshots_behind)


class CheapTransaction(OwnTransaction):
    """Pays one manifest-list write per attempt and nothing else."""

    def get_per_attempt_cost(self, ml_append_mode: bool) -> ConflictCost:
        return ConflictCost(manifest_list_writes=1)


class Upserts(Workload):
    kind: type[Transaction] = OwnTransaction

    def generate(self) -> Iterator[tuple[float, Transaction]]:
        for number in range(1_000_000):
            yield 50.0, self.kind(number, 50.0 * (number + 1), 100.0, frozenset({0}))


class CheapUpserts(Upserts):
    kind = CheapTransaction


class EveryThird(ConflictDetector):
    def is_real_conflict(
        self, txn: Transaction, current_snapshot: CatalogSnapshot, start_snapshot: CatalogSnapshot
    ) -> bool:
        return txn.txn_id % 3 == 0


class FirstTables(TableSelector):
    def select(self, n_tables: int, total_tables: int, rng: Any) -> tuple[frozenset[int], frozenset[int]]:
        chosen = frozenset(int(table) for table in rng.choice(total_tables, n_tables, replace=False))
        return chosen, chosen


class LastPartition(PartitionSelector):
    def select(self, n_partitions: int, total_partitions: int, rng: Any) -> tuple[frozenset[int], frozenset[int]]:
        return frozenset({total_partitions - 1}), frozenset({total_partitions - 1})


def workload(**options: Any) -> Workload:
    arrivals: LatencyDistribution = options.pop("inter_arrival", FixedLatency(80.0))
    shape: dict[str, Any] = {"num_tables": 1, "partitions_per_table": (1,)} | options
    return Workload(WorkloadConfig(arrivals, FixedLatency(100.0), **shape), SEED)


def run(**parts: Any) -> Statistics:
    """Run ten seconds with one part replaced."""
    known: dict[str, Any] = {
        "storage_provider": create_provider("s3", np.random.RandomState(SEED), PROVIDER_PROFILES),
        "catalog": InstantCatalog(1, (1,)),
        "workload": workload(),
        "conflict_detector": ProbabilisticConflictDetector(0.5),
    }
    statistics = Simulation(SimulationConfig(10_000.0, SEED, **known | parts)).run()
    assert statistics.committed > 10
    assert statistics.committed == pytest.approx(statistics.seq, abs=statistics.unfinished)
    return statistics


def test_a_distribution_needs_only_sample() -> None:
    first, second = (run(workload=workload(inter_arrival=Gamma(80.0))).to_arrow() for _ in range(2))

    assert first.equals(second)  # its draws come from the transaction's own stream
    assert Gamma(80.0).quantile.mean_ticks / 1e6 == pytest.approx(80.0, rel=0.01)


def test_the_bare_distribution_is_abstract() -> None:
    with pytest.raises(TypeError, match="sample"):
        LatencyDistribution()  # type: ignore[abstract]


@pytest.mark.parametrize("catalog", [CASCatalog, AppendCatalog])
@pytest.mark.parametrize("ml_append_mode", [False, True])
def test_a_provider_needs_only_the_five_requests(catalog: Any, ml_append_mode: bool) -> None:
    storage = OwnProvider(np.random.RandomState(SEED), Gamma(15.0))

    statistics = run(storage_provider=storage, catalog=catalog(storage, 1, (1,)), ml_append_mode=ml_append_mode)

    assert statistics.total_retries > 0
    assert (storage.name, storage.supports_cas, storage.min_latency_ms) == ("OwnProvider", True, 0.0)


def test_a_catalog_needs_only_read_commit_and_seq() -> None:
    assert run(catalog=OwnCatalog()).total_retries > 0


def test_a_transaction_needs_only_its_conflict_rules_and_cost() -> None:
    statistics = run(workload=Upserts(workload().config, SEED), conflict_detector=EveryThird())

    assert {row.operation_type for row in statistics.transactions} == {"upsert"}
    assert statistics.validation_exceptions > 0
    assert statistics.manifest_file_reads > 0
    assert summarise(statistics.to_arrow(), Window(0.0, 10_000.0)).latency["all"].commits == statistics.committed


def test_a_transaction_may_replace_the_cost_of_an_attempt() -> None:
    statistics = run(workload=CheapUpserts(workload().config, SEED))

    assert statistics.manifest_list_reads == 0
    assert statistics.manifest_list_writes >= statistics.committed


def test_a_conflict_detector_needs_only_is_real_conflict() -> None:
    mix = workload(fast_append_weight=0.0, merge_append_weight=0.0, validated_overwrite_weight=1.0)

    statistics = run(workload=mix, conflict_detector=EveryThird())

    aborted = {row.txn_id % 3 for row in statistics.transactions if row.abort_reason == "validation_exception"}
    assert aborted == {0}


def test_selectors_need_only_select() -> None:
    chosen = workload(
        num_tables=4,
        partitions_per_table=(3,) * 4,
        tables_per_txn=2,
        partitions_per_txn=1,
        table_selector=FirstTables(),
        partition_selector=LastPartition(),
    )

    run(workload=chosen, catalog=InstantCatalog(4, (3,) * 4))

    _, txn = next(chosen.generate())
    assert len(txn.tables_written) == 2
    assert set((txn.partitions_written or {}).values()) == {frozenset({2})}
