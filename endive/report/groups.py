"""Prepares an experiment group for its charts: parameters, an axis, and two small frames with rounded metrics.

Pure: frames in, frames out. Parameters become text, so that controls, legends and filters compare equal types; only the
offered load stays a number. The stored column `family` names the group.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from endive.report.formatting import NONE, label_of, sort_key, title_of
from endive.report.metrics import CURVE_METRICS, OPERATIONS, PURPOSES, QUANTILES, RATES
from endive.report.reading import GroupAbout, Results
from endive.sim.results.labels import TRUST

DIGITS = 6
"""Significant digits of the metrics in the page; they bound its size."""
DIGITS_OF_INTERVALS = 3
CLOSED_LOOP_UNIT = "writers"
WIDE = 20.0
"""A scale is logarithmic if its largest value is this many times its smallest."""
COLOUR_FIRST = ("storage.provider", "catalog.num_tables")
"""Parameters that colour the series initially, if they vary."""
CONTEXT = ("storage.provider", "catalog.num_tables", "transaction.cost_model", "storage.profiles")
"""Keys that every experiment has and that state its conditions."""


@dataclass(frozen=True)
class Parameter:
    """Something that varies within a group: its key, its column in the frames, its values as text, in order."""

    key: str
    field: str
    title: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Axis:
    """The horizontal axis of charts: the offered load, a number; or, if it does not vary, another parameter."""

    field: str
    title: str
    labels: tuple[str, ...] = ()
    """Values of an axis that is no number, in order."""
    log: bool = False

    @property
    def is_load(self) -> bool:
        """Whether this is the offered load, a number."""
        return self.field == "load"

    @property
    def words(self) -> str:
        """The axis within a sentence."""
        return "offered load" if self.title.startswith("Offered load") else self.title.lower()


@dataclass(frozen=True)
class ReportGroup:
    """One experiment group, ready to be drawn."""

    about: GroupAbout
    success_target: float
    axis: Axis
    parameters: tuple[Parameter, ...]
    """The parameters that distinguish its series; the first one by colour."""
    points: pd.DataFrame
    """One row for each experiment."""
    series: pd.DataFrame
    """One row for each series: saturation and sustainable throughput."""
    kinds: tuple[str, ...]
    """Operation types that have commits."""
    context: Mapping[str, tuple[str, ...]]
    """Providers, tables, cost models and profiles that occur."""

    @property
    def title(self) -> str:
        """The group's title; its name if it has none."""
        return self.about.title or self.about.name

    @property
    def is_closed_loop(self) -> bool:
        """Whether writers wait for their commits, so that the offered load is the number of writers."""
        return self.about.load_unit == CLOSED_LOOP_UNIT

    @cached_property
    def has_intervals(self) -> bool:
        """Whether there are several seeds, and so confidence intervals."""
        return bool(self.points["success_ci"].notna().any())

    @cached_property
    def has_metrics(self) -> bool:
        """Whether any run of the group has metrics."""
        return bool(self.points["committed_per_s"].notna().any())

    @cached_property
    def drifting(self) -> int:
        """Experiments whose window is not stationary."""
        return int(self.points["drift"].notna().sum())

    def extent(self, *columns: str) -> tuple[float, float] | None:
        """Return the smallest and the largest positive value of these columns. None: there is none."""
        values = self.points[list(columns)].to_numpy(dtype=float)
        positive = values[np.isfinite(values) & (values > 0)]
        return (float(positive.min()), float(positive.max())) if positive.size else None

    @property
    def loads(self) -> list[float]:
        """The loads that occur, in order."""
        return sorted(self.points["load"].dropna().unique().tolist())

    def is_wide(self, *columns: str) -> bool:
        """Whether these columns are better seen on a logarithmic scale."""
        extent = self.extent(*columns)
        return extent is not None and extent[1] >= WIDE * extent[0]


def groups_of(results: Results) -> tuple[ReportGroup, ...]:
    """Return the groups in the order of the sweep."""
    return tuple(_group(results, about) for about in results.about.groups)


