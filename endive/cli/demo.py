"""`endive demo`: one question answered, and a page to look at."""

from io import StringIO
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from endive.cli.console import output, progress_to
from endive.cli.figures import number
from endive.errors import ResultError
from endive.sim.config import parse_configuration
from endive.sim.simulation import Simulation
from endive.sim.summary import Summary, Window, summarise

CONFIGURATION = """
[simulation]
duration_ms = 600_000

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
SCALES_MS = (4000, 1000, 500, 250)


def demo(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The page.")] = Path("experiments/demo.html"),
) -> None:
    """Show how many commits one table takes on three stores, as Iceberg commits them: less than a minute."""
    table = Table(title="One table, 90 % fast appends, 10 % validated overwrites, cost model iceberg")
    table.add_column("offered", justify="right")
    for provider in PROVIDERS:
        table.add_column(f"{provider}\ncommitted", justify="right")
        table.add_column("\nsuccess", justify="right")
        table.add_column("\np99 ms", justify="right")
    runs = [(scale, provider) for scale in SCALES_MS for provider in PROVIDERS]
    summaries: dict[tuple[int, str], Summary] = {}
    with progress_to(len(runs), "simulating") as tell:
        for done, (scale, provider) in enumerate(runs):
            summaries[scale, provider] = _simulate(scale, provider)
            tell(done + 1)
    for scale in SCALES_MS:
        cells = [cell for provider in PROVIDERS for cell in _cells(summaries[scale, provider])]
        table.add_row(number(1000 / scale, "/s"), *cells)
    output.print(table)
    _save(table, out)
    output.print(f"a page to look at: {out.resolve()}", soft_wrap=True)


def _simulate(scale: int, provider: str) -> Summary:
    settings = parse_configuration(CONFIGURATION.format(scale=scale, provider=provider), "demo")
    statistics = Simulation(settings.build(seed=1)).run()
    simulation = settings.values.simulation
    window = Window(simulation.trim_start_ms or 0.0, simulation.duration_ms - (simulation.trim_end_ms or 0.0))
    return summarise(statistics.to_arrow(), window)


def _cells(summary: Summary) -> list[str]:
    p99_ms = summary.latency["all"].p99_ms
    success = "-" if summary.success is None else number(summary.success, "%")
    return [number(summary.committed_per_s, "/s"), success, "-" if p99_ms is None else number(p99_ms)]


def _save(table: Table, path: Path) -> None:
    page = Console(record=True, width=110, file=StringIO())
    page.print(table)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        page.save_html(str(path))
    except OSError as error:
        raise ResultError(str(path), f"cannot be written ({error.strerror})", "choose another --out") from error
