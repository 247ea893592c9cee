"""The files that the tasks of a sweep write, made without Spark, run by run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Plan, Run
from endive.pipeline.run_rows import done_row
from endive.sim.engines import simulate


def leave_runs(
    place: Path | SweepDirectory, plan: Plan, runs: Sequence[Run] | None = None, parts: int = 2, start: str = "first"
) -> SweepDirectory:
    """Write a sweep's directory with the plan and the given runs, by default all of them, in so many files."""
    directory = SweepDirectory.at(place)
    directory.prepare(plan)
    rows = [simulated_row(directory, plan, run) for run in (plan.runs if runs is None else runs)]
    for number in range(parts):
        directory.create_part(directory.part(start, number), rows[number::parts])
    return directory


def simulated_row(directory: SweepDirectory, plan: Plan, run: Run) -> dict[str, Any]:
    """Simulate a run, keep its transactions if the plan does, and return its row."""
    experiment, seed = run
    settings = plan.settings[experiment]
    result = simulate(settings, seed)
    if plan.keep == "transactions":
        directory.create_table(directory.transactions(experiment, seed), result.table)
    return done_row(experiment, seed, result.summary(settings.window), 0.25, result.counters, settings)
