"""Builders for simulated catalogs, transactions and workloads.

Latencies are fixed and nothing is random, unless a test sets it. To test a race, `paused_before_commit` runs a
transaction up to the point at which it would send its compare-and-swap (or append), and `resume` runs it to its end.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from endive.sim.catalog import (
    AppendCatalog,
    Catalog,
    CatalogSnapshot,
    InstantCatalog,
)
from endive.sim.conflict_detector import ProbabilisticConflictDetector
from endive.sim.latency import FixedLatency, LatencyDistribution
from endive.sim.results.statistics import Statistics
from endive.sim.simulation import Simulation, SimulationConfig
from endive.sim.storage import StorageProvider
from endive.sim.transaction import (
    FastAppendTransaction,
    MergeAppendTransaction,
    Transaction,
    TransactionResult,
    TransactionStatus,
    ValidatedOverwriteTransaction,
)
from endive.sim.workload import Workload, WorkloadConfig
from endive.timing import Latency
from tests.instruments import WatchedCatalog, drain, fixed_provider, session

Txn = TypeVar("Txn", bound=Transaction)

NEVER = ProbabilisticConflictDetector(0.0)
ALWAYS = ProbabilisticConflictDetector(1.0)
_numbers = count(1)


# Catalogs.


def catalog_of(tables: int = 1, partitions: int = 1, latency_ms: float = 1.0, **options: Any) -> InstantCatalog:
    """Return a catalog with `tables` tables of `partitions` partitions each."""
    return InstantCatalog(tables, (partitions,) * tables, latency_ms, **options)


def append_catalog_of(
    tables: int = 1, partitions: int = 1, storage: StorageProvider | None = None, **options: Any
) -> AppendCatalog:
    """Return an append catalog with `tables` tables of `partitions` partitions each."""
    return AppendCatalog(storage or fixed_provider(), tables, (partitions,) * tables, **options)


def state_of(catalog: Catalog) -> CatalogSnapshot:
    """Return the catalog's state, as another client reads it."""
    return drain(session(catalog).read())


# Transactions.


def _transaction(kind: type[Txn], table: int, options: dict[str, Any]) -> Txn:
    partition = options.pop("partition", None)
    tables = options.pop("tables", frozenset({table}))
    partitions = None if partition is None else {table: frozenset({partition})}
    number = options.pop("txn_id", None)
    runtime_ms = options.pop("runtime_ms", 100.0)
    return kind(next(_numbers) if number is None else number, 0.0, runtime_ms, tables, partitions, **options)


def fast_append(table: int = 0, **options: Any) -> FastAppendTransaction:
    """Return a fast append to `table`; `partition=`: to that partition, with partitions tracked."""
    return _transaction(FastAppendTransaction, table, options)


def merge_append(table: int = 0, **options: Any) -> MergeAppendTransaction:
    """Return a merge append to `table`."""
    return _transaction(MergeAppendTransaction, table, options)


def overwrite(table: int = 0, **options: Any) -> ValidatedOverwriteTransaction:
    """Return a validated overwrite of `table`."""
    return _transaction(ValidatedOverwriteTransaction, table, options)


def run(
    txn: Transaction, catalog: Catalog, storage: StorageProvider | None = None, **arguments: Any
) -> TransactionResult:
    """Run a transaction from start to end without concurrent transactions."""
    detector = arguments.pop("detector", NEVER)
    return drain(txn.execute(catalog, storage or fixed_provider(), detector, **arguments))


def commit(
    txn: Transaction, catalog: Catalog, storage: StorageProvider | None = None, **arguments: Any
) -> TransactionResult:
    """Run a transaction as another client; it must commit."""
    result = run(txn, session(catalog), storage, **arguments)
    assert result.status is TransactionStatus.COMMITTED
    return result


@dataclass
class Paused:
    """A transaction stopped just before a commit."""

    txn: Transaction
    steps: Latency[TransactionResult]
    catalog: WatchedCatalog
    result: TransactionResult | None = None


def paused_before_commit(
    txn: Transaction, catalog: Catalog, storage: StorageProvider | None = None, **arguments: Any
) -> Paused:
    """Run a transaction up to the point at which it would send its commit."""
    detector = arguments.pop("detector", NEVER)
    watched = WatchedCatalog(catalog)
    paused = Paused(txn, txn.execute(watched, storage or fixed_provider(), detector, **arguments), watched)
    return resume_to_commit(paused)


def resume_to_commit(paused: Paused) -> Paused:
    """Let the pending commit happen and run up to the next one, or to the end."""
    try:
        next(paused.steps)
        while not paused.catalog.at_commit:
            next(paused.steps)
    except StopIteration as stop:
        paused.result = stop.value
    return paused


def resume(paused: Paused) -> TransactionResult:
    """Run a paused transaction to its end."""
    return paused.result or drain(paused.steps)


def losing(catalog: Catalog, races: int, rival: Callable[[], Transaction]) -> WatchedCatalog:
    """Return a catalog in which a transaction loses its first `races`, each to one commit of `rival()`."""
    return WatchedCatalog(catalog, [lambda: commit(rival(), catalog)] * races)


# Simulations.


def workload_of(seed: int | None = 1, tables: int = 1, partitions: int = 1, **options: Any) -> Workload:
    """Return a workload with an arrival every 100 ms and a runtime of 50 ms."""
    waits_ms: dict[str, LatencyDistribution] = {"inter_arrival": FixedLatency(100.0), "runtime": FixedLatency(50.0)}
    return Workload(
        WorkloadConfig(**{**waits_ms, "num_tables": tables, "partitions_per_table": (partitions,) * tables, **options}),
        seed,
    )


def simulate(
    workload: Workload,
    *,
    duration_ms: float = 10_000.0,
    storage: StorageProvider | None = None,
    catalog: Catalog | None = None,
    **options: Any,
) -> Statistics:
    """Run a workload against a catalog that matches it."""
    shape = workload.config
    config = SimulationConfig(
        duration_ms=duration_ms,
        seed=workload.seed,
        storage_provider=storage or fixed_provider(),
        catalog=catalog or InstantCatalog(shape.num_tables, shape.partitions_per_table),
        workload=workload,
        conflict_detector=options.pop("detector", NEVER),
        **options,
    )
    return Simulation(config).run()
