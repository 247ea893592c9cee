"""Charts as Vega-Lite documents, and their data as JSON, for the page and for pictures."""

import json
import math
from collections.abc import Hashable
from typing import Any

import pandas as pd

from endive.report.drawing import Drawing
from endive.report.groups import ReportGroup
from endive.report.theme import CONFIG, resolved
from endive.report.trust import notes_of

DATA = ("points", "series")
"""Names of a group's data, in charts and in the page."""
PICTURE_WIDTH = 720


def spec_of(drawing: Drawing) -> dict[str, Any]:
    """Return a chart for the page: without data and configuration, which the page shares between charts."""
    spec: dict[str, Any] = drawing.chart.to_dict()
    spec.pop("config", None)
    spec.pop("$schema", None)
    return spec | {"description": drawing.description}


def picture_of(group: ReportGroup, drawing: Drawing) -> str:
    """Return a chart as a document of its own, in the light theme; its subtitle states the selection."""
    subtitle = [group.title, *drawing.chosen]
    whole = spec_of(drawing) | {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": {"text": drawing.title, "subtitle": [" · ".join(subtitle), *notes_of(group)]},
        "width": PICTURE_WIDTH,
        "padding": 16,
        "datasets": {name: rows_of(getattr(group, name)) for name in DATA},
        "config": CONFIG | {"background": "var(--paper)"},
    }
    return resolved(json.dumps(whole))


def columns_of(frame: pd.DataFrame) -> dict[str, list[Any]]:
    """Return a frame by columns, which is smaller than by rows; a missing value becomes None."""
    return {str(name): [_plain(value) for value in column.tolist()] for name, column in frame.items()}


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return a frame by rows, as Vega wants it."""
    columns = columns_of(frame)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _plain(value: Hashable) -> Any:  # noqa: ANN401 - whatever JSON knows
    """Return a value for JSON: no NaN, and whole numbers without `.0`."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 1e15 else value


def script_json(document: object) -> str:
    """Return JSON that cannot end the `<script>` element it stands in."""
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
