"""Charts of curves: latency against throughput, success against offered load, committed against offered load."""

import altair as alt

from endive.report.controls import Choices, choices, quantile
from endive.report.drawing import Drawing
from endive.report.groups import WIDE, ReportGroup
from endive.report.marks import (
    BAND_OPACITY,
    POINT_SIZE,
    across,
    along,
    at,
    base,
    by_colour,
    interactive,
    load_expr,
    number_expr,
    share_expr,
    tooltip,
    upwards,
)
from endive.report.metrics import QUANTILES

SUCCESS_SCALE = alt.Scale(domain=[-0.02, 1.03], nice=False)
"""A little more than there can be: marks at the very top and bottom are not cut in half."""


def draw_latency(group: ReportGroup) -> Drawing | None:
    """Draw commit latency against throughput, one curve for each series, from low offered load to high."""
    columns = [f"all_{name}_ms" for name in QUANTILES]
    if group.extent(*columns) is None:
        return None
    chosen = _by_colour(group)
    rows = base(group, chosen).transform_calculate(
        ms="datum['all_' + quantile + '_ms']", ci="datum['all_' + quantile + '_ms_ci']"
    )
    rows = rows.transform_filter("datum.ms > 0 && datum.committed_per_s > 0")
    x = across("committed_per_s", "Committed (transactions/s)", group.is_wide("committed_per_s"))
    y = upwards("ms", "Commit latency (ms)", group.is_wide(*columns))
    layers = [_points(group, rows).encode(x=x, y=y)]
    if group.axis.is_load:  # otherwise no order leads from one point to the next
        curve = by_colour(group, rows.mark_line(clip=True)).encode(x=x, y=y, order=alt.Order("load:Q"))
        layers = [*([_outline(group, rows, x, y)] if group.has_intervals else []), curve, *layers]
    return Drawing(
        name="latency",
        title="Commit latency against throughput",
        caption="Each curve runs from the lowest offered load to the highest. Where it bends back, more load brings "
        "fewer commits."
        if group.axis.is_load
        else "Each point is one experiment.",
        description=f"Commit latency in milliseconds against committed transactions per second, {_spread(group)}.",
        measures=("latency", "committed", "load", "interval"),
        chart=interactive(group, layers, chosen, quantile()),
        chosen=("p99", *chosen.chosen),
    )


def _outline(group: ReportGroup, rows: alt.Chart, x: alt.X, y: alt.Y) -> alt.Chart:
    """Return the confidence band as a closed outline: a curve that bends back has no area under it.

    The outline runs along the lower ends of the intervals and back along the upper ones. A lower end stops at half of
    the mean: on a logarithmic scale it could be anywhere, and would take all the room.
    """
    sides = rows.transform_filter("isValid(datum.ci)").transform_calculate(side="['low', 'high']")
    sides = sides.transform_flatten(["side"]).transform_calculate(
        ms="datum.side === 'low' ? max(datum.ms - datum.ci, datum.ms / 2) : datum.ms + datum.ci",
        place="datum.side === 'low' ? datum.load : 1e9 - datum.load",
    )
    band = by_colour(group, sides.mark_line(filled=True, clip=True, opacity=BAND_OPACITY, strokeWidth=0))
    return band.encode(x=x, y=y, order=alt.Order("place:Q"))


def draw_success(group: ReportGroup) -> Drawing | None:
    """Draw success against offered load, with the target."""
    if not group.points["success"].notna().any():
        return None
    chosen = _by_colour(group)
    rows = base(group, chosen).transform_filter("isValid(datum.success)")
    percent = alt.Axis(labelExpr="format(100 * datum.value, '.0f') + ' %'", tickCount=6)
    y = alt.Y("success:Q", title="Success (committed of finished)", scale=SUCCESS_SCALE, axis=percent)
    target = f"{100 * group.success_target:g} %"
    curves = _curves(group, rows, along(group), y, "success", ("max(0, {low})", "min(1, {high})"))
    rule = ". A load is sustainable if it and all lower loads stay above it." if group.axis.is_load else "."
    return Drawing(
        name="success",
        title=f"Success against {group.axis.words}",
        caption=f"The dashed line is the target, {target}{rule}",
        description=f"Share of finished transactions that committed against {group.axis.words}, {_spread(group)}; "
        f"a line marks the target of {target}.",
        measures=("success", "load", "interval"),
        chart=interactive(group, [*_target(group), *curves], chosen, zooms=group.axis.is_load),
        chosen=chosen.chosen,
    )


