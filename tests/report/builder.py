"""Results as a sweep leaves them, made up: a toy model of a table that saturates, in the pipeline's columns.

`write_results` writes `about.json` and `measures/*.parquet`. The metrics are plausible, the same every time, and cost
nothing; each group is a grid over configuration keys.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from endive.sim.operations import SPECIFIED_TYPES
from endive.sim.results.summary import student_95

SCALE = "transaction.inter_arrival.scale"
SCALES_MS = (20.0, 50.0, 100.0, 200.0, 300.0, 400.0, 500.0, 1000.0, 2000.0, 5000.0)
ALWAYS = ("storage.provider", "storage.profiles", "transaction.cost_model", "catalog.num_tables")
DEFAULTS: dict[str, Any] = {
    "storage.provider": "s3",
    "storage.profiles": "measured",
    "transaction.cost_model": "iceberg",
    "catalog.num_tables": 1,
    SCALE: 500.0,
}
SPEED = {"s3": 2.0, "s3x": 12.0, "azure": 1.4, "azurex": 2.6, "gcp": 0.8, "instant": 30.0}
"""Commits a second that one table takes, by provider."""
WORDS = {"experiment": pa.string(), "seed": pa.int64(), "status": pa.string(), "message": pa.string()}
COUNTS = ("transactions", "unfinished", *(f"aborted_{why}" for why in ("max_retries_exceeded", "validation_exception",
          "retry_timeout")))  # fmt: skip
KINDS = ("all", *SPECIFIED_TYPES)
QUANTILES = {"p50": 1.0, "p95": 3.1, "p99": 5.2, "p999": 9.0}
PURPOSES = {"catalog_read": 0.1, "per_attempt_io": 0.5, "conflict_io": 0.2, "catalog_commit": 0.15, "backoff": 0.05}
METRICS = (
    "cpu_s", "transactions", "unfinished", "offered_per_s", "finished_per_s", "committed_per_s", "success",
    "success_whole_run", "retries_mean", "overhead", "drift", *COUNTS[2:],
    *(f"time_{purpose}_ms" for purpose in PURPOSES),
    "manifest_list_reads", "manifest_list_writes", "manifest_file_reads", "manifest_file_writes",
    *(f"{kind}_{what}" for kind in KINDS for what in ("commits", *(f"{quantile}_ms" for quantile in QUANTILES))),
    "dollars_per_million_commits",
)  # fmt: skip
"""Every number of a run, as the pipeline names them."""


@dataclass(frozen=True)
class Grid:
    """One group: every combination of the values. `load_key=None`: nothing varies the load."""

    name: str
    values: Mapping[str, Sequence[Any]]
    title: str = ""
    load_key: str | None = SCALE
    load_unit: str = "arrivals/s"
    kinds: Sequence[str] = ("fast_append", "validated_overwrite")
    failing: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    """Runs that fail: number of the experiment, seed."""
    trust: Mapping[str, str] = field(default_factory=dict)
    """The label of each provider's figures; others have none, as if an older version had written them."""

    @property
    def experiments(self) -> list[dict[str, Any]]:
        """The parameters of every experiment, defaults included."""
        return [DEFAULTS | dict(zip(self.values, row, strict=True)) for row in product(*self.values.values())]


BASELINE = Grid("baseline", {SCALE: SCALES_MS}, "Fast appends to one table", kinds=("fast_append",))
PROVIDERS = Grid(
    "provider_tables",
    {"storage.provider": ("s3", "s3x", "azurex"), "catalog.num_tables": (1, 2, 10), SCALE: SCALES_MS[1::2]},
    "Providers and tables",
)
BIG = Grid(
    "provider_tables_mix",
    {
        "storage.provider": ("s3", "s3x", "azure", "azurex", "gcp", "instant"),
        "catalog.num_tables": (1, 2, 5, 10, 20),
        "transaction.operation_types": ("100 % fast append", "90 % fast append, 10 % validated overwrite", "50 / 50"),
        SCALE: SCALES_MS,
    },
    "Provider x tables x mix",
)
CLOSED = Grid(
    "closed",
    {"storage.provider": ("s3", "s3x"), "transaction.writers": (1, 2, 4, 8, 16)},
    "Writers back to back",
    "transaction.writers",
    "writers",
)


def load_of(grid: Grid, parameters: Mapping[str, Any]) -> float | None:
    """Return the nominal load of an experiment."""
    if grid.load_key is None:
        return None
    return float(parameters[grid.load_key]) if grid.load_unit == "writers" else 1000.0 / parameters[SCALE]


