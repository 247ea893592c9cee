"""`endive advise`: which change of a configuration helps most."""

import json
from typing import Annotated

import typer

from endive.cli.console import Overrides, output, warn
from endive.cli.run import ConsoleWatcher, UncertaintyOption
from endive.cli.tables import rich_table
from endive.sim.config.seeds import seeds_of
from endive.sim.results.advice import advise as find_advice


def advise(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A configuration in TOML; `configs/` has examples.")],
    goal: Annotated[
        str | None,
        typer.Option(
            metavar="METRIC",
            help="What to improve, such as `compaction.success`, `streams.p99_ms` or `dollars_per_million_commits`. "
            "Unless given, the success of the class that fails most, or the p99 if none fails.",
        ),
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND",
            help="Try only interventions of this kind, such as `retries` or `'partial progress'`; may be repeated.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="A..B", help="Replications; more narrow the intervals.")] = "1..5",
    overrides: Overrides = None,
    uncertainty: UncertaintyOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON, with every metric.")] = False,
) -> None:
    """Try the interventions that exist for a configuration, and rank them by their effect.

    Tried are retries and backoff, commit interval, number of tables, granularity, store class, catalogs, group commit,
    schedule and partial progress of compaction, and reuse of manifests. Every one runs with the same transactions and
    random numbers as the configuration itself (common random numbers). An effect that chance may explain has low
    confidence; one that rests on a part of the model that was not checked, medium.

    For example:

    `endive advise configs/fleet.toml`

    `endive advise configs/fleet.toml --goal streams.p99_ms --set workload.streams.writers=400`
    """
    results = find_advice(
        file,
        goal=goal,
        kinds=kind or (),
        seeds=seeds_of(seeds, 0, "--seeds"),
        overrides=overrides or (),
        uncertainty=uncertainty,
        watcher=ConsoleWatcher(),
    )
    if as_json:
        output.print_json(json.dumps(results.document()))
        return
    output.print(results.title, style="bold", soft_wrap=True, markup=False)
    for sentence in results.sentences():
        output.print(sentence, soft_wrap=True, markup=False)
    output.print()
    output.print(rich_table(results.grids()[0]))
    for note in results.notes:
        output.print(note, soft_wrap=True, markup=False)
    warn(tuple(results.remarks))
