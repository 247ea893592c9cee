"""`endive demo`: one question answered, and a page to look at."""

from io import StringIO
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from endive.cli.console import output, progress_to, say_if_compiling
from endive.cli.figures import number
from endive.errors import ResultError
from endive.sim.config import parse_configuration
from endive.sim.engines import simulate
from endive.sim.summary import Summary, summarise

CONFIGURATION = """
[simulation]
duration_ms = 3_600_000

[storage]
provider = "{provider}"
profiles = "measured"

[transaction]
cost_model = "iceberg"
runtime = {{ median = 20_000, sigma = 1.0, min = 2_000 }}
inter_arrival = {{ distribution = "exponential", scale = {scale} }}
operation_types = {{ fast_append = 0.9, validated_overwrite = 0.1 }}
"""
PROVIDERS = ("s3", "s3x", "azurex")
SCALES_MS = (4000, 2000, 1000, 500, 250, 125)


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("experiments/demo.html"),
) -> None:
    """Show how many commits one table takes on three stores, as Iceberg commits them: less than a minute."""
    _make_directory(out)
    title = "One table, 90 % fast appends, 10 % validated overwrites, cost model iceberg, one hour"
    table = Table(title=title, box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("offered\n/s", justify="right", no_wrap=True)
    for provider in PROVIDERS:  # ten columns in a terminal of eighty characters: short words
        for heading in (f"{provider}\n/s", "ok\n%", "p99\nms"):
            table.add_column(heading, justify="right", no_wrap=True)
    say_if_compiling()
    runs = [(scale, provider) for scale in SCALES_MS for provider in PROVIDERS]
    summaries: dict[tuple[int, str], Summary] = {}
    with progress_to(len(runs), "simulating") as tell:
        for done, (scale, provider) in enumerate(runs):
            summaries[scale, provider] = _simulate(scale, provider)
            tell(done + 1)
    for scale in SCALES_MS:
        cells = [cell for provider in PROVIDERS for cell in _cells(summaries[scale, provider])]
        table.add_row(number(1000 / scale), *cells)
    output.print(table)
    _save(table, out)
    output.print(f"a page to look at: {out.resolve()}", soft_wrap=True)


def _simulate(scale: int, provider: str) -> Summary:
    settings = parse_configuration(CONFIGURATION.format(scale=scale, provider=provider), "demo")
    return summarise(simulate(settings, seed=1).table, settings.window)


def _cells(summary: Summary) -> list[str]:
    p99_ms = summary.latency["all"].p99_ms
    success = "-" if summary.success is None else f"{100 * summary.success:.1f}"
    return [f"{summary.committed_per_s:.2f}", success, "-" if p99_ms is None else f"{p99_ms:,.0f}"]


def _save(table: Table, path: Path) -> None:
    page = Console(record=True, width=110, file=StringIO())
    page.print(table)
    try:
        page.save_html(str(path))
    except OSError as error:
        raise ResultError(str(path), f"cannot be written ({error.strerror})", "choose another --out") from error


def _make_directory(path: Path) -> None:
    """Make the page's directory before anything runs."""
    if path.is_dir():
        raise ResultError(str(path), "is a directory", "name a file with --out")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultError(str(path), f"cannot be written ({error.strerror})", "choose another --out") from error
