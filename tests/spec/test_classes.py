"""Several classes of transactions in one run: numbers, streams, arrivals and tables of each."""

from typing import Any, get_args

import pytest

from endive.sim.config.configuration import parse_configuration
from endive.sim.engines import Engine, simulate
from endive.sim.rate import Rate
from endive.sim.results.statistics import RunResult
from endive.sim.selectors import SharesTableSelector, apportioned
from endive.sim.workload import ClosedLoop
from endive.timing import to_ticks

ENGINES = get_args(Engine)

BASE = """
simulation = { duration_ms = 600_000, trim_start_ms = 0, trim_end_ms = 0 }
storage.provider = "s3"
catalog = { num_tables = 4, conflict_granularity = "table" }
transaction.runtime = { median = 2_000, sigma = 0.4 }
"""
STREAMS = """
[workload.streams]
arrivals = "triggered"
interval_ms = 20_000
writers = 6
tables = { only = [0, 1], shares = [2, 1] }
operation_types = { fast_append = 1 }
"""
BACKFILL = """
[workload.backfill]
inter_arrival.scale = 5_000
tables = { only = [2, 3], selector = "zipf" }
operation_types = { validated_overwrite = 1 }
retry = 2
"""


def run(text: str, seed: int = 1, engine: Engine = "compiled") -> RunResult:
    return simulate(parse_configuration(text), seed, engine)


def rows_of(result: RunResult, name: str) -> list[dict[str, Any]]:
    return [row for row in result.table.to_pylist() if row["class"] == name]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_class_does_not_notice_another_that_shares_nothing_with_it(engine: Engine) -> None:
    alone, together = run(BASE + STREAMS, engine=engine), run(BASE + STREAMS + BACKFILL, engine=engine)
    expected, found = rows_of(alone, "streams"), rows_of(together, "streams")
    assert [{**row, "txn_id": 0} for row in expected] == [{**row, "txn_id": 0} for row in found]
    assert [row["txn_id"] for row in found] == [2 * row["txn_id"] for row in expected]
    assert len(rows_of(together, "backfill")) > 50


def test_both_engines_run_the_classes_alike() -> None:
    reference, compiled = (run(BASE + STREAMS + BACKFILL, engine=engine) for engine in ("reference", "compiled"))
    assert reference.table.equals(compiled.table)
    assert reference.counters == compiled.counters


def test_rows_have_class_writer_and_table() -> None:
    result = run(BASE + STREAMS + BACKFILL)
    streams, backfill = rows_of(result, "streams"), rows_of(result, "backfill")
    assert {row["writer"] for row in streams} == set(range(6))
    tables = {row["writer"]: row["table"] for row in streams}
    assert sorted(tables.values()) == [0, 0, 0, 0, 1, 1]
    assert all(row["table"] == tables[row["writer"]] for row in streams)
    assert {row["writer"] for row in backfill} == {-1}
    assert {row["table"] for row in backfill} == {2, 3}


def test_triggers_are_staggered_and_keep_their_times() -> None:
    starts = [row["t_submit"] for row in rows_of(run(BASE + STREAMS), "streams")]
    assert starts[:6] == pytest.approx([20_000 / 6 * writer for writer in range(6)])
    assert starts[6:12] == pytest.approx([20_000 + start for start in starts[:6]])
    assert len(starts) == 6 * 30


def test_a_trigger_waits_for_the_transaction_before_it_and_then_returns_to_its_times() -> None:
    loop = ClosedLoop(writers=2, stagger_ms=10.0, interval_ms=100.0)
    assert [loop.start_ticks(writer) for writer in (0, 1)] == [0, to_ticks(5.0)]
    assert loop.trigger_ticks(1, to_ticks(5.0)) == to_ticks(105.0)
    assert loop.trigger_ticks(1, to_ticks(230.0)) == to_ticks(305.0)  # it began late, when the one before had ended


def test_triggers_need_no_number_of_writers_for_one_job_on_each_table() -> None:
    result = run(BASE + "[workload.compaction]\narrivals = 'triggered'\ninterval_ms = 300_000\n")
    rows = rows_of(result, "compaction")
    assert [row["table"] for row in rows] == [0, 1, 2, 3] * 2
    assert [row["writer"] for row in rows] == [0, 1, 2, 3] * 2


def test_closed_loop_writers_do_not_all_begin_at_once() -> None:
    closed = "arrivals = 'closed'\nwriters = 4\nthink.value = 500\nruntime.value = 1_500\n"
    starts = [row["t_submit"] for row in rows_of(run(BASE + "[workload.loop]\n" + closed), "loop")]
    assert starts[:4] == [0.0, 500.0, 1_000.0, 1_500.0]
    at_once = [row["t_submit"] for row in rows_of(run(BASE + f"[workload.loop]\nstagger_ms = 0\n{closed}"), "loop")]
    assert at_once[:4] == [0.0] * 4


def test_a_class_has_its_own_retries() -> None:
    busy = BASE + STREAMS + BACKFILL.replace("5_000", "200").replace("only = [2, 3]", "only = [2]")
    assert max(row["n_retries"] for row in rows_of(run(busy), "backfill")) == 2


# Writers and tables.


def test_writers_are_apportioned_by_weight() -> None:
    chosen = apportioned([10, 7, 5, 4, 3, 3, 2, 2, 1, 1, 1, 1], 40)
    assert [chosen.count(table) for table in range(12)] == [10, 7, 5, 4, 3, 3, 2, 2, 1, 1, 1, 1]
    assert apportioned([1, 1, 1], 3) == [0, 1, 2]
    assert apportioned([0, 1], 3) == [1, 1, 1]


def test_shares_belong_to_as_many_tables() -> None:
    with pytest.raises(ValueError, match="2 shares for 3 tables"):
        SharesTableSelector([1, 2]).weights(3)


# Rates.


def test_a_wait_passes_faster_where_the_rate_is_higher() -> None:
    rate = Rate((1.0, 3.0), period_ticks=100)
    assert rate.after(0, 40) == 40
    assert rate.after(0, 110) == 70  # 50 until the middle, the other 60 in a third of the time
    assert rate.after(60, 150) == 130  # 120 until the end of the period


def test_nothing_arrives_while_the_rate_is_zero() -> None:
    assert Rate((0.0, 1.0), period_ticks=100).after(10, 5) == 55
    assert Rate(burst_factor=0.0, burst_every_ticks=100, burst_ticks=30).after(0, 5) == 35


def test_bursts_multiply_the_rate_for_a_while() -> None:
    rate = Rate(burst_factor=10.0, burst_every_ticks=1_000, burst_ticks=10)
    assert rate.after(0, 50) == 5
    assert rate.after(0, 150) == 60
    assert rate.after(995, 105) == 1_010


@pytest.mark.parametrize("engine", ENGINES)
def test_the_rate_of_arrivals_follows_its_factors(engine: Engine) -> None:
    text = BASE + "[workload.day]\ninter_arrival.scale = 500\nrate = { factors = [0.5, 2], period_ms = 100_000 }\n"
    starts = [row["t_submit"] % 100_000 for row in rows_of(run(text, engine=engine), "day")]
    slow, fast = sum(start < 50_000 for start in starts), sum(start >= 50_000 for start in starts)
    assert slow == pytest.approx(300, rel=0.2)
    assert fast == pytest.approx(1_200, rel=0.2)
