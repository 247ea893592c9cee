"""Where the command line writes: results to standard output, everything else to standard error."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from endive.cli import INTERRUPTED

Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a value of the file, such as `catalog.num_tables=10`; may be repeated. The value is "
        "read as TOML, a bare word as text. `endive config keys` lists the keys.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]

MASTERS = "`local[4]`, or a cluster: `spark://host:7077`, `yarn`, `k8s://https://host:443`"
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting, such as `spark.speculation=true`; repeatable."),
]
ShipOption = Annotated[
    bool, typer.Option("--ship", help="Send this package to the executors; their Python needs its dependencies only.")
]

WIDTH_OF_FILES = 160
"""A pipe or a file has no width of its own; numbers must not be cut off there."""


class _Console(Console):
    def escape(self, text: str) -> str:
        """Return `text` with all markup escaped."""
        return escape(text)


output = _Console(highlight=False, width=None if sys.stdout.isatty() else WIDTH_OF_FILES)
errors = _Console(stderr=True, highlight=False)


def warn(messages: tuple[str, ...]) -> None:
    """Print warnings, one a line."""
    for message in messages:
        errors.print(f"[yellow]warning:[/] {escape(message)}", soft_wrap=True)


def asked(question: str) -> bool | None:
    """Ask a question on standard error, since standard output is for results; None if the input has ended.

    The next output begins on a new line, also if no terminal has echoed the answer.
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
    """Announce that the engine must be compiled first."""
    from endive.sim.engines import is_cold  # noqa: PLC0415 - the simulator is an extra

    if is_cold():
        errors.print("compiling the engine: about half a minute, once on this machine")


def shown(place: str) -> str:
    """Return a path as short as it can be typed here; a URL or a path elsewhere as it is."""
    path = Path(place)
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else place


@contextmanager
def resumable() -> Iterator[None]:
    """On Ctrl-C, say that finished work is kept, and exit."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print("interrupted; finished work is kept: repeat the command to continue")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def progress_to(total_ms: float, title: str) -> Iterator[Callable[[float], None]]:
    """Show a progress bar of virtual time, or of a count. Nothing is shown if standard error is not a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task(escape(title), total=total_ms)
        yield lambda now_ms: progress.update(task, completed=now_ms)