def run_metrics(grid: Grid, parameters: Mapping[str, Any], generator: np.random.Generator) -> dict[str, Any]:
    """Return the metrics of one run: success falls and latency grows as the load approaches the limit of the tables."""
    load = load_of(grid, parameters) or 1000.0 / parameters[SCALE]
    limit = SPEED.get(parameters["storage.provider"], 3.0) * parameters["catalog.num_tables"] ** 0.8
    if grid.load_unit == "writers":
        load = limit * load / (load + 2.0)
    offered = load * (1 + 0.02 * generator.normal())
    success = 1.0 / (1.0 + (load / (1.9 * limit)) ** 3) if load > 0.3 * limit else 1.0
    success = min(1.0, success * (1 + 0.004 * generator.normal()))
    base_ms = 400.0 / limit * (1 + 6 * min(load / limit, 4.0)) * (1 + 0.03 * generator.normal())
    metrics: dict[str, Any] = dict.fromkeys(METRICS)
    metrics |= {"cpu_s": 0.01 * load, "transactions": round(3600 * load), "unfinished": round(20 * load)}
    metrics |= {
        "offered_per_s": offered,
        "finished_per_s": offered * 0.998,
        "committed_per_s": offered * success * 0.998,
    }
    metrics["dollars_per_million_commits"] = 20.0 + 10 * load / limit
    metrics |= {"success": success, "success_whole_run": success, "retries_mean": 3 * load / (load + limit)}
    metrics |= {"overhead": base_ms / (base_ms + 20000), "drift": 0.2 if load > 3 * limit else None}
    metrics |= {name: round(900 * offered * (1 - success)) for name in COUNTS[2:]}
    metrics |= {f"time_{purpose}_ms": share * base_ms for purpose, share in PURPOSES.items()}
    metrics |= {
        f"manifest_{what}": 1.0 + load / limit for what in ("list_reads", "list_writes", "file_reads", "file_writes")
    }
    for kind in ("all", *grid.kinds):
        slow = 2.5 if kind == "validated_overwrite" else 1.0
        metrics[f"{kind}_commits"] = round(900 * offered * success)
        metrics |= {f"{kind}_{name}_ms": base_ms * slow * times for name, times in QUANTILES.items()}
    return metrics


def runs_of(grid: Grid, seeds: Sequence[int]) -> pd.DataFrame:
    """Return the group's rows of `measures/runs.parquet`."""
    rows = []
    for number, parameters in enumerate(grid.experiments):
        for seed in seeds:
            failed = (number, seed) in grid.failing
            row = {"family": grid.name, "experiment": f"{grid.name}-{number:04x}", "seed": seed}
            row |= {"status": "failed" if failed else "done"}
            row |= {"message": f'retry limit <b>{number}</b> is "wrong"' if failed else None}
            metrics = (
                dict.fromkeys(METRICS)
                if failed
                else run_metrics(grid, parameters, np.random.default_rng([seed, number]))
            )
            rows.append(row | parameters | metrics)
    return pd.DataFrame(rows)


def half_width(values: Sequence[float]) -> float | None:
    """Return the half width of the 95 % interval; None for fewer than two values."""
    if len(values) < 2:
        return None
    return float(student_95(len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))


