"""Charts over two parameters: heat maps of offered load and another parameter, and sustainable throughput."""

import math

import altair as alt

from endive.report.controls import choice, choices, domains
from endive.report.drawing import Drawing, layered
from endive.report.groups import Parameter, ReportGroup
from endive.report.marks import (
    HEIGHT,
    base,
    by_colour,
    interactive,
    load_expr,
    number_expr,
    ordinal,
    share_expr,
    tooltip,
    upwards,
)
from endive.report.theme import HEAT

HEATED = {"success": "Success (%)", "all_p99_ms": "p99 of commit latency (ms)", "committed_per_s": "Committed (/s)"}
"""Metrics that a heat map can show, with their titles."""
ROW_PX = 34
HEAT_HEIGHT_MIN = 110
STEP = (0.55, 0.85)
"""Darkness of success just below the target, and at it."""
DARK_FROM = 0.62
"""Cells this dark have light text."""


def draw_heat(group: ReportGroup) -> Drawing | None:
    """Draw a metric by offered load and another parameter, as colour and as text."""
    if not group.parameters:
        return None
    rows_of = sorted(group.parameters, key=lambda parameter: parameter.key == "storage.provider")
    chosen = choices(group, {"row_by": rows_of})
    cells = alt.Chart(alt.NamedData("points")).transform_filter(chosen.condition)
    cells = cells.transform_calculate(row="datum[row_by]", value="datum[heat]").transform_filter("isValid(datum.value)")
    cells = cells.transform_calculate(share=_share(group), text=HEAT_TEXT).encode(
        x=ordinal(group.axis), y=_rows(rows_of)
    )
    chart = layered([_tiles(group, cells), _texts(group, cells)])
    words = " or ".join(parameter.title.lower() for parameter in rows_of)
    most = max(len(parameter.labels) for parameter in rows_of)
    return Drawing(
        name="heat",
        title=f"Heat map: {group.axis.words} and {words}",
        caption=f"Darker means higher. The colours of success change sharply at the target, "
        f"{100 * group.success_target:g} %; latency and commits have a logarithmic scale.",
        description=f"Heat map of success, p99 of commit latency or commits by {group.axis.words} and {words}.",
        measures=("success", "latency", "committed", "load"),
        chart=chart.add_params(choice("heat", "Metric", HEATED), *chosen.parameters, domains(rows_of)).properties(
            width="container", height=max(HEAT_HEIGHT_MIN, ROW_PX * most)
        ),
        chosen=(HEATED["success"], *chosen.chosen),
    )


def _rows(rows_of: list[Parameter]) -> alt.Y:
    title = rows_of[0].title if len(rows_of) == 1 else None
    return alt.Y("row:O", title=title, scale=alt.Scale(domain=alt.ExprRef("domains[row_by]")))


def _tiles(group: ReportGroup, cells: alt.Chart) -> alt.Chart:
    scale = alt.Scale(domain=[0, 1], range=list(HEAT), clamp=True)
    tiles: alt.Chart = cells.mark_rect(tooltip=_heat_tooltip(group), stroke="var(--paper)", strokeWidth=1)
    return tiles.encode(color=alt.Color("share:Q", legend=None, scale=scale))


def _texts(group: ReportGroup, cells: alt.Chart) -> alt.Chart:
    texts: alt.Chart = cells.mark_text(fontSize=alt.ExprRef("width < 420 ? 9 : 11"), tooltip=_heat_tooltip(group))
    ink = alt.when(f"datum.share > {DARK_FROM}").then(alt.value("#ffffff")).otherwise(alt.value("#1d2430"))
    return texts.encode(text="text:N", color=ink)


def _share(group: ReportGroup) -> str:
    """Return the expression of a cell's darkness: success with a step at the target, other metrics by logarithm."""
    target = group.success_target
    above = f"{STEP[1]} + {1 - STEP[1]:g} * (datum.value - {target}) / {max(1 - target, 1e-9):g}"
    parts = [f"heat === 'success' ? (datum.value >= {target} ? {above} : {STEP[0]} * datum.value / {target})"]
    for name in ("all_p99_ms", "committed_per_s"):
        low, high = group.extent(name) or (1.0, 1.0)
        share = f"(log(datum.value) - {math.log(low):.6g}) / {math.log(high / low) or 1.0:.6g}"
        parts.append(f"heat === '{name}' ? (datum.value > 0 ? {share} : 0)")
    return " : ".join([*parts, "0"])


