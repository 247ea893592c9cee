"""Refines a sweep: adds offered loads where the success target is missed, and nowhere else.

A series of a sweep bounds its sustainable load between two loads: the highest that reaches the success target and the
next one. A round adds the load between them to every series that has both. All series of a round are one sweep, so they
run beside each other on Spark; each round halves the ratio of the bounds. Loads that were added are experiments like
any others: a repeated command finds them done.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from endive.errors import ConfigurationError
from endive.pipeline.curves import curve_of, point_of
from endive.pipeline.plan import Plan
from endive.pipeline.sweep_file import Experiment, ExperimentGroup, offered_load
from endive.sim.config.configuration import parse_configuration

CLOSE = 1.02
"""Loads whose ratio is below this are not refined further: seeds differ more than they do."""

DIGITS = 4
"""Significant digits of a load that is added, as of every load in the measures."""

Rows = Mapping[tuple[str, str], Mapping[str, Any]]
"""Measures of experiments, by group and name."""


def refined(plan: Plan, experiments: pa.Table) -> Plan | None:
    """Return a plan with one more offered load for each series that bounds its sustainable load; None: there is none.

    `experiments` are the measures of the plan's experiments. `ConfigurationError` if no group has an offered load.
    """
    if not any(group.load_key for group in plan.groups):
        raise ConfigurationError("--refine", ["no sweep file varies the offered load by a number"])
    rows = {(row["family"], row["experiment"]): row for row in experiments.to_pylist()}
    added = {group.name: tuple(_between(plan, group, rows)) for group in plan.groups}
    if not any(added.values()):
        return None
    return Plan(tuple(replace(group, experiments=(*group.experiments, *added[group.name])) for group in plan.groups))


def _between(plan: Plan, group: ExperimentGroup, rows: Rows) -> Iterator[Experiment]:
    """Yield an experiment for each series whose bounds are not close."""
    for series in _series_of(group):
        by_load = {offered_load(one.settings, group.load_key)[0]: one for one in series}
        measured = [rows.get((group.name, plan.name_of(one))) for one in series]
        points = [point for row in measured if row is not None and (point := point_of(row)) is not None]
        curve = curve_of(points, group.success_target)
        holds, fails = curve.usable_load, curve.fails_from_load
        if holds is not None and fails is not None:
            added = _at(by_load[fails], fails, math.sqrt(holds * fails), str(group.load_key))
            load = offered_load(added.settings, group.load_key)[0]
            if holds * CLOSE < load and load * CLOSE < fails:
                yield added


def _series_of(group: ExperimentGroup) -> list[list[Experiment]]:
    """Return the experiments that differ in the offered load alone; none if a number does not set it."""
    key, series = group.load_key, dict[str, list[Experiment]]()
    for one in group.experiments:
        if isinstance(one.parameters.get(str(key)), int | float):
            others = {name: value for name, value in one.parameters.items() if name != key}
            series.setdefault(repr(sorted(others.items())), []).append(one)
    return list(series.values())


def _at(experiment: Experiment, load: float, wanted: float, key: str) -> Experiment:
    """Return an experiment at another offered load: times between arrivals shrink with it, writers grow."""
    value, unit = experiment.parameters[key], offered_load(experiment.settings, key)[1]
    scaled = value * wanted / load if unit == "writers" else value * load / wanted
    new = round(scaled) if unit == "writers" else float(f"{scaled:.{DIGITS}g}")
    settings = parse_configuration(experiment.settings.text, experiment.settings.source, [f"{key}={new}"])
    return Experiment(settings, {**experiment.parameters, key: new})
