"""The directory of a sweep, which all machines that work on it must see.

    about.json                              what was asked
    experiments.parquet                     one row per family and experiment, parameters as columns
    runs/part-<start>-<bin>.parquet         one row per run, written by the task that did them
    transactions/<experiment>/<seed>.parquet  every transaction, if they are kept
    measures/                               what is computed from all of these

Every file is written aside and renamed, so that a file that is there is complete.
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
from endive.pipeline.sweep import Family, load_of
from endive.sim.results.experiment import version

SUCCESS_TARGET = 0.95
"""A load is usable as long as this share of the transactions commits."""


@dataclass(frozen=True)
class SweepDirectory:
    """Where a sweep's files are."""

    path: Path

    @property
    def parts(self) -> Path:
        """Where tasks put the rows of their runs."""
        return self.path / "runs"

    def part(self, start: str, number: int) -> Path:
        """Where the rows of a bin are, once they are there; `start` tells the starts of a sweep apart."""
        return self.parts / f"part-{start}-{number:06}.parquet"

    def transactions(self, experiment: str, seed: int) -> Path:
        """Where the transactions of a run are, if they are kept."""
        return self.path / "transactions" / experiment / f"{seed}.parquet"

    def prepare(self, plan: Plan) -> None:
        """Make the directory and write the plan into it: what cannot be written fails before anything runs."""
        make_directory(self.parts)
        table = experiments_table(plan)
        write_durably(self.path / "experiments.parquet", lambda part: pq.write_table(table, part))
        text = json.dumps(_about(plan), indent=2, ensure_ascii=False)
        write_durably(self.path / "about.json", lambda part: part.write_text(text, encoding="utf-8"))

    def done(self, plan: Plan) -> set[Run]:
        """Return the runs of the plan that are done and whose files are all there."""
        wanted = set(plan.runs)
        found = {run for part in sorted(self.parts.glob("part-*.parquet")) for run in _done_in(part)} & wanted
        if plan.keep == "transactions":
            found = {run for run in found if self.transactions(*run).is_file()}
        return found


def _done_in(part: Path) -> Iterator[Run]:
    try:
        table = pq.read_table(part, columns=["experiment", "seed", "status"])
    except (pa.ArrowException, OSError) as error:
        remedy = "delete it; its runs will be run again"
        raise ResultError(str(part), f"cannot be read as the rows of runs ({type(error).__name__})", remedy) from error
    for row in table.to_pylist():
        if row["status"] == "done":
            yield row["experiment"], row["seed"]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows of runs."""
    table = pa.Table.from_pylist(rows, schema=RUN_SCHEMA)
    write_durably(path, lambda part: pq.write_table(table, part, compression="zstd"))


def experiments_table(plan: Plan) -> pa.Table:
    """Return one row for each family and experiment, with everything that it depends on."""
    pairs = [(family, member) for family in plan.families for member in family.members]
    settings = [member.settings for _, member in pairs]
    varied = dict.fromkeys(key for family in plan.families for key in family.varied)
    return pa.table(
        {
            "family": [family.name for family, _ in pairs],
            "experiment": [plan.name_of(member) for _, member in pairs],
            "load": pa.array([load_of(one)[0] for one in settings], pa.float64()),
            "duration_ms": pa.array([one.values.simulation.duration_ms for one in settings], pa.float64()),
            "window_start_ms": pa.array([one.window.start_ms for one in settings], pa.float64()),
            "window_end_ms": pa.array([one.window.end_ms for one in settings], pa.float64()),
            "config": [one.text for one in settings],
            **parameter_columns([member for _, member in pairs], list(varied)),
        }
    )


def _about(plan: Plan) -> dict[str, Any]:
    return {
        "title": plan.families[0].title if len(plan.families) == 1 else f"{len(plan.families)} families of experiments",
        "version": version(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seeds": sorted({seed for family in plan.families for seed in family.seeds}),
        "success_target": SUCCESS_TARGET,
        "keep": plan.keep,
        "families": [_family(family) for family in plan.families],
    }


def _family(family: Family) -> dict[str, Any]:
    return {
        "name": family.name,
        "title": family.title,
        "description": family.description,
        "varied": list(family.varied),
        "load_key": family.load_key,
        "load_unit": family.load_unit,
        "seeds": list(family.seeds),
        "experiments": len(family.members),
        "base": family.base,
        "sweep": family.text,
        "source": family.source,
    }
