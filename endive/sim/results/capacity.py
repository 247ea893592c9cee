"""The highest offered load that holds a target.

Each seed is searched on its own: the load is raised or lowered until the target stops or starts to hold, then
bisected; the other seeds begin at the first one's answer. The same seed brings the same transactions at every load,
only closer together (common random numbers), so neighbouring loads differ by the load and not by luck. The capacities
of the seeds are a sample; their mean carries an interval.
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
"""Transactions a second. A target that still holds there is not about load."""
COUNTED_MIN = 2_000
"""No run is given up before so many transactions have finished in its window."""
BACKLOG = 0.5
"""If less than this share of what is offered also finishes, the run is falling behind, however well the rest does."""
TRANSACTIONS_MIN = 30
"""With fewer transactions in the window, a share of them says nothing."""

Evaluate = Callable[[float], Summary]
"""Simulates a load, in transactions a second."""


@dataclass(frozen=True)
class Target:
    """What a load must hold."""

    success: float
    p99_ms: float | None = None

    def is_missed(self, tally: Tally) -> bool:
        """Whether success is so far out of reach that the rest of a run need not be seen.

        Only a clear no may end a run early: where load still builds up, the first part of the window is too kind.
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
    """What one seed can take."""

    offered_per_s: float
    """The highest load found to hold; 0 if none does, infinite if every one does."""
    at_capacity: Summary
    """The run at that load; if none holds, the one at the lowest load tried."""
    limit: str
    """What breaks the target a little above."""


@dataclass(frozen=True)
class Search:
    """How one seed is searched: where to begin, how far to step until the answer is bracketed, when to stop."""

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
        raise ConfigurationError(source, ["transaction.arrivals: capacity is a load, and needs open arrivals"])
    mean_ms = arrivals.build().quantile.mean_ticks / TICKS_PER_MS
    if mean_ms <= 0:
        raise ConfigurationError(settings.source, ["transaction.inter_arrival: nothing between arrivals is no load"])
    return 1000.0 / mean_ms


def with_load(settings: Settings, factor: float) -> Settings:
    """Return the configuration at `factor` times its load: the same law of arrivals, closer together."""
    arrivals = settings.values.transaction.inter_arrival
    if arrivals is None:
        raise ConfigurationError(settings.source, ["transaction.inter_arrival: required"])
    return settings.with_inter_arrival(shrunk(arrivals, factor))


SCALED = ("mean", "median", "scale", "value", "stddev", "base", "per_mib", "min", "max")


def shrunk(section: DistributionSection, factor: float) -> DistributionSection:
    """Return a distribution of times with every time divided by `factor`; shapes stay."""
    changes: dict[str, object] = {
        name: value / factor for name in SCALED if (value := getattr(section, name)) is not None
    }
    if section.quantiles is not None:
        changes["quantiles"] = tuple((probability, value / factor) for probability, value in section.quantiles)
    return section.model_copy(update=changes)


@dataclass(frozen=True)
class Capacity:
    """The answer over several seeds."""

    seeds: tuple[SeedCapacity, ...]
    target: Target

    @property
    def exists(self) -> bool:
        """Whether every seed has a highest load: the target can be met, and can be missed."""
        return len(self.finite) == len(self.seeds)

    @property
    def finite(self) -> list[SeedCapacity]:
        """The seeds that have a highest load."""
        return [seed for seed in self.seeds if 0.0 < seed.offered_per_s < math.inf]

    @property
    def offered(self) -> Estimate:
        """Offered transactions a second."""
        return estimate([seed.offered_per_s for seed in self.seeds])

    @property
    def committed(self) -> Estimate:
        """Commits a second at that load."""
        return estimate([seed.at_capacity.committed_per_s for seed in self.seeds])

    @property
    def p99_ms(self) -> Estimate | None:
        """Commit latency at that load."""
        values = [value for seed in self.seeds if (value := seed.at_capacity.latency["all"].p99_ms) is not None]
        return estimate(values) if len(values) == len(self.seeds) else None

    @property
    def limit(self) -> str:
        """What breaks the target above; the most frequent answer of the seeds."""
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

    `near` is another seed's answer: the search then begins there, with small steps. `stopped` ends the runs under way.
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
