"""`endive capacity`: the highest load that holds a target."""

import json
import math
import os
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import product
from threading import Event
from typing import Annotated

import typer
from rich.table import Table

from endive.cli import INTERRUPTED
from endive.cli.console import Overrides, errors, output, progress_to, say_if_compiling, warn
from endive.cli.figures import as_document, with_interval
from endive.cli.run import choose_seeds
from endive.errors import ConfigurationError, ErrorCollector
from endive.sim.config.configuration import Settings, load_configuration
from endive.sim.results.capacity import LOAD_MAX, Capacity, SeedCapacity, Target, load_of, seed_capacity
from endive.sim.results.summary import Estimate
from endive.wording import counted

VARY = "--vary"
Cases = dict[str, Settings]
"""Configurations by what distinguishes them."""


def capacity(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A configuration in TOML, with open arrivals.")],
    success: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of transactions that must commit.")] = 0.95,
    p99_ms: Annotated[float | None, typer.Option("--p99-ms", min=0.0, help="Highest p99 of commit latency.")] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,…", help="Answer for each of these values; several `--vary` give every combination."
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="A..B", help="Replications; more narrow the interval.")] = "1..5",
    tolerance: Annotated[float, typer.Option(min=0.001, max=0.5, help="Of each search, relative to the load.")] = 0.01,
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Find the highest offered load that holds a target, with its 95 % confidence interval.

    The file's own load is where the search begins; its law of arrivals is kept, only faster or slower. Every seed
    brings the same transactions at every load.

    For example:

    `endive capacity configs/fast_append_s3.toml --success 0.95`

    `endive capacity configs/capacity.toml --vary storage.provider=s3,s3x,gcp --vary catalog.num_tables=1,10,20`
    """
    target = Target(success, p99_ms)
    cases = _cases(file, overrides or [], vary or [])
    warn(tuple(dict.fromkeys(message for settings in cases.values() for message in settings.warnings)))
    answers, complete = _search(cases, choose_seeds(None, seeds, 0), target, tolerance)
    if as_json:
        output.print_json(json.dumps({name: _document(cases[name], answer) for name, answer in answers.items()}))
    elif vary:
        output.print(_table(cases, answers))
    elif answers:
        output.print(_sentence(next(iter(cases.values())), next(iter(answers.values()))), soft_wrap=True, markup=False)
    for name, answer in answers.items():
        if answer.exists and answer.drifts:
            warn((f"{name or file}: the window is not stationary at capacity; trim more, or run longer",))
    if not complete:
        errors.print(f"interrupted: {len(answers)} of {len(cases)} answers were complete; a search keeps nothing else")
        raise typer.Exit(INTERRUPTED)


def _cases(file: str, overrides: list[str], vary: list[str]) -> Cases:
    """Load the configuration with every combination of the values. Every fault is found before anything runs."""
    choices = [[f"{key}={value}" for value in values] for key, values in map(_parse_vary, vary)]
    cases: Cases = {}
    errors = ErrorCollector()
    for chosen in product(*choices):
        with errors.collected():
            cases[" ".join(chosen)] = _case(file, overrides, chosen)
    errors.raise_for(VARY)
    return cases


def _case(file: str, overrides: list[str], chosen: tuple[str, ...]) -> Settings:
    """Load one combination; what is wrong with it, and not without it, is blamed on `--vary`."""
    try:
        settings = load_configuration(file, [*overrides, *chosen])
        load_of(settings)
    except ConfigurationError as error:
        if not chosen:
            raise
        raise error.after(_faults_without(file, overrides), VARY) from error
    return settings


def _faults_without(file: str, overrides: list[str]) -> ConfigurationError | None:
    try:
        _case(file, overrides, ())
    except ConfigurationError as error:
        return error
    return None


def _parse_vary(text: str) -> tuple[str, list[str]]:
    """Return the key and its values: TOML, separated by commas; bare words need no quotes."""
    key, equals, values = text.partition("=")
    try:
        parts = [_inline(value) for value in tomllib.loads(f"values = [{values}]")["values"]]
    except tomllib.TOMLDecodeError:
        parts = [part.strip() for part in values.split(",") if part.strip()]
    if not equals or not key or not parts:
        raise ConfigurationError(VARY, [f"{text!r}: expected KEY=A,B such as catalog.num_tables=1,10,20"])
    return key, parts


def _inline(value: object) -> str:
    """Return a value as TOML on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_inline(part)}" for name, part in value.items()) + " }"
    return json.dumps(value)


Found = dict[tuple[str, int], SeedCapacity]


