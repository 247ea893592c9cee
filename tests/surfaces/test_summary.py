"""Metrics, worked out by hand for tables of ten rows."""

from typing import Any

import pyarrow as pa
import pytest

from endive.sim.results.columns import SCHEMA
from endive.sim.results.summary import Estimate, Window, estimate, estimates, student_95, summarise

WINDOW = Window(1000.0, 6000.0)
ZERO: dict[str, Any] = dict.fromkeys(SCHEMA.names, 0) | {"abort_reason": None, "class": "transaction"}


def row(number: int, status: str = "committed", latency_ms: float = 100.0, **columns: Any) -> dict[str, Any]:
    """A transaction submitted at `number` seconds that worked for 400 ms and then committed for `latency_ms`."""
    return ZERO | {
        "txn_id": number,
        "t_submit": 1000.0 * number,
        "t_runtime": 400.0,
        "commit_latency": latency_ms,
        "total_latency": 400.0 + latency_ms,
        "status": status,
        "operation_type": "fast_append",
        "catalog_commit_ms": latency_ms,
        **columns,
    }


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def ten_rows() -> pa.Table:
    """Seconds 0 to 9; those submitted in seconds 1 to 5 finish in the window."""
    overwrite: dict[str, Any] = {"operation_type": "validated_overwrite"}
    return table(
        row(0),
        row(1, latency_ms=100.0, n_retries=1),
        row(2, latency_ms=200.0, n_retries=2),
        row(3, latency_ms=300.0, n_retries=3, **overwrite),
        row(4, "aborted", 50.0, n_retries=10, abort_reason="max_retries_exceeded"),
        row(5, "aborted", 50.0, abort_reason="validation_exception", **overwrite),
        row(6, "aborted", 50.0, abort_reason="validation_exception", **overwrite),
        row(7),
        row(8, "executing", 0.0),
        row(9, "committing", 20.0),
    )


def test_rates_count_what_happens_in_the_window() -> None:
    summary = summarise(ten_rows(), WINDOW)

    assert summary.offered_per_s == 5 / 5  # submitted in seconds 1, 2, 3, 4, 5
    assert summary.committed_per_s == 3 / 5
    assert summary.success == 3 / 5
    assert summary.success_whole_run == 5 / 8
    assert summary.aborted == {"max_retries_exceeded": 1, "validation_exception": 1}
    assert (summary.unfinished, summary.transactions) == (2, 10)
    assert summary.retries_mean == (1 + 2 + 3 + 10 + 0) / 5


def test_latency_is_of_committed_transactions_by_type() -> None:
    latency = summarise(ten_rows(), WINDOW).latency

    assert list(latency) == ["all", "fast_append", "validated_overwrite"]
    assert (latency["all"].commits, latency["all"].p50_ms) == (3, 200.0)
    assert latency["all"].p99_ms == pytest.approx(298.0)
    assert (latency["validated_overwrite"].commits, latency["validated_overwrite"].p95_ms) == (1, 300.0)


def test_milliseconds_are_means_by_purpose_and_the_rest_is_backoff() -> None:
    waited = row(2, latency_ms=100.0, catalog_commit_ms=10.0, catalog_read_ms=20.0, per_attempt_io_ms=30.0)

    times = summarise(table(row(1, latency_ms=0.0), waited), WINDOW).time_ms

    assert times == {
        "catalog_read": 10.0,
        "per_attempt_io": 15.0,
        "conflict_io": 0.0,
        "catalog_commit": 5.0,
        "backoff": 20.0,
    }


def test_overhead_is_the_share_of_time_that_is_not_work_and_requests_are_means() -> None:
    busy = row(1, latency_ms=100.0, t_runtime=300.0, total_latency=400.0, manifest_list_reads=3)

    summary = summarise(table(busy, row(2, latency_ms=0.0, t_runtime=400.0, total_latency=400.0)), WINDOW)

    assert summary.overhead == pytest.approx(1 - 700 / 800)
    assert summary.requests["manifest_list_reads"] == 1.5


def test_a_transaction_counts_where_it_finished() -> None:
    at_the_edge = row(5, latency_ms=600.0)  # finishes at 6000 ms: no longer in the window

    summary = summarise(table(at_the_edge), WINDOW)

    assert (summary.offered_per_s, summary.committed_per_s, summary.success) == (0.2, 0.0, None)


def test_a_run_in_which_nothing_finished_has_no_metrics_rather_than_zeros() -> None:
    summary = summarise(table(*(row(number, "executing", 0.0) for number in range(10))), WINDOW)

    assert (summary.success, summary.success_whole_run, summary.retries_mean) == (None, None, None)
    assert (summary.time_ms, summary.overhead, summary.requests) == ({}, None, {})
    assert (summary.latency["all"].commits, summary.latency["all"].p50_ms) == (0, None)
    assert summary.unfinished == 10


def test_an_empty_table_is_a_run_like_any_other() -> None:
    summary = summarise(table(), WINDOW)

    assert (summary.offered_per_s, summary.transactions, summary.aborted) == (0.0, 0, {})


def test_metrics_have_dotted_names() -> None:
    flat = summarise(ten_rows(), WINDOW).flat()

    assert flat["latency.all.p50_ms"] == 200.0
    assert flat["window.start_ms"] == 1000.0
    assert flat["aborted.max_retries_exceeded"] == 1


def test_one_seed_gives_no_interval() -> None:
    assert estimate([4.0]) == Estimate(4.0, None)


def test_the_interval_over_seeds_is_students() -> None:
    found = estimate([1.0, 2.0, 3.0])

    assert found.mean == 2.0
    assert found.half_width == pytest.approx(4.303 * 1.0 / 3**0.5)


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 12.706), (10, 2.228), (11, 2.201), (30, 2.042), (1000, 1.962)])
def test_students_quantiles_are_those_of_the_table(degrees: int, quantile: float) -> None:
    assert student_95(degrees) == pytest.approx(quantile, rel=0.005)


def test_a_metric_that_some_seed_lacks_is_left_out() -> None:
    with_aborts, without = summarise(ten_rows(), WINDOW), summarise(table(row(1)), WINDOW)

    assert "aborted.max_retries_exceeded" not in estimates([with_aborts.flat(), without.flat()])
    assert "committed_per_s" in estimates([with_aborts.flat(), without.flat()])
