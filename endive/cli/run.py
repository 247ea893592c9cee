"""`endive run`: one configuration, one or more seeds."""

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from endive.cli.console import Overrides, errors, output, progress_to, resumable, say_if_compiling, warn
from endive.cli.figures import as_document, counter_table, latency_table, rate_table, time_table
from endive.errors import ConfigurationError
from endive.sim.config.configuration import load_configuration
from endive.sim.config.schema import SEED_MAX
from endive.sim.config.seeds import parse_seeds
from endive.sim.engines import Engine
from endive.sim.results.experiment import Experiment, Figures, Result
from endive.sim.results.summary import estimates
from endive.sim.simulation import Progress
from endive.wording import counted

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
    figures_only: Annotated[
        bool, typer.Option("--figures-only", help="Print the figures; keep and write no rows.")
    ] = False,
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
    chosen = choose_seeds(seed, seeds, settings.values.simulation.seed)
    if figures_only:
        if again:
            raise ConfigurationError("--figures-only", ["nothing is written, so there is nothing to run --again"])
        if engine != "compiled":
            raise ConfigurationError("--figures-only", ["the reference engine keeps its rows; leave out --engine"])
        runs = [_figures(experiment, number) for number in chosen]
    else:
        with resumable():
            runs = [obtain(experiment, number, again, engine).figures() for number in chosen]
    if as_json:
        output.print_json(json.dumps(_document(experiment, runs)))
    else:
        _show(experiment, runs)


def _figures(experiment: Experiment, seed: int) -> Figures:
    say_if_compiling()
    with _progress(experiment, seed) as tell:
        return experiment.figures(seed, tell)


def _progress(experiment: Experiment, seed: int) -> AbstractContextManager[Progress]:
    return progress_to(experiment.settings.values.simulation.duration_ms, f"{experiment.settings.label} seed {seed}")


def obtain(experiment: Experiment, seed: int, again: bool = False, engine: Engine = "compiled") -> Result:
    """Return the result of a seed: the one that is there, or a new one."""
    there = None if again else experiment.load(seed)
    if there is not None:
        errors.print(f"seed {seed}: the result is there, not run again: {there.path}", soft_wrap=True, markup=False)
        return there
    if engine == "compiled":
        say_if_compiling()
    with _progress(experiment, seed) as tell:
        return experiment.run(seed, tell, engine)


def choose_seeds(seed: int | None, seeds: str | None, default: int) -> list[int]:
    """Return the seeds that the options name."""
    if seeds is None:
        return [default if seed is None else seed]
    if seed is not None:
        raise ConfigurationError("--seeds", [f"{seeds!r}: given together with --seed; leave one of them out"])
    try:
        return parse_seeds(seeds)
    except ValueError as error:
        raise ConfigurationError("--seeds", [f"{error}; for one seed write 3..3"]) from error


def _show(experiment: Experiment, runs: list[Figures]) -> None:
    figures = estimates([run.summary for run in runs])
    first = runs[0].about
    start_ms, end_ms = first["window_ms"]
    title = (
        f"{first['label']}: {first['provider']} ({first['profiles']} profile), cost model {first['cost_model']}, "
        f"{counted(len(runs), 'seed')}, window {start_ms / 60000:.4g} to {end_ms / 60000:.4g} min"
    )
    output.print(title, style="bold", soft_wrap=True, markup=False)
    for table in (
        rate_table(figures),
        latency_table(figures),
        time_table(figures),
        counter_table([run.counters for run in runs]),
    ):
        output.print(table)
        output.print()
    where = experiment.directory if runs[0].path else "not kept"
    output.print(f"results: {where}", soft_wrap=True, markup=False)
    warn(tuple(_drift_warning(run) for run in runs if run.summary.drift is not None))


def _drift_warning(run: Figures) -> str:
    change = 100 * (run.summary.drift or 0.0)
    return (
        f"seed {run.about['seed']}: the window is not stationary: its second half differs from its first by "
        f"{change:+.0f} % in commits, finished transactions or success; trim more, or run longer"
    )


def _document(experiment: Experiment, runs: list[Figures]) -> dict[str, object]:
    return {
        "experiment": str(experiment.directory),
        "runs": [
            {
                **run.about,
                "path": str(run.path) if run.path else None,
                "counters": dict(sorted(run.counters.items())),
                "figures": run.summary.flat(),
            }
            for run in runs
        ],
        "figures": {name: as_document(figure) for name, figure in estimates([run.summary for run in runs]).items()},
        "warnings": list(experiment.settings.warnings),
    }
