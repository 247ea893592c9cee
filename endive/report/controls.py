"""The controls of a chart: Vega parameters, their inputs, and the filters that use them.

The same name means the same choice in every chart of a group; the page synchronises them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from endive.report.groups import Parameter, ReportGroup
from endive.report.metrics import QUANTILES
from endive.report.theme import SERIES, SHAPES

AXIS_PX = 80
"""About the width of a vertical axis with its title."""
LETTER_PX = 7
"""About the width of a letter in a legend."""
MARGIN_LETTERS = 5
"""Letters that fit into the space that an entry of a legend takes besides its label."""


def choice(name: str, title: str, options: Mapping[str, str]) -> alt.Parameter:
    """Return a parameter with a list to choose from: value to label. A single option needs no control."""
    first = next(iter(options))
    if len(options) < 2:
        return alt.param(name=name, value=first)
    bind = alt.binding_select(options=list(options), labels=list(options.values()), name=title)
    return alt.param(name=name, value=first, bind=bind)


@dataclass(frozen=True)
class Choices:
    """Parameters of one chart, and the condition that a row must meet to be in it."""

    parameters: tuple[alt.Parameter, ...]
    condition: str
    """A Vega expression."""
    chosen: tuple[str, ...]
    """The initial selection in words, for pictures without controls."""


def select_name(parameter: Parameter) -> str:
    """Return the name of the choice of one of the parameter's values."""
    return f"only_{parameter.field}"


def choices(group: ReportGroup, spread: Mapping[str, Sequence[Parameter]]) -> Choices:
    """Let the reader choose the parameter of each channel, and one value of each other parameter.

    `spread` maps channels, such as `colour_by`, to the parameters that they can show, the initial one first. A
    parameter that a channel shows is not filtered by value.
    """
    parameters = [
        choice(name, _TITLES[name], {parameter.field: parameter.title for parameter in options})
        for name, options in spread.items()
        if options
    ]
    taken = {name: options for name, options in spread.items() if options}
    conditions = []
    chosen = [f"{_TITLES[name]}: {options[0].title}" for name, options in taken.items() if len(options) > 1]
    first_fields = {options[0].field for options in taken.values()}
    for parameter in group.parameters:
        ways = [f"{name} === '{parameter.field}'" for name, options in taken.items() if parameter in options]
        if len(ways) == 1 and len(taken[ways[0].partition(" ")[0]]) == 1:
            continue  # always spread out
        parameters.append(choice(select_name(parameter), parameter.title, {label: label for label in parameter.labels}))
        conditions.append("(" + " || ".join([*ways, f"datum.{parameter.field} === {select_name(parameter)}"]) + ")")
        if parameter.field not in first_fields:
            chosen.append(f"{parameter.title}: {parameter.labels[0]}")
    return Choices(tuple(parameters), " && ".join(conditions) or "true", tuple(chosen))


_TITLES = {"colour_by": "Colour", "x_by": "Across", "row_by": "Rows"}


def domains(parameters: Sequence[Parameter]) -> alt.Parameter:
    """Return the values of every parameter in order, for scales whose parameter the reader chooses."""
    return alt.param(name="domains", value={parameter.field: list(parameter.labels) for parameter in parameters})


def quantile() -> alt.Parameter:
    """Return the choice of a quantile, initially p99."""
    bind = alt.binding_select(options=list(QUANTILES), labels=list(QUANTILES.values()), name="Latency")
    return alt.param(name="quantile", value="p99", bind=bind)


def zoom() -> alt.Parameter:
    """Return panning and zooming; the wheel alone scrolls the page. A double click resets the view."""
    return alt.selection_interval(name="view", bind="scales", zoom="wheel![event.ctrlKey || event.metaKey]")


def shown() -> alt.Parameter:
    """Return the series to show: a click in the legend toggles one; none chosen means all."""
    return alt.selection_point(name="shown", fields=["colour"], bind="legend", toggle="true")


def colour(parameters: Sequence[Parameter]) -> alt.Color:
    """Return the encoding by the parameter that the reader has chosen; a value keeps its colour everywhere."""
    title = parameters[0].title if len(parameters) == 1 else None
    longest = {parameter.field: max(map(len, parameter.labels)) for parameter in parameters}
    return alt.Color(
        "colour:N",
        title=title,
        scale=alt.Scale(domain=alt.ExprRef("domains[colour_by]"), range=list(SERIES)),
        legend=legend(f"{json.dumps(longest)}[colour_by]"),
    )


def legend(longest: str) -> alt.Legend:
    """Return a legend in as many columns as there is room for; `longest` label is an expression."""
    # The container's width is known before the first layout, the plot's only after it, when rows have been counted.
    room = f"((containerSize()[0] || width + {AXIS_PX}) - {AXIS_PX} + 0 * width)"
    return alt.Legend(columns=alt.ExprRef(f"max(1, floor({room} / ({LETTER_PX} * ({longest} + {MARGIN_LETTERS}))))"))


def shape() -> alt.Shape:
    """Return the encoding that distinguishes series without colour."""
    return alt.Shape("colour:N", scale=alt.Scale(domain=alt.ExprRef("domains[colour_by]"), range=list(SHAPES)))


def quoted(text: str) -> str:
    """Return text as a literal of a Vega expression."""
    return json.dumps(text)
