"""The charts of a family, each a pure function of it: Vega-Lite by way of Altair.

Data are named, not embedded: `points` has one row for each experiment, `series` one for each series. The page and the
pictures bring them along once for all charts of a family.
"""

from collections.abc import Callable

from endive.report.breakdown import draw_kinds, draw_times
from endive.report.drawing import Drawing
from endive.report.families import Family
from endive.report.grids import draw_heat, draw_usable
from endive.report.lines import draw_committed, draw_latency, draw_success

DRAWINGS: tuple[Callable[[Family], Drawing | None], ...] = (
    draw_latency,
    draw_success,
    draw_committed,
    draw_heat,
    draw_usable,
    draw_times,
    draw_kinds,
)


def draw(family: Family) -> tuple[Drawing, ...]:
    """Return the charts that make sense for this family, in the order in which they are read."""
    if not family.has_figures:
        return ()
    return tuple(drawing for function in DRAWINGS if (drawing := function(family)) is not None)