def experiments_of(grid: Grid, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the group's rows of `measures/experiments.parquet`."""
    rows = []
    by_experiment = dict(iter(runs.groupby("experiment")))
    for number, parameters in enumerate(grid.experiments):
        of_one = by_experiment[f"{grid.name}-{number:04x}"]
        done = of_one[of_one["status"] == "done"]
        row = {"family": grid.name, "experiment": f"{grid.name}-{number:04x}", **parameters}
        row |= {"trust": grid.trust.get(parameters["storage.provider"])}
        row |= {"load": load_of(grid, parameters), "seeds_done": len(done), "seeds_failed": len(of_one) - len(done)}
        for name in METRICS:
            values = [float(value) for value in done[name].tolist() if value is not None and not math.isnan(value)]
            row |= {name: float(np.mean(values)) if values else None, f"{name}_ci": half_width(values)}
        rows.append(row)
    return pd.DataFrame(rows)


def curves_of(grid: Grid, experiments: pd.DataFrame) -> pd.DataFrame:
    """Return the group's rows of `measures/curves.parquet`."""
    keys = [key for key in grid.values if key != grid.load_key]
    others = [key for key in experiments.columns if key in DEFAULTS or key in grid.values]
    groups = [frame for _, frame in experiments.groupby(keys, sort=False)] if keys else [experiments]
    rows = []
    for frame in groups:
        first = frame.iloc[0]
        row = {"family": grid.name, **{key: first[key] for key in others if key != grid.load_key}}
        row["series"] = " · ".join(in_words(key, first[key]) for key in keys) or grid.title
        row["trust"] = first["trust"]
        rows.append(row | curve_metrics(frame.sort_values("load").to_dict("records")))
    return pd.DataFrame(rows)


def in_words(key: str, value: Any) -> str:
    """Return a value as the pipeline names it in a series."""
    return f"{value} table{'' if value == 1 else 's'}" if key == "catalog.num_tables" else f"{value}"


def curve_metrics(points: Sequence[Mapping[Any, Any]]) -> dict[str, Any]:
    """Return the curve of a series: saturation and the highest sustainable load."""
    good = [point for point in points if point["success"] is not None and not math.isnan(point["success"])]
    row: dict[str, Any] = {"loads": len(points)}
    row["peak_committed_per_s"] = max((point["committed_per_s"] for point in good), default=None)
    saturated = next(
        (a for a, b in pairwise(good)
         if b["committed_per_s"] - a["committed_per_s"] < 0.5 * (b["offered_per_s"] - a["offered_per_s"])), None
    )  # fmt: skip
    row["saturation_load"] = saturated["load"] if saturated else None
    row["saturation_committed_per_s"] = saturated["committed_per_s"] if saturated else None
    holding = [index for index in range(len(good)) if all(point["success"] >= 0.95 for point in good[: index + 1])]
    sustainable = good[holding[-1]] if holding else None
    for name, source in (("load", "load"), ("committed_per_s",) * 2, ("p99_ms", "all_p99_ms"), ("overhead",) * 2,
                         ("dollars_per_million_commits",) * 2):  # fmt: skip
        row[f"usable_{name}"] = sustainable[source] if sustainable else None
    row["fails_from_load"] = good[len(holding)]["load"] if len(holding) < len(good) else None
    return row


def schema_of(frame: pd.DataFrame) -> pa.Schema:
    """Return the types of the contract: words, counts, and everything else a double."""
    whole = {"seed", "seeds_done", "seeds_failed", "loads", "catalog.num_tables", "transaction.writers"}
    text = {*WORDS, "family", "series", "trust", "storage.provider", "storage.profiles", "transaction.cost_model",
            "transaction.operation_types"} - {"seed"}  # fmt: skip
    return pa.schema(
        [
            (name, pa.string() if name in text else pa.int64() if name in whole else pa.float64())
            for name in frame.columns
        ]
    )


def write_frame(path: Path, frames: Sequence[pd.DataFrame]) -> None:
    """Write one Parquet file; a column that a group lacks is null there."""
    columns = list(dict.fromkeys(name for frame in frames for name in frame.columns))
    schema = schema_of(pd.DataFrame(columns=columns))
    rows = [
        {name: None if pd.isna(value) else value for name, value in row.items()}
        for frame in frames
        for row in frame.to_dict("records")
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def about_group(grid: Grid) -> dict[str, Any]:
    """Return what `about.json` says of a group."""
    sweep = "\n".join(["[grid]", *(f'"{key}" = {json.dumps(list(values))}' for key, values in grid.values.items())])
    return {
        "name": grid.name, "title": grid.title, "description": f"Made up to look at the page: {grid.name}.",
        "varied": list(grid.values), "load_key": grid.load_key, "load_unit": grid.load_unit,
        "experiments": len(grid.experiments), "base": '[storage]\nprovider = "s3"\n', "sweep": sweep,
        "source": f"configs/sweeps/{grid.name}.toml",
    }  # fmt: skip


def write_results(
    directory: Path, grids: Sequence[Grid], seeds: Sequence[int] = (1, 2, 3), title: str = "Commits under load"
) -> Path:
    """Write the results of a sweep over these groups; return the directory."""
    runs = [runs_of(grid, seeds) for grid in grids]
    experiments = [experiments_of(grid, frame) for grid, frame in zip(grids, runs, strict=True)]
    curves = [curves_of(grid, frame) for grid, frame in zip(grids, experiments, strict=True)]
    for name, frames in (("runs", runs), ("experiments", experiments), ("curves", curves)):
        write_frame(directory / "measures" / f"{name}.parquet", frames)
    about = {
        "title": title, "version": "endive 0.1.0 (abc1234)", "created": "2026-01-02T03:04:05+00:00",
        "seeds": list(seeds), "success_target": 0.95, "keep": "summaries",
        "families": [about_group(grid) for grid in grids],
    }  # fmt: skip
    (directory / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return directory
