"""Results as people and notebooks read them: text, HTML, Arrow, pandas, Polars, charts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa

from endive.extras import naming_extra

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd
    import polars as pl


@dataclass(frozen=True)
class Grid:
    """A table of text: headings and rows, the first column on the left, numbers on the right."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    left: frozenset[int] = frozenset({0})
    """Columns that are aligned on the left."""

    def text(self) -> str:
        """Return the table as aligned lines."""
        lines = [self.headings, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.headings))]
        return "\n".join(self._line(line, widths) for line in lines)

    def _line(self, cells: tuple[str, ...], widths: list[int]) -> str:
        padded = [
            cell.ljust(width) if column in self.left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    def html(self) -> str:
        """Return the table as an HTML element."""
        head = "".join(f"<th>{escape(heading)}</th>" for heading in self.headings)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Displayed(ABC):
    """Base of the results that `endive.run`, `compare` and `capacity` return."""

    @property
    @abstractmethod
    def title(self) -> str:
        """One line that says which results these are."""

    @property
    def notes(self) -> Sequence[str]:
        """Lines below the tables that explain their marks."""
        return ()

    @abstractmethod
    def grids(self) -> Sequence[Grid]:
        """Return the tables that the command line prints."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the metrics as an Arrow table."""

    @abstractmethod
    def chart(self) -> "alt.Chart | alt.LayerChart":
        """Return a chart of the most important metrics. Needs the extra `report`."""

    def to_pandas(self) -> "pd.DataFrame":
        """Return `to_arrow()` as a pandas frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> "pl.DataFrame":
        """Return `to_arrow()` as a Polars frame. Needs Polars (`pip install polars`)."""
        frame: pl.DataFrame = import_module("polars").from_arrow(self.to_arrow())
        return frame

    def __repr__(self) -> str:
        tables = [grid.text() for grid in self.grids()]
        return "\n\n".join([self.title, *tables, *(["\n".join(self.notes)] if self.notes else [])])

    def _repr_html_(self) -> str:
        """Return the results as HTML; notebooks call this."""
        notes = [f"<p>{escape(note)}</p>" for note in self.notes]
        return "".join([f"<p><b>{escape(self.title)}</b></p>", *(grid.html() for grid in self.grids()), *notes])


def bars(table: pa.Table, x: str, y: str, title: str, color: str | None = None) -> "alt.LayerChart":
    """Return horizontal bars: columns `mean`, and `low` and `high` for the 95 % interval."""
    with naming_extra():
        altair = import_module("altair")
    base = altair.Chart(table.to_pandas(), title=title)
    place = {"y": altair.Y(f"{y}:N", sort=None, title=None)} | ({"yOffset": f"{color}:N"} if color else {})
    shade = {"color": f"{color}:N"} if color else {}
    mean = base.mark_bar(opacity=0.8).encode(
        x=altair.X("mean:Q", title=x), tooltip=table.column_names, **place, **shade
    )
    interval = base.mark_rule().encode(x="low:Q", x2="high:Q", **place)
    chart: alt.LayerChart = mean + interval
    return chart
