"""Where the command line writes: results to standard output, everything else to standard error."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from endive.cli import INTERRUPTED
from endive.sim.engines import is_cold

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Put a value in the place of the file's, such as `catalog.num_tables=10`; may be repeated. The value is "
        "read as TOML, a bare word as text. `endive config keys` lists the keys.",
    ),
]

WIDTH_OF_FILES = 160
"""A pipe or a file has no width of its own; figures must not be cut off there."""


class _Console(Console):
    def escape(self, text: str) -> str:
        """Return `text` with nothing in it read as markup."""
        return escape(text)


output = _Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)
errors = _Console(stderr=True, highlight=False)


def warn(messages: tuple[str, ...]) -> None:
    """Print warnings, one a line."""
    for message in messages:
        errors.print(f"[yellow]warning:[/] {escape(message)}", soft_wrap=True)


def asked(question: str) -> bool | None:
    """Ask a question on standard error, since standard output is for results; None if nobody answers.

    What comes next begins a new line, also where no terminal has echoed the answer.
    """
    while True:
        errors.print(f"{escape(question)} \\[y/N]: ", end="", soft_wrap=True)
        line = sys.stdin.readline()
        if not line or not sys.stdin.isatty():
            errors.print()
        answer = line.strip().lower()
        if not line or answer in {"", "n", "no", "y", "yes"}:
            return answer in {"y", "yes"} if line else None
        errors.print("please answer y or n")


def say_if_compiling() -> None:
    """Tell a user who waits for the first time what for."""
    if is_cold():
        errors.print("compiling the engine: about half a minute, once on this machine")


@contextmanager
def resumable() -> Iterator[None]:
    """Tell a user who interrupts that nothing finished is lost."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print("interrupted; what was finished is kept, the same command goes on from there")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def progress_to(total_ms: float, title: str) -> Iterator[Callable[[float], None]]:
    """Show a bar that follows virtual time, or a count. Nothing is shown where standard error is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task(escape(title), total=total_ms)
        yield lambda now_ms: progress.update(task, completed=now_ms)
