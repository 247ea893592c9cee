"""The report's charts as picture files."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import vl_convert

from endive.files import make_directory, write_durably
from endive.report import Picture
from endive.report.drawing import Drawing
from endive.report.groups import ReportGroup
from endive.report.specs import picture_of

VEGA_LITE = "6.4"
"""The version that Altair writes, among those of vl-convert."""
PNG_SCALE = 2.0
"""Pixels for each unit of the drawing, so that it is sharp in print."""


def write_pictures(directory: Path, group: ReportGroup, drawing: Drawing, forms: Sequence[Picture]) -> None:
    """Write one chart as `<group>-<chart>.svg` or `.png`, or both."""
    make_directory(directory)
    document = picture_of(group, drawing)
    for form in dict.fromkeys(forms):
        path = directory / f"{file_name(group.about.name)}-{drawing.name}.{form}"
        write_durably(path, partial(_write, _picture(document, form)))


def _write(body: bytes, part: Path) -> None:
    part.write_bytes(body)


def _picture(document: str, form: Picture) -> bytes:
    if form is Picture.SVG:
        return vl_convert.vegalite_to_svg(document, vl_version=VEGA_LITE).encode()
    return vl_convert.vegalite_to_png(document, vl_version=VEGA_LITE, scale=PNG_SCALE)


def file_name(text: str) -> str:
    """Return text as part of a file's name: nothing but letters, digits, dashes and underscores."""
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in text) or "group"
