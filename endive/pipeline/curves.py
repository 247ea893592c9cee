"""Curves: what a series of experiments of growing load says of the load that it takes.

A series is a family's experiments that differ in the load alone. `curve_of` is the rule, on a list of points; `curves`
applies it to every series on Spark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from endive.spark.schemas import quoted, spark_schema

FOLLOWS = 0.5
"""Commits follow the load as long as each step of more load brings at least this share of it as more commits."""


@dataclass(frozen=True)
class Point:
    """One experiment of a series: means over its seeds."""

    load: float
    offered_per_s: float
    committed_per_s: float
    success: float
    p99_ms: float | None = None
    overhead: float | None = None


@dataclass(frozen=True)
class Curve:
    """What a series says."""

    loads: int
    """Points that the series has."""
    peak_committed_per_s: float | None = None
    """None: there is no point."""
    saturation_load: float | None = None
    """The highest load up to which commits follow the load. None: they do to the end."""
    saturation_committed_per_s: float | None = None
    usable_load: float | None = None
    """The highest load that succeeds, as every lower one does. None: not even the lowest does."""
    usable_committed_per_s: float | None = None
    usable_p99_ms: float | None = None
    usable_overhead: float | None = None
    fails_from_load: float | None = None
    """The next higher load. None: none fails."""


def curve_of(points: Sequence[Point], success_target: float) -> Curve:
    """Return what the points of one series say, in whatever order they are."""
    ordered = sorted(points, key=lambda point: point.load)
    if not ordered:
        return Curve(0)
    usable, fails = _usable(ordered, success_target)
    saturated = _saturated(ordered)
    return Curve(
        loads=len(ordered),
        peak_committed_per_s=max(point.committed_per_s for point in ordered),
        saturation_load=saturated.load if saturated else None,
        saturation_committed_per_s=saturated.committed_per_s if saturated else None,
        usable_load=usable.load if usable else None,
        usable_committed_per_s=usable.committed_per_s if usable else None,
        usable_p99_ms=usable.p99_ms if usable else None,
        usable_overhead=usable.overhead if usable else None,
        fails_from_load=fails.load if fails else None,
    )


def _usable(ordered: Sequence[Point], success_target: float) -> tuple[Point | None, Point | None]:
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
        # A step in which no more was offered, as happens by chance where loads are close, says nothing.
        if more > 0 and point.committed_per_s - before.committed_per_s < FOLLOWS * more:
            return ordered[0] if before is nothing else before
    return None


def as_closed_loop(points: Sequence[Point]) -> list[Point]:
    """Return the points with what their writers would commit if each did as well as in the smallest number of them.

    Writers that wait for each other offer less, so what they did offer does not tell whether more of them help.
    """
    least = min(points, key=lambda point: point.load, default=None)
    if least is None or not least.load:
        return list(points)
    each_per_s = least.committed_per_s / least.load
    return [replace(point, offered_per_s=point.load * each_per_s) for point in points]


MEANS = ("offered_per_s", "committed_per_s", "success", "all_p99_ms", "overhead")
"""The figures of an experiment that a point has."""


def point_of(row: Mapping[str, Any]) -> Point | None:
    """Return an experiment's point. None: no seed is done, or nothing was asked of it, so it says nothing.

    Where transactions arrived and none of them finished, none succeeded.
    """
    load, means = row["load"], [row[name] for name in MEANS]
    if load is None or not row["seeds_done"] or (means[2] is None and not means[0]):
        return None
    return Point(load, means[0], means[1], means[2] or 0.0, *means[3:])


CURVE_FIELDS = [
    pa.field("series", pa.string()),
    pa.field("loads", pa.int64()),
    *(pa.field(name, pa.float64()) for name in Curve.__dataclass_fields__ if name != "loads"),
]


def curves(experiments: DataFrame, families: Sequence[Mapping[str, Any]], success_target: float) -> DataFrame:
    """Return one row per series: `family`, the parameters but the load's key, `series` in words, and its `Curve`.

    `experiments` is what `over_seeds` gives, with the columns `load` and the parameters; `families` are those of
    `about.json`.
    """
    kinds = {name: kind for name, kind in experiments.dtypes if "." in name and not _is_load_only(name, families)}
    by_name = {family["name"]: family for family in families}

    def row_of(series: pa.Table) -> pa.Table:
        return _row(series, by_name, tuple(kinds), success_target)

    parameters = [_without_load(name, families).alias(_plain(name)) for name in kinds]
    needed = experiments.select("family", *parameters, "load", "seeds_done", *MEANS)
    keys = [f"{quoted(name)} {kind}" for name, kind in {"family": "string", **kinds}.items()]
    schema = ", ".join([*keys, spark_schema(CURVE_FIELDS)])
    return needed.groupBy("family", *map(_plain, kinds)).applyInArrow(row_of, schema)


def _plain(name: str) -> str:
    """Return a parameter's name without dots, which PySpark's Arrow functions do not take."""
    return name.replace(".", "/")


def _row(
    series: pa.Table, families: Mapping[str, Mapping[str, Any]], parameters: Sequence[str], success_target: float
) -> pa.Table:
    """Return the row of a series."""
    rows = series.to_pylist()
    family = families[rows[0]["family"]]
    points = [point for row in rows if (point := point_of(row)) is not None]
    if family["load_unit"] != "arrivals/s":
        points = as_closed_loop(points)
    values = {name: rows[0][_plain(name)] for name in parameters}
    curve = {"series": series_in_words(values, family), **asdict(curve_of(points, success_target))}
    keys = {"family": series["family"], **{name: series[_plain(name)] for name in parameters}}
    figures = {field.name: pa.array([curve[field.name]], field.type) for field in CURVE_FIELDS}
    return pa.table({**{name: column.slice(0, 1) for name, column in keys.items()}, **figures})


def _is_load_only(name: str, families: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a parameter is some family's load, and nothing else anywhere."""
    uses = [family["load_key"] == name for family in families if name in family["varied"]]
    return bool(uses) and all(uses)


def _without_load(name: str, families: Sequence[Mapping[str, Any]]) -> Column:
    """Return the parameter, null in the families whose load it is."""
    loaded = [family["name"] for family in families if family["load_key"] == name]
    column = F.col(quoted(name))
    return F.when(~F.col("family").isin(loaded), column) if loaded else column


def series_in_words(values: Mapping[str, Any], family: Mapping[str, Any]) -> str:
    """Return what sets a series apart from the others of its family, such as `s3 · 10 tables`."""
    varied = [key for key in family["varied"] if key != family["load_key"]]
    return " · ".join(value_in_words(key, values[key]) for key in varied) or str(family["title"])


def value_in_words(key: str, value: str | float | bool | None) -> str:
    """Return a parameter's value so that it can stand alone: `s3`, `10 tables`, `latency 10 ms`."""
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
