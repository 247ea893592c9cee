"""Targets of a search: what must hold, for all transactions or for those of one class.

A target has a success rate, optionally a p99 of commit latency, and any number of conditions such as
`compaction.success>=0.9` or `streams.p99_ms<=5000`. All of them must hold.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from endive.errors import ConfigurationError
from endive.sim.results.metrics import METRICS, number
from endive.sim.results.summary import QUANTILES, Glance, Summary
from endive.wording import suggestion

TARGET = "--target"
COUNTED_MIN = 2_000
"""No run ends early before this many transactions have finished in its window."""
BACKLOG = 0.5
"""If less than this share of the offered transactions finishes, the run is falling behind."""

SHORT = {name: f"latency.all.{name}" for name in QUANTILES}
"""Metrics with a shorter name in conditions."""
NAMES = (*SHORT, "finished_per_s", *(metric.name for metric in METRICS))
"""Metrics that a condition may bound."""

_CONDITION = re.compile(r"\s*([\w.-]+?)\s*(>=|<=)\s*([0-9][0-9_.]*(?:e[+-]?[0-9]+)?)\s*(%?)\s*")


@dataclass(frozen=True)
class Condition:
    """A bound of one metric, of one class of transactions or of all."""

    metric: str
    bound: float
    at_least: bool
    """False: the bound is the highest value."""
    of: str = ""
    """Name of the class; empty: all transactions."""

    @property
    def name(self) -> str:
        """The metric as it is written, with its class."""
        return f"{self.of}.{self.metric}" if self.of else self.metric

    def __str__(self) -> str:
        return f"{self.name} {'>=' if self.at_least else '<='} {self.bound:g}"

    def measured(self, summary: Summary) -> float | None:
        """Return the value of the metric in a run. None: there is none, since nothing finished or committed."""
        return self.covered(summary).flat().get(SHORT.get(self.metric, self.metric))

    def covered(self, summary: Summary) -> Summary:
        """Return the metrics of the transactions that the condition is about."""
        return summary.classes.get(self.of, summary)

    def broken_by(self, summary: Summary) -> str | None:
        """Return how a run misses the condition; None if it holds."""
        value, covered = self.measured(summary), self.covered(summary)
        whose = self.of or "all transactions"
        if value is None:
            ends = "finishes" if covered.success is None else "commits"
            return f"no transaction of {whose} {ends} in the window"
        if (value >= self.bound) if self.at_least else (value <= self.bound):
            return None
        if self.metric == "success":
            return f"more than {100 * (1 - self.bound):.3g} % of {whose} fail: {reason_of_failure(covered)}"
        if self.metric in SHORT:
            return f"{self.name} is above {self.bound:,g}: most of it is {longest_part(covered)}"
        return f"{self.name} is {'below' if self.at_least else 'above'} {number(self.bound)}"

    def is_missed(self, glance: Glance) -> bool:
        """Whether success is so far below the bound that the run can end early."""
        return self.metric == "success" and self.at_least and _is_far_below(glance.of_class(self.of), self.bound)


@dataclass(frozen=True)
class Target:
    """Conditions of a search: a success rate of all transactions, optionally a p99 commit latency, and conditions."""

    success: float | None
    """None: the conditions alone decide."""
    p99_ms: float | None = None
    conditions: tuple[Condition, ...] = ()

    def is_missed(self, glance: Glance) -> bool:
        """Whether success is so far below the target that the run can end early.

        Only a clear miss ends a run: while a backlog builds up, the first part of the window looks too good.
        """
        below = self.success is not None and _is_far_below(glance, self.success)
        return below or any(condition.is_missed(glance) for condition in self.conditions)

    def broken_by(self, summary: Summary) -> str | None:
        """Return which part of the target a run misses; None if it holds."""
        if summary.success is None:
            return "nothing finishes in the window"
        if summary.finished_per_s < BACKLOG * summary.offered_per_s:
            return "a backlog: transactions arrive faster than they finish"
        if self.success is not None and summary.success < self.success:
            return f"success: {reason_of_failure(summary)}"
        p99_ms = summary.latency["all"].p99_ms
        if self.p99_ms is not None and p99_ms is not None and p99_ms > self.p99_ms:
            return f"p99 latency: most of it is {longest_part(summary)}"
        return next((why for one in self.conditions if (why := one.broken_by(summary)) is not None), None)

    def __str__(self) -> str:
        parts = [] if self.success is None else [f"{100 * self.success:g} % success"]
        parts += [] if self.p99_ms is None else [f"p99 of at most {self.p99_ms:g} ms"]
        return " and ".join([*parts, *map(str, self.conditions)])


def _is_far_below(glance: Glance, success: float) -> bool:
    if glance.counted < COUNTED_MIN:
        return False
    error = math.sqrt(success * (1 - success) / glance.counted)
    return glance.successes / glance.counted + 5 * error < success


def reason_of_failure(summary: Summary) -> str:
    """Return the most frequent reason of failed transactions, in words."""
    names = {
        "max_retries_exceeded": "retries run out",
        "validation_exception": "real conflicts abort",
        "retry_timeout": "the time for retries runs out",
    }
    worst = max(summary.aborted, key=lambda name: summary.aborted[name])
    return names.get(worst, worst)


def longest_part(summary: Summary) -> str:
    """Return what takes most of the time of a commit, in words."""
    longest = max(summary.time_ms, key=lambda name: summary.time_ms[name])
    return longest.replace("_io", " I/O").replace("_", " ")


def parse_conditions(texts: Sequence[str], classes: Sequence[str]) -> tuple[Condition, ...]:
    """Read conditions such as `streams.p99_ms<=5000`. `ConfigurationError` has the errors of all of them."""
    found, errors = [], []
    for text in texts:
        try:
            found.append(_condition(text, classes))
        except ValueError as error:
            errors.append(str(error))
    if errors:
        raise ConfigurationError(TARGET, errors)
    return tuple(found)


def _condition(text: str, classes: Sequence[str]) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        expected = "expected METRIC>=NUMBER or METRIC<=NUMBER, such as 'streams.p99_ms<=5000'"
        raise ValueError(f"{text!r}: {expected}, in quotes: a shell takes < and > for redirections")
    name, operator, bound, percent = match.groups()
    of, _, metric = name.partition(".") if name.partition(".")[0] in classes else ("", "", name)
    if metric not in NAMES:
        known = [*NAMES, *(f"{one}.{metric}" for one in classes for metric in NAMES)]
        hint = suggestion(name, known) or f"; one of {', '.join(NAMES[:8])}, also of a class: {', '.join(classes)}"
        raise ValueError(f"{name}: no such metric{hint}")
    value = float(bound.replace("_", "")) / (100 if percent else 1)
    if metric.startswith("success") and value > 1:
        raise ValueError(f"{text!r}: a share is at most 1; write 0.95 or 95%")
    return Condition(metric, value, operator == ">=", of)
