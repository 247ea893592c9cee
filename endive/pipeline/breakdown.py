"""Metrics of a run by class of transactions and by table, and their means over the seeds of an experiment.

A run's row carries them as JSON, since the classes and tables of experiments differ. The hottest tables are kept: those
with the most retries.
"""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from endive.sim.results.summary import Summary, estimate

CLASS, TABLE = "class", "table"
METRICS = ("finished_per_s", "committed_per_s", "success", "retries_mean", "p50_ms", "p99_ms")
TABLES_KEPT = 5
"""Tables of each run that have metrics."""

Breakdown = dict[str, dict[str, dict[str, float | None]]]
"""Class or table, its name or number, metric."""


def breakdown_of(summary: Summary) -> str | None:
    """Return the metrics of each class and of the hottest tables as JSON; None if there is one of either."""
    classes = {name: _of_class(one) for name, one in summary.classes.items()}
    hottest = list(summary.tables.items())[:TABLES_KEPT]
    tables = {number: {name: getattr(found, name) for name in METRICS} for number, found in hottest}
    found = {by: rows for by, rows in ((CLASS, classes), (TABLE, tables)) if rows}
    return json.dumps(found) if found else None


def _of_class(one: Summary) -> dict[str, float | None]:
    latency = one.latency["all"]
    own = {name: getattr(one, name) for name in METRICS if hasattr(one, name)}
    return own | {"p50_ms": latency.p50_ms, "p99_ms": latency.p99_ms}


def breakdown_table(runs: pa.Table, first: list[str]) -> pa.Table:
    """Return one row for each experiment and class or table, with the means over seeds; `first` are its columns."""
    schema = pa.schema(
        [
            *(runs.schema.field(name) for name in first),
            ("by", pa.string()),
            ("name", pa.string()),
            ("seeds", pa.int64()),
            *((column, pa.float64()) for name in METRICS for column in (name, f"{name}_ci")),
        ]
    )
    by_experiment: dict[tuple[Any, ...], list[Breakdown]] = {}
    for row in runs.select([*first, "breakdown"]).to_pylist():
        if row["breakdown"] is not None:
            by_experiment.setdefault(tuple(row[name] for name in first), []).append(json.loads(row["breakdown"]))
    rows = [
        dict(zip(first, values, strict=True)) | found
        for values, seeds in by_experiment.items()
        for found in _estimates(seeds)
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def _estimates(seeds: list[Breakdown]) -> Iterator[dict[str, Any]]:
    """Yield the means over those seeds that have the class or table; a table may be among the hottest in some only."""
    for by in (CLASS, TABLE):
        names = dict.fromkeys(name for seed in seeds for name in seed.get(by, {}))
        for name in names:
            found = [seed[by][name] for seed in seeds if name in seed.get(by, {})]
            row: dict[str, Any] = {"by": by, "name": name, "seeds": len(found)}
            for metric in METRICS:
                values = [value for one in found if (value := one[metric]) is not None]
                if values:
                    mean = estimate(values)
                    row |= {metric: mean.mean, f"{metric}_ci": mean.half_width}
            yield row
