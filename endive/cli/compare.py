"""`endive compare`: two results side by side."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from endive.cli.console import output, resumable, warn
from endive.cli.figures import RATES, TIMES, with_interval
from endive.cli.run import Out, Seeds, choose_seeds, obtain
from endive.errors import ResultError
from endive.sim.config import load_configuration
from endive.sim.experiment import Experiment, Result, find_results, load_result
from endive.sim.summary import Estimate, estimate, estimates

Runs = Mapping[int, Result]
"""Results by seed."""


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A result, an experiment's directory, or a configuration.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    seeds: Seeds = None,
    out: Out = Path("experiments"),
) -> None:
    """Show two results side by side, and the difference of each figure.

    The same seed gives both the same transactions and the same luck (common random numbers), so runs are compared
    seed by seed: the interval is that of the differences, and is narrow even where the figures themselves vary. A
    configuration (`.toml`) that has no result yet is run.

    For example:

    `endive compare experiments/s3-1a2b3c4d experiments/s3x-5e6f7a8b`

    `endive compare mine.toml theirs.toml --seeds 1..5`
    """
    sides = [_side(place, seeds, out) for place in (a, b)]  # both are known to be good before anything runs
    with resumable():
        left, right = (side() for side in sides)
    common = sorted(left.keys() & right.keys())
    if not common:
        raise ResultError(f"{a}, {b}", "have no seed in common", "run both with the same --seeds")
    if any(left[seed].about["window_ms"] != right[seed].about["window_ms"] for seed in common):
        warn((f"{a} and {b} have different windows; each figure is of its own window",))
    output.print(_table([left[seed] for seed in common], [right[seed] for seed in common]))
    output.print(f"seeds in common: {', '.join(map(str, common))}")


def _side(place: str, seeds: str | None, out: Path) -> Callable[[], Runs]:
    """Check one side; return what gets its results, running them where they are not there."""
    if not place.endswith(".toml"):
        found = {result.about["seed"]: result for result in map(load_result, find_results(Path(place)))}
        wanted = set(choose_seeds(None, seeds, 0)) if seeds else found.keys()
        return lambda: {seed: result for seed, result in found.items() if seed in wanted}
    settings = load_configuration(place)
    warn(settings.warnings)
    experiment, numbers = Experiment(settings, out), choose_seeds(None, seeds, settings.values.simulation.seed)
    return lambda: {seed: obtain(experiment, seed) for seed in numbers}


def _table(left: list[Result], right: list[Result]) -> Table:
    summaries = [[result.summary() for result in side] for side in (left, right)]
    figures = [estimates(side) for side in summaries]
    changes = _differences([s.flat() for s in summaries[0]], [s.flat() for s in summaries[1]])
    table = Table(box=None, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    for heading in (_name(left[0]), _name(right[0]), "difference", "ratio"):
        table.add_column(heading, justify="right")
    for key, (name, unit) in _rows(figures[0], figures[1]).items():
        before, after, change = figures[0].get(key), figures[1].get(key), changes.get(key)
        ratio = f"{after.mean / before.mean:.3g}" if before and after and before.mean else "-"
        cells = (with_interval(value, unit) for value in (before, after, change))
        table.add_row(name, *cells, ratio)
    return table


def _name(result: Result) -> str:
    return escape(f"{result.about['label']}-{result.about['hash']} ({result.about['cost_model']})")


def _rows(left: Mapping[str, Estimate], right: Mapping[str, Estimate]) -> dict[str, tuple[str, str]]:
    latencies = [key for key in dict.fromkeys([*left, *right]) if key.startswith("latency.")]
    named = {key: (key.removeprefix("latency.").replace(".", " ").replace("_ms", ", ms"), "") for key in latencies}
    return RATES | named | {key: (f"{name}, ms", "") for key, name in TIMES.items()}


def _differences(left: list[dict[str, float | None]], right: list[dict[str, float | None]]) -> dict[str, Estimate]:
    """Return the mean of the seed-by-seed differences, with its interval."""
    changes: dict[str, Estimate] = {}
    for key in left[0]:
        pairs = [(a.get(key), b.get(key)) for a, b in zip(left, right, strict=True)]
        values = [after - before for before, after in pairs if before is not None and after is not None]
        if len(values) == len(pairs):
            changes[key] = estimate(values)
    return changes
