"""The directory of a sweep, which every machine of the cluster must see.

    about.json                              the groups, seeds and success target
    experiments.parquet                     one row per group and experiment, parameters as columns
    runs/part-<start>-<bin>.parquet         one row per run, written by the task that did them
    transactions/<experiment>/<seed>.parquet  every transaction, if they are kept
    measures/                               computed from all of these

Every file is written under a temporary name and renamed, so a file that exists is complete. The column `family` holds
the name of the experiment group.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from endive.errors import ResultError
from endive.files import make_directory, write_durably
from endive.pipeline.parameters import parameter_columns
from endive.pipeline.plan import Plan, Run
from endive.pipeline.run_rows import RUN_SCHEMA
from endive.pipeline.sweep_file import ExperimentGroup, offered_load
from endive.version import version


@dataclass(frozen=True)
class SweepDirectory:
    """Paths of a sweep's files."""

    path: Path

    @property
    def parts(self) -> Path:
        """Directory of the rows of runs."""
        return self.path / "runs"

    def part(self, start: str, number: int) -> Path:
        """Return the file of a bin's rows; `start` identifies one start of the sweep."""
        return self.parts / f"part-{start}-{number:06}.parquet"

    def transactions(self, experiment: str, seed: int) -> Path:
        """Return the file of a run's transactions, if they are kept."""
        return self.path / "transactions" / experiment / f"{seed}.parquet"

    def prepare(self, plan: Plan) -> None:
        """Make the directory and write the plan into it, so that a write error appears before anything runs."""
        make_directory(self.parts)
        write_table(self.path / "experiments.parquet", experiments_table(plan))
        text = json.dumps(_about(plan), indent=2, ensure_ascii=False)
        write_durably(self.path / "about.json", lambda part: part.write_text(text, encoding="utf-8"))

    def done(self, plan: Plan) -> set[Run]:
        """Return the runs of the plan that are done and have all their files."""
        requested = set(plan.runs)
        found = {run for part in sorted(self.parts.glob("part-*.parquet")) for run in _done_in(part)} & requested
        if plan.keep == "transactions":
            found = {run for run in found if self.transactions(*run).is_file()}
        return found


def _done_in(part: Path) -> Iterator[Run]:
    try:
        table = pq.read_table(part, columns=["experiment", "seed", "status"])
    except (pa.ArrowException, OSError) as error:
        remedy = "delete it; its runs will be repeated"
        raise ResultError(str(part), f"cannot be read as the rows of runs ({type(error).__name__})", remedy) from error
    for row in table.to_pylist():
        if row["status"] == "done":
            yield row["experiment"], row["seed"]


def write_table(path: Path, table: pa.Table) -> None:
    """Write a Parquet file; `ResultError` if that fails."""
    write_durably(path, lambda part: pq.write_table(table, part, compression="zstd"))


def write_run_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows of runs."""
    write_table(path, pa.Table.from_pylist(rows, schema=RUN_SCHEMA))


def experiments_table(plan: Plan) -> pa.Table:
    """Return one row for each group and experiment, with everything that the experiment depends on."""
    settings = [experiment.settings for _, experiment in plan.experiments]
    varied = dict.fromkeys(key for group in plan.groups for key in group.varied)
    return pa.table(
        {
            "family": [group.name for group, _ in plan.experiments],
            "experiment": [plan.name_of(experiment) for _, experiment in plan.experiments],
            "load": pa.array(
                [offered_load(one.settings, group.load_key)[0] for group, one in plan.experiments], pa.float64()
            ),
            "duration_ms": pa.array([one.values.simulation.duration_ms for one in settings], pa.float64()),
            "window_start_ms": pa.array([one.window.start_ms for one in settings], pa.float64()),
            "window_end_ms": pa.array([one.window.end_ms for one in settings], pa.float64()),
            "config": [one.text for one in settings],
            **parameter_columns([experiment for _, experiment in plan.experiments], list(varied)),
        }
    )


def _about(plan: Plan) -> dict[str, Any]:
    groups = plan.groups
    return {
        "title": groups[0].title if len(groups) == 1 else f"{len(groups)} experiment groups",
        "version": version(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": sorted({seed for group in groups for seed in group.seeds}),
        "success_target": groups[0].success_target,
        "keep": plan.keep,
        "families": [_about_group(group) for group in groups],
    }


def _about_group(group: ExperimentGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "title": group.title,
        "description": group.description,
        "varied": list(group.varied),
        "load_key": group.load_key,
        "load_unit": group.load_unit,
        "seeds": list(group.seeds),
        "success_target": group.success_target,
        "experiments": len(group.experiments),
        "base": group.base,
        "sweep": group.text,
        "source": group.source,
    }
