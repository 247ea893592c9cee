"""`endive.capacity`: the highest offered load that meets a target, of one configuration or of variations of it."""

import math
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from threading import Event
from typing import TYPE_CHECKING

import pyarrow as pa

from endive.errors import ConfigurationError, ErrorCollector
from endive.sim.config.configuration import Overrides, Settings, Source, inline_toml, override_texts, settings_of
from endive.sim.config.seeds import Seeds, seeds_of
from endive.sim.results.capacity import LOAD_MAX, Capacity, SeedCapacity, Target, load_of, seed_capacity
from endive.sim.results.display import Displayed, Grid, bars
from endive.sim.results.metrics import as_document, with_interval
from endive.sim.results.runs import Watcher
from endive.sim.results.summary import Estimate
from endive.wording import counted

if TYPE_CHECKING:
    import altair as alt

VARY = "--vary"
Vary = Mapping[str, Sequence[object]] | Sequence[str]
"""Values to search one by one: dotted keys to lists of values, or `KEY=A,B` texts. Several keys: every combination."""
Cases = Mapping[str, Settings]
"""Configurations by the values that distinguish them; without any, by label."""


@dataclass(frozen=True, repr=False, eq=False)
class CapacityResults(Displayed):
    """The capacity of each case. Cases that an interruption left without an answer are missing from `answers`."""

    cases: Cases
    answers: Mapping[str, Capacity]
    target: Target

    def __getitem__(self, case: str) -> Capacity:
        return self.answers[case]

    @property
    def complete(self) -> bool:
        """Whether every case has an answer."""
        return len(self.answers) == len(self.cases)

    @property
    def warnings(self) -> list[str]:
        """Keys without effect, and windows that are not stationary at capacity."""
        drifting = [name for name, answer in self.answers.items() if answer.exists and answer.drifts]
        settings = dict.fromkeys(message for each in self.cases.values() for message in each.warnings)
        return [*settings, *(f"{name}: {NOT_STATIONARY}" for name in drifting)]

    @property
    def title(self) -> str:
        models = ", ".join(dict.fromkeys(each.cost_models for each in self.cases.values()))
        profiles = ", ".join(dict.fromkeys(each.profile_set for each in self.cases.values()))
        catalogs = "; ".join(dict.fromkeys(each.catalog_name for each in self.cases.values()))
        return f"highest offered load with {self.target}; cost model {models}; {profiles} profile; {catalogs}"

    def grids(self) -> Sequence[Grid]:
        headings = ("case", "commits/s", "offered/s", "p99 ms", "limit")
        return (Grid(headings, [_cells(name, each) for name, each in self.answers.items()], frozenset({0, 4})),)

    def sentence(self, case: str) -> str:
        """Return the answer of a case as a sentence."""
        return sentence(self.cases[case], self.answers[case])

    def document(self) -> dict[str, object]:
        """Return the answers for JSON, by case."""
        return {name: _document(self.cases[name], answer) for name, answer in self.answers.items()}

    def to_arrow(self) -> pa.Table:
        """Return one row for each case; null where there is no highest load."""
        rows = []
        for name, answer in self.answers.items():
            row: dict[str, object] = {"case": name, "exists": answer.exists, "limit": answer.limit}
            for column, found in _estimates(answer).items():
                row |= {column: found.mean if found else None}
                row |= {f"{column}_half_width_95": found.half_width if found else None}
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def chart(self) -> "alt.LayerChart":
        """Return the commits per second of each case, with their intervals. Needs the extra `report`."""
        rows = [
            {"case": name, "mean": found.mean, "low": found.mean - half, "high": found.mean + half}
            for name, answer in self.answers.items()
            if answer.exists
            for found, half in [(answer.committed, answer.committed.half_width or 0.0)]
        ]
        return bars(pa.Table.from_pylist(rows), "commits per second", "case", self.title)


NOT_STATIONARY = "the window is not stationary at capacity; trim more, or run longer"
METRICS = ("commits_per_s", "offered_per_s", "p99_ms")
SCHEMA = pa.schema(
    [
        pa.field("case", pa.string()),
        pa.field("exists", pa.bool_()),
        pa.field("limit", pa.string()),
        *(pa.field(f"{name}{part}", pa.float64()) for name in METRICS for part in ("", "_half_width_95")),
    ]
)


def capacity(
    config: Source,
    success: float = 0.95,
    p99_ms: float | None = None,
    *,
    vary: Vary = (),
    seeds: Seeds = "1..5",
    tolerance: float = 0.01,
    overrides: Overrides = (),
    watcher: Watcher | None = None,
    spread: "Spread | None" = None,
) -> CapacityResults:
    """Find the highest offered load that meets a target, with its 95 % confidence interval.

    The search starts at the configuration's own load and scales its distribution of arrivals. `vary` searches each
    value of a key: `{"storage.provider": ["s3", "s3x"]}`. All cores are used, or those of a cluster with
    `spread=endive.pipeline.searching.on_spark(spark)`. An interruption keeps complete answers.

        endive.capacity("configs/capacity.toml", 0.95, vary={"catalog.num_tables": [1, 10]})
    """
    cases, watcher = cases_of(config, overrides, vary), watcher or Watcher()
    for settings in cases.values():
        watcher.loaded(settings)
    return search(cases, seeds_of(seeds, 0), Target(success, p99_ms), tolerance, watcher, spread or on_threads)


def cases_of(config: Source, overrides: Overrides = (), vary: Vary = ()) -> Cases:
    """Load the configuration with every combination of values; all errors are reported before anything runs."""
    pairs = vary.items() if isinstance(vary, Mapping) else map(parse_vary, vary)
    choices = [[f"{key}={_text(value)}" for value in values] for key, values in pairs]
    cases: dict[str, Settings] = {}
    errors = ErrorCollector()
    for chosen in product(*choices):
        with errors.collected():
            settings = _case(config, overrides, chosen)
            cases[" ".join(chosen) or settings.label] = settings
    errors.raise_for(VARY)
    return cases


