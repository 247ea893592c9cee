"""`endive.compare`: two configurations or results, seed by seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from endive.errors import ConfigurationError, ResultError
from endive.sim.config.configuration import SET, Overrides, Settings, Source, is_text, settings_of
from endive.sim.config.seeds import Seeds, seeds_of
from endive.sim.results.display import Displayed, Grid, bars
from endive.sim.results.experiment import Result, find_results, load_result
from endive.sim.results.labels import explained, mark
from endive.sim.results.metrics import RATES, TIMES, WHOLE_RUN, Metric, latency_metrics, with_interval
from endive.sim.results.prices import NAME as DOLLARS
from endive.sim.results.runs import RunResults, Watcher, run
from endive.sim.results.summary import Estimate, differences, estimates

if TYPE_CHECKING:
    import altair as alt

Results = Mapping[int, Result]
"""Results by seed."""
Side = Source | RunResults


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Displayed):
    """The metrics of both sides over the seeds that they share."""

    names: tuple[str, str]
    seeds: list[int]
    before: Mapping[str, Estimate]
    after: Mapping[str, Estimate]
    difference: Mapping[str, Estimate]
    """Mean of the differences seed by seed, with its interval."""
    same_window: bool = True
    """False: each side has the metrics of its own window."""
    about: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    """The inputs of each side: provider, profiles, catalog, cost model, and the trust in them."""

    def ratio(self, name: str) -> float | None:
        """Return the second side's mean of a metric divided by the first side's."""
        before, after = self.before.get(name), self.after.get(name)
        return after.mean / before.mean if before and after and before.mean else None

    @property
    def title(self) -> str:
        return f"{self.names[0]} and {self.names[1]}, {self.compared_on}"

    @property
    def compared_on(self) -> str:
        """The seeds in words."""
        return f"compared on seed{'s' * (len(self.seeds) != 1)} {', '.join(map(str, self.seeds))}"

    @property
    def notes(self) -> list[str]:
        """Return a description of each side, and the parts that were not checked or that measurements contradict."""
        sides = [f"{name}: {describe(about)}" for name, about in zip(self.names, self.about, strict=True) if about]
        return [*sides, *explained(about.get("trust", {}) for about in self.about)]

    def grids(self) -> Sequence[Grid]:
        marks = [mark(about["trust"]) if "trust" in about else "" for about in self.about]
        either = max(marks)
        names = (self.names[0] + marks[0], self.names[1] + marks[1], f"difference{either}", f"ratio{either}")
        sides = (self.before, self.after, self.difference)
        rows = [
            (metric.label, *(with_interval(side.get(metric.name), metric.unit) for side in sides), self._ratio(metric))
            for metric in self._metrics()
        ]
        return (Grid(("metric", *names), rows),)

    def _ratio(self, metric: Metric) -> str:
        ratio = self.ratio(metric.name)
        return "-" if ratio is None else f"{ratio:.3g}"

    def _metrics(self) -> list[Metric]:
        times = [Metric(time.name, f"{time.label}, ms", "", time.meaning) for time in TIMES]
        return [*RATES, PRICE, *latency_metrics(dict.fromkeys([*self.before, *self.after])), *times]

    def to_arrow(self) -> pa.Table:
        """Return one row for each metric: mean and half-width of the 95 % interval of `a`, `b` and the difference."""
        sides = {"a": self.before, "b": self.after, "difference": self.difference}
        fields = [
            pa.field("metric", pa.string()),
            *(pa.field(f"{side}{part}", pa.float64()) for side in sides for part in ("", "_half_width_95")),
            pa.field("ratio", pa.float64()),
        ]
        rows = [
            {"metric": name, "ratio": self.ratio(name)}
            | {side: found[name].mean for side, found in sides.items() if name in found}
            | {f"{side}_half_width_95": found[name].half_width for side, found in sides.items() if name in found}
            for name in dict.fromkeys([*self.before, *self.after])
        ]
        return pa.Table.from_pylist(rows, schema=pa.schema(fields))

    def chart(self) -> "alt.LayerChart":
        """Return the relative change of each metric, with its interval. Needs the extra `report`."""
        rows = []
        for metric in self._metrics():
            before, change = self.before.get(metric.name), self.difference.get(metric.name)
            if before and change and before.mean:
                mean, half = (100 * value / before.mean for value in (change.mean, change.half_width or 0.0))
                rows.append({"metric": metric.label, "mean": mean, "low": mean - half, "high": mean + half})
        title = f"{self.names[1]} compared with {self.names[0]}"
        return bars(pa.Table.from_pylist(rows), "difference, %", "metric", title)


def compare(
    a: Side,
    b: Side,
    seeds: Seeds = None,
    *,
    overrides: Overrides = (),
    out: str | Path | None = None,
    watcher: Watcher | None = None,
) -> Comparison:
    """Compare two configurations or results under common random numbers.

    Each side is what `endive.run` takes, what it returns, or the path of a result or an experiment's directory. The
    same seed gives both sides the same transactions, so the difference is taken seed by seed and its interval is
    narrow even where the metrics themselves vary. A configuration beside results is run with the results' seeds.

        endive.compare("mine.toml", "theirs.toml", seeds="1..5")
    """
    if overrides and not any(_is_configuration(side) for side in (a, b)):
        raise ConfigurationError(SET, ["both sides are results; only a configuration can be changed"])
    # Both sides are checked before anything runs.
    wanted = seeds_of(seeds, 0) if seeds is not None else None
    existing = [None if _is_configuration(side) else _results(side, wanted) for side in (a, b)]
    beside = wanted or sorted({seed for results in existing if results is not None for seed in results}) or None
    settings = [
        None if isinstance(side, RunResults) or not _is_configuration(side) else settings_of(side, overrides)
        for side in (a, b)
    ]

    def runs(number: int) -> Results:
        found, own = existing[number], settings[number]
        if found is not None or own is None:
            return found or {}
        return {result.seed: result for result in run(own, beside, out=out, watcher=watcher).results}

    left, right = runs(0), runs(1)
    common = sorted(left.keys() & right.keys())
    if not common:
        both = f"the first has {_seeds(left)}, the second {_seeds(right)}"
        raise ResultError(f"{_place(a)}, {_place(b)}", f"have no seed in common: {both}", SAME_SEEDS)
    return compared([left[seed] for seed in common], [right[seed] for seed in common])


PRICE = Metric(DOLLARS, "requests, $ per million commits", "", "price of all requests", WHOLE_RUN)
SAME_SEEDS = "run both with the same seeds"


def compared(left: Sequence[Result], right: Sequence[Result]) -> Comparison:
    """Compare results of the same seeds, in the same order."""
    before, after = ([result.flat() for result in side] for side in (left, right))
    return Comparison(
        (_name(left[0]), _name(right[0])),
        [result.seed for result in left],
        estimates(before),
        estimates(after),
        differences(before, after),
        all(one.about["window_ms"] == two.about["window_ms"] for one, two in zip(left, right, strict=True)),
        (left[0].about, right[0].about),
    )


def describe(about: Mapping[str, Any]) -> str:
    """Return provider, profile, catalog, granularity and cost model of a result; older ones have no catalog."""
    catalog = f"{about['catalog']}, " if "catalog" in about else ""
    return f"{about['provider']} ({about['profiles']} profile), {catalog}cost model {about['cost_model']}"


def _is_configuration(side: Side) -> bool:
    if isinstance(side, str | Path):
        return is_text(side) or Path(side).suffix == ".toml"
    return not isinstance(side, RunResults)


def _results(side: Side, wanted: Sequence[int] | None) -> Results:
    """Return results that exist, of the seeds that are wanted."""
    if isinstance(side, RunResults):
        results = list(side.results)
    else:
        results = [load_result(path) for path in find_results(Path(str(side)))]
    return {result.seed: result for result in results if wanted is None or result.seed in wanted}


def _place(side: Side) -> str:
    if isinstance(side, RunResults | Settings):
        return side.title if isinstance(side, RunResults) else side.source
    return str(side) if isinstance(side, str | Path) and not is_text(side) else "configuration"


def _seeds(results: Results) -> str:
    numbers = ", ".join(map(str, sorted(results))) or "none of those asked for"
    return f"seed {numbers}" if len(results) == 1 else f"seeds {numbers}" if results else numbers


def _name(result: Result) -> str:
    return f"{result.about['label']}-{result.about['hash']} ({result.about['cost_model']})"