HEAT_TEXT = (
    "heat === 'success' ? format(100 * datum.value, datum.value < 0.9995 ? '.1f' : '.0f')"
    " : format(datum.value, datum.value >= 10000 ? '.2~s' : ',.3~r')"
)
"""The expression of a cell's text: short enough for a phone."""


def _heat_tooltip(group: ReportGroup) -> alt.ExprRef:
    return tooltip(
        group,
        {
            group.axis.title: load_expr(group),
            "Success": share_expr("success"),
            "Latency p99": number_expr("all_p99_ms", unit=" ms"),
            "Committed/s": number_expr("committed_per_s"),
            "Seeds": "datum.seeds_done",
        },
    )


def draw_sustainable(group: ReportGroup) -> Drawing | None:
    """Draw sustainable throughput by two parameters: one across, one by colour."""
    values = group.series["usable_committed_per_s"].dropna()
    if not group.parameters or not group.axis.is_load or values.empty:
        return None
    places = sorted(group.parameters, key=_place_rank)
    chosen = choices(group, {"x_by": places, "colour_by": group.parameters})
    rows = base(group, chosen, "series").transform_calculate(across="datum[x_by]", state=STATE)
    log = bool(values.min() > 0 and values.max() >= 20 * values.min())
    y = upwards("usable_committed_per_s", "Sustainable throughput (commits/s)", log)
    target = f"{100 * group.success_target:g} %"
    return Drawing(
        name="sustainable",
        title="Sustainable throughput",
        caption=f"Commits per second at the highest offered load with at least {target} success. A triangle is a lower "
        "bound: the sweep's highest load still reaches the target. A cross at the bottom: the lowest load misses it.",
        description=f"Sustainable throughput in commits per second by {places[0].title.lower()}, "
        f"one colour for each {group.parameters[0].title.lower()}.",
        measures=("sustainable", "success", "saturation", "overhead", "interval"),
        chart=interactive(group, _sustainable_layers(group, rows, _places(places), y), chosen, zooms=False),
        chosen=chosen.chosen,
    )


STATE = "!isValid(datum.usable_load) ? 'none' : isValid(datum.fails_from_load) ? 'exact' : 'least'"
"""The expression of a series' state: no load is sustainable, an exact throughput, or a lower bound."""


def _place_rank(parameter: Parameter) -> int:
    """Tables go across, providers have colours."""
    return {"catalog.num_tables": 0, "storage.provider": 2}.get(parameter.key, 1)


def _places(places: list[Parameter]) -> alt.X:
    title = places[0].title if len(places) == 1 else None
    scale = alt.Scale(domain=alt.ExprRef("domains[x_by]"))
    return alt.X("across:O", title=title, scale=scale, axis=alt.Axis(labelAngle=0, labelLimit=120))


def _sustainable_layers(group: ReportGroup, rows: alt.Chart, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    metrics = _sustainable_tooltip(group)
    found = rows.transform_filter("datum.state !== 'none'")
    line = by_colour(group, found.mark_line(strokeWidth=1.5, opacity=0.6)).encode(x=x, y=y)
    crosses = rows.transform_filter("datum.state === 'none'").mark_point(
        shape=CROSS, size=60, yOffset=-9, tooltip=metrics
    )
    shapes = alt.Scale(domain=["exact", "least"], range=["circle", "triangle-up"])
    points = by_colour(group, found.mark_point(filled=True, size=90, opacity=1, tooltip=metrics))
    return [
        line,
        by_colour(group, crosses).encode(x=x, y=alt.value(HEIGHT)),
        points.encode(x=x, y=y, shape=alt.Shape("state:N", legend=None, scale=shapes)),
    ]


CROSS = "M-0.7,-0.7L0.7,0.7M0.7,-0.7L-0.7,0.7"
"""Two strokes; Vega's own cross is a plus."""


def _sustainable_tooltip(group: ReportGroup) -> alt.ExprRef:
    load = "(isValid(datum.{0}) ? format(datum.{0}, ',.4~r') : '{1}')"
    return tooltip(
        group,
        {
            "Sustainable commits/s": number_expr("usable_committed_per_s"),
            "At offered load": load.format("usable_load", "none"),
            "Latency p99 there": number_expr("usable_p99_ms", unit=" ms"),
            "Overhead there": share_expr("usable_overhead"),
            "Fails from load": load.format("fails_from_load", "none of the sweep"),
            "Saturates at load": load.format("saturation_load", "none of the sweep"),
            "Peak commits/s": number_expr("peak_committed_per_s"),
        },
    )
