"""Counters of a run, and their means over the seeds of an experiment.

A run's row carries them as JSON: requests by kind, and outcomes of appends, conflicts and compactions. They cover the
whole run.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from endive.sim.results.summary import estimate


def counters_text(counters: Mapping[str, int] | None) -> str | None:
    """Return counters as JSON; None if they are not known."""
    return None if counters is None else json.dumps(dict(sorted(counters.items())))


def counters_table(runs: pa.Table, first: list[str]) -> pa.Table:
    """Return one row for each experiment and counter, with the mean over seeds; `first` are its columns.

    A counter that a run does not have is 0: only counters that occur are kept.
    """
    schema = pa.schema(
        [
            *(runs.schema.field(name) for name in first),
            ("counter", pa.string()),
            ("seeds", pa.int64()),
            ("mean", pa.float64()),
            ("mean_ci", pa.float64()),
        ]
    )
    by_experiment: dict[tuple[Any, ...], list[dict[str, int]]] = {}
    for row in runs.select([*first, "counters"]).to_pylist():
        if row["counters"] is not None:
            by_experiment.setdefault(tuple(row[name] for name in first), []).append(json.loads(row["counters"]))
    rows = [
        dict(zip(first, values, strict=True)) | _estimate(counter, seeds)
        for values, seeds in by_experiment.items()
        for counter in sorted({name for seed in seeds for name in seed})
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def _estimate(counter: str, seeds: list[dict[str, int]]) -> dict[str, Any]:
    found = estimate([float(seed.get(counter, 0)) for seed in seeds])
    return {"counter": counter, "seeds": len(seeds), "mean": found.mean, "mean_ci": found.half_width}
