"""The directory of a sweep, on this machine or on an object store that every machine of the cluster reaches.

    about.json                              the groups, seeds and success target; names the plan
    experiments-<plan>.parquet              one row per group and experiment, parameters as columns
    runs/part-<start>-<bin>.parquet         one row per run, written by the task that did them
    transactions/<experiment>/<seed>.parquet  every transaction, if they are kept
    measures/                               computed from all of these

A file appears whole or not at all. Plans, parts and transactions are created once and never replaced, so a task that
is repeated, or a second sweep in the same directory, changes nothing. `about.json` says which plan the directory
shows: a sweep that finds another sweep's plan there at its end leaves the measures alone. The column `family` holds
the name of the experiment group.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from endive.drivers.directory import Directory
from endive.errors import ResultError
from endive.pipeline.parameters import parameter_columns
from endive.pipeline.plan import Plan, Run
from endive.pipeline.run_rows import RUN_SCHEMA, with_later_columns
from endive.pipeline.sweep_file import ExperimentGroup, offered_load
from endive.sim.results.labels import TRUST
from endive.sim.results.trust import trust_of
from endive.version import version

ABOUT = "about.json"
MARKERS = ".running"


class SweepDirectory(Directory):
    """The files of a sweep."""

    def part(self, start: str, number: int) -> str:
        """Return the file of a bin's rows; `start` identifies one start of the sweep."""
        return f"runs/part-{start}-{number:06}.parquet"

    def parts(self) -> list[str]:
        """Return the files with the rows of runs, as a listing shows them."""
        return [info.path for info in self.list("runs/part-") if info.path.endswith(".parquet")]

    def transactions(self, experiment: str, seed: int) -> str:
        """Return the file of a run's transactions, if they are kept."""
        return f"transactions/{experiment}/{seed}.parquet"

    def prepare(self, plan: Plan) -> str:
        """Write the plan, so that a write error appears before anything runs. Return the plan's digest."""
        about, experiments = about_plan(plan)
        self.create(about["experiments"], parquet(experiments))
        if self.shown_plan() != about["plan"]:
            created = datetime.now(UTC).isoformat(timespec="seconds")
            text = json.dumps({**about, "created": created}, indent=2, ensure_ascii=False)
            self.write(ABOUT, text.encode())
        return str(about["plan"])

    def shown_plan(self) -> str | None:
        """Return the digest of the plan that the directory shows; None if there is none, or an unreadable one."""
        try:
            return str(json.loads(self.read(ABOUT) or b"null")["plan"])
        except (ValueError, TypeError, KeyError):
            return None

    def done(self, plan: Plan) -> set[Run]:
        """Return the runs of the plan that are done and have all their files."""
        requested = set(plan.runs)
        found = {run for _, rows in self.read_parts(self.parts()) for run in done_in(rows)} & requested
        if found and plan.keep == "transactions":
            kept = {info.path for info in self.list("transactions/")}
            found = {run for run in found if self.transactions(*run) in kept}
        return found

    def read_parts(self, names: Iterable[str]) -> Iterator[tuple[str, pa.Table]]:
        """Yield files of runs with their rows. `ResultError` names a file that is damaged or of another kind."""
        chosen = list(names)
        for name, body in zip(chosen, self.read_all(chosen), strict=True):
            if body is None:
                raise ResultError(self.place(name), "has disappeared", "repeat the sweep: its runs will be repeated")
            yield name, _rows_of(self.place(name), body)

    def create_table(self, path: str, table: pa.Table) -> bool:
        """Write a Parquet file if there is none of that name."""
        return self.create(path, parquet(table))

    def write_table(self, path: str, table: pa.Table) -> None:
        """Write a Parquet file, replacing any other."""
        self.write(path, parquet(table))

    def create_part(self, path: str, rows: list[dict[str, Any]]) -> bool:
        """Write rows of runs if there is no such file."""
        return self.create_table(path, pa.Table.from_pylist(rows, schema=RUN_SCHEMA))


def parquet(table: pa.Table) -> bytes:
    """Return a table as the content of a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def read_parquet(body: bytes) -> pa.Table:
    """Return the rows of a Parquet file's content."""
    return pq.ParquetFile(pa.BufferReader(body)).read()


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; Arrow's messages have many."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _rows_of(place: str, body: bytes) -> pa.Table:
    remedy = "delete it and repeat the sweep: its runs will be repeated"
    try:
        rows = read_parquet(body)
    except (pa.ArrowException, OSError) as error:
        raise ResultError(place, f"cannot be read as Parquet ({first_line(error)})", remedy) from error
    rows = with_later_columns(rows)
    if not rows.schema.equals(RUN_SCHEMA):
        raise ResultError(place, "does not hold the rows of runs", remedy)
    return rows


def done_in(rows: pa.Table) -> Iterator[Run]:
    """Yield the runs that these rows say are done."""
    for row in rows.select(["experiment", "seed", "status"]).to_pylist():
        if row["status"] == "done":
            yield row["experiment"], row["seed"]


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
            TRUST: [trust_of(one) for one in settings],
            **parameter_columns([experiment for _, experiment in plan.experiments], list(varied)),
        }
    )


def about_plan(plan: Plan) -> tuple[dict[str, Any], pa.Table]:
    """Return the content of `about.json` without its date, and the table of experiments that it names."""
    experiments = experiments_table(plan)
    about = _about(plan)
    digest = plan_digest(about, experiments)
    families = [{**one, **_model(group)} for one, group in zip(about["families"], plan.groups, strict=True)]
    named = {"plan": digest, "experiments": f"experiments-{digest}.parquet"}
    return {**about, "families": families, **named}, experiments


def _model(group: ExperimentGroup) -> dict[str, Any]:
    """Return the catalogs of a group in words, and how far the parts of its model were checked.

    They follow from the configurations, so they are not part of the plan's digest.
    """
    all_settings = [experiment.settings for experiment in group.experiments]
    return {
        "catalogs": list(dict.fromkeys(settings.catalog_name for settings in all_settings)),
        "trust": {part: label for settings in all_settings for part, label in settings.trust.items()},
    }


def plan_digest(about: Mapping[str, Any], experiments: pa.Table) -> str:
    """Return the digest that distinguishes plans. Labels of trust follow from the configurations."""
    content = [{**about, "created": None}, experiments.drop_columns([TRUST]).to_pylist()]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _about(plan: Plan) -> dict[str, Any]:
    groups = plan.groups
    return {
        "title": groups[0].title if len(groups) == 1 else f"{len(groups)} experiment groups",
        "version": version(),
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
