"""Search for the highest offered load that meets a target.

Each seed is searched on its own: the load is raised or lowered until the target stops or starts to hold, then
bisected; the other seeds start at the first one's answer. The same seed gives the same transactions at every load,
only closer together (common random numbers), so neighbouring loads differ by the load and not by chance. The capacities
of the seeds are a sample; their mean has a confidence interval.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from endive.errors import ConfigurationError
from endive.sim.config.configuration import SET, Settings
from endive.sim.config.distributions import DistributionSection
from endive.sim.results.summary import Estimate, Summary, Tally, estimate
from endive.timing import TICKS_PER_MS

LOAD_MAX = 1_000.0
"""Transactions per second. A target that still holds there does not depend on the load."""
COUNTED_MIN = 2_000
"""No run ends early before this many transactions have finished in its window."""
BACKLOG = 0.5
"""If less than this share of the offered transactions finishes, the run is falling behind."""
TRANSACTIONS_MIN = 30
"""With fewer transactions in the window, a success rate means nothing."""

Evaluate = Callable[[float], Summary]
"""Simulates an offered load, in transactions per second."""


@dataclass(frozen=True)
class Target:
    """What must hold at an offered load: a success rate, and optionally a p99 commit latency."""

    success: float
    p99_ms: float | None = None

    def is_missed(self, tally: Tally) -> bool:
        """Whether success is so far below the target that the run can end early.

        Only a clear miss ends a run: while a backlog builds up, the first part of the window looks too good.
        """
        if tally.counted < COUNTED_MIN:
            return False
        error = math.sqrt(self.success * (1 - self.success) / tally.counted)
        return tally.successes / tally.counted + 5 * error < self.success

    def broken_by(self, summary: Summary) -> str | None:
        """Return which part of the target a run misses; None if it holds."""
        if summary.success is None:
            return "nothing finishes in the window"
        if summary.finished_per_s < BACKLOG * summary.offered_per_s:
            return "a backlog: transactions arrive faster than they finish"
        if summary.success < self.success:
            return f"success: {_reason(summary)}"
        p99_ms = summary.latency["all"].p99_ms
        if self.p99_ms is not None and p99_ms is not None and p99_ms > self.p99_ms:
            return f"p99 latency: most of it is {_longest(summary)}"
        return None

    def __str__(self) -> str:
        latency = "" if self.p99_ms is None else f" and p99 of at most {self.p99_ms:g} ms"
        return f"{100 * self.success:g} % success{latency}"


def _reason(summary: Summary) -> str:
    names = {
        "max_retries_exceeded": "retries run out",
        "validation_exception": "real conflicts abort",
        "retry_timeout": "the time for retries runs out",
    }
    worst = max(summary.aborted, key=lambda name: summary.aborted[name])
    return names.get(worst, worst)


def _longest(summary: Summary) -> str:
    longest = max(summary.time_ms, key=lambda name: summary.time_ms[name])
    return longest.replace("_io", " I/O").replace("_", " ")


@dataclass(frozen=True)
class SeedCapacity:
    """The capacity of one seed."""

    offered_per_s: float
    """Highest offered load at which the target holds; 0 if at none, infinite if at every one."""
    at_capacity: Summary
    """The run at that load; if the target holds nowhere, the run at the lowest load tried."""
    limit: str
    """The part of the target that fails just above."""


@dataclass(frozen=True)
class Search:
    """Parameters of one seed's search: start, step until the answer is bracketed, and tolerance."""

    start_per_s: float
    window_s: float
    tolerance: float
    step: float = 2.0


def find_capacity(evaluate: Evaluate, search: Search, target: Target) -> SeedCapacity:
    """Search one seed: step up or down until the target stops or starts to hold, then bisect."""
    low = high = min(search.start_per_s, LOAD_MAX)
    summary = evaluate(low)
    limit = target.broken_by(summary)
    if limit is not None:
        return _step_down(evaluate, search, target, (high, limit, summary))
    while limit is None:
        low, best = high, summary
        if high >= LOAD_MAX:
            return SeedCapacity(math.inf, best, "none found")
        high = min(high * search.step, LOAD_MAX)
        summary = evaluate(high)
        limit = target.broken_by(summary)
    return _bisect(evaluate, (low, high), (best, limit), target, search.tolerance)


def _step_down(evaluate: Evaluate, search: Search, target: Target, known: tuple[float, str, Summary]) -> SeedCapacity:
    high, limit, summary = known
    while True:
        low = high / search.step
        if low * search.window_s < TRANSACTIONS_MIN:
            return SeedCapacity(0.0, summary, limit)
        summary = evaluate(low)
        broken = target.broken_by(summary)
        if broken is None:
            return _bisect(evaluate, (low, high), (summary, limit), target, search.tolerance)
        high, limit = low, broken


