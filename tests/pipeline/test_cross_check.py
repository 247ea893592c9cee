"""The measures on disk equal those that another engine, DuckDB, computes from the files of the runs."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from endive.pipeline.consolidate import consolidate
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Plan
from endive.pipeline.run_rows import METRICS, NO_METRICS, RECORDED, RUN_SCHEMA
from tests.pipeline.another_engine import differences, means_over_seeds, metrics_of_runs
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import small_plan

KEYS = ("family", "experiment")


@pytest.fixture(scope="module")
def plan() -> Plan:
    return small_plan(scales="[4000, 1000, 300, 100, 50]", keep="transactions")


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, plan: Plan, spark: SparkSession) -> Path:
    path = tmp_path_factory.mktemp("swept")
    leave_runs(path, plan, parts=3)
    consolidate(SweepDirectory(path), spark)
    return path


def measure(path: Path, name: str) -> pa.Table:
    return pq.read_table(path / "measures" / f"{name}.parquet")


def test_metrics_of_runs(swept: Path, plan: Plan, tmp_path: Path) -> None:
    windows, files = [], []
    for experiment, seed in plan.runs:
        window = plan.settings[experiment].window
        ends = {"window_start_ms": window.start_ms, "window_end_ms": window.end_ms}
        windows.append({"experiment": experiment, "seed": seed, **ends})
        files.append(tmp_path / f"{experiment}-{seed}.parquet")
        rows = pq.read_table(swept / "transactions" / experiment / f"{seed}.parquet")
        names = {"experiment": pa.array([experiment] * len(rows)), "seed": pa.array([seed] * len(rows))}
        pq.write_table(pa.table({**names, **dict(zip(rows.column_names, rows.columns, strict=True))}), files[-1])

    expected = metrics_of_runs(files, pa.Table.from_pylist(windows))

    assert len(expected) == 30
    assert set(RUN_SCHEMA.names) - set(expected.column_names) == {*RECORDED, *NO_METRICS} - {"experiment", "seed"}
    assert differences(measure(swept, "runs"), expected, ("experiment", "seed")) == []


def test_means_over_seeds(swept: Path) -> None:
    runs = pa.concat_tables([pq.read_table(part) for part in (swept / "runs").glob("part-*.parquet")])
    runs = runs.append_column("family", pa.array(["small"] * len(runs)))

    expected = means_over_seeds(runs, KEYS, METRICS)

    assert len(expected) == 10
    assert differences(measure(swept, "experiments"), expected, KEYS) == []


def test_curves(swept: Path) -> None:
    """Computed in SQL from the means on disk."""
    tables = '"catalog.num_tables"'
    with duckdb.connect() as connection:
        expected = connection.sql(
            f"""
            WITH points AS (
                SELECT *,
                    bool_and(success >= 0.95) OVER so_far AS usable,
                    bool_and(
                        committed_per_s - coalesce(lag_committed, 0) >= 0.5 * (offered_per_s - coalesce(lag_offered, 0))
                    ) OVER so_far AS follows
                FROM (
                    SELECT *,
                        lag(committed_per_s) OVER (PARTITION BY {tables} ORDER BY load) AS lag_committed,
                        lag(offered_per_s) OVER (PARTITION BY {tables} ORDER BY load) AS lag_offered
                    FROM read_parquet($file)
                )
                WINDOW so_far AS (PARTITION BY {tables} ORDER BY load)
            )
            SELECT family, {tables}, count(*) AS loads,
                max(committed_per_s) AS peak_committed_per_s,
                max(load) FILTER (WHERE usable) AS usable_load,
                max_by(committed_per_s, load) FILTER (WHERE usable) AS usable_committed_per_s,
                max_by(all_p99_ms, load) FILTER (WHERE usable) AS usable_p99_ms,
                max_by(overhead, load) FILTER (WHERE usable) AS usable_overhead,
                max_by(dollars_per_million_commits, load) FILTER (WHERE usable) AS usable_dollars_per_million_commits,
                max(trust) AS trust,
                min(load) FILTER (WHERE NOT usable) AS fails_from_load,
                CASE WHEN NOT bool_and(follows) THEN coalesce(max(load) FILTER (WHERE follows), min(load)) END
                    AS saturation_load,
                CASE WHEN NOT bool_and(follows) THEN
                    coalesce(max_by(committed_per_s, load) FILTER (WHERE follows), min_by(committed_per_s, load)) END
                    AS saturation_committed_per_s
            FROM points GROUP BY ALL
            """,  # noqa: S608 - constants
            params={"file": str(swept / "measures" / "experiments.parquet")},
        ).to_arrow_table()

    assert len(expected) == 2
    assert differences(measure(swept, "curves"), expected, ("family", "catalog.num_tables")) == []
    assert any(value is not None for value in expected["fails_from_load"].to_pylist())
    assert any(value is not None for value in expected["saturation_load"].to_pylist())
