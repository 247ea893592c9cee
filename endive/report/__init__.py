"""The report of a sweep: one HTML page that works offline, and the same charts as PNG or SVG.

Three steps, each of which knows nothing of the next: `load` reads the measures, `families` brings each family into the
form that charts need, `charts` draws. `page` and `static` put the charts where people look at them.
"""

from enum import StrEnum


class Picture(StrEnum):
    """What a chart can be written as, besides its place in the page."""

    SVG = "svg"
    PNG = "png"
