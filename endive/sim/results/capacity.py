"""Search for the worst value of a number at which a target still holds.

The number is the offered load, or any number of the configuration (`axis`). Each seed is searched on its own: the
value is moved until the target stops or starts to hold, then bisected; the other seeds start at the first one's answer.
The same seed gives the same transactions at every load, only closer together (common random numbers), so neighbouring
loads differ by the load and not by chance. The capacities of the seeds are a sample; their mean has a confidence
interval, to which the tolerance of the search is added.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from endive.errors import ConfigurationError
from endive.sim.config.configuration import SET, Settings
from endive.sim.results.axis import Axis, Scale, Worse, loads_of, shrunk
from endive.sim.results.prices import dollars_per_million_commits
from endive.sim.results.summary import Estimate, Glance, Summary, estimate
from endive.sim.results.targets import BACKLOG, Target
from endive.timing import TICKS_PER_MS

LOAD_MAX = 1_000.0
"""Transactions per second. A target that still holds there does not depend on the load."""
TRANSACTIONS_MIN = 30
"""With fewer transactions in the window, a success rate means nothing."""
TRIGGERS_MIN = 10
"""With fewer triggers in the window, a class may miss half of them by chance."""
EVERYWHERE, NOWHERE = math.inf, -math.inf
"""Answers of a seed whose target holds at every value tried, or at none."""
PROBES = 5
"""Values tried on each side to find out which side is worse."""


@dataclass(frozen=True)
class Trial:
    """A run of one seed at one value."""

    summary: Summary
    broken: str | None
    """The part of the target that it misses; None: the target holds."""
    dollars: float | None = None
    """Price of a million commits. None: not known."""


Evaluate = Callable[[float], Trial]
"""Simulates a value: an offered load in transactions per second, or a number of the configuration."""


@dataclass(frozen=True)
class SeedCapacity:
    """The capacity of one seed."""

    value: float
    """The worst value at which the target holds; `NOWHERE` if at none, `EVERYWHERE` if at every one."""
    at_capacity: Summary
    """The run at that value; if the target holds nowhere, the run at the easiest value tried."""
    limit: str
    """The part of the target that fails just beyond."""
    beyond: float | None = None
    """The nearest value at which the target fails, so that the limit lies between. None: not known."""
    dollars: float | None = None
    """Price of a million commits at capacity. None: not known."""

    @property
    def is_finite(self) -> bool:
        """Whether the target holds at some value and fails at another."""
        return math.isfinite(self.value)


@dataclass(frozen=True)
class Search:
    """Parameters of one seed's search: the values to try, start, tolerance, and step until the answer is bracketed."""

    scale: Scale
    start: float
    tolerance: float
    step: float = 2.0


def load_scale(window_s: float) -> Scale:
    """Return the offered loads that a search tries: up to `LOAD_MAX`, with at least `TRANSACTIONS_MIN` transactions."""
    return Scale(TRANSACTIONS_MIN / window_s, LOAD_MAX, tries_lowest=False)


def find_capacity(evaluate: Evaluate, search: Search) -> SeedCapacity:
    """Search one seed: step until the target stops or starts to hold, then bisect."""
    value = min(search.start, search.scale.highest)
    trial = evaluate(value)
    limit = trial.broken
    if limit is not None:
        return _ease(evaluate, search, value, trial)
    while limit is None:
        holds, best = value, trial
        harder = search.scale.harder(value, search.step)
        if harder is None or best.summary.offered_per_s > LOAD_MAX:
            return SeedCapacity(EVERYWHERE, best.summary, "none found")
        try:
            value, trial = harder, evaluate(harder)
        except ConfigurationError as error:
            return SeedCapacity(EVERYWHERE, best.summary, f"none found: {harder:g} is not valid: {error.errors[0]}")
        limit = trial.broken
    return _bisect(evaluate, search, (holds, value), (best, limit))


