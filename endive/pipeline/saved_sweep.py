"""Reads a sweep's directory: what was asked for, the plan, and the rows of its runs."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from endive.errors import ResultError
from endive.pipeline.breakdown import breakdown_table
from endive.pipeline.counters import counters_table
from endive.pipeline.directory import ABOUT, SweepDirectory, first_line, read_parquet
from endive.pipeline.estimates import EXPERIMENT
from endive.pipeline.run_rows import RUN_SCHEMA
from endive.sim.results.labels import TRUST
from endive.sim.results.summary import Window

RUN = ("experiment", "seed")
WINDOW = ("window_start_ms", "window_end_ms")
ABOUT_KEYS = {"keep", "success_target", "families"}
GROUP_KEYS = {"name", "title", "varied", "load_key", "load_unit", "seeds"}
"""Required keys of `about.json`."""

REPEAT = "repeat the sweep"
NO_SWEEP = "name a directory that `endive sweep` has written"
SUPERSEDED = "another sweep with other experiments was started in this directory while this one ran"


@dataclass(frozen=True)
class SavedSweep:
    """A sweep's directory, for reading."""

    directory: SweepDirectory
    expected: str | None = None
    """Digest of the plan that the directory must show. None: any."""

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """Groups, seeds and success target of the sweep."""
        place, body = self.directory.place(ABOUT), self.directory.read(ABOUT)
        if body is None:
            raise ResultError(place, "does not exist", NO_SWEEP)
        try:
            about = json.loads(body)
            complete = set(about) >= ABOUT_KEYS and all(set(group) >= GROUP_KEYS for group in about["families"])
        except (ValueError, TypeError) as error:
            raise ResultError(place, f"cannot be read ({first_line(error)})", f"{REPEAT}, or {NO_SWEEP}") from error
        if not complete:
            raise ResultError(place, "does not describe a sweep", f"{REPEAT}, or {NO_SWEEP}")
        if self.expected not in (None, about.get("plan")):
            remedy = "its runs are kept: repeat this command, and give the other sweep an --out of its own"
            raise ResultError(str(self.directory), SUPERSEDED, remedy)
        return dict(about)

    @property
    def plan_name(self) -> str:
        """The file of the plan."""
        return str(self.about.get("experiments", "experiments.parquet"))  # its name in version 0.1.0

    @cached_property
    def plan(self) -> pa.Table:
        """One row per group and experiment: offered load, window and parameters."""
        name = self.plan_name
        try:
            table = read_parquet(self.directory.read(name) or b"")
            if TRUST not in table.column_names:  # an older version wrote the plan
                table = table.append_column(TRUST, pa.nulls(table.num_rows, pa.string()))
            parameters = (name for name in table.column_names if "." in name)
            plan = table.select([*EXPERIMENT, "load", TRUST, *WINDOW, *parameters])
        except (pa.ArrowException, OSError, KeyError) as error:
            problem = f"cannot be read as the experiments of a sweep ({first_line(error)})"
            raise ResultError(self.directory.place(name), problem, f"{REPEAT}, or {NO_SWEEP}") from error
        # A parameter without any value has no type; Spark needs one.
        fields = [pa.field(f.name, pa.string()) if pa.types.is_null(f.type) else f for f in plan.schema]
        return plan.cast(pa.schema(fields))

    @property
    def parameters(self) -> pa.Schema:
        """The parameter columns: those that are named by dotted keys."""
        return pa.schema([field for field in self.plan.schema if "." in field.name])

    @property
    def windows(self) -> Mapping[str, Window]:
        """The window of each experiment's metrics."""
        rows = self.plan.select(["experiment", *WINDOW]).to_pylist()
        return {row["experiment"]: Window(*(row[name] for name in WINDOW)) for row in rows}

    def runs(self, known: Collection[str] = ()) -> pa.Table:
        """Return one row for each run of the plan, however often it was tried: the done one, if there is one.

        `known` are files of runs that exist, whether a listing shows them already or not.
        """
        names = sorted({*self.directory.parts(), *known})
        rows = [rows for _, rows in self.directory.read_parts(names)]
        if not rows:
            raise ResultError(self.directory.place("runs"), "holds no runs", f"{REPEAT}, or {NO_SWEEP}")
        runs = one_per_run(pa.concat_tables(rows))
        return runs.filter(pc.is_in(runs["experiment"], self.plan["experiment"].combine_chunks()))

    def by_group(self, runs: pa.Table) -> pa.Table:
        """Return the runs that the groups ask for, with group, offered load and parameters."""
        seeds_of = {group["name"]: group["seeds"] for group in self.about["families"]}
        seeds = pa.table(
            {
                "family": pa.array([name for name, seeds in seeds_of.items() for _ in seeds], pa.string()),
                "seed": pa.array([seed for seeds in seeds_of.values() for seed in seeds], pa.int64()),
            }
        )
        joined = runs.join(self.plan, "experiment", join_type="inner").join(
            seeds, ["family", "seed"], join_type="inner"
        )
        return joined.select([*self._first_columns(), *(name for name in RUN_SCHEMA.names if name != "experiment")])

    def with_parameters(self, estimates: pa.Table) -> pa.Table:
        """Return a row for every experiment of the plan, with its parameters, offered load and estimates."""
        joined = self.plan.join(estimates, list(EXPERIMENT))
        for name in ("seeds_done", "seeds_failed"):
            joined = joined.set_column(joined.column_names.index(name), name, joined[name].fill_null(0))
        return joined.select(
            [*self._first_columns(), *(name for name in estimates.column_names if name not in EXPERIMENT)]
        )

    def breakdown(self, runs: pa.Table) -> pa.Table:
        """Return the metrics by class and by table of each experiment, from the runs that the groups ask for."""
        return breakdown_table(runs, self._first_columns())

    def counters(self, runs: pa.Table) -> pa.Table:
        """Return the counters of each experiment, from the runs that the groups ask for."""
        return counters_table(runs, self._first_columns())

    def _first_columns(self) -> list[str]:
        return [*EXPERIMENT, *self.parameters.names, "load", TRUST]

    def in_order(self, series: pa.Table) -> pa.Table:
        """Return series in the order in which the sweep files name them."""
        keys = [name for name in series.column_names if name in ("family", *self.parameters.names)]
        places: dict[tuple[object, ...], int] = {}
        for place, row in enumerate(self.plan.to_pylist()):
            places.setdefault(tuple(row[key] for key in keys), place)
        series = sorted_by(series, "family", "series")
        rows = series.select(keys).to_pylist()
        order = sorted(range(len(rows)), key=lambda row: places.get(tuple(rows[row][key] for key in keys), len(places)))
        return series.take(order)


def one_per_run(rows: pa.Table) -> pa.Table:
    """Return one row for each run: a done one, if there is one."""
    tried = rows.append_column("not_done", pc.not_equal(rows["status"], "done"))
    keys = [*RUN, "not_done", "message"]  # a total order, so that the choice is always the same
    tried = tried.sort_by([(name, "ascending") for name in keys])
    runs = tried.select(list(RUN)).append_column("row", pa.array(range(len(tried)), pa.int64()))
    first = runs.group_by(list(RUN)).aggregate([("row", "min")])["row_min"]
    return tried.take(first).select(rows.column_names)


def sorted_by(table: pa.Table, *names: str) -> pa.Table:
    """Return the rows in the order of these columns."""
    return table.sort_by([(name, "ascending") for name in names])
