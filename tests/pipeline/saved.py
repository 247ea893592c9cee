"""The files that the tasks of a sweep write, made without Spark, run by run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from endive.pipeline.directory import SweepDirectory, write_run_rows
from endive.pipeline.plan import Plan, Run
from endive.pipeline.run_rows import done_row
from endive.sim.engines import simulate
from endive.sim.results.summary import summarise


def leave_runs(path: Path, plan: Plan, runs: Sequence[Run] | None = None, parts: int = 2) -> SweepDirectory:
    """Write a sweep's directory with the plan and the given runs, by default all of them, in so many files."""
    directory = SweepDirectory(path)
    directory.prepare(plan)
    rows = [simulated_row(directory, plan, run) for run in (plan.runs if runs is None else runs)]
    for number in range(parts):
        write_run_rows(directory.part("first", number), rows[number::parts])
    return directory


def simulated_row(directory: SweepDirectory, plan: Plan, run: Run) -> dict[str, Any]:
    """Simulate a run, keep its transactions if the plan does, and return its row."""
    experiment, seed = run
    settings = plan.settings[experiment]
    table = simulate(settings, seed).table
    if plan.keep == "transactions":
        path = directory.transactions(experiment, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, compression="zstd")
    return done_row(experiment, seed, summarise(table, settings.window), cpu_s=0.25)
