"""`endive.run`: one configuration with one or more seeds."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from endive.sim.config.configuration import Overrides, Settings, Source, settings_of
from endive.sim.config.seeds import Seeds, seeds_of
from endive.sim.engines import Engine
from endive.sim.results.display import Displayed, Grid, bars
from endive.sim.results.experiment import Experiment, Result, simulate_seed
from endive.sim.results.metrics import LABELS, RATES, TIMES, bounds, number, with_interval
from endive.sim.results.prices import NAME as DOLLARS
from endive.sim.results.prices import dollars_per_million_commits
from endive.sim.results.summary import Estimate, estimate, estimates
from endive.sim.results.trust import footnotes, mark_of, marked
from endive.sim.results.uncertainty import AS_CONFIGURED, Ranges, assumptions_of
from endive.sim.simulation import Progress
from endive.wording import counted

if TYPE_CHECKING:
    import altair as alt


TABLES_SHOWN = 10
"""Rows of the list of hottest tables."""

OF_CLASSES = (
    ("offered_per_s", "offered", "/s"),
    ("committed_per_s", "committed", "/s"),
    ("success", "success", "%"),
    ("retries_mean", "retries", ""),
    ("latency.all.p50_ms", "p50, ms", ""),
    ("latency.all.p99_ms", "p99, ms", ""),
)
OF_TABLES = (
    ("finished_per_s", "finished", "/s"),
    ("committed_per_s", "committed", "/s"),
    ("success", "success", "%"),
    ("retries_mean", "retries", ""),
    ("p50_ms", "p50, ms", ""),
    ("p99_ms", "p99, ms", ""),
)
"""Metric, heading and unit of the columns by class and by table."""
UNCERTAIN = ("committed_per_s", "success", "retries_mean", "latency.all.p50_ms", "latency.all.p99_ms")
"""Metrics that are shown under other assumptions of the model."""


class Watcher:
    """Receives the progress of runs. This one ignores it."""

    def running(self, title: str, total: float) -> AbstractContextManager[Progress]:  # noqa: ARG002
        """Return a context in which a function takes the progress, up to `total`."""
        return nullcontext(lambda _done: None)

    def found(self, result: Result) -> None:
        """Take note of a result that exists and is not run again."""

    def loaded(self, settings: Settings) -> None:
        """Take note of a configuration before it is run."""


@dataclass(frozen=True, repr=False, eq=False)
class RunResults(Displayed):
    """The results of one configuration, one for each seed."""

    settings: Settings
    results: tuple[Result, ...]
    ranges: Ranges = field(default_factory=dict)
    """Means under other assumptions of the model, by metric and assumption; empty unless asked for."""

    @property
    def seeds(self) -> list[int]:
        """The seeds, in the order given."""
        return [result.seed for result in self.results]

    @cached_property
    def metrics(self) -> Mapping[str, Estimate]:
        """Mean over the seeds and 95 % interval of each metric, by dotted name such as `latency.all.p99_ms`."""
        found = estimates([result.summary.flat() for result in self.results])
        dollars = [dollars_per_million_commits(self.settings, result.counters) for result in self.results]
        known = [price for price in dollars if price is not None]
        return found | {DOLLARS: estimate(known)} if len(known) == len(dollars) else found

    @property
    def warnings(self) -> list[str]:
        """Keys without effect, and windows that are not stationary."""
        drifting = [result for result in self.results if result.summary.drift is not None]
        return [*self.settings.warnings, *map(_drift_warning, drifting)]

    @property
    def title(self) -> str:
        about = self.results[0].about
        start_ms, end_ms = about["window_ms"]
        return (
            f"{about['label']}: {about['provider']} ({about['profiles']} profile), {self.settings.catalog_name}, "
            f"cost model {about['cost_model']}, "
            f"{counted(len(self.results), 'seed')}, window {span(start_ms, end_ms)}"
        )

    def grids(self) -> Sequence[Grid]:
        counters = [result.counters for result in self.results]
        rates, *others = metric_grids(self.metrics)
        price = [("requests, $ per million commits", with_interval(self.metrics.get(DOLLARS)))]
        grids = (
            replace(rates, rows=[*rates.rows, *price]),
            *class_grids(self.metrics),
            *table_grids(self.metrics),
            *range_grids(self.ranges),
            *others,
            counter_grid(counters),
        )
        return tuple(marked(grid, mark_of(self.settings)) for grid in grids)

    @property
    def notes(self) -> list[str]:
        """The parts of the model that were not checked, or that measurements contradict."""
        return footnotes([self.settings])

    def to_arrow(self, rows: Literal["seeds", "transactions"] = "seeds") -> pa.Table:
        """Return one row for each seed with its metrics, or one row for each transaction of all seeds."""
        if rows == "seeds":
            return pa.Table.from_pylist([{"seed": one.seed} | one.summary.flat() for one in self.results])
        tables = [(one.seed, one.table) for one in self.results if one.table is not None]
        if len(tables) < len(self.results):
            raise ValueError("the rows were not kept; run again with rows=True")
        return pa.concat_tables(
            table.replace_schema_metadata(None).add_column(0, "seed", pa.array([seed] * table.num_rows, pa.int64()))
            for seed, table in tables
        )

    def chart(self) -> "alt.LayerChart":
        """Return the quantiles of commit latency by operation type. Needs the extra `report`."""
        rows = [
            {"quantile": label, "operation type": kind, **bounds(found)}
            for kind in latency_kinds(self.metrics)
            for name, label in LABELS.items()
            if (found := self.metrics.get(f"latency.{kind}.{name}")) is not None
        ]
        return bars(pa.Table.from_pylist(rows), "commit latency, ms", "quantile", self.title, "operation type")


def span(start_ms: float, end_ms: float) -> str:
    """Return a part of a run in the unit that suits its end, such as `15 to 45 min` or `3.5 to 10.5 days`."""
    units = ((864e5, "days", 72 * 36e5), (36e5, "h", 10 * 36e5), (6e4, "min", 0.0))
    unit_ms, unit = next((length_ms, name) for length_ms, name, least_ms in units if end_ms >= least_ms)
    return f"{start_ms / unit_ms:.4g} to {end_ms / unit_ms:.4g} {unit}"


def _drift_warning(result: Result) -> str:
    change = 100 * (result.summary.drift or 0.0)
    return (
        f"seed {result.seed}: the window is not stationary: its second half differs from its first by "
        f"{change:+.0f} % in commits, finished transactions or success; trim more, or run longer"
    )


def run(
    config: Source,
    seeds: Seeds = None,
    engine: Engine = "compiled",
    *,
    overrides: Overrides = (),
    out: str | Path | None = None,
    rows: bool = True,
    force: bool = False,
    uncertainty: bool = False,
    watcher: Watcher | None = None,
) -> RunResults:
    """Simulate a configuration and return its metrics.

    `config` is a dictionary, a path, or TOML text. `seeds` is one seed, several, or a range such as `"1..5"`; unless
    given, the configuration's. `overrides` replaces values: `{"storage.provider": "s3x"}`. With `out`, results are
    written below that directory, and one that exists is read instead of run (`force`: run again). `rows=False` keeps
    no transactions. `uncertainty=True` adds metrics under other assumptions of the model. Raises `ConfigurationError`
    with every error of the configuration.

        results = endive.run("configs/fast_append_s3.toml", seeds="1..5")
        results.metrics["committed_per_s"].mean
    """
    settings, watcher = settings_of(config, overrides), watcher or Watcher()
    watcher.loaded(settings)
    chosen = seeds_of(seeds, settings.values.simulation.seed)
    if out is not None and rows:
        experiment = Experiment(settings, Path(out))
        found = RunResults(settings, tuple(obtain(experiment, seed, engine, force, watcher) for seed in chosen))
    else:
        found = RunResults(settings, _simulated(settings, chosen, engine, rows, watcher))
    return replace(found, ranges=_ranges(found, watcher)) if uncertainty else found


def _simulated(
    settings: Settings, seeds: Sequence[int], engine: Engine, rows: bool, watcher: Watcher, title: str = ""
) -> tuple[Result, ...]:
    results = []
    for seed in seeds:
        name = f"{title or settings.label} seed {seed}"
        with watcher.running(name, settings.values.simulation.duration_ms) as progress:
            results.append(simulate_seed(settings, seed, engine, rows, progress))
    return tuple(results)


def _ranges(found: RunResults, watcher: Watcher) -> Ranges:
    """Return the metrics under each other assumption of the model, with the same seeds."""
    means = {AS_CONFIGURED: found.metrics} | {
        name: RunResults(changed, _simulated(changed, found.seeds, "compiled", False, watcher, name)).metrics
        for name, changed in assumptions_of(found.settings).items()
    }
    classes = [f"classes.{name}.{key}" for name in groups_of(found.metrics, "classes") for key in UNCERTAIN]
    return {
        key: {name: metrics[key].mean for name, metrics in means.items() if key in metrics}
        for key in (*UNCERTAIN, DOLLARS, *classes)
        if key in found.metrics
    }


def obtain(experiment: Experiment, seed: int, engine: Engine, force: bool, watcher: Watcher) -> Result:
    """Return the result of a seed: the one that exists, or a new one."""
    existing = None if force else experiment.load(seed)
    if existing is not None:
        watcher.found(existing)
        return existing
    settings = experiment.settings
    with watcher.running(f"{settings.label} seed {seed}", settings.values.simulation.duration_ms) as progress:
        return experiment.run(seed, progress, engine)


def latency_kinds(names: Iterable[str]) -> list[str]:
    """Return the operation types that have latency metrics, `all` first."""
    return list(dict.fromkeys(name.split(".")[1] for name in names if name.startswith("latency.")))


def metric_grids(metrics: Mapping[str, Estimate]) -> tuple[Grid, Grid, Grid]:
    """Return rates, commit latency and where the time went, as tables."""
    rates = [(metric.label, with_interval(metrics.get(metric.name), metric.unit)) for metric in RATES]
    aborted = [(name, found) for name, found in metrics.items() if name.startswith("aborted.")]
    rates += [(f"aborted: {name.removeprefix('aborted.')}", with_interval(found)) for name, found in aborted]
    latencies = [
        (kind, *(with_interval(metrics.get(f"latency.{kind}.{name}")) for name in ("commits", *LABELS)))
        for kind in latency_kinds(metrics)
    ]
    spent = [(metric.label, metrics[metric.name]) for metric in TIMES if metric.name in metrics]
    total_ms = sum(found.mean for _, found in spent)
    times = [
        (label, with_interval(found), number(found.mean / total_ms if total_ms else 0.0, "%")) for label, found in spent
    ]
    return (
        Grid(("", "metric"), rates),
        Grid(("commit latency, ms", "commits", *LABELS.values()), latencies),
        Grid(("where the milliseconds went", "mean, ms", "share"), times),
    )


def class_grids(metrics: Mapping[str, Estimate]) -> list[Grid]:
    """Return the most important metrics of each class of transactions; nothing if there is one class."""
    rows = [
        (name, *(with_interval(metrics.get(f"classes.{name}.{key}"), unit) for key, _, unit in OF_CLASSES))
        for name in groups_of(metrics, "classes")
    ]
    return [Grid(("class", *(label for _, label, _ in OF_CLASSES)), rows)] if rows else []


def table_grids(metrics: Mapping[str, Estimate]) -> list[Grid]:
    """Return the hottest tables: those with the most retries. Nothing if there is one table."""
    rows = [
        (f"table {name}", *(with_interval(metrics.get(f"tables.{name}.{key}"), unit) for key, _, unit in OF_TABLES))
        for name in sorted(groups_of(metrics, "tables"), key=lambda name: _lost_races(metrics, name))[:TABLES_SHOWN]
    ]
    return [Grid(("hottest tables", *(label for _, label, _ in OF_TABLES)), rows)] if rows else []


def range_grids(ranges: Ranges) -> list[Grid]:
    """Return the metrics under other assumptions of the model; nothing unless they were asked for."""
    names = list(next(iter(ranges.values()), {}))
    units = {metric.name: metric.unit for metric in RATES}
    rows = [
        (
            key.removeprefix("classes.").replace("latency.all.", ""),
            *(number(by[name], units.get(key.split(".")[-1], "")) if name in by else "-" for name in names),
        )
        for key, by in ranges.items()
    ]
    return [Grid(("model uncertainty", *names), rows)] if rows else []


def _lost_races(metrics: Mapping[str, Estimate], table: str) -> tuple[float, int]:
    """Return a key that sorts tables by retries a second, most first."""
    finished, retries = (metrics.get(f"tables.{table}.{key}") for key in ("finished_per_s", "retries_mean"))
    return -(finished.mean * retries.mean if finished and retries else 0.0), int(table)


def groups_of(metrics: Iterable[str], prefix: str) -> list[str]:
    """Return the names of classes or tables that have metrics."""
    return list(dict.fromkeys(name.split(".")[1] for name in metrics if name.startswith(f"{prefix}.")))


def counter_grid(counters: Sequence[Mapping[str, int]]) -> Grid:
    """Return requests and outcomes by kind, of the whole run; the mean over the seeds."""
    kinds = sorted({name for counts in counters for name in counts})
    means = [(kind, sum(counts.get(kind, 0) for counts in counters) / len(counters)) for kind in kinds]
    rows = [(kind.replace("_", " "), number(mean)) for kind, mean in means]
    return Grid(("requests and outcomes, whole run", "count"), rows)
