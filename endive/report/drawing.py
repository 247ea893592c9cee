"""A chart with its title, caption and description."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import altair as alt


@dataclass(frozen=True)
class Drawing:
    """A chart, its title and caption, and the metrics that its definitions explain."""

    name: str
    """Part of file names: `latency`, `success`, …"""
    title: str
    caption: str
    description: str
    """Alternative text for screen readers."""
    measures: tuple[str, ...]
    """Keys of `DEFINITIONS`."""
    chart: alt.Chart | alt.LayerChart
    chosen: tuple[str, ...]
    """The initial selection, in words."""

    @property
    def height(self) -> int:
        """Height of the plot in pixels, which the page reserves."""
        return int(self.chart.height)


def layered(layers: Sequence[alt.Chart]) -> alt.LayerChart:
    """Return charts on top of each other; Altair's type allows for facets, of which there are none here."""
    return cast("alt.LayerChart", alt.layer(*layers))