def _ease(evaluate: Evaluate, search: Search, fails: float, trial: Trial) -> SeedCapacity:
    limit = trial.broken or ""
    while (easier := search.scale.easier(fails, search.step)) is not None:
        try:
            trial = evaluate(easier)
        except ConfigurationError as error:
            return SeedCapacity(NOWHERE, trial.summary, f"{limit}; {easier:g} is not valid: {error.errors[0]}")
        if trial.broken is None:
            return _bisect(evaluate, search, (easier, fails), (trial, limit))
        fails, limit = easier, trial.broken
    return SeedCapacity(NOWHERE, trial.summary, limit)


def _bisect(evaluate: Evaluate, search: Search, bracket: tuple[float, float], known: tuple[Trial, str]) -> SeedCapacity:
    (holds, fails), (best, limit) = bracket, known
    while (middle := search.scale.between(holds, fails, search.tolerance)) is not None:
        trial = evaluate(middle)
        if trial.broken is None:
            holds, best = middle, trial
        else:
            fails, limit = middle, trial.broken
    return SeedCapacity(holds, best.summary, limit, fails, best.dollars)


def find_direction(evaluate: Evaluate, axis: Axis) -> Worse | None:
    """Try values on both sides of today's until the target holds on one and not on the other. None: it never does."""

    def holds(value: float) -> bool | None:
        try:
            return evaluate(value).broken is None
        except ConfigurationError:
            return None

    today = holds(axis.today)
    sides: dict[Worse, float | None] = {"larger": axis.today, "smaller": axis.today}
    for _ in range(PROBES):
        for side, value in sides.items():
            tried = None if value is None else axis.towards(side).scale.harder(value, 4.0)
            found = None if tried is None else holds(tried)
            if found is not None and found is not today:
                other: Worse = "smaller" if side == "larger" else "larger"
                return side if today else other
            sides[side] = None if found is None else tried
    return None


def load_of(settings: Settings) -> float:
    """Return the offered load of a configuration, in transactions a second."""
    arrivals = settings.values.transaction.inter_arrival
    if settings.values.workload or settings.values.transaction.arrivals != "open" or arrivals is None:
        source = SET if settings.given.get("transaction.arrivals") == SET else settings.source
        keys = " or ".join(f"--over {key}" for key in loads_of(settings))
        classes = " of one class" if settings.values.workload else ""
        problem = f"capacity is an offered load, which only open arrivals{classes} have; vary a number: {keys}"
        place = "workload" if settings.values.workload else "transaction.arrivals"
        raise ConfigurationError(source, [f"{place}: {problem}"])
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


def late_class(settings: Settings, summary: Summary) -> str | None:
    """Return what a class with a rate or a schedule falls behind; None if none does.

    A writer whose transaction outlasts its interval misses triggers, so nothing fails and nothing is waiting: only the
    schedule shows it.
    """
    for name, one in settings.values.by_class().items():
        own, transaction = summary.classes.get(name, summary), one.transaction
        if transaction.arrivals == "triggered" and transaction.interval_ms:
            planned_per_s = 1000.0 * (transaction.writers or 1) / transaction.interval_ms
            expected = planned_per_s * summary.window.seconds
            if expected >= TRIGGERS_MIN and own.offered_per_s < BACKLOG * planned_per_s:
                return f"{name} falls behind its triggers: transactions outlast the interval"
        elif transaction.arrivals == "open" and own.finished_per_s < BACKLOG * own.offered_per_s:
            return f"a backlog: transactions of {name} arrive faster than they finish"
    return None


