"""Searches for capacity of several cases and seeds, on all cores or on Spark."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from threading import Event

from endive.sim.config.configuration import Settings
from endive.sim.results.axis import Axis, Worse, axis_of
from endive.sim.results.capacity import Capacity, SeedCapacity, evaluation, find_direction, seed_capacity
from endive.sim.results.capacity_cases import Cases
from endive.sim.results.runs import Watcher
from endive.sim.results.targets import Target


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
    axis: Axis | None = None
    """The number to vary. None: the offered load."""

    def run(self, stopped: Callable[[], bool] = lambda: False) -> SeedCapacity:
        """Search; `stopped` ends a running search."""
        return seed_capacity(self.settings, self.seed, self.target, self.tolerance, self.near, stopped, self.axis)


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
    axes: Mapping[str, Axis] | None = None,
) -> Mapping[str, Capacity]:
    """Search every case and seed in two rounds: the first seeds, then the others, which start at the first's answer.

    `axes` has the number to vary in each case; without it, the offered load is varied. Ctrl-C ends the search and keeps
    the complete answers.
    """
    found: dict[tuple[str, int], SeedCapacity] = {}
    by_case = axes or {}
    with watcher.running("searching", len(cases) * len(seeds)) as progress, suppress(KeyboardInterrupt):
        for chosen in (seeds[:1], seeds[1:]):
            tasks = [
                SearchTask(name, settings, seed, target, tolerance, found.get((name, seeds[0])), by_case.get(name))
                for name, settings in cases.items()
                for seed in chosen
            ]
            for task, answer in spread(tasks) if tasks else ():
                found[task.case, task.seed] = answer
                progress(len(found))
    return {
        name: Capacity(tuple(found[name, seed] for seed in seeds), target, by_case.get(name))
        for name in cases
        if all((name, seed) in found for seed in seeds)
    }


def directed_axes(cases: Cases, over: str, worse: Worse | None, seed: int, target: Target) -> dict[str, Axis]:
    """Return the number to vary in each case, with its direction: stated, known by the key, or found by trial."""
    axes: dict[str, Axis] = {}
    for name, settings in cases.items():
        axis = axis_of(settings, over)
        side = worse or axis.known_direction
        if side is None:
            side = find_direction(evaluation(settings, seed, target, axis=axis), axis) or "larger"
        axes[name] = axis.towards(side)
    return axes