def _group(results: Results, about: GroupAbout) -> ReportGroup:
    rows = results.experiments[results.experiments["family"] == about.name].reset_index(drop=True)
    curves = results.curves[results.curves["family"] == about.name].reset_index(drop=True)
    keys = [key for key in dict.fromkeys(about.varied) if key != about.load_key and key in rows.columns]
    parameters = [_parameter(key, rows[key], about.sweep) for key in keys]
    varying = [parameter for parameter in parameters if len(parameter.labels) > 1]
    axis = _axis(about, rows, varying)
    labelled = _labelled(rows, parameters)
    series = _in_order(_series(_labelled(curves, parameters), parameters), parameters)
    kinds = tuple(kind for kind in OPERATIONS[1:] if rows[f"{kind}_p50_ms"].notna().any())
    points = _points(labelled, series, parameters, kinds)
    shown = _distinguishing([parameter for parameter in varying if parameter.field != axis.field], points, series, axis)
    return ReportGroup(
        about=about,
        success_target=about.success_target or results.about.success_target,
        axis=axis,
        parameters=tuple(shown),
        points=points.sort_values(by=_order_of(axis, points), kind="stable").reset_index(drop=True),
        series=_with_intervals(series, points, parameters),
        kinds=kinds,
        context={key: _values(rows, key, about.sweep) for key in CONTEXT},
    )


def field_of(key: str) -> str:
    """Return the column of a configuration key; Vega takes a dot for a path."""
    return key.replace(".", "_")


def _values(rows: pd.DataFrame, key: str, written: str) -> tuple[str, ...]:
    return _parameter(key, rows[key], written).labels if key in rows.columns else ()


def _parameter(key: str, column: "pd.Series[Any]", written: str) -> Parameter:
    values: Sequence[Hashable] = sorted(column.unique().tolist(), key=lambda value: sort_key(value, written))
    return Parameter(key, field_of(key), title_of(key), tuple(dict.fromkeys(map(label_of, values))))


def _labelled(rows: pd.DataFrame, parameters: Sequence[Parameter]) -> pd.DataFrame:
    """Return the rows with the parameters as text, under the names of their columns."""
    labels = {
        parameter.field: rows[parameter.key].map(label_of, na_action=None).astype(object)
        if parameter.key in rows.columns
        else pd.Series(NONE, index=rows.index, dtype=object)
        for parameter in parameters
    }
    return rows.drop(columns=[parameter.key for parameter in parameters], errors="ignore").assign(**labels)


def _axis(about: GroupAbout, rows: pd.DataFrame, varying: Sequence[Parameter]) -> Axis:
    loads = rows["load"].dropna()
    if about.load_key is not None and len(loads):
        title = (
            about.load_unit.capitalize() if about.load_unit == CLOSED_LOOP_UNIT else f"Offered load ({about.load_unit})"
        )
        return Axis("load", title, log=bool(loads.min() > 0 and loads.max() >= WIDE * loads.min()))
    if varying:
        longest = max(varying, key=lambda parameter: len(parameter.labels))
        return Axis(longest.field, longest.title, longest.labels)
    return Axis("experiment", "Experiment", tuple(map(str, rows["experiment"])))


def _order_of(axis: Axis, points: pd.DataFrame) -> list[str]:
    return ["load"] if axis.is_load else [name for name in (axis.field,) if name in points.columns]


