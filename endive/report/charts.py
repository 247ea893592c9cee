"""The charts of an experiment group, each a pure function of it, as Vega-Lite made by Altair.

Data are named, not embedded: `points` has one row for each experiment, `series` one for each series. The page
and the pictures contain them once for all charts of a group.
"""

from collections.abc import Callable
from dataclasses import replace

from endive.report.breakdown import draw_kinds, draw_times
from endive.report.drawing import Drawing
from endive.report.grids import draw_heat, draw_sustainable
from endive.report.groups import ReportGroup
from endive.report.lines import draw_committed, draw_latency, draw_success
from endive.report.trust import mark_of_group

DRAWINGS: tuple[Callable[[ReportGroup], Drawing | None], ...] = (
    draw_latency,
    draw_success,
    draw_committed,
    draw_heat,
    draw_sustainable,
    draw_times,
    draw_kinds,
)


def draw(group: ReportGroup) -> tuple[Drawing, ...]:
    """Return the charts of this group, in the order of the page; their titles carry the mark of unchecked metrics."""
    if not group.has_metrics:
        return ()
    drawings = (drawing for function in DRAWINGS if (drawing := function(group)) is not None)
    return tuple(replace(drawing, title=drawing.title + mark_of_group(group)) for drawing in drawings)
