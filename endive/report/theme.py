"""Colours and style of charts.

Charts name colours by CSS variable, so that the page changes its theme, and prints, without drawing them again.
Pictures have no style sheet: `resolved` puts the light theme's colours in the variables' place.
"""

import re
from typing import Any

LIGHT = {
    "ink": "#1d2430", "soft": "#59626f", "line": "#d9dde3", "faint": "#eceff3", "paper": "#ffffff",
    "s1": "#0072b2", "s2": "#d55e00", "s3": "#008a64", "s4": "#bd5f94", "s5": "#b97a00", "s6": "#3a96d0",
    "s7": "#6b6b6b", "s8": "#7d7400", "s9": "#5b4bb0", "s10": "#7a4a2b",
}  # fmt: skip
"""The series' colours are those of Okabe and Ito, the pale ones darkened until they stand out on white."""

DARK = {
    "ink": "#e7eaf0", "soft": "#a3acba", "line": "#3a424e", "faint": "#262d37", "paper": "#151a21",
    "s1": "#4ba3dd", "s2": "#f08a3c", "s3": "#35c49a", "s4": "#e79fc8", "s5": "#f0c04a", "s6": "#9fd8ff",
    "s7": "#b9bec6", "s8": "#d8cf4a", "s9": "#b3a7ff", "s10": "#d3a07c",
}  # fmt: skip

SERIES = tuple(f"var(--s{number})" for number in range(1, 11))
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
HEAT = ("#e9f0f6", "#a9c8e0", "#5b9bc9", "#1f6aa5", "#0b3c66")
"""From low to high; readable on either background and by colour-blind readers."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"

CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "titleColor": "var(--soft)",
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 11,
        "titlePadding": 8,
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
        "gridColor": "var(--faint)",
        "labelOverlap": "greedy",
        "labelSeparation": 8,
    },
    "axisX": {"grid": False, "tickSize": 4},
    "axisY": {"domain": False, "ticks": False, "labelPadding": 6},
    "legend": {
        "orient": "top",
        "direction": "horizontal",
        "labelColor": "var(--ink)",
        "titleColor": "var(--soft)",
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "symbolSize": 80,
        "symbolOpacity": 1,
        "labelLimit": 260,
        "columnPadding": 14,
        "rowPadding": 4,
        "offset": 14,
    },
    "title": {
        "color": "var(--ink)",
        "subtitleColor": "var(--soft)",
        "anchor": "start",
        "fontSize": 15,
        "fontWeight": 600,
        "subtitleFontSize": 12,
        "offset": 12,
        "subtitlePadding": 5,
    },
    "line": {"strokeWidth": 2, "strokeJoin": "round", "strokeCap": "round"},
    "range": {"category": list(SERIES)},
}
"""Vega-Lite's configuration, the same for every chart."""

VARIABLE = re.compile(r"var\(--(\w+)\)")


def resolved(text: str) -> str:
    """Return a chart's JSON with the light theme's colours in the place of variables."""
    return VARIABLE.sub(lambda match: LIGHT[match[1]], text)


def css_variables(colours: dict[str, str]) -> str:
    """Return colours as declarations of CSS variables."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())
