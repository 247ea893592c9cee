"""Curves: sustainable throughput and saturation of each series of experiments.

A series holds the experiments of a group that differ in the offered load alone. `curve_of` analyses the points of one
series; `curves` applies it to every series on Spark. The stored columns `usable_*` describe the highest sustainable
load, the column `family` names the experiment group.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from endive.sim.results.labels import ORDER, TRUST
from endive.sim.results.prices import NAME as DOLLARS
from endive.spark.schemas import quoted, spark_schema

FOLLOWS = 0.5
"""Commits follow the offered load while each increase of it adds at least this share as commits."""


@dataclass(frozen=True)
class Point:
    """One experiment of a series: means over its seeds."""

    load: float
    offered_per_s: float
    committed_per_s: float
    success: float
    p99_ms: float | None = None
    overhead: float | None = None
    dollars: float | None = None
    """Of requests, for a million commits."""


@dataclass(frozen=True)
class Curve:
    """Sustainable throughput and saturation of a series."""

    loads: int
    """Number of points of the series."""
    peak_committed_per_s: float | None = None
    """None: there is no point."""
    saturation_load: float | None = None
    """The highest load up to which commits follow the load. None: they follow it to the end."""
    saturation_committed_per_s: float | None = None
    usable_load: float | None = None
    """The highest load that reaches the success target, as every lower load does. None: the lowest one misses it."""
    usable_committed_per_s: float | None = None
    """The sustainable throughput."""
    usable_p99_ms: float | None = None
    usable_overhead: float | None = None
    usable_dollars_per_million_commits: float | None = None
    fails_from_load: float | None = None
    """The lowest load that misses the success target. None: none does."""


def curve_of(points: Sequence[Point], success_target: float) -> Curve:
    """Return the curve of one series, given its points in any order."""
    ordered = sorted(points, key=lambda point: point.load)
    if not ordered:
        return Curve(0)
    sustainable, fails = _sustainable(ordered, success_target)
    saturated = _saturated(ordered)
    return Curve(
        loads=len(ordered),
        peak_committed_per_s=max(point.committed_per_s for point in ordered),
        saturation_load=saturated.load if saturated else None,
        saturation_committed_per_s=saturated.committed_per_s if saturated else None,
        usable_load=sustainable.load if sustainable else None,
        usable_committed_per_s=sustainable.committed_per_s if sustainable else None,
        usable_p99_ms=sustainable.p99_ms if sustainable else None,
        usable_overhead=sustainable.overhead if sustainable else None,
        usable_dollars_per_million_commits=sustainable.dollars if sustainable else None,
        fails_from_load=fails.load if fails else None,
    )


def _sustainable(ordered: Sequence[Point], success_target: float) -> tuple[Point | None, Point | None]:
    """Return the last point before success falls below the target, and the point where it does."""
    last = None
    for point in ordered:
        if point.success < success_target:
            return last, point
        last = point
    return last, None


def _saturated(ordered: Sequence[Point]) -> Point | None:
    """Return the last point before commits stop following the load; the lowest, if they do not even up to there."""
    nothing = Point(0.0, 0.0, 0.0, 1.0)
    for before, point in zip([nothing, *ordered], ordered, strict=False):
        more = point.offered_per_s - before.offered_per_s
        # Between loads that are close, the measured offered load may fall by chance; skip such a step.
        if more > 0 and point.committed_per_s - before.committed_per_s < FOLLOWS * more:
            return ordered[0] if before is nothing else before
    return None


def as_closed_loop(points: Sequence[Point]) -> list[Point]:
    """Return the points with the offered load that their writers would have without waiting for each other.

    Each writer would then commit as much as in the point with the fewest writers. The measured offered load of a closed
    loop falls as writers wait, so it cannot show saturation.
    """
    least = min(points, key=lambda point: point.load, default=None)
    if least is None or not least.load:
        return list(points)
    each_per_s = least.committed_per_s / least.load
    return [replace(point, offered_per_s=point.load * each_per_s) for point in points]


MEANS = ("offered_per_s", "committed_per_s", "success", "all_p99_ms", "overhead", DOLLARS)
"""The metrics of an experiment that its point needs."""


def point_of(row: Mapping[str, Any]) -> Point | None:
    """Return an experiment's point. None: no seed is done, or no transaction arrived.

    If transactions arrived and none finished, success is 0.
    """
    load, means = row["load"], [row[name] for name in MEANS]
    if load is None or not row["seeds_done"] or (means[2] is None and not means[0]):
        return None
    return Point(load, means[0], means[1], means[2] or 0.0, *means[3:])


CURVE_FIELDS = [
    pa.field("series", pa.string()),
    pa.field("loads", pa.int64()),
    *(pa.field(name, pa.float64()) for name in Curve.__dataclass_fields__ if name != "loads"),
    pa.field(TRUST, pa.string()),  # the weakest label of its experiments
]


def curves(experiments: DataFrame, about: Mapping[str, Any]) -> DataFrame:
    """Return one row per series: `family`, the parameters but the load's key, `series` in words, and its `Curve`.

    `experiments` is the result of `over_seeds` with the columns `load` and the parameters; `about` is `about.json`.
    """
    groups = {group["name"]: {"success_target": about["success_target"], **group} for group in about["families"]}
    parameters = {
        name: kind for name, kind in experiments.dtypes if "." in name and not _is_load_only(name, groups.values())
    }

    def row_of(series: pa.Table) -> pa.Table:
        return _row(series, groups, tuple(parameters))

    columns = [_without_load(name, groups.values()).alias(_plain(name)) for name in parameters]
    needed = experiments.select("family", *columns, "load", TRUST, "seeds_done", *MEANS)
    keys = [f"{quoted(name)} {kind}" for name, kind in {"family": "string", **parameters}.items()]
    schema = ", ".join([*keys, spark_schema(CURVE_FIELDS)])
    return needed.groupBy("family", *map(_plain, parameters)).applyInArrow(row_of, schema)


def curves_of(experiments: pa.Table, about: Mapping[str, Any]) -> pa.Table:
    """Return the rows of `curves`, computed in this process."""
    groups = {group["name"]: {"success_target": about["success_target"], **group} for group in about["families"]}
    parameters = [name for name in experiments.column_names if "." in name and not _is_load_only(name, groups.values())]
    series: dict[tuple[object, ...], list[int]] = {}
    columns: dict[str, pa.Array] = {"family": experiments["family"].combine_chunks()}
    for name in parameters:
        loaded = pa.array([group["name"] for group in groups.values() if group["load_key"] == name], pa.string())
        column = experiments[name].combine_chunks()
        columns[_plain(name)] = pc.if_else(pc.is_in(columns["family"], loaded), pa.scalar(None, column.type), column)
    columns |= {name: experiments[name].combine_chunks() for name in ("load", TRUST, "seeds_done", *MEANS)}
    needed = pa.table(columns)
    for place, row in enumerate(needed.select(["family", *map(_plain, parameters)]).to_pylist()):
        series.setdefault(tuple(row.values()), []).append(place)
    return pa.concat_tables([_row(needed.take(places), groups, parameters) for places in series.values()])


def _plain(name: str) -> str:
    """Return a parameter's name without dots, which PySpark's Arrow functions do not take."""
    return name.replace(".", "/")


def _row(series: pa.Table, groups: Mapping[str, Mapping[str, Any]], parameters: Sequence[str]) -> pa.Table:
    """Return the row of a series."""
    rows = series.to_pylist()
    group = groups[rows[0]["family"]]
    points = [point for row in rows if (point := point_of(row)) is not None]
    if group["load_unit"] != "arrivals/s":
        points = as_closed_loop(points)
    values = {name: rows[0][_plain(name)] for name in parameters}
    labels = [row[TRUST] for row in rows if row[TRUST] is not None]
    curve = {
        "series": series_in_words(values, group),
        **asdict(curve_of(points, group["success_target"])),
        TRUST: min(labels, key=ORDER.index, default=None),
    }
    keys = {"family": series["family"], **{name: series[_plain(name)] for name in parameters}}
    columns = {field.name: pa.array([curve[field.name]], field.type) for field in CURVE_FIELDS}
    return pa.table({**{name: column.slice(0, 1) for name, column in keys.items()}, **columns})


def _is_load_only(name: str, groups: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a parameter sets the offered load in every group that varies it."""
    uses = [group["load_key"] == name for group in groups if name in group["varied"]]
    return bool(uses) and all(uses)


