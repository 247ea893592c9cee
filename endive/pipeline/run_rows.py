"""The row of a run: its status and its metrics as columns.

`METRICS` is the one list of them. It is derived from the fields of `endive.sim.results.summary.Summary`, which defines
and computes every metric.
"""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from endive.pipeline.breakdown import breakdown_of
from endive.pipeline.counters import counters_text
from endive.sim.config.configuration import Settings
from endive.sim.operations import SPECIFIED_TYPES
from endive.sim.results.columns import REASONS, REQUESTS, TIME_PURPOSES
from endive.sim.results.prices import NAME as DOLLARS
from endive.sim.results.prices import dollars_per_million_commits
from endive.sim.results.summary import QUANTILES, LatencyMetrics, Summary

OPERATIONS = ("all", *SPECIFIED_TYPES)
"""Operation types, and all of them together."""
RATES = (
    "offered_per_s",
    "finished_per_s",
    "committed_per_s",
    "success",
    "success_whole_run",
    "retries_mean",
    "overhead",
    "drift",
)
COUNTS = ("transactions", "unfinished", *(f"aborted_{reason}" for reason in REASONS if reason))
TIMES = tuple(f"time_{purpose}_ms" for purpose in TIME_PURPOSES)

RUN_SCHEMA = pa.schema(
    [
        pa.field("experiment", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("status", pa.string(), nullable=False),  # done, failed or crashed
        pa.field("message", pa.string()),
        pa.field("cpu_s", pa.float64()),
        *(pa.field(name, pa.int64()) for name in COUNTS),
        *(pa.field(name, pa.float64()) for name in (*RATES, *TIMES, *REQUESTS)),
        *(
            field
            for operation in OPERATIONS
            for field in (
                pa.field(f"{operation}_commits", pa.int64()),
                *(pa.field(f"{operation}_{quantile}", pa.float64()) for quantile in QUANTILES),
            )
        ),
        pa.field("breakdown", pa.string()),  # by class and by table; see `breakdown`
        pa.field("counters", pa.string()),  # requests and outcomes of the whole run; see `counters`
        pa.field(DOLLARS, pa.float64()),  # of requests; see `endive.sim.results.prices`
    ]
)
"""One row for each run. Null: the run has no such metric."""

LATER_COLUMNS = ("breakdown", "counters", DOLLARS)
"""Columns that rows of older versions do not have."""

NO_METRICS = ("experiment", "seed", "status", "message", "breakdown", "counters")
METRICS = tuple(name for name in RUN_SCHEMA.names if name not in NO_METRICS)
"""The numeric columns, which have a mean over seeds."""
RECORDED = ("cpu_s", DOLLARS)
"""Metrics that do not follow from a run's transactions."""


def done_row(
    experiment: str,
    seed: int,
    summary: Summary,
    cpu_s: float | None,
    counters: Mapping[str, int] | None = None,
    settings: Settings | None = None,
) -> dict[str, Any]:
    """Return the row of a run that has finished; with counters and settings, with the price of its requests."""
    return {
        "experiment": experiment,
        "seed": seed,
        "status": "done",
        "cpu_s": cpu_s,
        "transactions": summary.transactions,
        "unfinished": summary.unfinished,
        **{name: getattr(summary, name) for name in RATES},
        **{f"aborted_{reason}": summary.aborted.get(reason, 0) for reason in REASONS if reason},
        **{f"time_{purpose}_ms": milliseconds for purpose, milliseconds in summary.time_ms.items()},
        **summary.requests,
        **_latencies(summary.latency),
        "breakdown": breakdown_of(summary),
        "counters": counters_text(counters),
        DOLLARS: dollars_per_million_commits(settings, counters) if settings and counters is not None else None,
    }


def _latencies(latency: Mapping[str, LatencyMetrics]) -> dict[str, Any]:
    row: dict[str, Any] = {f"{operation}_commits": 0 for operation in OPERATIONS}
    for operation, quantiles in latency.items():
        row[f"{operation}_commits"] = quantiles.commits
        row |= {f"{operation}_{quantile}": getattr(quantiles, quantile) for quantile in QUANTILES}
    return row


def with_later_columns(rows: pa.Table) -> pa.Table:
    """Return rows of runs with the last columns, which older ones do not have."""
    for name in LATER_COLUMNS:
        if name not in rows.column_names:
            place = min(RUN_SCHEMA.names.index(name), rows.num_columns)
            field = RUN_SCHEMA.field(name)
            rows = rows.add_column(place, field, pa.nulls(rows.num_rows, field.type))
    return rows


def not_done_row(experiment: str, seed: int, status: str, message: str) -> dict[str, Any]:
    """Return the row of a run that `failed` with an error, or that `crashed` its process."""
    return {"experiment": experiment, "seed": seed, "status": status, "message": message}
