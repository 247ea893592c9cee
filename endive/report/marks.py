"""Building blocks of charts: scales, bands, tooltips."""

from collections.abc import Mapping
from typing import Any

import altair as alt

from endive.report.controls import Choices, colour, domains, quoted, shape, shown, zoom
from endive.report.drawing import layered
from endive.report.formatting import NONE
from endive.report.groups import Axis, ReportGroup
from endive.report.theme import SERIES

HEIGHT = 320
BAND_OPACITY = 0.18
POINT_SIZE = 55
LOADS_MARKED_MAX = 16

IS_LABELLED = "indexof([1, 2, 5], round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))) >= 0"
"""A logarithmic axis has labels and lines at 1, 2 and 5 of each power of ten."""
LOG_AXIS = alt.Axis(
    labelExpr=f"{IS_LABELLED} ? format(datum.value, ',.3~r') : ''",
    gridOpacity=alt.when(IS_LABELLED).then(alt.value(1)).otherwise(alt.value(0)),
    tickOpacity=alt.when(IS_LABELLED).then(alt.value(1)).otherwise(alt.value(0)),
)


def number_expr(field: str, digits: int = 4, scale: float = 1.0, unit: str = "") -> str:
    """Return the Vega expression of a metric with its interval, if there is one; a dash if the metric is missing."""
    mean, interval = f"datum['{field}']", f"datum['{field}_ci']"
    return _with_interval(mean, interval, f",.{digits}~r", ",.2~r", scale, unit)


def share_expr(field: str) -> str:
    """Return the Vega expression of a share as a percentage with its interval."""
    return _with_interval(f"datum['{field}']", f"datum['{field}_ci']", ".2f", ".2f", 100.0, " %")


def latency_expr(kind: str) -> str:
    """Return the Vega expression of the chosen quantile of a type's commit latency; `kind` is an expression itself."""
    mean, interval = f"datum[{kind} + '_' + quantile + '_ms']", f"datum[{kind} + '_' + quantile + '_ms_ci']"
    return _with_interval(mean, interval, ",.4~r", ",.2~r", 1.0, " ms")


def _with_interval(mean: str, interval: str, form: str, interval_form: str, scale: float, unit: str) -> str:
    return (
        f"(isValid({mean}) ? format({mean} * {scale:g}, '{form}') + "
        f"(isValid({interval}) ? ' ± ' + format({interval} * {scale:g}, '{interval_form}') : '') + '{unit}' : '{NONE}')"
    )


def tooltip(group: ReportGroup, metrics: Mapping[str, str]) -> alt.ExprRef:
    """Return a tooltip: the series' parameters, then metrics, each a Vega expression."""
    rows = {parameter.title: f"datum.{parameter.field}" for parameter in group.parameters} | dict(metrics)
    return alt.ExprRef("{" + ", ".join(f"{quoted(title)}: {value}" for title, value in rows.items()) + "}")


def load_expr(group: ReportGroup) -> str:
    """Return the Vega expression of a point's place on the axis."""
    return "format(datum.load, ',.4~r')" if group.axis.is_load else f"datum['{group.axis.field}']"


def across(field: str, title: str, log: bool) -> alt.X:
    """Return the horizontal encoding of a number, on a logarithmic scale if `log`."""
    scale = alt.Scale(type="log", nice=False, padding=12) if log else alt.Scale(zero=False, nice=False, padding=12)
    return alt.X(field, type="quantitative", title=title, scale=scale, axis=number_axis(log))


def upwards(field: str, title: str, log: bool) -> alt.Y:
    """Return the vertical encoding of a number, on a logarithmic scale if `log`; else from zero."""
    scale = alt.Scale(type="log", nice=False, padding=12) if log else alt.Scale(zero=True)
    return alt.Y(field, type="quantitative", title=title, scale=scale, axis=number_axis(log))


def number_axis(log: bool) -> alt.Axis:
    """Return the axis of a number."""
    return LOG_AXIS if log else alt.Axis(format=",.4~r", tickCount=6)


def at(y: alt.Y, field: str) -> alt.Y:
    """Return the same encoding of another field."""
    encoding: Any = y.to_dict()
    return alt.Y(**(encoding | {"field": field}))


def along(group: ReportGroup) -> alt.X:
    """Return the encoding of the group's axis. Its ticks are the loads of the sweep, unless they are many."""
    axis = group.axis
    if axis.is_load:
        encoding = across("load", axis.title, axis.log)
        exact = alt.Axis(values=group.loads, labelExpr="format(datum.value, ',.3~r')")
        return encoding.axis(exact) if len(group.loads) <= LOADS_MARKED_MAX else encoding
    return alt.X(axis.field, type="ordinal", title=axis.title, sort=list(axis.labels), axis=alt.Axis(labelAngle=0))


def ordinal(axis: Axis) -> alt.X:
    """Return the group's axis with one place for each value, the load included."""
    if axis.is_load:
        labels = alt.Axis(labelAngle=0, labelExpr="format(datum.value, ',.3~r')")
        return alt.X("load:O", title=axis.title, sort="ascending", axis=labels)
    return alt.X(axis.field, type="ordinal", title=axis.title, sort=list(axis.labels), axis=alt.Axis(labelAngle=0))


def base(group: ReportGroup, choices: Choices, data: str = "points") -> alt.Chart:
    """Return the selected rows, each with its `colour`, without those switched off in the legend."""
    chart = alt.Chart(alt.NamedData(data)).transform_filter(choices.condition)
    if not group.parameters:
        return chart
    return chart.transform_calculate(colour="datum[colour_by]").transform_filter(shown())


def by_colour(group: ReportGroup, layer: alt.Chart, shapes: bool = False) -> alt.Chart:
    """Encode the series by colour; and by shape, where there are points."""
    if not group.parameters:
        return layer.encode(color=alt.value(SERIES[0]))
    encoded = layer.encode(color=colour(group.parameters))
    return encoded.encode(shape=shape()) if shapes else encoded


def interactive(
    group: ReportGroup, layers: list[alt.Chart], choices: Choices, *parameters: alt.Parameter, zooms: bool = True
) -> alt.LayerChart:
    """Combine layers with their controls, zoom and legend."""
    extra = [domains(group.parameters)] if group.parameters else []
    tools = [*([zoom()] if zooms else []), *([shown()] if group.parameters else [])]
    return (
        layered(with_tools(layers, *tools))
        .add_params(*parameters, *choices.parameters, *extra)
        .properties(width="container", height=HEIGHT)
    )


def with_tools(layers: list[alt.Chart], *tools: alt.Parameter) -> list[alt.Chart]:
    """Return the layers with selections in the first one that has a colour: Vega-Lite binds only its legend to them."""
    first = next(place for place, layer in enumerate(layers) if layer.encoding.color is not alt.Undefined)
    return [layer.add_params(*tools) if place == first else layer for place, layer in enumerate(layers)]
