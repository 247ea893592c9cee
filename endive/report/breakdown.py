"""Charts of one series at a time: where its time goes, and commit latency by operation type."""

import json

import altair as alt

from endive.report.controls import choices, legend, quantile, zoom
from endive.report.drawing import Drawing, layered
from endive.report.groups import ReportGroup
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
from endive.report.metrics import PURPOSES, QUANTILES
from endive.report.theme import SERIES, SHAPES


def draw_times(group: ReportGroup) -> Drawing | None:
    """Draw the time of a finished transaction by activity, stacked, against offered load."""
    if not group.points[list(PURPOSES)].notna().any(axis=None):
        return None
    chosen = choices(group, {})
    toggle = _toggle("purpose")
    rows = _waits(alt.Chart(alt.NamedData("points")).transform_filter(chosen.condition)).transform_filter(toggle)
    title = "Mean time per finished transaction (ms)"
    bars = rows.mark_bar(tooltip=_times_tooltip(group), width=alt.RelativeBandSize(0.72)).encode(
        x=ordinal(group.axis),
        y=alt.Y("sum(ms):Q", title=title, stack="zero", axis=number_axis(log=False)),
        color=_colour("purpose", tuple(PURPOSES.values())),
        order=alt.Order("rank:Q"),
    )
    return Drawing(
        name="times",
        title="Where the time goes",
        caption="Besides its own runtime, a transaction reads the catalog, prepares each attempt, resolves "
        "conflicts, commits, and backs off.",
        description=f"Mean milliseconds of a finished transaction by activity, stacked, against {group.axis.words}.",
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


def _times_tooltip(group: ReportGroup) -> alt.ExprRef:
    interval = "(isValid(datum.ci) ? ' ± ' + format(datum.ci, ',.2~r') : '')"
    return tooltip(
        group,
        {
            group.axis.title: load_expr(group),
            "Activity": "datum.purpose",
            "Mean": f"format(datum.ms, ',.4~r') + {interval} + ' ms'",
            "Overhead": "(isValid(datum.overhead) ? format(100 * datum.overhead, '.2f') + ' %' : '')",
        },
    )


def draw_kinds(group: ReportGroup) -> Drawing | None:
    """Draw commit latency by operation type against offered load."""
    if len(group.kinds) < 2:
        return None
    chosen = choices(group, {})
    toggle = _toggle("kind")
    rows = alt.Chart(alt.NamedData("points")).transform_filter(chosen.condition)
    rows = _by_kind(rows, group.kinds).transform_filter("datum.ms > 0").transform_filter(toggle)
    tools = [toggle, zoom()] if group.axis.is_load else [toggle]
    names = tuple(map(_spoken, group.kinds))
    chart = layered(with_tools(_kind_layers(group, rows, names), *tools)).add_params(quantile(), *chosen.parameters)
    return Drawing(
        name="kinds",
        title="Commit latency by operation type",
        caption="Committed transactions of each type.",
        description=f"Commit latency in milliseconds against {group.axis.words}, one curve for each of: "
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


def _kind_layers(group: ReportGroup, rows: alt.Chart, names: tuple[str, ...]) -> list[alt.Chart]:
    columns = [f"{kind}_{name}_ms" for kind in group.kinds for name in QUANTILES]
    x, y, colour = along(group), upwards("ms", "Commit latency (ms)", group.is_wide(*columns)), _colour("kind", names)
    metrics = {group.axis.title: load_expr(group), "Operation": "datum.kind", "Latency": latency_expr("datum.type")}
    points = rows.mark_point(filled=True, size=POINT_SIZE, opacity=1, tooltip=tooltip(group, metrics))
    shapes = alt.Shape("kind:N", scale=alt.Scale(domain=list(names), range=list(SHAPES)))
    ends = rows.transform_filter("isValid(datum.ci)").transform_calculate(
        low="max(datum.ms / 2, datum.ms - datum.ci)", high="datum.ms + datum.ci"
    )
    band = ends.mark_area(opacity=BAND_OPACITY, clip=True)
    return [
        *([band.encode(x=x, y=at(y, "low"), y2="high:Q", color=colour)] if group.has_intervals else []),
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
