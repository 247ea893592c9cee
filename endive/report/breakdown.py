"""Charts of one series at a time: where its time goes, and latency by operation type."""

import json

import altair as alt

from endive.report.controls import choices, legend, quantile, zoom
from endive.report.drawing import Drawing, layered
from endive.report.families import Family
from endive.report.marks import (
    BAND_OPACITY,
    HEIGHT,
    POINT_SIZE,
    along,
    at,
    latency_expr,
    load_expr,
    number_axis,
    ordinal,
    tooltip,
    upwards,
    with_tools,
)
from endive.report.measures import PURPOSES, QUANTILES
from endive.report.theme import SERIES, SHAPES


def draw_times(family: Family) -> Drawing | None:
    """Draw what a finished transaction waits for, stacked, against load."""
    if not family.points[list(PURPOSES)].notna().any(axis=None):
        return None
    chosen = choices(family, {})
    toggle = _toggle("purpose")
    rows = _waits(alt.Chart(alt.NamedData("points")).transform_filter(chosen.condition)).transform_filter(toggle)
    title = "Mean time per finished transaction (ms)"
    bars = rows.mark_bar(tooltip=_times_tooltip(family), width=alt.RelativeBandSize(0.72)).encode(
        x=ordinal(family.axis),
        y=alt.Y("sum(ms):Q", title=title, stack="zero", axis=number_axis(log=False)),
        color=_colour("purpose", tuple(PURPOSES.values())),
        order=alt.Order("rank:Q"),
    )
    return Drawing(
        name="times",
        title="Where the time goes",
        caption="Besides its own work, a transaction reads the catalog, prepares each attempt, repairs after "
        "conflicts, commits, and backs off.",
        description=f"Mean milliseconds of a finished transaction by purpose, stacked, against {family.axis.words}.",
        measures=("time", "overhead", "load", "interval"),
        chart=bars.add_params(toggle, *chosen.parameters).properties(width="container", height=HEIGHT),
        chosen=chosen.chosen,
    )


def _waits(rows: alt.Chart) -> alt.Chart:
    """Return one row for each experiment and purpose."""
    return (
        rows.transform_fold(list(PURPOSES), as_=["column", "ms"])
        .transform_filter("isValid(datum.ms)")
        .transform_calculate(
            purpose=f"({json.dumps(PURPOSES)})[datum.column]",
            rank=f"indexof({json.dumps(list(PURPOSES))}, datum.column)",
            ci="datum[datum.column + '_ci']",
        )
    )


def _times_tooltip(family: Family) -> alt.ExprRef:
    interval = "(isValid(datum.ci) ? ' ± ' + format(datum.ci, ',.2~r') : '')"
    return tooltip(
        family,
        {
            family.axis.title: load_expr(family),
            "Waiting for": "datum.purpose",
            "Mean": f"format(datum.ms, ',.4~r') + {interval} + ' ms'",
            "Overhead": "(isValid(datum.overhead) ? format(100 * datum.overhead, '.2f') + ' %' : '')",
        },
    )


def draw_kinds(family: Family) -> Drawing | None:
    """Draw commit latency by operation type against load."""
    if len(family.kinds) < 2:
        return None
    chosen = choices(family, {})
    toggle = _toggle("kind")
    rows = alt.Chart(alt.NamedData("points")).transform_filter(chosen.condition)
    rows = _by_kind(rows, family.kinds).transform_filter("datum.ms > 0").transform_filter(toggle)
    tools = [toggle, zoom()] if family.axis.is_load else [toggle]
    names = tuple(map(_spoken, family.kinds))
    chart = layered(with_tools(_kind_layers(family, rows, names), *tools)).add_params(quantile(), *chosen.parameters)
    return Drawing(
        name="kinds",
        title="Commit latency by operation type",
        caption="Of the transactions of each type that committed.",
        description=f"Commit latency in milliseconds against {family.axis.words}, one curve for each of: "
        f"{', '.join(names)}.",
        measures=("latency", "load", "interval"),
        chart=chart.properties(width="container", height=HEIGHT),
        chosen=("p99", *chosen.chosen),
    )


def _by_kind(rows: alt.Chart, kinds: tuple[str, ...]) -> alt.Chart:
    """Return one row for each experiment and operation type, with the chosen quantile."""
    return (
        rows.transform_calculate(type=json.dumps(kinds))
        .transform_flatten(["type"])
        .transform_calculate(
            kind="replace(datum.type, '_', ' ')",
            ms="datum[datum.type + '_' + quantile + '_ms']",
            ci="datum[datum.type + '_' + quantile + '_ms_ci']",
        )
    )


def _kind_layers(family: Family, rows: alt.Chart, names: tuple[str, ...]) -> list[alt.Chart]:
    columns = [f"{kind}_{name}_ms" for kind in family.kinds for name in QUANTILES]
    x, y, colour = along(family), upwards("ms", "Commit latency (ms)", family.is_wide(*columns)), _colour("kind", names)
    figures = {family.axis.title: load_expr(family), "Operation": "datum.kind", "Latency": latency_expr("datum.type")}
    points = rows.mark_point(filled=True, size=POINT_SIZE, opacity=1, tooltip=tooltip(family, figures))
    shapes = alt.Shape("kind:N", scale=alt.Scale(domain=list(names), range=list(SHAPES)))
    ends = rows.transform_filter("isValid(datum.ci)").transform_calculate(
        low="max(datum.ms / 2, datum.ms - datum.ci)", high="datum.ms + datum.ci"
    )
    band = ends.mark_area(opacity=BAND_OPACITY, clip=True)
    return [
        *([band.encode(x=x, y=at(y, "low"), y2="high:Q", color=colour)] if family.has_intervals else []),
        rows.mark_line(clip=True).encode(x=x, y=y, color=colour),
        points.encode(x=x, y=y, color=colour, shape=shapes),
    ]


def _spoken(kind: str) -> str:
    return kind.replace("_", " ")


def _toggle(field: str) -> alt.Parameter:
    return alt.selection_point(name="shown", fields=[field], bind="legend", toggle="true")


def _colour(field: str, labels: tuple[str, ...]) -> alt.Color:
    scale = alt.Scale(domain=list(labels), range=list(SERIES[: len(labels)]))
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=legend(str(max(map(len, labels)))))