def _text(value: object) -> str:
    return value if isinstance(value, str) else inline_toml(value)


def _case(config: Source, overrides: Overrides, chosen: tuple[str, ...]) -> Settings:
    """Load one combination; errors that it does not have without `chosen` are attributed to `--vary`."""
    try:
        settings = settings_of(config, [*override_texts(overrides), *chosen])
        load_of(settings)
    except ConfigurationError as error:
        if not chosen:
            raise
        raise error.after(_errors_without(config, overrides), VARY) from error
    return settings


def _errors_without(config: Source, overrides: Overrides) -> ConfigurationError | None:
    try:
        _case(config, overrides, ())
    except ConfigurationError as error:
        return error
    return None


def parse_vary(text: str) -> tuple[str, list[str]]:
    """Return the key and its values: TOML, separated by commas; bare words need no quotes."""
    key, equals, values = text.partition("=")
    try:
        parts = [inline_toml(value) for value in tomllib.loads(f"values = [{values}]")["values"]]
    except tomllib.TOMLDecodeError:
        parts = [part.strip() for part in values.split(",") if part.strip()]
    if not equals or not key or not parts:
        raise ConfigurationError(VARY, [f"{text!r}: expected KEY=A,B such as catalog.num_tables=1,10,20"])
    return key, parts


@dataclass(frozen=True)
class SearchTask:
    """The search of one seed of a case; it may run in another process."""

    case: str
    settings: Settings
    seed: int
    target: Target
    tolerance: float
    near: SeedCapacity | None = None
    """The answer of the case's first seed, near which this search begins."""

    def run(self, stopped: Callable[[], bool] = lambda: False) -> SeedCapacity:
        """Search; `stopped` ends a running search."""
        return seed_capacity(self.settings, self.seed, self.target, self.tolerance, self.near, stopped)


Spread = Callable[[Sequence[SearchTask]], Iterator[tuple[SearchTask, SeedCapacity]]]
"""Runs searches that do not depend on each other, in any order, and yields each with its answer."""


def on_threads(tasks: Sequence[SearchTask]) -> Iterator[tuple[SearchTask, SeedCapacity]]:
    """Run searches on all cores of this machine: the kernel runs without Python's lock."""
    stop = Event()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            running = {pool.submit(task.run, stop.is_set): task for task in tasks}
            for future in as_completed(running):
                yield running[future], future.result()
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def search(
    cases: Cases,
    seeds: Sequence[int],
    target: Target,
    tolerance: float,
    watcher: Watcher,
    spread: Spread = on_threads,
) -> CapacityResults:
    """Search every case and seed in two rounds: the first seeds, then the others, which start at the first's answer.

    Ctrl-C ends the search and keeps the complete answers.
    """
    found: dict[tuple[str, int], SeedCapacity] = {}
    with watcher.running("searching", len(cases) * len(seeds)) as progress, suppress(KeyboardInterrupt):
        for chosen in (seeds[:1], seeds[1:]):
            tasks = [
                SearchTask(name, settings, seed, target, tolerance, found.get((name, seeds[0])))
                for name, settings in cases.items()
                for seed in chosen
            ]
            for task, answer in spread(tasks) if tasks else ():
                found[task.case, task.seed] = answer
                progress(len(found))
    answers = {
        name: Capacity(tuple(found[name, seed] for seed in seeds), target)
        for name in cases
        if all((name, seed) in found for seed in seeds)
    }
    return CapacityResults(cases, answers, target)


def _estimates(answer: Capacity) -> dict[str, Estimate | None]:
    found = (answer.committed, answer.offered, answer.p99_ms) if answer.exists else (None, None, None)
    return dict(zip(METRICS, found, strict=True))


def _cells(name: str, answer: Capacity) -> tuple[str, ...]:
    limit = answer.limit if answer.exists else f"none: the target {no_answer(answer)}"
    return (name, *map(_value, _estimates(answer).values()), limit)


def _document(settings: Settings, answer: Capacity) -> dict[str, object]:
    return {
        "cost_model": settings.cost_models,
        "profiles": settings.profile_set,
        "target": str(answer.target),
        "exists": answer.exists,
        **{name: as_document(found) if found else None for name, found in _estimates(answer).items()},
        "limit": answer.limit,
        "seeds": len(answer.seeds),
        "stationary": not answer.drifts if answer.exists else None,
    }


def sentence(settings: Settings, answer: Capacity) -> str:
    """Return the answer of one configuration as a sentence."""
    tables = counted(settings.values.catalog.num_tables, "table")
    name = f"{settings.profile.title or settings.profile.name}, {tables}"
    model = f"cost model {settings.cost_models}, {settings.profile_set} profile"
    if answer.exists:
        return (
            f"{name}: {_value(answer.committed)} commits/s at {answer.target} of what finishes "
            f"({_value(answer.offered)} offered, p99 {_value(answer.p99_ms)} ms, "
            f"{counted(len(answer.seeds), 'seed')}, {model}); the limit is {answer.limit}"
        )
    return f"{name}: {answer.target} {no_answer(answer)}"


def _value(estimate: Estimate | None) -> str:
    """Return a value with its interval; without one if all seeds ended at the same step of the search."""
    return with_interval(replace(estimate, half_width=estimate.half_width or None) if estimate else None)


def no_answer(answer: Capacity) -> str:
    """Return why there is no highest load: the target holds nowhere, everywhere, or the seeds disagree."""
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
