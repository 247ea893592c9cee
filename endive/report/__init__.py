"""The report of a sweep: one HTML page that works offline, and the same charts as PNG or SVG.

Three steps, each independent of the next: `reading` reads the measures, `groups` prepares each experiment group for its
charts, `charts` draws. `page` puts the charts into the page, `static` into picture files.
"""

from enum import StrEnum


class Picture(StrEnum):
    """Formats of chart files."""

    SVG = "svg"
    PNG = "png"
