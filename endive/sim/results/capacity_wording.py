"""The answer of a search for capacity, in words."""

import math
from collections.abc import Mapping
from dataclasses import replace

from endive.sim.config.configuration import Settings
from endive.sim.results.axis import Axis
from endive.sim.results.capacity import EVERYWHERE, LOAD_MAX, NOWHERE, TRANSACTIONS_MIN, Capacity, SeedCapacity
from endive.sim.results.metrics import number, with_interval
from endive.sim.results.summary import Estimate
from endive.sim.results.trust import mark_of
from endive.wording import counted

ENOUGH = 200
"""Transactions of a class in the window that make its success rate known within a few points."""


def sentence(settings: Settings, answer: Capacity) -> str:
    """Return the answer of one configuration as a sentence."""
    tables = counted(settings.values.catalog.num_tables, "table")
    name = f"{settings.profile.title or settings.profile.name}, {tables}"
    if answer.axis is not None:
        return f"{name}: {_headroom(settings, answer, answer.axis)}"
    model = f"cost model {settings.cost_models}, {settings.profile_set} profile"
    if answer.exists:
        return (
            f"{name}: {shown(answer.committed)}{mark_of(settings)} commits/s at {answer.target} of what finishes "
            f"({shown(answer.offered)} offered, p99 {shown(answer.p99_ms)} ms, "
            f"{counted(len(answer.seeds), 'seed')}, {model}); the limit is {answer.limit}"
        )
    return f"{name}: {answer.target} {no_answer(answer)}"


def _headroom(settings: Settings, answer: Capacity, axis: Axis) -> str:
    you = f"you run {number(axis.today)} ({axis.name})"
    if not answer.exists:
        return f"{you}; {answer.target} {no_answer(answer)}"
    times = "" if answer.headroom is None else f", {answer.headroom:.3g} times today's"
    bound = "up to" if axis.scale.worse == "larger" else "down to"
    holds = f"holds {bound} {shown_value(answer)}{mark_of(settings)}{times}"
    holds = holds if is_met_today(answer) else f"does not hold today; it {holds}"
    at_it = f"there, {shown(answer.committed)} commits/s with a p99 of {shown(answer.p99_ms)} ms"
    return f"{you}; {answer.target} {holds}; beyond it {answer.limit}; {at_it}"


def is_met_today(answer: Capacity) -> bool:
    """Whether today's value meets the target."""
    if answer.axis is None:
        return True
    larger = answer.axis.scale.worse == "larger"
    return answer.value.mean >= answer.axis.today if larger else answer.value.mean <= answer.axis.today


def shown(estimate: Estimate | None) -> str:
    """Return a value with its interval; without one if all seeds ended at the same step of the search."""
    return with_interval(replace(estimate, half_width=estimate.half_width or None) if estimate else None)


def shown_value(answer: Capacity) -> str:
    """Return the value found with its interval; a whole number as one, unless it is small."""
    whole = answer.axis is not None and answer.axis.scale.whole and answer.value.mean >= 10
    return shown(replace(answer.value, mean=float(round(answer.value.mean))) if whole else answer.value)


def no_answer(answer: Capacity) -> str:
    """Return why there is no worst value: the target holds nowhere, everywhere, or the seeds disagree."""
    values = [seed.value for seed in answer.seeds]
    unit, noun = ("/s", "load") if answer.axis is None else ("", f"value of {answer.axis.name}")
    if min(values) == EVERYWHERE:
        return f"holds at every {noun} tried, {_end(answer, harder=True)}{_why(answer)}"
    if max(values) == NOWHERE:
        worst = answer.seeds[0]
        tried = "" if answer.axis is None else f" tried, {_end(answer, harder=False)}"
        return f"does not hold at any {noun}{tried}: {_how_bad(worst, answer.axis)}; {_remedy(worst)}"
    finite = [value for value in values if value not in (EVERYWHERE, NOWHERE)]
    larger = answer.axis is None or answer.axis.scale.worse == "larger"
    bound = f"{'up' if larger else 'down'} to {(max if larger else min)(finite, default=0.0):.3g}{unit}"
    holding = sum(value != NOWHERE for value in values)
    return (
        f"is too close to call: it holds in {holding} of {counted(len(values), 'seed')}, in "
        f"{values.count(EVERYWHERE)} of them at every {noun}, else {bound}; "
        "ask for a little more or less, or run longer"
    )


def _end(answer: Capacity, harder: bool) -> str:
    if answer.axis is None:
        return f"up to {LOAD_MAX:g}/s"
    scale = answer.axis.scale
    up = harder == (scale.worse == "larger")
    return f"up to {number(scale.highest)}" if up else f"down to {number(scale.lowest)}"


def _why(answer: Capacity) -> str:
    """Return what else ended the search: a value that is not valid."""
    _, _, invalid = answer.limit.partition("none found: ")
    return f" ({invalid})" if invalid else ""


def _how_bad(seed: SeedCapacity, axis: Axis | None) -> str:
    summary = seed.at_capacity
    p99_ms = summary.latency["all"].p99_ms
    if summary.success is None:
        return f"at {summary.offered_per_s:.3g}/s nothing finishes in the window"
    if axis is not None:
        return seed.limit
    latency = "" if p99_ms is None else f" and p99 {p99_ms:,.0f} ms"
    return f"at {summary.offered_per_s:.3g}/s success is {100 * summary.success:.1f} %{latency} ({seed.limit})"


def _remedy(seed: SeedCapacity) -> str:
    if seed.at_capacity.success is None or "in the window" in seed.limit:
        return "run longer (simulation.duration_ms), or with shorter transactions"
    return "ask for less, or change the catalog, the provider or the retries"


def assumed_values(by_assumption: Mapping[str, Capacity]) -> str:
    """Return the answers under other assumptions of the model in words; empty if there are none."""
    found = [
        f"{shown_value(answer) if answer.exists else 'no answer'} (if {name})" for name, answer in by_assumption.items()
    ]
    return f"under other assumptions of the model {', '.join(found)}" if found else ""


def few_transactions(settings: Settings, answer: Capacity) -> list[str]:
    """Return a warning for each class of a target that has too few transactions in the window to know its success."""
    warnings = []
    for name in dict.fromkeys(one.of for one in answer.target.conditions if one.of):
        runs = [seed.at_capacity for seed in answer.seeds if name in seed.at_capacity.classes]
        finished = min((run.classes[name].finished_per_s * run.window.seconds for run in runs), default=math.inf)
        if finished < TRANSACTIONS_MIN:
            hours = settings.values.simulation.duration_ms / 3_600_000 * ENOUGH / max(finished, 1.0)
            longer = f"--set simulation.duration_ms={math.ceil(hours) * 3_600_000}"
            warnings.append(
                f"only {finished:.0f} transactions of {name} finish in the window of a seed, so its metrics are "
                f"uncertain; run longer: {longer}"
            )
    return warnings
