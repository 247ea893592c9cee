"""Section "Simulation Runner": virtual time, statistics, the columns, the end of a run."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import simpy

from endive.errors import InvariantError
from endive.sim.catalog import CatalogSnapshot, CommitResult, InstantCatalog, IntentionRecord
from endive.sim.latency import ExponentialLatency, FixedLatency
from endive.sim.results.statistics import Statistics
from endive.sim.simulation import Simulation, SimulationConfig, _drive_generator
from endive.sim.transaction import FastAppendTransaction, TransactionStatus
from endive.sim.workload import ClosedLoop
from endive.timing import Latency, to_ticks
from tests.instruments import fixed_provider
from tests.support import ALWAYS, NEVER, catalog_of, fast_append, run, simulate, workload_of

COLUMNS = """
txn_id t_submit t_runtime t_commit commit_latency total_latency n_retries status operation_type abort_reason
manifest_list_reads manifest_list_writes manifest_file_reads manifest_file_writes
catalog_read_ms per_attempt_io_ms conflict_io_ms catalog_commit_ms
"""
LABELS = ["class", "writer", "table"]
"""Columns after those of the specification."""


def config_of(**options: object) -> SimulationConfig:
    return SimulationConfig(1_000.0, 1, fixed_provider(), catalog_of(), workload_of(), NEVER, **options)  # type: ignore[arg-type]


# Configuration.


def test_the_specified_defaults() -> None:
    config = config_of()
    assert (config.max_retries, config.ml_append_mode, config.backoff_enabled) == (10, False, False)
    backoff = (config.backoff_base_ms, config.backoff_multiplier, config.backoff_max_ms, config.backoff_jitter)
    assert backoff == (10.0, 2.0, 5000.0, 0.1)


def test_backoff_reaches_the_transactions_only_if_enabled() -> None:
    assert config_of().commit_options().backoff is None
    backoff = config_of(backoff_enabled=True, backoff_base_ms=7.0, backoff_before_read=True).commit_options().backoff
    assert backoff is not None
    assert (backoff.base_ms, backoff.before_read) == (7.0, True)


# Virtual time.


def test_drive_generator_turns_every_yield_into_virtual_time() -> None:
    def steps() -> Latency[str]:
        yield 2.5
        yield 0.0
        yield 4.0
        return "done"

    env = simpy.Environment()
    process = env.process(_drive_generator(env, steps(), order=0))
    assert env.run(until=process) == "done"
    assert env.now == to_ticks(6.5)


@pytest.mark.parametrize("wait_ms", [-1.0, float("nan")])
def test_time_only_advances(wait_ms: float) -> None:
    def steps() -> Latency[None]:
        yield wait_ms

    env = simpy.Environment()
    env.process(_drive_generator(env, steps(), order=0))
    with pytest.raises(InvariantError, match="time only advances"):
        env.run()


def test_simultaneous_events_run_in_the_order_of_the_transactions_numbers() -> None:
    env, seen = simpy.Environment(), list[int]()

    def steps(number: int) -> Latency[None]:
        yield 5.0
        seen.append(number)

    for number in (2, 0, 1):
        env.process(_drive_generator(env, steps(number), order=number))
    env.run()
    assert seen == [0, 1, 2]


def test_one_transaction_each_100_ms_alone_in_its_time_never_retries() -> None:
    statistics = simulate(workload_of(), duration_ms=1_050.0)
    assert [row.submit_time_ms for row in statistics.transactions] == [100.0 * n for n in range(1, 11)]
    assert (statistics.committed, statistics.total_retries, statistics.seq) == (9, 0, 9)
    assert statistics.transactions[0].commit_time_ms == 100 + 1 + 50 + 3 + 1


def test_transactions_that_overlap_in_time_contend() -> None:
    statistics = simulate(workload_of(runtime=FixedLatency(250.0)), duration_ms=5_000.0)
    assert statistics.total_retries > 0
    assert statistics.seq == statistics.committed > 10


def test_closed_arrivals_keep_one_transaction_of_each_writer_going() -> None:
    closed = ClosedLoop(writers=3, think=FixedLatency(45.0))
    statistics = simulate(workload_of(tables=3, closed=closed), duration_ms=1_000.0)
    rows = sorted(statistics.transactions, key=lambda row: row.txn_id)
    for writer in range(3):
        own = [row for row in rows if row.txn_id % 3 == writer]
        assert len(own) > 5
        for before, after in pairwise(own):
            assert after.submit_time_ms == pytest.approx(before.submit_time_ms + before.total_latency_ms + 45.0)


def test_progress_is_reported_and_changes_nothing() -> None:
    seen: list[float] = []
    reported = Simulation(config_of()).run(progress=seen.append)
    assert seen[-1] == 1_000.0
    assert seen == sorted(seen)
    assert reported.to_arrow() == Simulation(config_of()).run().to_arrow()


# Statistics.


def test_the_output_has_the_listed_columns_first_then_class_writer_and_table(tmp_path: Path) -> None:
    statistics = simulate(workload_of())
    assert list(statistics.to_dataframe().columns) == COLUMNS.split() + LABELS
    statistics.export_parquet(str(tmp_path / "results.parquet"))
    stored = pq.read_table(tmp_path / "results.parquet")
    assert stored.column_names == COLUMNS.split() + LABELS
    assert stored.to_pylist() == statistics.to_arrow().to_pylist()


def test_a_row_has_the_fields_of_the_result() -> None:
    statistics = Statistics()
    result = run(fast_append(txn_id=9), catalog_of())
    statistics.record_transaction(result)
    (row,) = statistics.to_arrow().to_pylist()
    assert (row["txn_id"], row["status"], row["operation_type"]) == (9, "committed", "fast_append")
    assert (row["t_runtime"], row["t_commit"], row["abort_reason"]) == (100.0, result.commit_time_ms, None)
    assert (row["commit_latency"], row["total_latency"]) == (result.commit_latency_ms, result.total_latency_ms)


def test_aggregate_counters_are_sums_over_the_transactions() -> None:
    busy = workload_of(runtime=FixedLatency(300.0), inter_arrival=ExponentialLatency(30.0))
    statistics = simulate(busy, detector=ALWAYS, max_retries=1)
    rows = statistics.to_dataframe()
    assert statistics.committed == (rows.status == "committed").sum()
    assert statistics.aborted == (rows.status == "aborted").sum()
    assert statistics.validation_exceptions == (rows.abort_reason == "validation_exception").sum() > 0
    assert statistics.total_retries == rows.n_retries.sum() > 0
    for name in ("manifest_list_reads", "manifest_list_writes", "manifest_file_reads", "manifest_file_writes"):
        assert getattr(statistics, name) == rows[name].sum() > 0
    assert list(rows.txn_id) == list(range(statistics.committed + statistics.aborted + statistics.unfinished))


def test_transactions_in_flight_at_the_end_are_rows_with_their_status() -> None:
    statistics = simulate(workload_of(runtime=FixedLatency(10_000.0)), duration_ms=350.0)
    rows = statistics.to_dataframe()
    assert list(rows.status) == ["executing"] * 3
    assert list(rows.t_commit) == [-1.0] * 3
    assert statistics.unfinished == 3
    pairs = zip(rows.catalog_read_ms, rows.total_latency, strict=True)
    assert all(read == total == 1.0 for read, total in pairs)


def test_an_event_at_exactly_the_end_does_not_happen() -> None:
    lasts_ms = 100 + 1 + 50 + 3 + 1
    assert simulate(workload_of(), duration_ms=lasts_ms).committed == 0
    assert simulate(workload_of(), duration_ms=lasts_ms + 1e-6).committed == 1


def test_a_commit_whose_answer_is_still_on_its_way_is_installed_but_not_counted() -> None:
    storage = fixed_provider(decision=0.5, cas=20.0)
    catalog = InstantCatalog(1, (1,))
    catalog._storage = storage
    statistics = simulate(workload_of(), catalog=catalog, duration_ms=100 + 1 + 50 + 3 + 15)
    assert (statistics.committed, statistics.seq, statistics.unfinished) == (0, 1, 1)
    assert statistics.transactions[0].status is TransactionStatus.COMMITTING


# The rules that each run checks.


class _LyingCatalog(InstantCatalog):
    def commit(
        self, expected_seq: int, writes: object, timestamp_ms: float = 0.0, intention: IntentionRecord | None = None
    ) -> Latency[CommitResult]:
        yield 1.0
        return CommitResult(True, 1.0)


def test_a_run_whose_commits_do_not_equal_seq_is_refused() -> None:
    with pytest.raises(InvariantError, match="commits equal seq"):
        simulate(workload_of(), catalog=_LyingCatalog(1, (1,)))


def test_no_global_randomness_is_touched() -> None:
    before = str(np.random.get_state())
    simulate(workload_of(inter_arrival=ExponentialLatency(50.0)))
    assert str(np.random.get_state()) == before


def test_a_snapshot_carries_the_virtual_time_at_which_it_was_read() -> None:
    seen: list[tuple[float, float]] = []

    class Watching(InstantCatalog):
        def read(self, timestamp_ms: float = 0.0) -> Latency[CatalogSnapshot]:
            snapshot = yield from super().read(timestamp_ms)
            seen.append((timestamp_ms, snapshot.timestamp_ms))
            return snapshot

    simulate(workload_of(), catalog=Watching(1, (1,)), duration_ms=250.0)
    assert seen == [(100.0, 101.0), (200.0, 201.0)]


def test_every_wait_is_accounted_for() -> None:
    class Forgetful(FastAppendTransaction):
        def _work(self) -> Latency[None]:
            yield self.runtime_ms

    workload = workload_of()
    workload.transaction = lambda txn_id, submit_time_ms: Forgetful(  # type: ignore[method-assign]
        txn_id, submit_time_ms, 5.0, frozenset({0})
    )
    with pytest.raises(InvariantError, match="every wait is accounted for"):
        simulate(workload)
