"""The metrics of runs and experiments in DuckDB's SQL, written from their definitions and sharing no code with Endive.

Only two rules are not repeated in SQL: `summary.drift`, which judges counts that SQL makes, and Student's quantiles.
"""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from endive.sim.results.columns import Array
from endive.sim.results.summary import drift, student_95

TYPES = ("fast_append", "merge_append", "validated_overwrite")
REASONS = ("max_retries_exceeded", "validation_exception", "retry_timeout")
IO = ("catalog_read", "per_attempt_io", "conflict_io", "catalog_commit")
REQUESTS = ("manifest_list_reads", "manifest_list_writes", "manifest_file_reads", "manifest_file_writes")
QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}

PLACED = """
SELECT *,
    counted AND status = 'committed' AS commits
FROM (
    SELECT t.*, w.window_start_ms, w.window_end_ms,
        (w.window_end_ms - w.window_start_ms) / 1000 AS seconds,
        round((t_submit + total_latency) * 1e6)::BIGINT - round(w.window_start_ms * 1e6)::BIGINT AS end_ns,
        round((w.window_end_ms - w.window_start_ms) * 1e6)::BIGINT AS window_ns,
        t_submit >= w.window_start_ms AND t_submit < w.window_end_ms AS offered,
        status IN ('committed', 'aborted') AS finished,
        finished AND end_ns >= 0 AND end_ns < window_ns AS counted
    FROM read_parquet($transactions) t JOIN windows w USING (experiment, seed)
)
"""


def _quantiles(kind: str, condition: str) -> list[str]:
    return [f"count(*) FILTER (WHERE {condition}) AS {kind}_commits"] + [
        f"quantile_cont(commit_latency, {at}) FILTER (WHERE {condition}) AS {kind}_{name}"
        for name, at in QUANTILES.items()
    ]


def _run_columns() -> list[str]:
    time_ms = {name: f"avg({name}_ms) FILTER (WHERE counted)" for name in IO}
    rest = f"avg(total_latency - t_runtime - {' - '.join(f'{name}_ms' for name in IO)}) FILTER (WHERE counted)"
    return [
        "count(*) AS transactions",
        "count(*) FILTER (WHERE NOT finished) AS unfinished",
        *(
            f"count(*) FILTER (WHERE counted AND status = 'aborted' AND abort_reason = '{reason}') AS aborted_{reason}"
            for reason in REASONS
        ),
        "count(*) FILTER (WHERE offered) / any_value(seconds) AS offered_per_s",
        "count(*) FILTER (WHERE counted) / any_value(seconds) AS finished_per_s",
        "count(*) FILTER (WHERE commits) / any_value(seconds) AS committed_per_s",
        "avg(commits::INT) FILTER (WHERE counted) AS success",
        "avg((status = 'committed')::INT) FILTER (WHERE finished) AS success_whole_run",
        "avg(n_retries) FILTER (WHERE counted) AS retries_mean",
        "1 - sum(t_runtime) FILTER (WHERE counted) / sum(total_latency) FILTER (WHERE counted) AS overhead",
        *(f"{mean} AS time_{name}_ms" for name, mean in {**time_ms, "backoff": rest}.items()),
        *(f"avg({name}) FILTER (WHERE counted) AS {name}" for name in REQUESTS),
        *_quantiles("all", "commits"),
        *(column for kind in TYPES for column in _quantiles(kind, f"commits AND operation_type = '{kind}'")),
    ]


def metrics_of_runs(transactions: Sequence[Path], windows: pa.Table, threads: int = 2) -> pa.Table:
    """Return experiment, seed and metrics of every run that has a transaction, in the order of both."""
    with duckdb.connect(config={"threads": threads}) as connection:
        connection.register("windows", windows)
        files = {"transactions": [str(path) for path in transactions]}
        metrics = connection.sql(
            f"SELECT experiment, seed, {', '.join(_run_columns())} FROM ({PLACED}) GROUP BY ALL ORDER BY ALL",  # noqa: S608
            params=files,
        ).to_arrow_table()
        parts = connection.execute(
            "SELECT experiment, seed, end_ns * 20 // window_ns AS part, count(*) AS finished, "  # noqa: S608
            f"count(*) FILTER (WHERE commits) AS committed FROM ({PLACED}) WHERE counted GROUP BY ALL",
            files,
        ).fetchall()
    counts: dict[tuple[str, int], Array] = {}
    for experiment, seed, part, finished, committed in parts:
        counts.setdefault((experiment, seed), np.zeros((2, 20), np.int64))[:, part] = finished, committed
    runs = zip(metrics["experiment"].to_pylist(), metrics["seed"].to_pylist(), strict=True)
    drifts = [drift(*counts[run]) if run in counts else None for run in runs]
    return metrics.append_column("drift", pa.array(drifts, pa.float64()))


def means_over_seeds(runs: pa.Table, keys: Sequence[str], metrics: Sequence[str], threads: int = 2) -> pa.Table:
    """Return mean and half-width of each metric over the seeds that are done, by `keys` and in their order."""
    columns = [
        f'avg("{name}") FILTER (WHERE status = \'done\') AS "{name}", '
        f"stddev_samp(\"{name}\") FILTER (WHERE status = 'done') "
        f"/ sqrt(count(\"{name}\") FILTER (WHERE status = 'done')) "
        f'* student(count("{name}") FILTER (WHERE status = \'done\') - 1) AS "{name}_ci"'
        for name in metrics
    ]
    with duckdb.connect(config={"threads": threads}) as connection:
        connection.register("runs", runs)
        known = ", ".join(str(student_95(degrees)) for degrees in range(1, 200))
        connection.execute(f"CREATE MACRO student(degrees) AS ([{known}])[degrees]")
        return connection.sql(
            f"SELECT {', '.join(keys)}, count(*) FILTER (WHERE status = 'done') AS seeds_done, "  # noqa: S608
            f"count(*) FILTER (WHERE status <> 'done') AS seeds_failed, {', '.join(columns)} "
            "FROM runs GROUP BY ALL ORDER BY ALL"
        ).to_arrow_table()


def differences(found: pa.Table, expected: pa.Table, keys: Sequence[str], relative: float = 1e-9) -> list[str]:
    """Return where two tables differ, in the columns that the second has; rows are found by their keys."""
    rows = {tuple(row[key] for key in keys): row for row in found.to_pylist()}
    problems = [f"{len(found)} rows, expected {len(expected)}"] if len(found) != len(expected) else []
    for row in expected.to_pylist():
        key = tuple(row[name] for name in keys)
        if key not in rows:
            problems.append(f"{key} is missing")
            continue
        problems += [
            f"{key} {name}: {rows[key][name]!r}, expected {value!r}"
            for name, value in row.items()
            if not _equal(rows[key][name], value, relative)
        ]
    return problems


def _equal(found: object, expected: object, relative: float) -> bool:
    if isinstance(found, float) and isinstance(expected, float):
        # What is nothing but the rounding of a sum of many milliseconds is nothing.
        return abs(found - expected) <= max(relative * abs(expected), 1e-9)
    return found == expected