def _search(cases: Cases, seeds: list[int], target: Target, tolerance: float) -> tuple[dict[str, Capacity], bool]:
    """Search every case and seed on all cores; return the complete answers, and whether that is all of them."""
    say_if_compiling()
    found: Found = {}
    stop = Event()
    first, rest = [(name, seeds[0]) for name in cases], [(name, seed) for name in cases for seed in seeds[1:]]
    with ThreadPoolExecutor(os.cpu_count()) as pool, progress_to(len(cases) * len(seeds), "searching") as tell:
        try:
            for jobs in (first, rest):  # the kernel runs without Python's lock
                running = {
                    pool.submit(
                        seed_capacity, cases[name], seed, target, tolerance, found.get((name, seeds[0])), stop.is_set
                    ): (name, seed)
                    for name, seed in jobs
                }
                for future in as_completed(running):
                    found[running[future]] = future.result()
                    tell(len(found))
        except BaseException as error:
            stop.set()
            pool.shutdown(cancel_futures=True)
            if not isinstance(error, KeyboardInterrupt):
                raise
    answers = {
        name: Capacity(tuple(found[name, seed] for seed in seeds), target)
        for name in cases
        if all((name, seed) in found for seed in seeds)
    }
    return answers, not stop.is_set()


def _sentence(settings: Settings, answer: Capacity) -> str:
    tables = counted(settings.values.catalog.num_tables, "table")
    what = f"{settings.profile.title or settings.profile.name}, {tables}"
    model = f"cost model {settings.values.transaction.cost_model}, {settings.profile_set} profile"
    if answer.exists:
        return (
            f"{what}: {_figure(answer.committed)} commits/s at {answer.target} of what finishes "
            f"({_figure(answer.offered)} offered, p99 {_figure(answer.p99_ms)} ms, "
            f"{counted(len(answer.seeds), 'seed')}, {model}); the limit is {answer.limit}"
        )
    return f"{what}: {answer.target} {_no_answer(answer)}"


def _figure(estimate: Estimate | None) -> str:
    """Return a figure with its interval; without one where all seeds ended at the same step of the search."""
    return with_interval(replace(estimate, half_width=estimate.half_width or None) if estimate else None)


def _no_answer(answer: Capacity) -> str:
    """Say why there is no highest load: it holds nowhere, everywhere, or the seeds disagree."""
    loads = [seed.offered_per_s for seed in answer.seeds]
    worst = min(answer.seeds, key=lambda seed: seed.offered_per_s)
    if min(loads) == math.inf:
        return f"holds at every load tried, up to {LOAD_MAX:g}/s"
    if max(loads) == 0.0:
        return f"does not hold at any load: {_how_bad(worst)}; {_remedy(worst)}"
    highest = max((load for load in loads if load < math.inf), default=0.0)
    holding = sum(load > 0.0 for load in loads)
    return (
        f"is too close to call: it holds in {holding} of {counted(len(loads), 'seed')}, in {loads.count(math.inf)} "
        f"of them at every load, else up to {highest:.3g}/s; ask for a little more or less, or run longer"
    )


def _how_bad(seed: SeedCapacity) -> str:
    summary = seed.at_capacity
    p99_ms = summary.latency["all"].p99_ms
    if summary.success is None:
        return f"at {summary.offered_per_s:.3g}/s nothing finishes in the window"
    latency = "" if p99_ms is None else f" and p99 {p99_ms:,.0f} ms"
    return f"at {summary.offered_per_s:.3g}/s success is {100 * summary.success:.1f} %{latency} ({seed.limit})"


def _remedy(seed: SeedCapacity) -> str:
    if seed.at_capacity.success is None:
        return "run longer (simulation.duration_ms), or with shorter transactions"
    return "ask for less, or change the catalog, the provider or the retries"


def _table(cases: Cases, answers: dict[str, Capacity]) -> Table:
    models = ", ".join(dict.fromkeys(settings.values.transaction.cost_model for settings in cases.values()))
    profiles = ", ".join(dict.fromkeys(settings.profile_set for settings in cases.values()))
    caption = f"cost model {models}; {profiles} profile"
    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption, caption_justify="left")
    table.add_column("case")
    for heading in ("commits/s", "offered/s", "p99 ms"):
        table.add_column(heading, justify="right")
    table.add_column("the limit is")
    for name, answer in answers.items():
        if answer.exists:
            figures: tuple[Estimate | None, ...] = (answer.committed, answer.offered, answer.p99_ms)
            table.add_row(name, *map(_figure, figures), answer.limit)
        else:
            table.add_row(name, "-", "-", "-", f"none: the target {_no_answer(answer)}")
    return table


def _document(settings: Settings, answer: Capacity) -> dict[str, object]:
    return {
        "cost_model": settings.values.transaction.cost_model,
        "profiles": settings.profile_set,
        "target": str(answer.target),
        "exists": answer.exists,
        "commits_per_s": as_document(answer.committed) if answer.exists else None,
        "offered_per_s": as_document(answer.offered) if answer.exists else None,
        "p99_ms": as_document(answer.p99_ms) if answer.exists and answer.p99_ms else None,
        "limit": answer.limit,
        "seeds": len(answer.seeds),
        "stationary": not answer.drifts if answer.exists else None,
    }
