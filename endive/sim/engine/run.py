"""Run the compiled kernel: allocate its arrays, report progress, return the results as columns."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from endive.sim.config.configuration import Settings
from endive.sim.engine import kernel
from endive.sim.engine.layout import Ints
from endive.sim.engine.model import COMMITS_FACTOR, COMMITS_FIRST, Model, compile_model
from endive.sim.results.statistics import RunResult
from endive.sim.results.summary import Glance, Summary, Tally, Window
from endive.sim.simulation import Progress
from endive.timing import to_ms

STEPS = 100
"""Parts of a run. Between two of them Python takes the rows, reports progress and handles Ctrl-C."""

ROWS_AT_ONCE = 16_384
"""Summarising a batch of rows takes about a millisecond however few they are, so a short run is summarised once."""

Array = TypeVar("Array", Ints, npt.NDArray[np.void])

Taker = Callable[[Ints], None]
"""Takes rows of finished transactions; they are overwritten when it returns."""


@dataclass
class _World:
    """Everything that changes during a run."""

    shared: npt.NDArray[np.void]
    arrivals: npt.NDArray[np.void]
    """Next transaction of each class."""
    curves: npt.NDArray[np.float64]
    """Quantile tables, as far as they are needed."""
    pool: npt.NDArray[np.void]
    heap: npt.NDArray[np.void]
    calendar: Ints
    """First transaction of each bucket of time; -1: none."""
    later: npt.NDArray[np.void]
    """The events in buckets, by the place of their transactions in the pool."""
    details: Ints
    free: Ints
    state: Ints
    rows: Ints

    @classmethod
    def new(cls, model: Model, room: int = 1024) -> "_World":
        """Return an empty world with room for so many transactions at once; it grows as needed."""
        curves, commits = model.tabulate(COMMITS_FIRST)
        world = cls(
            shared=np.zeros(1, kernel.SHARED),
            arrivals=np.zeros(len(model.config), kernel.ARRIVALS),
            curves=curves,
            pool=_pool(room),
            heap=np.zeros(room, kernel.EVENT),
            calendar=np.full(model.buckets, -1),
            later=np.zeros(room, kernel.LATER),
            details=np.zeros((room, model.detail_size), np.int64),
            free=np.arange(room, dtype=np.int64)[::-1].copy(),
            state=model.first_state.copy(),
            rows=np.zeros((room, len(kernel.ROW)), np.int64),
        )
        world.shared["free"], world.shared["seq_max"] = room, commits
        kernel.first_arrivals(model.config, world.shared, world.arrivals, curves, model.rates)
        return world

    def extend_sums(self, model: Model) -> None:
        """Tabulate the longer convoys that more commits make possible."""
        commits = int(self.shared["seq_max"][0]) * COMMITS_FACTOR
        self.curves, self.shared["seq_max"] = model.tabulate(commits)

    def grow_pool(self) -> None:
        """Double the room for transactions in flight."""
        room, free = len(self.pool), int(self.shared["free"][0])
        self.pool = np.concatenate([self.pool, _pool(room)])
        self.heap, self.later = _doubled(self.heap), _doubled(self.later)
        self.details, self.free = _doubled(self.details), _doubled(self.free)
        self.free[free : free + room] = np.arange(room, 2 * room)[::-1]
        self.shared["free"] = free + room

    def finished_rows(self) -> Ints:
        """Return the rows written since the last time, and make room for new ones."""
        count = int(self.shared["rows"][0])
        self.shared["rows"] = 0
        return self.rows[:count]

    @property
    def in_flight(self) -> int:
        """Number of transactions that have begun and not ended."""
        return int((self.pool["status"] < kernel.COMMITTED).sum())


def _pool(room: int) -> npt.NDArray[np.void]:
    pool = np.zeros(room, kernel.TRANSACTION)
    pool["status"] = kernel.COMMITTED  # no transaction is in flight yet
    return pool


def _doubled(array: Array) -> Array:
    return np.concatenate([array, np.zeros_like(array)])


def run_compiled(settings: Settings, seed: int, progress: Progress | None = None) -> RunResult:
    """Run a configuration with one seed and keep every row."""
    parts: list[Ints] = []

    def report(now_ms: float) -> bool:
        if progress:
            progress(now_ms)
        return False

    shared = _run(compile_model(settings, seed), lambda rows: parts.append(rows.copy()), report)
    rows = np.concatenate(parts)
    parts.clear()
    columns = np.ascontiguousarray(rows.T)  # transposed first: selecting from a column then reads adjacent memory
    by_name = dict(zip(kernel.ROW, columns, strict=True))
    result = RunResult(by_name, _counters(shared), int(shared["seq"]), settings.classes)
    result.check()
    return result


Enough = Callable[[Glance], bool]
"""Whether the run has enough transactions for its purpose."""


def summarise_compiled(
    settings: Settings, seed: int, window: Window, enough: Enough | None = None, progress: Progress | None = None
) -> tuple[Summary, Counter[str]]:
    """Run a configuration with one seed and return its metrics and counters; rows are not kept.

    With `enough` the run may end early; the metrics then cover the part of the window that it reached, and may include
    a few transactions that were about to end.
    """
    tally, glance, reached_ms = Tally(window, settings.classes), Glance(window, settings.classes), 0.0
    waiting: list[Ints] = []

    def take(rows: Ints) -> None:
        waiting.append(rows.copy())
        if enough:
            glance.add(dict(zip(kernel.ROW, rows.T, strict=True)))
        if sum(map(len, waiting)) >= ROWS_AT_ONCE:
            add()

    def add() -> None:
        tally.add(dict(zip(kernel.ROW, np.concatenate(waiting).T, strict=True)))
        waiting.clear()

    def done(now_ms: float) -> bool:
        nonlocal reached_ms
        reached_ms = now_ms
        if progress:
            progress(now_ms)
        return enough is not None and enough(glance)

    shared = _run(compile_model(settings, seed), take, done)
    if waiting:
        add()
    tally.check(int(shared["seq"]))
    return tally.summary(reached_ms), _counters(shared)


def _counters(shared: np.void) -> Counter[str]:
    counts = zip(kernel.COUNTERS, shared["counters"].tolist(), strict=True)
    return Counter({name: count for name, count in counts if count})


def is_cold() -> bool:
    """Whether the kernel has still to be compiled: the first time on a machine, or after a change to it."""
    kept = Path(kernel.advance.stats.cache_path or "")
    source = Path(kernel.__file__).stat().st_mtime
    return not any(index.stat().st_mtime >= source for index in kept.glob("kernel.advance-*.nbi"))


def _run(model: Model, take: Taker, done: Callable[[float], bool]) -> np.void:
    """Run to the horizon or until `done`, passing on the rows as they come; return the final shared state."""
    world, horizon = _World.new(model), int(model.config["horizon"][0])
    for part in range(1, STEPS + 1):
        until = horizon * part // STEPS
        _advance(model, world, until)
        take(world.finished_rows())
        if done(to_ms(until)):
            break
    while world.in_flight > len(world.rows):
        world.rows = _doubled(world.rows)
    kernel.flush(model.config, world.shared, world.pool, world.details, world.rows)
    take(world.finished_rows())
    last: np.void = world.shared[0]
    return last


def _advance(model: Model, world: _World, until: int) -> None:
    while True:
        fixed = (
            model.topology,
            model.odds,
            model.bound,
            world.curves,
            model.rates,
            model.backoff,
            model.client,
            model.polls,
        )
        events = (world.arrivals, world.heap, world.calendar, world.later)
        changing = (world.pool, world.details, world.free, world.state)
        code = kernel.advance(model.config, world.shared, *events, *changing, *fixed, world.rows, until)
        if code == kernel.REACHED:
            return
        if code == kernel.POOL_FULL:
            world.grow_pool()
        elif code == kernel.ROWS_FULL:
            world.rows = _doubled(world.rows)
        else:
            world.extend_sums(model)