def _bisect(
    evaluate: Evaluate, bracket: tuple[float, float], known: tuple[Summary, str], target: Target, tolerance: float
) -> SeedCapacity:
    (low, high), (best, limit) = bracket, known
    while high / low > 1 + tolerance:
        middle = math.sqrt(low * high)
        summary = evaluate(middle)
        broken = target.broken_by(summary)
        if broken is None:
            low, best = middle, summary
        else:
            high, limit = middle, broken
    return SeedCapacity(low, best, limit)


def load_of(settings: Settings) -> float:
    """Return the offered load of a configuration, in transactions a second."""
    arrivals = settings.values.transaction.inter_arrival
    if settings.values.transaction.arrivals != "open" or arrivals is None:
        source = SET if settings.given.get("transaction.arrivals") == SET else settings.source
        raise ConfigurationError(
            source, ["transaction.arrivals: capacity is an offered load, which only open arrivals have"]
        )
    mean_ms = arrivals.build().quantile.mean_ticks / TICKS_PER_MS
    if mean_ms <= 0:
        raise ConfigurationError(settings.source, ["transaction.inter_arrival: a mean of 0 has no offered load"])
    return 1000.0 / mean_ms


def with_load(settings: Settings, factor: float) -> Settings:
    """Return the configuration at `factor` times its offered load: the same distribution of arrivals, scaled."""
    arrivals = settings.values.transaction.inter_arrival
    if arrivals is None:
        raise ConfigurationError(settings.source, ["transaction.inter_arrival: required"])
    return settings.with_inter_arrival(shrunk(arrivals, factor))


SCALED = ("mean", "median", "scale", "value", "stddev", "base", "per_mib", "min", "max")


def shrunk(section: DistributionSection, factor: float) -> DistributionSection:
    """Return a distribution with every time divided by `factor`; its shape stays."""
    changes: dict[str, object] = {
        name: value / factor for name in SCALED if (value := getattr(section, name)) is not None
    }
    if section.quantiles is not None:
        changes["quantiles"] = tuple((probability, value / factor) for probability, value in section.quantiles)
    return section.model_copy(update=changes)


@dataclass(frozen=True)
class Capacity:
    """The capacity over several seeds."""

    seeds: tuple[SeedCapacity, ...]
    target: Target

    @property
    def exists(self) -> bool:
        """Whether every seed has a highest load: the target holds at some load and fails at another."""
        return len(self.finite) == len(self.seeds)

    @property
    def finite(self) -> list[SeedCapacity]:
        """The seeds that have a highest load."""
        return [seed for seed in self.seeds if 0.0 < seed.offered_per_s < math.inf]

    @property
    def offered(self) -> Estimate:
        """Offered transactions per second."""
        return estimate([seed.offered_per_s for seed in self.seeds])

    @property
    def committed(self) -> Estimate:
        """Commits per second at that load."""
        return estimate([seed.at_capacity.committed_per_s for seed in self.seeds])

    @property
    def p99_ms(self) -> Estimate | None:
        """Commit latency at that load."""
        values = [value for seed in self.seeds if (value := seed.at_capacity.latency["all"].p99_ms) is not None]
        return estimate(values) if len(values) == len(self.seeds) else None

    @property
    def limit(self) -> str:
        """The part of the target that fails just above; the most frequent one of the seeds."""
        answers = [seed.limit for seed in self.seeds]
        return max(answers, key=answers.count)

    @property
    def drifts(self) -> bool:
        """Whether most seeds' windows were not stationary at capacity."""
        return 2 * sum(seed.at_capacity.drift is not None for seed in self.seeds) > len(self.seeds)


def seed_capacity(
    settings: Settings,
    seed: int,
    target: Target,
    tolerance: float,
    near: SeedCapacity | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> SeedCapacity:
    """Search one seed of a configuration on the compiled engine.

    `near` is another seed's answer: the search then starts there, with small steps. `stopped` ends running searches.
    """
    from endive.sim.engine.run import summarise_compiled  # noqa: PLC0415 - loading Numba takes a second

    base, window = load_of(settings), settings.window
    guided = near is not None and 0.0 < near.offered_per_s < math.inf
    start_per_s = near.offered_per_s if near is not None and guided else base
    search = Search(start_per_s, window.seconds, tolerance, step=1.1 if guided else 2.0)

    def enough(tally: Tally) -> bool:
        return stopped() or target.is_missed(tally)

    def evaluate(load_per_s: float) -> Summary:
        if stopped():
            raise InterruptedError
        return summarise_compiled(with_load(settings, load_per_s / base), seed, window, enough)[0]

    return find_capacity(evaluate, search, target)
