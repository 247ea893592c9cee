"""`endive compare`: two results side by side."""

import json
from pathlib import Path
from typing import Annotated

import typer

from endive.cli.console import Overrides, output, resumable, warn
from endive.cli.run import ConsoleWatcher, Out
from endive.cli.tables import rich_table
from endive.sim.config.seeds import seeds_of
from endive.sim.results.comparison import Comparison
from endive.sim.results.comparison import compare as compare_sides
from endive.sim.results.labels import weakest
from endive.sim.results.metrics import as_document

Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="A..B",
        help="Only these seeds, the last included, such as `1..5`. Unless given, those of the named results, or of the "
        "configurations.",
    ),
]


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A result, an experiment's directory, or a configuration.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    seeds: Seeds = None,
    overrides: Overrides = None,
    out: Out = Path("experiments"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON, for machines.")] = False,
) -> None:
    """Show two results side by side, and the difference of each metric.

    The same seed gives both sides the same transactions and the same random numbers (common random numbers), so runs
    are compared seed by seed: the interval is that of the differences, and is narrow even where the metrics themselves
    vary. A configuration (`.toml`) without a result is run; beside a result, with the result's seeds. `--set` changes
    every configuration named here.

    For example:

    `endive compare experiments/s3-1a2b3c4d experiments/s3x-5e6f7a8b`

    `endive compare mine.toml theirs.toml --seeds 1..5 --set catalog.num_tables=10`
    """
    wanted = seeds_of(seeds, 0, "--seeds") if seeds else None
    with resumable():
        comparison = compare_sides(a, b, wanted, overrides=overrides or (), out=out, watcher=ConsoleWatcher())
    if not comparison.same_window:
        warn((f"{a} and {b} have different windows; the metrics of each side are of its own window",))
    if as_json:
        output.print_json(json.dumps({"seeds": comparison.seeds, **_document(comparison)}))
        return
    output.print(rich_table(comparison.grids()[0]))
    output.print(comparison.compared_on)
    for note in comparison.notes:
        output.print(note, soft_wrap=True, markup=False)


def _document(comparison: Comparison) -> dict[str, object]:
    sides = {"a": comparison.before, "b": comparison.after, "difference": comparison.difference}
    labels = [about.get("trust", {}) for about in comparison.about]
    trust = {"a": weakest(labels[0]), "b": weakest(labels[1]), "difference": weakest({**labels[0], **labels[1]})}
    metrics = {
        name: {side: as_document(found[name], trust[side]) for side, found in sides.items() if name in found}
        | {"ratio": comparison.ratio(name)}
        for name in dict.fromkeys([*comparison.before, *comparison.after])
    }
    names = ("provider", "profiles", "catalog", "cost_model", "trust")
    about = [{name: side[name] for name in names if name in side} for side in comparison.about]
    named = {"a": comparison.names[0], "b": comparison.names[1], "about": {"a": about[0], "b": about[1]}}
    return {**named, "metrics": metrics, "figures": metrics}