def _points(
    rows: pd.DataFrame, series: pd.DataFrame, parameters: Sequence[Parameter], kinds: Sequence[str]
) -> pd.DataFrame:
    """Return one row for each experiment, with no more columns than charts read."""
    fields = [parameter.field for parameter in parameters]
    kept = ("all", *kinds) if len(kinds) > 1 else ("all",)
    metrics = [*RATES, *PURPOSES, *(f"{kind}_{quantile}_ms" for kind in kept for quantile in QUANTILES)]
    columns = ["experiment", *fields, "load", "seeds_done", "seeds_failed", "drift"]
    points = _rounded(rows[[*columns, *metrics, *(f"{name}_ci" for name in metrics)]])
    known = series[[*fields, "series", "saturation_load", "usable_load"]].drop_duplicates(fields or None)
    joined = points.merge(known, on=fields, how="left") if fields else points.merge(known.head(1), how="cross")
    return joined.assign(
        saturation=_same(joined["load"], joined["saturation_load"]),
        sustainable=_same(joined["load"], joined["usable_load"]),
    ).drop(columns=["saturation_load", "usable_load"])


def _same(left: "pd.Series[float]", right: "pd.Series[float]") -> "pd.Series[bool]":
    """Whether two loads are one: they have been rounded alike."""
    same: pd.Series[bool] = left.notna() & (left == right)
    return same


def _series(curves: pd.DataFrame, parameters: Sequence[Parameter]) -> pd.DataFrame:
    """Return one row for each series, with a name even where nothing but the load varies."""
    names = [str(name) if name else "all" for name in curves["series"].fillna("")]
    columns = [parameter.field for parameter in parameters]
    return _rounded(curves[[*columns, *CURVE_METRICS, TRUST]]).assign(series=names)


def _in_order(series: pd.DataFrame, parameters: Sequence[Parameter]) -> pd.DataFrame:
    """Return the series by their parameters' values, the first parameter first."""
    if not parameters:
        return series
    places = {parameter.field: {label: n for n, label in enumerate(parameter.labels)} for parameter in parameters}
    return series.sort_values(
        by=list(places), key=lambda column: column.map(places[str(column.name)]), kind="stable", ignore_index=True
    )


def _with_intervals(series: pd.DataFrame, points: pd.DataFrame, parameters: Sequence[Parameter]) -> pd.DataFrame:
    """Add the intervals of the sustainable throughput and its latency: those of the experiment at that load."""
    fields = [parameter.field for parameter in parameters]
    at_sustainable = points[points["sustainable"]][[*fields, "committed_per_s_ci", "all_p99_ms_ci"]].rename(
        columns={"committed_per_s_ci": "usable_committed_per_s_ci", "all_p99_ms_ci": "usable_p99_ms_ci"}
    )
    if fields:
        return series.merge(at_sustainable.drop_duplicates(fields), on=fields, how="left")
    if at_sustainable.empty:
        return series.assign(usable_committed_per_s_ci=math.nan, usable_p99_ms_ci=math.nan)
    return series.merge(at_sustainable.head(1), how="cross")


def _distinguishing(
    parameters: list[Parameter], points: pd.DataFrame, series: pd.DataFrame, axis: Axis
) -> list[Parameter]:
    """Return the parameters that distinguish the series if they form a full grid, else the series' names.

    Without a full grid most combinations of values do not exist, and controls would lead to empty charts.
    """
    present = points[[parameter.field for parameter in parameters]].drop_duplicates() if parameters else points.head(0)
    if len(present) == math.prod(len(parameter.labels) for parameter in parameters) or not parameters:
        return sorted(parameters, key=_colour_rank)
    if axis.is_load:
        return [Parameter("series", "series", "Series", tuple(dict.fromkeys(series["series"])))]
    return []


def _colour_rank(parameter: Parameter) -> int:
    return COLOUR_FIRST.index(parameter.key) if parameter.key in COLOUR_FIRST else len(COLOUR_FIRST)


def _rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the frame with its metrics rounded, intervals more than means."""
    rounded = {
        name: _significant(column.to_numpy(dtype=float), DIGITS_OF_INTERVALS if name.endswith("_ci") else DIGITS)
        for name, column in frame.items()
        if isinstance(name, str) and pd.api.types.is_float_dtype(column.dtype)
    }
    return frame.assign(**rounded)


def _significant(values: "np.ndarray[tuple[int], np.dtype[np.float64]]", digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values]