def _without_load(name: str, groups: Iterable[Mapping[str, Any]]) -> Column:
    """Return the parameter, null in the groups whose load it sets."""
    loaded = [group["name"] for group in groups if group["load_key"] == name]
    column = F.col(quoted(name))
    return F.when(~F.col("family").isin(loaded), column) if loaded else column


def series_in_words(values: Mapping[str, Any], group: Mapping[str, Any]) -> str:
    """Return a series' distinguishing parameters, such as `s3 · 10 tables`."""
    varied = [key for key in group["varied"] if key != group["load_key"]]
    return " · ".join(value_in_words(key, values[key]) for key in varied) or str(group["title"])


def value_in_words(key: str, value: str | float | bool | None) -> str:
    """Return a parameter's value with its name where needed: `s3`, `10 tables`, `latency 10 ms`."""
    if isinstance(value, str):
        return value
    words, name = key.partition(".")[2].replace(".", " ").replace("_", " "), key.rpartition(".")[2]
    if value is None or isinstance(value, bool):
        return f"{words}: {'default' if value is None else 'yes' if value else 'no'}"
    if name.startswith("num_"):
        noun = name.removeprefix("num_").replace("_", " ")
        return f"{value:.12g} {noun.removesuffix('s') if value == 1 else noun}"
    if words.endswith(" ms"):
        return f"{words.removesuffix(' ms')} {value:.12g} ms"
    return f"{words} {value:.12g}"
