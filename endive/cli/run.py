"""`endive run`: one configuration, one or more seeds."""

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from endive.cli.console import Overrides, errors, output, progress_to, say_if_compiling, warn
from endive.cli.figures import counter_table, latency_table, rate_table, time_table
from endive.errors import ConfigurationError
from endive.sim.config import load_configuration
from endive.sim.engines import Engine
from endive.sim.experiment import Experiment, Result
from endive.sim.schema import SEED_MAX
from endive.sim.summary import estimates

Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Directory of all experiments; made if it is not there.")
]
Seeds = Annotated[
    str | None,
    typer.Option("--seeds", metavar="A..B", help="Several seeds, the last included, such as `1..5`; not with --seed."),
]

EngineOption = Annotated[
    Engine,
    typer.Option(help="`compiled` is fast; `reference` is the readable one that defines the results. They are equal."),
]

SEEDS_MAX = 10_000


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A configuration in TOML; `configs/` has examples.")],
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=SEED_MAX, help="Seed of all random streams, in the place of the file's."),
    ] = None,
    seeds: Seeds = None,
    overrides: Overrides = None,
    out: Out = Path("experiments"),
    again: Annotated[bool, typer.Option("--again", help="Run even if the result is there, and replace it.")] = False,
    engine: EngineOption = "compiled",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON, for machines.")] = False,
) -> None:
    """Simulate a configuration and show what its commits did.

    Results go to `DIR/<label>-<hash>/<seed>/results.parquet`. A finished run is not repeated: the hash names
    everything that the result depends on, so a changed value gives another directory. With several seeds every figure
    carries its 95 % confidence interval.

    For example:

    `endive run configs/fast_append_s3.toml`

    `endive run configs/fast_append_s3.toml --seeds 1..5 --set storage.provider=s3x`

    `endive run configs/fast_append_s3.toml --set 'transaction.inter_arrival={ scale = 100 }' --json`
    """
    settings = load_configuration(file, overrides or ())
    warn(settings.warnings)
    experiment = Experiment(settings, out)
    results = [
        obtain(experiment, number, again, engine)
        for number in choose_seeds(seed, seeds, settings.values.simulation.seed)
    ]
    if as_json:
        output.print_json(json.dumps(_document(experiment, results)))
    else:
        _show(experiment, results)


def obtain(experiment: Experiment, seed: int, again: bool = False, engine: Engine = "compiled") -> Result:
    """Return the result of a seed: the one that is there, or a new one."""
    there = None if again else experiment.load(seed)
    if there is not None:
        errors.print(f"seed {seed}: the result is there, not run again: {there.path}", soft_wrap=True, markup=False)
        return there
    if engine == "compiled":
        say_if_compiling()
    with progress_to(
        experiment.settings.values.simulation.duration_ms, f"{experiment.settings.label} seed {seed}"
    ) as tell:
        return experiment.run(seed, tell, engine)


def choose_seeds(seed: int | None, seeds: str | None, default: int) -> list[int]:
    """Return the seeds that the options name."""
    if seeds is None:
        return [default if seed is None else seed]
    if seed is not None:
        raise ConfigurationError("--seeds", [f"{seeds!r}: given together with --seed; leave one of them out"])
    match = re.fullmatch(r"([0-9]+)\.\.([0-9]+)", seeds)
    if match is None:
        raise ConfigurationError("--seeds", [f"{seeds!r}: expected A..B, such as 1..5; for one seed use --seed"])
    first, last = int(match[1]), int(match[2])
    if not first <= last < first + SEEDS_MAX or last > SEED_MAX:
        raise ConfigurationError("--seeds", [f"{seeds!r}: expected A at most B, and at most {SEEDS_MAX:,} seeds"])
    return list(range(first, last + 1))


def _show(experiment: Experiment, results: list[Result]) -> None:
    figures = estimates([result.summary() for result in results])
    first = results[0].about
    start_ms, end_ms = first["window_ms"]
    title = (
        f"{first['label']}: {first['provider']} ({first['profiles']} profile), cost model {first['cost_model']}, "
        f"{len(results)} seed{'s' if len(results) != 1 else ''}, window {start_ms / 60000:g} to {end_ms / 60000:g} min"
    )
    output.print(title, style="bold", soft_wrap=True, markup=False)
    for table in (
        rate_table(figures),
        latency_table(figures),
        time_table(figures),
        counter_table([result.counters for result in results]),
    ):
        output.print(table)
        output.print()
    output.print(f"results: {experiment.directory}", soft_wrap=True, markup=False)
    warn(tuple(_drift_warning(result) for result in results if result.summary().drift is not None))


def _drift_warning(result: Result) -> str:
    change = 100 * (result.summary().drift or 0.0)
    return (
        f"seed {result.about['seed']}: the window is not stationary: commits/s change by {change:+.0f} % from its "
        "first half to its second; trim more (simulation.trim_start_ms), or run longer"
    )


def _document(experiment: Experiment, results: list[Result]) -> dict[str, object]:
    summaries = [result.summary() for result in results]
    return {
        "experiment": str(experiment.directory),
        "runs": [
            {"path": str(result.path), **result.about, "figures": summary.flat()}
            for result, summary in zip(results, summaries, strict=True)
        ],
        "figures": {
            name: {"mean": figure.mean, "half_width_95": figure.half_width}
            for name, figure in estimates(summaries).items()
        },
        "warnings": list(experiment.settings.warnings),
    }
