"""Charts over two parameters: heat maps of load and another parameter, and usable throughput."""

import math

import altair as alt

from endive.report.controls import choice, choices, domains
from endive.report.drawing import Drawing, layered
from endive.report.families import Family, Parameter
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
"""What a heat map can show."""
ROW_PX = 34
HEAT_HEIGHT_MIN = 110
STEP = (0.55, 0.85)
"""How dark success is just below the target, and at it."""
DARK_FROM = 0.62
"""Cells this dark have light text."""


def draw_heat(family: Family) -> Drawing | None:
    """Draw a figure by load and another parameter, as colour and as text."""
    if not family.parameters:
        return None
    rows_of = sorted(family.parameters, key=lambda parameter: parameter.key == "storage.provider")
    chosen = choices(family, {"row_by": rows_of})
    cells = alt.Chart(alt.NamedData("points")).transform_filter(chosen.condition)
    cells = cells.transform_calculate(row="datum[row_by]", value="datum[heat]").transform_filter("isValid(datum.value)")
    cells = cells.transform_calculate(share=_share(family), text=HEAT_TEXT).encode(
        x=ordinal(family.axis), y=_rows(rows_of)
    )
    chart = layered([_tiles(family, cells), _texts(family, cells)])
    words = " or ".join(parameter.title.lower() for parameter in rows_of)
    most = max(len(parameter.labels) for parameter in rows_of)
    return Drawing(
        name="heat",
        title=f"Heat map: {family.axis.words} and {words}",
        caption=f"The darker, the more. Success has a step at the target, {100 * family.success_target:g} %; latency "
        "and commits are on a logarithmic scale of colours.",
        description=f"Heat map of success, p99 of commit latency or commits by {family.axis.words} and {words}.",
        measures=("success", "latency", "committed", "load"),
        chart=chart.add_params(choice("heat", "Figure", HEATED), *chosen.parameters, domains(rows_of)).properties(
            width="container", height=max(HEAT_HEIGHT_MIN, ROW_PX * most)
        ),
        chosen=(HEATED["success"], *chosen.chosen),
    )


def _rows(rows_of: list[Parameter]) -> alt.Y:
    title = rows_of[0].title if len(rows_of) == 1 else None
    return alt.Y("row:O", title=title, scale=alt.Scale(domain=alt.ExprRef("domains[row_by]")))


def _tiles(family: Family, cells: alt.Chart) -> alt.Chart:
    scale = alt.Scale(domain=[0, 1], range=list(HEAT), clamp=True)
    tiles: alt.Chart = cells.mark_rect(tooltip=_heat_tooltip(family), stroke="var(--paper)", strokeWidth=1)
    return tiles.encode(color=alt.Color("share:Q", legend=None, scale=scale))


def _texts(family: Family, cells: alt.Chart) -> alt.Chart:
    texts: alt.Chart = cells.mark_text(fontSize=alt.ExprRef("width < 420 ? 9 : 11"), tooltip=_heat_tooltip(family))
    ink = alt.when(f"datum.share > {DARK_FROM}").then(alt.value("#ffffff")).otherwise(alt.value("#1d2430"))
    return texts.encode(text="text:N", color=ink)


def _share(family: Family) -> str:
    """Return the expression of how dark a cell is: success with a step at the target, the others by their logarithm."""
    target = family.success_target
    above = f"{STEP[1]} + {1 - STEP[1]:g} * (datum.value - {target}) / {max(1 - target, 1e-9):g}"
    parts = [f"heat === 'success' ? (datum.value >= {target} ? {above} : {STEP[0]} * datum.value / {target})"]
    for name in ("all_p99_ms", "committed_per_s"):
        low, high = family.extent(name) or (1.0, 1.0)
        share = f"(log(datum.value) - {math.log(low):.6g}) / {math.log(high / low) or 1.0:.6g}"
        parts.append(f"heat === '{name}' ? (datum.value > 0 ? {share} : 0)")
    return " : ".join([*parts, "0"])


HEAT_TEXT = (
    "heat === 'success' ? format(100 * datum.value, datum.value < 0.9995 ? '.1f' : '.0f')"
    " : format(datum.value, datum.value >= 10000 ? '.2~s' : ',.3~r')"
)
"""The expression of what stands in a cell: short enough for a phone."""


