"""`endive run`: one configuration, one or more seeds."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from endive.cli.console import Overrides, errors, output, progress_to, resumable, say_if_compiling, warn
from endive.cli.tables import rich_table
from endive.errors import ConfigurationError
from endive.sim.config.configuration import Settings, load_configuration
from endive.sim.config.schema import SEED_MAX
from endive.sim.config.seeds import seeds_of
from endive.sim.engines import Engine
from endive.sim.results.experiment import Experiment, Result
from endive.sim.results.metrics import as_document
from endive.sim.results.runs import RunResults, Watcher
from endive.sim.results.runs import run as run_seeds
from endive.sim.results.trust import parts_of, trust_of
from endive.sim.simulation import Progress

Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Directory of all experiments; created if it does not exist.")
]
Seeds = Annotated[
    str | None,
    typer.Option("--seeds", metavar="A..B", help="Several seeds, the last included, such as `1..5`; not with --seed."),
]

EngineOption = Annotated[
    Engine,
    typer.Option(help="`compiled` is fast; `reference` is the readable one that defines the results. They are equal."),
]


UncertaintyOption = Annotated[
    bool,
    typer.Option(
        "--uncertainty",
        help="Also under other assumptions of the model: decision point of a conditional write, reuse of manifests, "
        "granularity.",
    ),
]


def run(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A configuration in TOML; `configs/` has examples.")],
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=SEED_MAX, help="Seed of all random streams; replaces the file's."),
    ] = None,
    seeds: Seeds = None,
    overrides: Overrides = None,
    out: Out = Path("experiments"),
    force: Annotated[bool, typer.Option("--force", help="Run even if the result exists, and replace it.")] = False,
    again: Annotated[bool, typer.Option("--again", hidden=True)] = False,
    engine: EngineOption = "compiled",
    metrics_only: Annotated[
        bool, typer.Option("--metrics-only", help="Print the metrics; keep and write no rows.")
    ] = False,
    figures_only: Annotated[bool, typer.Option("--figures-only", hidden=True)] = False,
    uncertainty: UncertaintyOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON, for machines.")] = False,
) -> None:
    """Simulate a configuration and print its metrics.

    Results go to `DIR/<label>-<hash>/<seed>/results.parquet`. A finished run is not repeated: the hash covers
    everything that the result depends on, so a changed value gives another directory. With several seeds every metric
    has its 95 % confidence interval. Metrics marked † rest on a part of the model that was not checked.

    For example:

    `endive run configs/fast_append_s3.toml`

    `endive run configs/fast_append_s3.toml --seeds 1..5 --set storage.provider=s3x`

    `endive run configs/fast_append_s3.toml --set 'transaction.inter_arrival={ scale = 100 }' --json`
    """
    rows, force = not (metrics_only or figures_only), force or again
    if not rows and force:
        raise ConfigurationError("--metrics-only", ["nothing is written, so --force has nothing to replace"])
    if not rows and engine != "compiled":
        raise ConfigurationError("--metrics-only", ["the reference engine keeps its rows; leave out --engine"])
    settings = load_configuration(file, overrides or ())
    with resumable():
        results = run_seeds(
            settings,
            choose_seeds(seed, seeds, settings.values.simulation.seed),
            engine,
            out=out,
            rows=rows,
            force=force,
            uncertainty=uncertainty,
            watcher=ConsoleWatcher(compiled=engine == "compiled"),
        )
    directory = Experiment(settings, out).directory
    if as_json:
        output.print_json(json.dumps(_document(results, directory)))
    else:
        _show(results, directory)


class ConsoleWatcher(Watcher):
    """Shows progress on standard error."""

    def __init__(self, compiled: bool = True) -> None:
        self._compiled = compiled
        self._warned: set[str] = set()

    def loaded(self, settings: Settings) -> None:
        new = [message for message in settings.warnings if message not in self._warned]
        self._warned.update(new)
        warn(tuple(new))

    @contextmanager
    def running(self, title: str, total: float) -> Iterator[Progress]:
        if self._compiled:
            say_if_compiling()
        with progress_to(total, title) as progress:
            yield progress

    def found(self, result: Result) -> None:
        message = f"seed {result.seed}: the result exists, not run again: {result.path}"
        errors.print(message, soft_wrap=True, markup=False)


def choose_seeds(seed: int | None, seeds: str | None, default: int) -> list[int]:
    """Return the seeds that the options name."""
    if seed is not None and seeds is not None:
        raise ConfigurationError("--seeds", [f"{seeds!r}: given together with --seed; leave one of them out"])
    return seeds_of(seeds if seed is None else seed, default, "--seeds")


def _show(results: RunResults, directory: Path) -> None:
    output.print(results.title, style="bold", soft_wrap=True, markup=False)
    for grid in results.grids():
        output.print(rich_table(grid, first_width=34))
        output.print()
    for note in results.notes:
        output.print(note, soft_wrap=True, markup=False)
    place = directory if results.results[0].path else "not kept"
    output.print(f"results: {place}", soft_wrap=True, markup=False)
    warn(tuple(results.warnings[len(results.settings.warnings) :]))


def _document(results: RunResults, directory: Path) -> dict[str, object]:
    """Return the metrics for JSON; `figures` is their name until version 0.1.0, and stays for this release."""
    trust = trust_of(results.settings)
    metrics = {name: as_document(found, trust) for name, found in results.metrics.items()}
    return {
        "experiment": str(directory),
        **parts_of(results.settings),
        "runs": [
            {
                **result.about,
                "path": str(result.path) if result.path else None,
                "counters": dict(sorted(result.counters.items())),
                "metrics": result.summary.flat(),
                "figures": result.summary.flat(),
            }
            for result in results.results
        ],
        "metrics": metrics,
        "figures": metrics,
        **({"uncertainty": results.ranges} if results.ranges else {}),
        "warnings": list(results.settings.warnings),
    }
