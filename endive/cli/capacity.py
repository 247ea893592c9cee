"""`endive capacity`: the highest offered load that meets a target."""

import json
from typing import Annotated

import typer

from endive.cli import INTERRUPTED
from endive.cli.console import Overrides, errors, output, warn
from endive.cli.run import ConsoleWatcher
from endive.cli.tables import rich_table
from endive.sim.config.seeds import seeds_of
from endive.sim.results.capacity_results import NOT_STATIONARY
from endive.sim.results.capacity_results import capacity as find_capacity


def capacity(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A configuration in TOML, with open arrivals.")],
    success: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of transactions that must commit.")] = 0.95,
    p99_ms: Annotated[float | None, typer.Option("--p99-ms", min=0.0, help="Highest p99 of commit latency.")] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,…", help="Search each of these values; several `--vary` search every combination."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="A..B", help="Replications; more narrow the interval.")] = "1..5",
    tolerance: Annotated[float, typer.Option(min=0.001, max=0.5, help="Of each search, relative to the load.")] = 0.01,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Find the highest offered load that meets a target, with its 95 % confidence interval.

    The search starts at the file's own load and scales its distribution of arrivals. Every seed gives the same
    transactions at every load.

    For example:

    `endive capacity configs/fast_append_s3.toml --success 0.95`

    `endive capacity configs/capacity.toml --vary storage.provider=s3,s3x,gcp --vary catalog.num_tables=1,10,20`
    """
    results = find_capacity(
        file,
        success,
        p99_ms,
        vary=vary or (),
        seeds=seeds_of(seeds, 0, "--seeds"),
        tolerance=tolerance,
        overrides=overrides or (),
        watcher=ConsoleWatcher(),
    )
    if as_json:
        output.print_json(json.dumps(results.document()))
    elif vary:
        output.print(rich_table(results.grids()[0], caption=results.title))
    else:
        for case in results.answers:
            output.print(results.sentence(case), soft_wrap=True, markup=False)
    for case, answer in results.answers.items():
        if answer.exists and answer.drifts:
            warn((f"{case}: {NOT_STATIONARY}",))
    if not results.complete:
        complete = f"{len(results.answers)} of {len(results.cases)} answers were complete"
        errors.print(f"interrupted: {complete}; a search keeps nothing else")
        raise typer.Exit(INTERRUPTED)