def _heat_tooltip(family: Family) -> alt.ExprRef:
    return tooltip(
        family,
        {
            family.axis.title: load_expr(family),
            "Success": share_expr("success"),
            "Latency p99": number_expr("all_p99_ms", unit=" ms"),
            "Committed/s": number_expr("committed_per_s"),
            "Seeds": "datum.seeds_done",
        },
    )


def draw_usable(family: Family) -> Drawing | None:
    """Draw usable throughput by two parameters: one across, one by colour."""
    values = family.series["usable_committed_per_s"].dropna()
    if not family.parameters or not family.axis.is_load or values.empty:
        return None
    places = sorted(family.parameters, key=_place_rank)
    chosen = choices(family, {"x_by": places, "colour_by": family.parameters})
    rows = base(family, chosen, "series").transform_calculate(across="datum[x_by]", state=STATE)
    log = bool(values.min() > 0 and values.max() >= 20 * values.min())
    y = upwards("usable_committed_per_s", "Usable throughput (commits/s)", log)
    target = f"{100 * family.success_target:g} %"
    return Drawing(
        name="usable",
        title="Usable throughput",
        caption=f"Commits a second at the highest load with at least {target} success. A triangle means at least that: "
        "the sweep's highest load still holds. A cross at the bottom: not even the lowest load does.",
        description=f"Usable throughput in commits a second by {places[0].title.lower()}, "
        f"one colour for each {family.parameters[0].title.lower()}.",
        measures=("usable", "success", "saturation", "overhead", "interval"),
        chart=interactive(family, _usable_layers(family, rows, _places(places), y), chosen, zooms=False),
        chosen=chosen.chosen,
    )


STATE = "!isValid(datum.usable_load) ? 'none' : isValid(datum.fails_from_load) ? 'exact' : 'least'"
"""The expression of what is known of a series: no load is usable, the figure, or a bound of it."""


def _place_rank(parameter: Parameter) -> int:
    """Tables go across, providers have colours."""
    return {"catalog.num_tables": 0, "storage.provider": 2}.get(parameter.key, 1)


def _places(places: list[Parameter]) -> alt.X:
    title = places[0].title if len(places) == 1 else None
    scale = alt.Scale(domain=alt.ExprRef("domains[x_by]"))
    return alt.X("across:O", title=title, scale=scale, axis=alt.Axis(labelAngle=0, labelLimit=120))


def _usable_layers(family: Family, rows: alt.Chart, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    figures = _usable_tooltip(family)
    found = rows.transform_filter("datum.state !== 'none'")
    line = by_colour(family, found.mark_line(strokeWidth=1.5, opacity=0.6)).encode(x=x, y=y)
    crosses = rows.transform_filter("datum.state === 'none'").mark_point(
        shape=CROSS, size=60, yOffset=-9, tooltip=figures
    )
    shapes = alt.Scale(domain=["exact", "least"], range=["circle", "triangle-up"])
    points = by_colour(family, found.mark_point(filled=True, size=90, opacity=1, tooltip=figures))
    return [
        line,
        by_colour(family, crosses).encode(x=x, y=alt.value(HEIGHT)),
        points.encode(x=x, y=y, shape=alt.Shape("state:N", legend=None, scale=shapes)),
    ]


CROSS = "M-0.7,-0.7L0.7,0.7M0.7,-0.7L-0.7,0.7"
"""Two strokes; Vega's own cross is a plus."""


def _usable_tooltip(family: Family) -> alt.ExprRef:
    load = "(isValid(datum.{0}) ? format(datum.{0}, ',.4~r') : '{1}')"
    return tooltip(
        family,
        {
            "Usable commits/s": number_expr("usable_committed_per_s"),
            "At load": load.format("usable_load", "none"),
            "Latency p99 there": number_expr("usable_p99_ms", unit=" ms"),
            "Overhead there": share_expr("usable_overhead"),
            "Fails from load": load.format("fails_from_load", "none of the sweep"),
            "Saturates at load": load.format("saturation_load", "none of the sweep"),
            "Peak commits/s": number_expr("peak_committed_per_s"),
        },
    )
