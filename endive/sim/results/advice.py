"""`endive.advise`: which change of a configuration helps most.

Every intervention is simulated with the seeds of the configuration itself (common random numbers), so that its effect
is the mean of the differences seed by seed. The goal is one metric, of one class or of all transactions.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from threading import Event

from endive.errors import ConfigurationError
from endive.sim.config.configuration import Overrides, Settings, Source, settings_of
from endive.sim.config.seeds import Seeds, seeds_of
from endive.sim.results.advice_results import Advice, AdviceResults, Confidence
from endive.sim.results.interventions import Intervention, interventions_of
from endive.sim.results.labels import ORDER
from endive.sim.results.prices import NAME as DOLLARS
from endive.sim.results.prices import dollars_per_million_commits, requests_per_commit
from endive.sim.results.runs import Watcher
from endive.sim.results.summary import Estimate, Summary, differences, estimates
from endive.sim.results.targets import NAMES, SHORT
from endive.sim.results.uncertainty import assumptions_of
from endive.wording import suggestion

GOAL = "--goal"
REQUESTS = "requests_per_commit"
FAILING = 0.001
"""A share of failed transactions from which on success is the goal, unless another is given."""
GOALS = (*NAMES, REQUESTS, DOLLARS)
LARGER_IS_BETTER = ("success", "success_whole_run", "committed_per_s", "finished_per_s", "offered_per_s")

Figures = Mapping[str, float | None]
"""Metrics of one run by dotted name, with requests and dollars."""
Runs = list[Figures]
"""One for each seed."""


def advise(
    config: Source,
    *,
    goal: str | None = None,
    seeds: Seeds = "1..5",
    kinds: Sequence[str] = (),
    overrides: Overrides = (),
    uncertainty: bool = False,
    watcher: Watcher | None = None,
) -> AdviceResults:
    """Try the interventions that exist for a configuration, and rank them by their effect on a goal.

    `goal` is a metric, also of one class: `"compaction.success"`, `"streams.p99_ms"`, `"dollars_per_million_commits"`.
    Unless given, it is the success of the class that fails most, or if none fails the p99 of commit latency. `kinds`
    tries only some: `["retries", "partial progress"]`. Every intervention runs with the same seeds. `uncertainty=True`
    repeats those that help under other assumptions of the model; if one of them turns the effect, confidence is low.

        endive.advise("configs/fleet.toml", overrides={"workload.streams.writers": 120})
    """
    settings, watcher = settings_of(config, overrides), watcher or Watcher()
    watcher.loaded(settings)
    chosen = seeds_of(seeds, 0)
    tried, skipped = _applied(settings, _of_kinds(interventions_of(settings), kinds))
    configurations = [settings, *(changed for _, changed in tried)]
    wanted = None if goal is None else parse_goal(goal, settings)
    with watcher.running("trying interventions", len(configurations) * len(chosen)) as progress:
        runs = run_all(configurations, chosen, progress)
    wanted = wanted or default_goal(settings, runs[0])
    advice = [
        _advice(one, changed, settings, wanted, (runs[0], own))
        for (one, changed), own in zip(tried, runs[1:], strict=True)
    ]
    if uncertainty:
        advice = _under_assumptions(settings, advice, wanted, chosen, watcher)
    return AdviceResults(settings, tuple(chosen), wanted, estimates(runs[0]), tuple(sorted(advice, key=_rank)), skipped)


def _under_assumptions(
    settings: Settings, advice: Sequence[Advice], goal: str, seeds: Sequence[int], watcher: Watcher
) -> list[Advice]:
    """Return the advice with the effect of what helps under each other assumption of the model."""
    found: dict[str, dict[str, Estimate]] = {one.intervention.advice: {} for one in advice}
    for name, assumed in assumptions_of(settings).items():
        tried, _ = _applied(assumed, [one.intervention for one in advice if one.helps])
        configurations = [assumed, *(changed for _, changed in tried)]
        with watcher.running(f"assuming {name}", len(configurations) * len(seeds)) as progress:
            before, *after = run_all(configurations, seeds, progress)
        for (one, _), runs in zip(tried, after, strict=True):
            effect = differences(before, runs).get(goal)
            found[one.advice] |= {} if effect is None else {name: effect}
    return [_with_assumptions(one, found[one.intervention.advice]) for one in advice]


def _with_assumptions(one: Advice, assumed: Mapping[str, Estimate]) -> Advice:
    sign = 1.0 if one.effect is None or one.effect.mean > 0 else -1.0
    turned = any(sign * effect.mean < 0 for effect in assumed.values())
    return replace(one, assumed=assumed, confidence="low" if turned else one.confidence)


def _of_kinds(found: Sequence[Intervention], kinds: Sequence[str]) -> Sequence[Intervention]:
    known = list(dict.fromkeys(one.kind for one in found))
    unknown = [kind for kind in kinds if kind not in known]
    if unknown:
        errors = [f"{kind}: no such kind here{suggestion(kind, known) or f'; one of {known}'}" for kind in unknown]
        raise ConfigurationError("--kind", errors)
    return [one for one in found if not kinds or one.kind in kinds]


def _applied(
    settings: Settings, found: Sequence[Intervention]
) -> tuple[list[tuple[Intervention, Settings]], dict[str, str]]:
    """Return the interventions that apply, with their configurations, and why the others do not."""
    tried, skipped = [], {}
    for one in found:
        try:
            tried.append((one, one.applied(settings)))
        except ConfigurationError as error:
            skipped[one.advice] = error.errors[0]
    return tried, skipped


def parse_goal(goal: str, settings: Settings) -> str:
    """Return the goal, if there is such a metric. `ConfigurationError` with a suggestion if not."""
    classes = settings.classes if settings.values.workload else ()
    known = [*GOALS, *(f"{name}.{metric}" for name in classes for metric in NAMES)]
    if goal not in known:
        hint = suggestion(goal, known) or f"; such as {', '.join([*known[:3], *known[-2:]])}"
        raise ConfigurationError(GOAL, [f"{goal}: no such metric{hint}"])
    return goal


def default_goal(settings: Settings, runs: Runs) -> str:
    """Return what is most wrong: the success of the class that fails most, or the p99 if hardly anything fails."""
    names = [f"{name}.success" for name in settings.classes] if len(settings.classes) > 1 else ["success"]
    means = {name: found.mean for name in names if (found := estimates(runs).get(name)) is not None}
    worst = min(means, key=lambda name: means[name], default=None)
    return worst if worst is not None and means[worst] < 1 - FAILING else "p99_ms"


def run_all(all_settings: Sequence[Settings], seeds: Sequence[int], progress: Callable[[float], None]) -> list[Runs]:
    """Simulate every configuration with every seed, on all cores."""
    stop = Event()
    tasks = [(number, seed) for number in range(len(all_settings)) for seed in seeds]
    found: dict[tuple[int, int], Figures] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            running = {pool.submit(figures, all_settings[task[0]], task[1], stop.is_set): task for task in tasks}
            for future in as_completed(running):
                found[running[future]] = future.result()
                progress(len(found))
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [[found[number, seed] for seed in seeds] for number in range(len(all_settings))]


def figures(settings: Settings, seed: int, stopped: Callable[[], bool] = lambda: False) -> Figures:
    """Simulate one seed and return its metrics, by the names that a goal may have."""
    from endive.sim.engine.run import summarise_compiled  # noqa: PLC0415 - loading Numba takes a second

    summary, counters = summarise_compiled(settings, seed, settings.window, lambda _tally: stopped())
    own = {REQUESTS: requests_per_commit(counters), DOLLARS: dollars_per_million_commits(settings, counters)}
    return (
        own
        | dict(_named(summary, ""))
        | {name: value for of, one in summary.classes.items() for name, value in _named(one, f"{of}.")}
    )


def _named(summary: Summary, prefix: str) -> Iterator[tuple[str, float | None]]:
    flat = summary.flat()
    yield from ((f"{prefix}{name}", flat.get(SHORT.get(name, name))) for name in NAMES)
    yield f"{prefix}finished", summary.finished_per_s * summary.window.seconds


def _advice(one: Intervention, changed: Settings, settings: Settings, goal: str, runs: tuple[Runs, Runs]) -> Advice:
    changes = differences(*runs)
    effect = changes.get(goal)
    gain = None if effect is None else effect.mean if is_larger_better(goal) else -effect.mean
    confidence = _confidence(effect, changed, settings)
    return Advice(one, changed, estimates(runs[1]), changes, effect, gain, confidence)


def is_larger_better(goal: str) -> bool:
    """Whether a larger value of a metric is better."""
    return goal.rpartition(".")[2] in LARGER_IS_BETTER


def _confidence(effect: Estimate | None, changed: Settings, settings: Settings) -> Confidence:
    """Return `low` if chance may be the reason, `medium` if a part of the model that changes was not checked."""
    if effect is None or effect.half_width is None or abs(effect.mean) <= effect.half_width:
        return "low"
    new = [found["trust"] for part, found in changed.trust.items() if part not in settings.trust]
    return "medium" if ORDER[0] in new else "high"


def _rank(one: Advice) -> tuple[int, float]:
    """Clear improvements first, then what chance may explain, then what makes it worse; each by effect."""
    gain = one.gain or 0.0
    clear = one.confidence != "low"
    return (0 if clear and gain > 0 else 2 if clear and gain < 0 else 1, -gain)
