"""A chart with the words that go with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import altair as alt


@dataclass(frozen=True)
class Drawing:
    """A chart, its title and caption, and which measures it needs defined."""

    name: str
    """Part of file names: `latency`, `success`, …"""
    title: str
    caption: str
    description: str
    """What the chart shows, for those who cannot see it."""
    measures: tuple[str, ...]
    """Keys of `DEFINITIONS`."""
    chart: alt.Chart | alt.LayerChart
    chosen: tuple[str, ...]
    """What is chosen at first, in words."""

    @property
    def height(self) -> int:
        """Height of the plot in pixels, so that the page can keep the place."""
        return int(self.chart.height)


def layered(layers: Sequence[alt.Chart]) -> alt.LayerChart:
    """Return charts on top of each other; Altair's type allows for facets, of which there are none here."""
    return cast("alt.LayerChart", alt.layer(*layers))
