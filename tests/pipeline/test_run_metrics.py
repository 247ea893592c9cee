"""The metrics of a run: every column of its row equals what DuckDB computes from its transactions."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from endive.pipeline.run_rows import METRICS, RECORDED, RUN_SCHEMA, done_row
from endive.sim.config.configuration import parse_configuration
from endive.sim.engines import simulate
from endive.sim.results.columns import SCHEMA
from endive.sim.results.summary import Window, summarise
from tests.pipeline.another_engine import differences, metrics_of_runs

RUN = ("experiment", "seed")
BASE = """
[simulation]
duration_ms = 120_000
trim_start_ms = 20_000
trim_end_ms = 10_000.5
[storage]
provider = "s3"
[transaction]
inter_arrival = { scale = 100 }
runtime = { median = 3_000, sigma = 0.5 }
"""
RUNS = {
    "all types": (),
    "overloaded": ("transaction.inter_arrival.scale=20", "transaction.retry=2"),
    "real conflicts": ("transaction.real_conflict_probability=0.5", "transaction.cost_model=iceberg"),
    "out of time": ("transaction.retry_timeout_ms=400", "transaction.operation_types={ validated_overwrite = 1 }"),
    "warming up": ("simulation.trim_start_ms=0", "transaction.runtime={ value = 100000 }"),
    "nothing finishes": ("transaction.runtime={ value = 500000 }",),
}


def with_run(table: pa.Table, experiment: str, seed: int) -> pa.Table:
    columns = {"experiment": pa.array([experiment] * len(table)), "seed": pa.array([seed] * len(table), pa.int64())}
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def by_duckdb(tables: dict[tuple[str, int], pa.Table], windows: dict[tuple[str, int], Window], path: Path) -> pa.Table:
    pq.write_table(pa.concat_tables([with_run(table, *run) for run, table in tables.items()]), path)
    rows = [
        {"experiment": experiment, "seed": seed, "window_start_ms": window.start_ms, "window_end_ms": window.end_ms}
        for (experiment, seed), window in windows.items()
    ]
    return metrics_of_runs([path], pa.Table.from_pylist(rows))


def row_of(table: pa.Table, window: Window, run: tuple[str, int] = ("some", 1)) -> pa.Table:
    return pa.Table.from_pylist([done_row(*run, summarise(table, window), 0.0)], schema=RUN_SCHEMA)


def test_every_metric_of_every_kind_of_run_equals_that_of_duckdb(tmp_path: Path) -> None:
    tables, windows, rows = {}, {}, []
    for name, overrides in RUNS.items():
        settings = parse_configuration(BASE, overrides=overrides)
        for seed in (1, 2):
            tables[name, seed], windows[name, seed] = simulate(settings, seed).table, settings.window
            rows.append(row_of(tables[name, seed], settings.window, (name, seed)))
    found = pa.concat_tables(rows)

    expected = by_duckdb(tables, windows, tmp_path / "transactions.parquet")

    assert set(METRICS) - set(expected.column_names) == set(RECORDED)
    assert differences(found, expected, RUN) == []
    for name in (
        name for name in METRICS if name not in RECORDED
    ):  # a metric that is null or zero everywhere would be compared with nothing
        assert any(found[name].to_pylist()), name


def transaction(number: int, t_submit: float, total_latency: float, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(SCHEMA.names, 0) | {
        "txn_id": number,
        "t_submit": t_submit,
        "total_latency": total_latency,
        "commit_latency": total_latency,
        "status": "committed",
        "operation_type": "fast_append",
        "abort_reason": None,
        "class": "transaction",
    }
    return row | changes


def test_the_window_begins_with_its_first_tick_and_ends_before_its_last(tmp_path: Path) -> None:
    rows = [
        transaction(0, 0.1, 0.2),  # ends at its start: as floats they add up to more than 0.3
        transaction(1, 0.3, 0.699999),  # ends a tick before its end
        transaction(2, 0.4, 0.6),  # ends at its end, which is no part of it
        transaction(3, 1.0, 0.5),
    ]
    table, window = pa.Table.from_pylist(rows, schema=SCHEMA), Window(0.3, 1.0)

    (found,) = row_of(table, window).to_pylist()

    assert found["all_commits"] == 2
    assert found["offered_per_s"] == pytest.approx(2 / 0.0007)
    assert (found["all_p50_ms"], found["transactions"]) == (pytest.approx((0.2 + 0.699999) / 2), 4)
    expected = by_duckdb({("some", 1): table}, {("some", 1): window}, tmp_path / "transactions.parquet")
    assert differences(row_of(table, window), expected, RUN) == []


def test_a_run_without_transactions_has_counts_of_zero_and_no_shares() -> None:
    (found,) = row_of(SCHEMA.empty_table(), Window(0.0, 1000.0)).to_pylist()

    assert [found[name] for name in ("transactions", "unfinished", "all_commits", "offered_per_s")] == [0] * 4
    assert [found[name] for name in ("success", "all_p50_ms", "overhead", "drift")] == [None] * 4
