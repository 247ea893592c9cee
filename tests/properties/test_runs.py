"""Whole runs of random small configurations: deterministic, consistent, and every millisecond accounted for."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endive.rng import Stream
from endive.sim.catalog import AppendCatalog, CASCatalog, Catalog, LogLimits
from endive.sim.commit_options import CommitOptions, ManifestListAppend
from endive.sim.conflict_detector import PartitionOverlapConflictDetector, ProbabilisticConflictDetector
from endive.sim.cost import COST_MODELS
from endive.sim.latency import ExponentialLatency, FixedLatency, LognormalLatency
from endive.sim.results.statistics import Statistics
from endive.sim.selectors import UniformPartitionSelector, ZipfPartitionSelector, ZipfTableSelector
from endive.sim.simulation import Simulation, SimulationConfig
from endive.sim.storage import Contention, Profile, ProfiledProvider
from endive.sim.transaction import Transaction, TransactionResult
from endive.sim.workload import ClosedLoop, Workload, WorkloadConfig

Choice = dict[str, Any]

CHOICES: st.SearchStrategy[Choice] = st.fixed_dictionaries(
    {
        "catalog": st.sampled_from(["cas", "append"]),
        "granularity": st.sampled_from(["catalog", "table", "partition"]),
        "groups": st.integers(1, 2),
        "tables": st.integers(2, 4),
        "partitions": st.integers(1, 4),
        "tracked": st.booleans(),
        "tables_per_txn": st.integers(1, 3),
        "write_fraction": st.sampled_from([0.4, 1.0]),
        "cost_model": st.sampled_from(sorted(COST_MODELS)),
        "behind": st.sampled_from([None, "catalog", "table", "partition"]),
        "serializable": st.booleans(),
        "real_conflict": st.sampled_from(["abort", "merge", "restart"]),
        "detector": st.sampled_from(["chance", "partitions"]),
        "ml_append_mode": st.booleans(),
        "keeps_entries": st.booleans(),
        "per_partition": st.booleans(),
        "seal_bytes": st.sampled_from([0, 120]),
        "entries_max": st.sampled_from([0, 3]),
        "inlined": st.booleans(),
        "max_parallel": st.integers(1, 4),
        "max_retries": st.integers(0, 6),
        "backoff": st.sampled_from(["none", "after", "before"]),
        "timeout_ms": st.sampled_from([None, 80.0]),
        "decision": st.sampled_from([0.5, 1.0]),
        "contention": st.booleans(),
        "failure_ms": st.sampled_from([None, 3.0, 60.0]),
        "closed": st.booleans(),
    }
)


def build(choice: Choice, seed: int) -> SimulationConfig:
    """Return the configuration of 600 ms that the choice describes."""
    storage = ProfiledProvider(_profile(choice), Stream(0))
    tables, partitions = choice["tables"], (choice["partitions"],) * choice["tables"]
    detectors = {"chance": ProbabilisticConflictDetector(0.4), "partitions": PartitionOverlapConflictDetector()}
    return SimulationConfig(
        duration_ms=600.0,
        seed=seed,
        storage_provider=storage,
        catalog=_catalog(choice, storage, tables, partitions),
        workload=Workload(_workload(choice, tables, partitions), seed),
        conflict_detector=detectors[choice["detector"]],
        max_retries=choice["max_retries"],
        ml_append_mode=choice["ml_append_mode"],
        backoff_enabled=choice["backoff"] != "none",
        backoff_before_read=choice["backoff"] == "before",
        options=_options(choice),
    )


def _profile(choice: Choice) -> Profile:
    rows = {name: LognormalLatency.from_median(5.0, 0.5) for name in ("read", "write", "cas", "append")}
    if choice["failure_ms"]:
        rows |= {
            f"{name}_failure": LognormalLatency.from_median(choice["failure_ms"], 0.5) for name in ("cas", "append")
        }
    contention = Contention(0.2, 2.0) if choice["contention"] else Contention()
    return Profile("random", rows, contention, choice["decision"])


def _catalog(choice: Choice, storage: ProfiledProvider, tables: int, partitions: tuple[int, ...]) -> Catalog:
    if choice["catalog"] == "cas":
        return CASCatalog(storage, tables, partitions, choice["granularity"], choice["groups"])
    limits = LogLimits(entries_max=choice["entries_max"])
    return AppendCatalog(storage, tables, partitions, choice["granularity"], limits, entry_read_ms=0.5)


def _workload(choice: Choice, tables: int, partitions: tuple[int, ...]) -> WorkloadConfig:
    zipf = ZipfPartitionSelector(1.2, choice["write_fraction"])
    return WorkloadConfig(
        inter_arrival=ExponentialLatency(20.0),
        runtime=LognormalLatency.from_median(15.0, 0.8),
        num_tables=tables,
        partitions_per_table=partitions,
        fast_append_weight=1.0,
        merge_append_weight=1.0,
        validated_overwrite_weight=1.0,
        tables_per_txn=choice["tables_per_txn"],
        table_selector=ZipfTableSelector(1.0, choice["write_fraction"]),
        partitions_per_txn=2 if choice["tracked"] else None,
        partition_selector=zipf if choice["groups"] == 1 else UniformPartitionSelector(),
        closed=ClosedLoop(4, FixedLatency(5.0)) if choice["closed"] else None,
    )


def _options(choice: Choice) -> CommitOptions:
    return CommitOptions(
        cost_model=COST_MODELS[choice["cost_model"]],
        behind=choice["behind"],
        serializable=choice["serializable"],
        real_conflict=choice["real_conflict"],
        retry_timeout_ms=choice["timeout_ms"],
        max_parallel=choice["max_parallel"],
        metadata_inlined=choice["inlined"],
        manifest_list_append=ManifestListAppend(
            50, choice["seal_bytes"], choice["keeps_entries"], choice["per_partition"]
        ),
    )


def run(choice: Choice, seed: int) -> tuple[Statistics, list[Transaction]]:
    """Run a choice; return its statistics, and the transactions themselves."""
    config, started = build(choice, seed), list[Transaction]()
    create = config.workload.transaction

    def remembered(txn_id: int, submit_time_ms: float) -> Transaction:
        started.append(create(txn_id, submit_time_ms))
        return started[-1]

    config.workload.transaction = remembered  # type: ignore[method-assign]
    return Simulation(config).run(), started


sensible = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@sensible
@given(CHOICES, st.integers(0, 1_000))
def test_the_same_seed_gives_identical_tables_and_another_seed_does_not(choice: Choice, seed: int) -> None:
    (once, first), (again, second), (other, _) = run(choice, seed), run(choice, seed), run(choice, seed + 1)
    assert once.to_arrow() == again.to_arrow()
    assert once.counters == again.counters
    assert once.to_arrow() != other.to_arrow()
    next_numbers = [[txn.streams.storage.random() for txn in txns] for txns in (first, second)]
    assert next_numbers[0] == next_numbers[1]


@sensible
@given(CHOICES, st.integers(0, 1_000))
def test_seq_equals_commits_and_every_transaction_is_a_row(choice: Choice, seed: int) -> None:
    statistics, _ = run(choice, seed)
    answered_later = statistics.seq - statistics.committed
    in_commit = sum(row.status.name == "COMMITTING" for row in statistics.transactions)
    assert 0 <= answered_later <= in_commit
    numbers = [row.txn_id for row in statistics.transactions]
    assert len(set(numbers)) == len(numbers) > 0
    assert statistics.committed + statistics.aborted + statistics.unfinished == len(numbers)
    assert max(row.total_retries for row in statistics.transactions) <= choice["max_retries"]


@sensible
@given(CHOICES, st.integers(0, 1_000))
def test_the_accounting_adds_up(choice: Choice, seed: int) -> None:
    statistics, transactions = run(choice, seed)
    by_number = {txn.txn_id: txn for txn in transactions}
    for row in statistics.transactions:
        txn = by_number[row.txn_id]
        assert txn.spent.total_ticks == sum(txn.spent.ticks.values())
        parts_ms = (
            row.catalog_read_ms + txn.spent.ms("runtime") + row.per_attempt_io_ms + row.conflict_io_ms
            + row.catalog_commit_ms + txn.spent.ms("backoff")
        )  # fmt: skip
        assert abs(row.total_latency_ms - parts_ms) < 1e-6
        if row.status.name in ("COMMITTED", "ABORTED") and choice["real_conflict"] != "restart":
            assert txn.spent.ms("runtime") == row.runtime_ms
        _check_times(row)


def _check_times(row: TransactionResult) -> None:
    finished = row.commit_time_ms if row.status.name == "COMMITTED" else row.abort_time_ms
    if row.status.name in ("COMMITTED", "ABORTED"):
        assert abs(finished - (row.submit_time_ms + row.total_latency_ms)) < 1e-6
        assert 0.0 < row.commit_latency_ms < row.total_latency_ms
    else:
        assert (row.commit_time_ms, row.abort_time_ms) == (-1.0, -1.0)
    assert (row.abort_reason is not None) is (row.status.name == "ABORTED")
