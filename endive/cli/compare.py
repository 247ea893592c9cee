"""`endive compare`: two results side by side."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from endive.cli.console import Overrides, output, resumable, warn
from endive.cli.figures import QUANTILES, RATES, TIMES, as_document, with_interval
from endive.cli.run import Out, choose_seeds, obtain
from endive.errors import ConfigurationError, ResultError
from endive.sim.config.configuration import load_configuration
from endive.sim.results.experiment import Experiment, Result, find_results, load_result
from endive.sim.results.summary import Estimate, estimate, estimates

Runs = Mapping[int, Result]
"""Results by seed."""
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="A..B",
        help="Only these seeds, the last included, such as `1..5`. Unless given, those of the results that are named, "
        "or of the configurations.",
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
    """Show two results side by side, and the difference of each figure.

    The same seed gives both the same transactions and the same luck (common random numbers), so runs are compared
    seed by seed: the interval is that of the differences, and is narrow even where the figures themselves vary. A
    configuration (`.toml`) that has no result yet is run; beside a result, with the result's seeds. `--set` changes
    every configuration that is named here.

    For example:

    `endive compare experiments/s3-1a2b3c4d experiments/s3x-5e6f7a8b`

    `endive compare mine.toml theirs.toml --seeds 1..5 --set catalog.num_tables=10`
    """
    if overrides and not any(map(_is_configuration, (a, b))):
        raise ConfigurationError("--set", ["both are results that are there; only a configuration can be changed"])
    # Both are known to be good before anything runs.
    wanted = choose_seeds(None, seeds, 0) if seeds else None
    there = {place: _results(place, wanted) for place in (a, b) if not _is_configuration(place)}
    beside = wanted or sorted({seed for runs in there.values() for seed in runs}) or None
    sides = [_side(place, there, beside, overrides or (), out) for place in (a, b)]
    with resumable():
        left, right = (side() for side in sides)
    common = sorted(left.keys() & right.keys())
    if not common:
        both = f"the first has {_seeds(left)}, the second {_seeds(right)}"
        raise ResultError(f"{a}, {b}", f"have no seed in common: {both}", SAME_SEEDS)
    if any(left[seed].about["window_ms"] != right[seed].about["window_ms"] for seed in common):
        warn((f"{a} and {b} have different windows; each figure is of its own window",))
    comparison = _compared([left[seed] for seed in common], [right[seed] for seed in common])
    if as_json:
        output.print_json(json.dumps({"seeds": common, **_document(comparison)}))
        return
    output.print(_table(comparison))
    output.print(f"seeds in common: {', '.join(map(str, common))}")


def _is_configuration(place: str) -> bool:
    return place.endswith(".toml")


def _results(place: str, wanted: Sequence[int] | None) -> Runs:
    """Return the results at a place, of the seeds that are wanted."""
    found = {result.about["seed"]: result for result in map(load_result, find_results(Path(place)))}
    return {seed: result for seed, result in found.items() if wanted is None or seed in wanted}


def _seeds(runs: Runs) -> str:
    numbers = ", ".join(map(str, sorted(runs))) or "none of --seeds"
    return f"seed {numbers}" if len(runs) == 1 else f"seeds {numbers}" if runs else numbers


def _side(
    place: str, there: Mapping[str, Runs], seeds: Sequence[int] | None, overrides: Sequence[str], out: Path
) -> Callable[[], Runs]:
    """Check one side; return what gets its results, running them where they are not there."""
    if place in there:
        return lambda: there[place]
    settings = load_configuration(place, overrides)
    warn(settings.warnings)
    experiment, numbers = Experiment(settings, out), seeds or [settings.values.simulation.seed]
    return lambda: {seed: obtain(experiment, seed) for seed in numbers}


SAME_SEEDS = "run both with the same --seeds"


@dataclass(frozen=True)
class Comparison:
    """The figures of both sides over the seeds that they share."""

    names: tuple[str, str]
    before: Mapping[str, Estimate]
    after: Mapping[str, Estimate]
    difference: Mapping[str, Estimate]

    def ratio(self, key: str) -> float | None:
        """Return how many times the first side's figure the second one's is."""
        before, after = self.before.get(key), self.after.get(key)
        return after.mean / before.mean if before and after and before.mean else None


def _compared(left: list[Result], right: list[Result]) -> Comparison:
    before, after = ([result.summary() for result in side] for side in (left, right))
    changes = _differences([one.flat() for one in before], [one.flat() for one in after])
    return Comparison((_name(left[0]), _name(right[0])), estimates(before), estimates(after), changes)


def _table(comparison: Comparison) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    for heading in (*map(escape, comparison.names), "difference", "ratio"):
        table.add_column(heading, justify="right")
    sides = (comparison.before, comparison.after, comparison.difference)
    for key, (name, unit) in _rows(comparison.before, comparison.after).items():
        ratio = comparison.ratio(key)
        cells = (with_interval(side.get(key), unit) for side in sides)
        table.add_row(name, *cells, "-" if ratio is None else f"{ratio:.3g}")
    return table


def _document(comparison: Comparison) -> dict[str, object]:
    sides = {"a": comparison.before, "b": comparison.after, "difference": comparison.difference}
    figures = {
        key: {side: as_document(found[key]) for side, found in sides.items() if key in found}
        | {"ratio": comparison.ratio(key)}
        for key in dict.fromkeys([*comparison.before, *comparison.after])
    }
    return {"a": comparison.names[0], "b": comparison.names[1], "figures": figures}


def _name(result: Result) -> str:
    return f"{result.about['label']}-{result.about['hash']} ({result.about['cost_model']})"


def _rows(left: Mapping[str, Estimate], right: Mapping[str, Estimate]) -> dict[str, tuple[str, str]]:
    latencies = [key for key in dict.fromkeys([*left, *right]) if key.startswith("latency.")]
    named = {key: (_latency(key), "") for key in latencies}
    return RATES | named | {key: (f"{name}, ms", "") for key, name in TIMES.items()}


def _latency(key: str) -> str:
    """Return a figure such as `latency.all.p999_ms` in words, as `endive run` has them."""
    _, kind, figure = key.split(".")
    return f"{kind} {QUANTILES[figure]}, ms" if figure in QUANTILES else f"{kind} {figure}"


def _differences(left: list[dict[str, float | None]], right: list[dict[str, float | None]]) -> dict[str, Estimate]:
    """Return the mean of the seed-by-seed differences, with its interval."""
    changes: dict[str, Estimate] = {}
    for key in left[0]:
        pairs = [(a.get(key), b.get(key)) for a, b in zip(left, right, strict=True)]
        values = [after - before for before, after in pairs if before is not None and after is not None]
        if len(values) == len(pairs):
            changes[key] = estimate(values)
    return changes
