"""The report's charts as picture files."""

from collections.abc import Iterator, Sequence

import vl_convert

from endive.report import Picture
from endive.report.drawing import Drawing
from endive.report.groups import ReportGroup
from endive.report.specs import picture_of

VEGA_LITE = "6.4"
"""The version that Altair writes, among those of vl-convert."""
PNG_SCALE = 2.0
"""Pixels for each unit of the drawing, so that it is sharp in print."""


def pictures_of(group: ReportGroup, drawing: Drawing, forms: Sequence[Picture]) -> Iterator[tuple[str, bytes]]:
    """Yield one chart as `<group>-<chart>.svg` or `.png`, or both: the file's name and content."""
    document = picture_of(group, drawing)
    for form in dict.fromkeys(forms):
        yield f"{file_name(group.about.name)}-{drawing.name}.{form}", _picture(document, form)


def _picture(document: str, form: Picture) -> bytes:
    if form is Picture.SVG:
        return vl_convert.vegalite_to_svg(document, vl_version=VEGA_LITE).encode()
    return vl_convert.vegalite_to_png(document, vl_version=VEGA_LITE, scale=PNG_SCALE)


def file_name(text: str) -> str:
    """Return text as part of a file's name: nothing but letters, digits, dashes and underscores."""
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in text) or "group"
