"""The experiments of `endive run` as one sweep: `experiments/consolidated.parquet`, and measures for the report.

`endive run` leaves a directory for each configuration and a file for each seed. Together they are a sweep whose
parameters are the keys that differ between the configurations.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from endive.errors import ResultError
from endive.files import write_durably
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Plan, experiment_name
from endive.pipeline.run_rows import done_row
from endive.pipeline.sweep_file import Experiment, ExperimentGroup
from endive.pipeline.variations import dotted_pairs
from endive.sim.config.configuration import Settings, load_configuration
from endive.sim.results.columns import SCHEMA
from endive.sim.results.experiment import Result, load_result

CONSOLIDATED = "consolidated.parquet"
CONFIGURATION = "cfg.toml"
OF_RUN = [pa.field("experiment", pa.string(), nullable=False), pa.field("seed", pa.int64(), nullable=False)]
LABELLED = pa.schema([*OF_RUN, *SCHEMA])
"""Columns of `consolidated.parquet`: the experiment's directory, the seed, then those of a result."""
START = "experiments"
"""Name of the start in the file of the runs' rows."""

Found = Mapping[Path, Settings]
"""Directories of experiments with their configurations."""


def has_experiments(root: Path) -> bool:
    """Whether `endive run` has written experiments below a directory."""
    return root.is_dir() and any(root.glob(f"*/{CONFIGURATION}"))


def consolidate_experiments(root: Path) -> SweepDirectory:
    """Write `consolidated.parquet` into `root`; return its experiments as a sweep, in memory.

    Every transaction of every finished run is in the file, one row group for each run. `ResultError` if there is no
    finished run, or if a result is damaged.
    """
    found = {path.parent: load_configuration(str(path)) for path in sorted(root.glob(f"*/{CONFIGURATION}"))}
    results = [(directory, path) for directory in found for path in _results_of(directory)]
    if not results:
        raise ResultError(str(root), "holds no finished run", "run `endive run` first")
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    write_durably(root / CONSOLIDATED, partial(_write, results=results, found=found, rows=rows))
    directory = SweepDirectory(f"memory://{root.name}")
    plan = Plan((_group(root, found, {seed for _, seed in rows}),))
    directory.prepare(plan)
    directory.create_part(directory.part(START, 0), list(rows.values()))
    return directory


def _results_of(directory: Path) -> Iterator[Path]:
    """Yield the results of an experiment in the order of their seeds."""
    yield from sorted(directory.glob("*/*.parquet"), key=lambda path: (path.parent.name.zfill(20), path.name))


def _write(
    target: Path, results: list[tuple[Path, Path]], found: Found, rows: dict[tuple[str, int], dict[str, Any]]
) -> None:
    """Write the transactions of all results to `target`, and collect the row of each run in `rows`."""
    with pq.ParquetWriter(target, LABELLED, compression="zstd") as writer:
        for directory, path in results:
            result = load_result(path).with_window(found[directory].window)
            writer.write_table(_labelled(result, directory.name))
            run = experiment_name(found[directory]), result.seed
            rows[run] = done_row(*run, result.summary, None, result.counters, found[directory])


def _labelled(result: Result, experiment: str) -> pa.Table:
    table = result.table
    if table is None:
        raise ResultError(str(result.path), "has no rows", "run it again with --force")
    labels = [pa.array([experiment] * len(table)), pa.array([result.seed] * len(table), pa.int64())]
    return pa.table([*labels, *table.columns], schema=LABELLED)


def _group(root: Path, found: Found, seeds: set[int]) -> ExperimentGroup:
    """Return the experiments as a group. Configurations that are equal but for their label are one experiment."""
    distinct = {experiment_name(settings): settings for settings in found.values()}
    given = {name: dict(dotted_pairs(tomllib.loads(settings.text))) for name, settings in distinct.items()}
    keys = dict.fromkeys(key for values in given.values() for key in values if not key.startswith("experiment."))
    varied = tuple(key for key in keys if len({repr(values.get(key)) for values in given.values()}) > 1)
    experiments = tuple(
        Experiment(settings, {key: given[name][key] for key in varied if key in given[name]})
        for name, settings in distinct.items()
    )
    first = next(iter(distinct.values()))
    return ExperimentGroup(
        name=START,
        title=f"Experiments in {root.name}",
        description=f"Runs of `endive run`: {len(distinct)} configurations.",
        source=str(root),
        text="",
        base=first.text,
        seeds=tuple(sorted(seeds)),
        success_target=0.95,
        keep="summaries",
        varied=varied,
        experiments=experiments,
    )
