"""Figures of runs from transactions, and means over seeds, on Spark: the same as everywhere else."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from endive.pipeline import run_rows as records
from endive.pipeline.measures import RUN, RUN_FIGURES, over_seeds, run_figures
from endive.sim.config.configuration import parse_configuration
from endive.sim.engines import simulate
from endive.sim.results.statistics import SCHEMA
from endive.sim.results.summary import Window, estimate, summarise
from tests.pipeline.another_engine import differences

Row = dict[str, Any]

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


def windows_of(windows: dict[tuple[str, int], Window]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"experiment": experiment, "seed": seed, "window_start_ms": window.start_ms, "window_end_ms": window.end_ms}
            for (experiment, seed), window in windows.items()
        ]
    )


def figures_on_spark(tables: dict[tuple[str, int], pa.Table], windows: pa.Table, spark: SparkSession) -> pa.Table:
    transactions = pa.concat_tables([with_run(table, *run) for run, table in tables.items()])
    return run_figures(spark.createDataFrame(transactions), spark.createDataFrame(windows)).toArrow()


def test_figures_from_transactions_are_those_of_the_summary(spark: SparkSession) -> None:
    tables, windows, expected = {}, {}, []
    for name, overrides in RUNS.items():
        settings = parse_configuration(BASE, overrides=overrides)
        for seed in (1, 2):
            table = simulate(settings, seed).table
            tables[name, seed], windows[name, seed] = table, settings.window
            expected.append(records.done(name, seed, summarise(table, settings.window), 0.0))

    found = figures_on_spark(tables, windows_of(windows), spark)

    wanted = pa.Table.from_pylist(expected, schema=records.RUN_SCHEMA).select([*RUN, *RUN_FIGURES])
    assert found.column_names == wanted.column_names
    assert found.schema.types == wanted.schema.types
    assert differences(found, wanted, RUN) == []
    for figure in RUN_FIGURES:  # what is null everywhere, or zero, would be compared with nothing
        assert any(wanted[figure].to_pylist()), figure


def transaction(number: int, t_submit: float, total_latency: float, **changes: Any) -> Row:
    row: Row = dict.fromkeys(SCHEMA.names, 0) | {
        "txn_id": number,
        "t_submit": t_submit,
        "total_latency": total_latency,
        "commit_latency": total_latency,
        "status": "committed",
        "operation_type": "fast_append",
        "abort_reason": None,
    }
    return row | changes


def test_the_window_begins_with_its_first_tick_and_ends_before_its_last(spark: SparkSession) -> None:
    rows = [
        transaction(0, 0.1, 0.2),  # ends at its start: as floats they add up to more than 0.3
        transaction(1, 0.3, 0.699999),  # ends a tick before its end
        transaction(2, 0.4, 0.6),  # ends at its end, which is no part of it
        transaction(3, 1.0, 0.5),
    ]
    windows = windows_of({("edges", 1): Window(0.3, 1.0)})

    found = figures_on_spark({("edges", 1): pa.Table.from_pylist(rows, schema=SCHEMA)}, windows, spark).to_pylist()[0]

    assert found["all_commits"] == 2
    assert found["offered_per_s"] == pytest.approx(2 / 0.0007)
    assert (found["all_p50_ms"], found["transactions"]) == (pytest.approx((0.2 + 0.699999) / 2), 4)


def test_a_run_without_transactions_has_counts_of_zero_and_no_shares(spark: SparkSession) -> None:
    windows = windows_of({("some", 1): Window(0.0, 1000.0), ("none", 1): Window(0.0, 1000.0)})
    some = pa.Table.from_pylist([transaction(0, 1.0, 2.0)], schema=SCHEMA)

    found = {row["experiment"]: row for row in figures_on_spark({("some", 1): some}, windows, spark).to_pylist()}

    assert found["some"]["all_p999_ms"] == 2.0
    assert [found["none"][name] for name in ("transactions", "unfinished", "all_commits", "offered_per_s")] == [0] * 4
    assert [found["none"][name] for name in ("success", "all_p50_ms", "overhead", "drift")] == [None] * 4


# Means over seeds.


def run_row(seed: int, status: str = "done", **figures: float) -> Row:
    return {"family": "f", "experiment": "e", "seed": seed, "status": status, **figures}


def estimated(rows: list[Row], spark: SparkSession) -> Row:
    schema = records.RUN_SCHEMA.append(pa.field("family", pa.string()))
    nullable = pa.schema([pa.field(field.name, field.type) for field in schema])
    (found,) = over_seeds(spark.createDataFrame(pa.Table.from_pylist(rows, schema=nullable))).toArrow().to_pylist()
    return dict(found)


@pytest.mark.parametrize("seeds", [2, 5, 30])
def test_means_have_the_interval_of_student(seeds: int, spark: SparkSession) -> None:
    values = [float(value) for value in np.random.default_rng(7).normal(100, 10, seeds)]

    found = estimated([run_row(seed, offered_per_s=value) for seed, value in enumerate(values)], spark)

    expected = estimate(values)
    assert found["offered_per_s"] == pytest.approx(expected.mean, rel=1e-12)
    assert found["offered_per_s_ci"] == pytest.approx(expected.half_width, rel=1e-12)


def test_one_seed_has_no_interval(spark: SparkSession) -> None:
    found = estimated([run_row(1, success=0.75)], spark)

    assert (found["success"], found["success_ci"], found["seeds_done"], found["seeds_failed"]) == (0.75, None, 1, 0)


def test_a_figure_that_some_seeds_lack_is_the_mean_of_the_others(spark: SparkSession) -> None:
    rows = [run_row(1, all_p50_ms=1.0), run_row(2, all_p50_ms=2.0), run_row(3), run_row(4, "failed")]

    found = estimated(rows, spark)

    assert (found["seeds_done"], found["seeds_failed"]) == (3, 1)
    assert found["all_p50_ms"] == 1.5
    assert found["all_p50_ms_ci"] == pytest.approx(12.706 * np.std([1, 2], ddof=1) / 2**0.5)
    assert (found["success"], found["success_ci"]) == (None, None)