def draw_committed(group: ReportGroup) -> Drawing | None:
    """Draw committed against offered transactions, with the diagonal; in a closed loop, against writers."""
    offered, committed = group.extent("offered_per_s"), group.extent("committed_per_s")
    if offered is None or committed is None:
        return None
    is_open = group.axis.is_load and not group.is_closed_loop
    log = committed[1] >= WIDE * committed[0] or (is_open and offered[1] >= WIDE * offered[0])
    chosen = _by_colour(group)
    rows = base(group, chosen)
    rows = rows.transform_filter("datum.committed_per_s > 0" if log else "isValid(datum.committed_per_s)")
    x = across("offered_per_s", "Offered (transactions/s)", log) if is_open else along(group)
    y = upwards("committed_per_s", "Committed (transactions/s)", log)
    limits = ("max(datum.committed_per_s / 2, {low})" if log else "max(0, {low})", "{high}")
    layers = [*_rings(group, rows, x, y), *_curves(group, rows, x, y, "committed_per_s", limits)]
    diagonal = "On the dashed diagonal all offered transactions commit." if is_open else ""
    rings = "A ring marks saturation: beyond it, less than half of the added load commits."
    against = "offered load" if is_open else group.axis.words
    return Drawing(
        name="committed",
        title=f"Committed against {against}",
        caption=f"{diagonal} {rings if group.points['saturation'].any() else ''}".strip(),
        description=f"Committed transactions per second against {against}, {_spread(group)}; rings mark saturation.",
        measures=("offered", "committed", "load", "saturation", "interval"),
        chart=interactive(
            group, [*([_diagonal(offered)] if is_open else []), *layers], chosen, zooms=group.axis.is_load
        ),
        chosen=chosen.chosen,
    )


def _curves(
    group: ReportGroup, rows: alt.Chart, x: alt.X, y: alt.Y, field: str, limits: tuple[str, str]
) -> list[alt.Chart]:
    """Return band, line and points of a metric; `limits` cut the band off, with `{low}` and `{high}` for its ends."""
    line = by_colour(group, rows.mark_line(clip=True)).encode(x=x, y=y)
    points = _points(group, rows).encode(x=x, y=y)
    if not group.has_intervals:
        return [line, points]
    low, high = f"datum.{field} - datum.{field}_ci", f"datum.{field} + datum.{field}_ci"
    ends = rows.transform_filter(f"isValid(datum.{field}_ci)").transform_calculate(
        low=limits[0].format(low=low), high=limits[1].format(high=high)
    )
    band = by_colour(group, ends.mark_area(clip=True, opacity=BAND_OPACITY))
    return [band.encode(x=x, y=at(y, "low"), y2="high:Q"), line, points]


def _points(group: ReportGroup, rows: alt.Chart) -> alt.Chart:
    marks = rows.mark_point(filled=True, size=POINT_SIZE, opacity=1, tooltip=_tooltip(group))
    return by_colour(group, marks, shapes=True)


def _target(group: ReportGroup) -> list[alt.Chart]:
    one = alt.Chart(alt.sequence(1)).transform_calculate(target=f"{group.success_target}")
    rule = one.mark_rule(strokeDash=[5, 4], color="var(--soft)", clip=True)
    text = one.mark_text(
        align="left", baseline="top", dx=4, dy=4, color="var(--soft)", fontSize=11,
        text=f"target {100 * group.success_target:g} %",
    )  # fmt: skip
    return [rule.encode(y="target:Q"), text.encode(y="target:Q", x=alt.value(0))]


def _diagonal(extent: tuple[float, float]) -> alt.Chart:
    ends = alt.Chart(alt.sequence(2)).transform_calculate(at=f"datum.data ? {extent[1]} : {extent[0]}")
    line: alt.Chart = ends.mark_line(strokeDash=[5, 4], strokeWidth=1, color="var(--soft)", clip=True)
    return line.encode(x="at:Q", y="at:Q")


def _rings(group: ReportGroup, rows: alt.Chart, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    if not group.points["saturation"].any():
        return []
    rings = rows.transform_filter("datum.saturation").mark_point(size=260, strokeWidth=1.5, shape="circle")
    return [by_colour(group, rings).encode(x=x, y=y)]


def _by_colour(group: ReportGroup) -> Choices:
    return choices(group, {"colour_by": group.parameters})


def _tooltip(group: ReportGroup) -> alt.ExprRef:
    latencies = {
        f"Latency {name.partition(' ')[0]}": number_expr(f"all_{quantile}_ms", unit=" ms")
        for quantile, name in QUANTILES.items()
    }
    return tooltip(
        group,
        {
            group.axis.title: load_expr(group),
            "Offered/s": number_expr("offered_per_s"),
            "Committed/s": number_expr("committed_per_s"),
            "Success": share_expr("success"),
            **latencies,
            "Retries": number_expr("retries_mean"),
            "Seeds": "datum.seeds_done",
        },
    )


def _spread(group: ReportGroup) -> str:
    if not group.parameters:
        return "one series"
    first = group.parameters[0]
    return f"one curve for each {first.title.lower()}: {', '.join(first.labels)}"