@dataclass(frozen=True)
class Capacity:
    """The capacity over several seeds."""

    seeds: tuple[SeedCapacity, ...]
    target: Target
    axis: Axis | None = None
    """The number that was varied. None: the offered load."""

    @property
    def exists(self) -> bool:
        """Whether every seed has an answer: the target holds at some value and fails at another."""
        return len(self.finite) == len(self.seeds)

    @property
    def finite(self) -> list[SeedCapacity]:
        """The seeds that have an answer."""
        return [seed for seed in self.seeds if seed.is_finite]

    @property
    def value(self) -> Estimate:
        """The worst value at which the target holds; the interval contains the tolerance of the search."""
        return _widened(estimate([seed.value for seed in self.seeds]), self._bracket)

    @property
    def _bracket(self) -> float:
        """How far the limit may lie beyond the values found, on average."""
        return sum(abs((seed.beyond or seed.value) - seed.value) for seed in self.seeds) / len(self.seeds)

    @property
    def headroom(self) -> float | None:
        """The value divided by today's; None for the offered load, or if today's is 0."""
        return self.value.mean / self.axis.today if self.axis is not None and self.axis.today else None

    @property
    def offered(self) -> Estimate:
        """Offered transactions per second."""
        return self.value if self.axis is None else self._of([seed.at_capacity.offered_per_s for seed in self.seeds])

    @property
    def committed(self) -> Estimate:
        """Commits per second at that value."""
        return self._of([seed.at_capacity.committed_per_s for seed in self.seeds])

    def _of(self, rates: Sequence[float]) -> Estimate:
        """Return a rate at capacity. It grows no faster than the offered load, so the same share is its tolerance."""
        found, value = estimate(rates), self.value.mean
        return _widened(found, found.mean * self._bracket / abs(value) if value else 0.0)

    @property
    def p99_ms(self) -> Estimate | None:
        """Commit latency at that value."""
        values = [value for seed in self.seeds if (value := seed.at_capacity.latency["all"].p99_ms) is not None]
        return estimate(values) if len(values) == len(self.seeds) else None

    @property
    def dollars(self) -> Estimate | None:
        """Price of a million commits at that value. None: not known."""
        values = [seed.dollars for seed in self.seeds if seed.dollars is not None]
        return estimate(values) if len(values) == len(self.seeds) else None

    @property
    def limit(self) -> str:
        """The part of the target that fails just beyond; the most frequent one of the seeds."""
        answers = [seed.limit for seed in self.seeds]
        return max(answers, key=answers.count)

    @property
    def drifts(self) -> bool:
        """Whether most seeds' windows were not stationary at capacity."""
        return 2 * sum(seed.at_capacity.drift is not None for seed in self.seeds) > len(self.seeds)


def _widened(found: Estimate, tolerance: float) -> Estimate:
    """Add the tolerance of a search to an interval; one seed alone has no interval to add it to."""
    return found if found.half_width is None else replace(found, half_width=found.half_width + tolerance)


def seed_capacity(
    settings: Settings,
    seed: int,
    target: Target,
    tolerance: float,
    near: SeedCapacity | None = None,
    stopped: Callable[[], bool] = lambda: False,
    axis: Axis | None = None,
) -> SeedCapacity:
    """Search one seed of a configuration on the compiled engine.

    `near` is another seed's answer: the search then starts there, with small steps. `stopped` ends running searches.
    """
    evaluate, window = evaluation(settings, seed, target, stopped, axis), settings.window
    guided = near is not None and near.is_finite and (axis is None or near.value > 0)
    today = load_of(settings) if axis is None else axis.today
    start = near.value if near is not None and guided else today
    scale = load_scale(window.seconds) if axis is None else axis.scale
    search = Search(scale, start, tolerance, step=1.1 if guided else 2.0)
    return find_capacity(evaluate, search)


def evaluation(
    settings: Settings,
    seed: int,
    target: Target,
    stopped: Callable[[], bool] = lambda: False,
    axis: Axis | None = None,
) -> Evaluate:
    """Return a function that simulates one seed at a value."""
    from endive.sim.engine.run import summarise_compiled  # noqa: PLC0415 - loading Numba takes a second

    base = load_of(settings) if axis is None else 1.0

    def enough(glance: Glance) -> bool:
        return stopped() or target.is_missed(glance)

    def evaluate(value: float) -> Trial:
        if stopped():
            raise InterruptedError
        chosen = with_load(settings, value / base) if axis is None else axis.at(value)
        summary, counters = summarise_compiled(chosen, seed, chosen.window, enough)
        late = None if axis is None else late_class(chosen, summary)
        return Trial(summary, late or target.broken_by(summary), dollars_per_million_commits(chosen, counters))

    return evaluate
