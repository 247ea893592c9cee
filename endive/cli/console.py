"""Where the command line writes: results to standard output, everything else to standard error."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key of the file, such as `catalog.num_tables=10`."),
]


class _Console(Console):
    def escape(self, text: str) -> str:
        """Return `text` with nothing in it read as markup."""
        return escape(text)


output = _Console(highlight=False)
errors = _Console(stderr=True, highlight=False)


def warn(messages: tuple[str, ...]) -> None:
    """Print warnings, one a line."""
    for message in messages:
        errors.print(f"[yellow]warning:[/] {escape(message)}", soft_wrap=True)


@contextmanager
def progress_to(total_ms: float, title: str) -> Iterator[Callable[[float], None]]:
    """Show a bar that follows virtual time. Nothing is shown where standard error is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task(title, total=total_ms)
        yield lambda now_ms: progress.update(task, completed=now_ms)
