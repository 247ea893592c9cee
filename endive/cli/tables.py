"""Tables of results for the terminal."""

from rich.markup import escape
from rich.table import Table

from endive.sim.results.display import Grid


def rich_table(grid: Grid, first_width: int | None = None, caption: str | None = None) -> Table:
    """Return a table of text for the console; `first_width` aligns several tables below each other."""
    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption, caption_justify="left")
    for column, heading in enumerate(grid.headings):
        width = first_width if column == 0 else None
        table.add_column(
            escape(heading),
            justify="left" if column in grid.left else "right",
            min_width=width,
            no_wrap=column == 0 and width is None,
        )
    for row in grid.rows:
        table.add_row(*map(escape, row))
    return table
