"""The readable engine, and the only module that uses SimPy.

Virtual time is counted in ticks (whole nanoseconds). Events at the same tick run in the order of the transactions'
numbers, whatever the order in which they were scheduled: an event's priority is its transaction's number.
An event at exactly the end of the run does not happen.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import simpy

from endive.errors import InvariantError
from endive.sim.catalog import Catalog
from endive.sim.commit_options import Backoff, CommitOptions
from endive.sim.outcome import DEFAULT_CLASS
from endive.sim.results.statistics import Statistics
from endive.sim.results.summary import check_commits
from endive.sim.storage import StorageProvider
from endive.sim.transaction import ConflictDetector, Transaction
from endive.sim.workload import Workload, WorkloadClass
from endive.timing import Latency, to_ms, to_ticks

T = TypeVar("T")
Events = Generator[simpy.Event, Any, T]

Progress = Callable[[float], None]
"""Called now and then with the virtual time in milliseconds."""


@dataclass(frozen=True)
class SimulationConfig:
    """Everything one run needs. Built by `load_simulation_config`, or by hand in tests."""

    duration_ms: float
    seed: int | None

    storage_provider: StorageProvider
    catalog: Catalog
    workload: Workload
    conflict_detector: ConflictDetector

    max_retries: int = 10
    ml_append_mode: bool = False

    backoff_enabled: bool = False
    backoff_base_ms: float = 10.0
    backoff_multiplier: float = 2.0
    backoff_max_ms: float = 5000.0
    backoff_jitter: float = 0.1
    backoff_before_read: bool = False

    options: CommitOptions = field(default_factory=CommitOptions)
    classes: tuple[WorkloadClass, ...] = ()
    """The classes of a run that has several. Empty: one class, from the fields above."""

    @property
    def all_classes(self) -> tuple[WorkloadClass, ...]:
        """Every class of the run."""
        if self.classes:
            return self.classes
        options = self.commit_options()
        only = (self.workload, self.conflict_detector, self.max_retries, self.ml_append_mode, options)
        return (WorkloadClass(DEFAULT_CLASS, *only),)

    def commit_options(self) -> CommitOptions:
        """Return the options with the backoff that is in force."""
        if not self.backoff_enabled:
            return self.options
        backoff = Backoff(
            self.backoff_base_ms,
            self.backoff_multiplier,
            self.backoff_max_ms,
            self.backoff_jitter,
            self.backoff_before_read,
        )
        return replace(self.options, backoff=backoff)


class _Delay(simpy.Event):
    """A timeout whose order among simultaneous ones is given by a number."""

    def __init__(self, env: simpy.Environment, ticks: int, order: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        # SimPy reserves priorities 0 and 1.
        env.schedule(self, priority=order + 2, delay=ticks)  # type: ignore[arg-type]


def _drive_generator(env: simpy.Environment, steps: Latency[T], order: int) -> Events[T]:
    """Turn every yielded millisecond into virtual time."""
    while True:
        try:
            delay_ms = next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if not delay_ms >= 0.0:  # also catches a NaN
            raise InvariantError("time only advances", f"transaction {order} asked to wait {delay_ms} ms")
        yield _Delay(env, to_ticks(delay_ms), order)


class Simulation:
    """Runs one configuration with one seed. A simulation runs once."""

    def __init__(self, config: SimulationConfig) -> None:
        if config.seed is not None and config.seed != config.workload.seed:
            raise ValueError(f"seed {config.seed} is not the workload's, {config.workload.seed}; give both the same")
        self._config = config
        self._env = simpy.Environment()
        config.storage_provider.objects.clock = self._ticks
        config.catalog.keep_time(self._ticks)
        self._in_flight: dict[int, Transaction] = {}
        self._statistics = Statistics()

    def _ticks(self) -> int:
        return int(self._env.now)

    def run(self, progress: Progress | None = None) -> Statistics:
        """Run to the end of the simulated time and return the statistics. Checks the model's invariants at the end."""
        for one in self._config.all_classes:
            self._env.process(self._arrivals(one) if one.workload.config.closed is None else self._writers(one))
        end_ticks = to_ticks(self._config.duration_ms)
        for stop_ticks in _milestones(end_ticks, 200 if progress else 1):
            self._env.run(until=stop_ticks)
            if progress:
                progress(to_ms(stop_ticks))
        return self._finish()

    def _arrivals(self, one: WorkloadClass) -> Events[None]:
        for delay_ms, txn in one.workload.generate():
            yield _Delay(self._env, to_ticks(delay_ms), txn.txn_id)
            self._env.process(self._job(one, txn))

    def _writers(self, one: WorkloadClass) -> Events[None]:
        closed = one.workload.config.closed
        for writer in range(closed.writers if closed else 0):
            self._env.process(self._writer(one, writer))
        yield _Delay(self._env, 0, 0)

    def _writer(self, one: WorkloadClass, number: int) -> Events[None]:
        """Run a writer's transactions one after the other. Its first one has the writer's number."""
        workload, closed = one.workload, one.workload.config.closed
        if closed is None:
            raise ValueError("only closed and triggered arrivals have writers")
        # Simultaneous starts, too, happen in the order of the transactions' ids.
        yield _Delay(self._env, closed.start_ticks(number), workload.txn_id(number))
        while True:
            first = workload.transaction(number, to_ms(int(self._env.now)))
            last = yield from self._job(one, first)
            number = workload.number_of(last.txn_id)
            wait_ms = workload.next_ms(number, first.submit_time_ms, to_ms(int(self._env.now)))
            yield _Delay(self._env, to_ticks(wait_ms), last.txn_id)
            number += closed.writers

    def _job(self, one: WorkloadClass, txn: Transaction) -> Events[Transaction]:
        """Run a job's transactions one after the other, whether or not they commit. Return the last one."""
        yield from self._transact(one, txn)
        for _ in range(1, one.workload.config.parts):
            yield _Delay(self._env, 0, txn.txn_id)
            txn = one.workload.next_part(txn, to_ms(int(self._env.now)))
            yield from self._transact(one, txn)
        return txn

    def _transact(self, one: WorkloadClass, txn: Transaction) -> Events[None]:
        config = self._config
        self._in_flight[txn.txn_id] = txn
        steps = txn.execute(
            config.catalog.session(txn.streams.catalog),
            config.storage_provider.with_rng(txn.streams.storage),
            one.conflict_detector,
            one.max_retries,
            one.ml_append_mode,
            one.options,
        )
        result = yield from _drive_generator(self._env, steps, txn.txn_id)
        if to_ticks(txn.now_ms) != self._env.now:
            raise InvariantError("every wait is accounted for", f"transaction {txn.txn_id} lost track of time")
        del self._in_flight[txn.txn_id]
        self._statistics.record_transaction(result)
        self._statistics.record_work(txn)

    def _finish(self) -> Statistics:
        statistics, catalog = self._statistics, self._config.catalog
        for txn in self._in_flight.values():
            statistics.record_transaction(txn.result())
            statistics.record_work(txn)
        statistics.counters.update(catalog.counters)
        statistics.counters.update(self._config.storage_provider.objects.counters)
        statistics.seq = catalog.seq
        check_commits(statistics.committed, statistics.unfinished, statistics.seq)
        return statistics


def _milestones(end_ticks: int, count: int) -> list[int]:
    return [end_ticks * (step + 1) // count for step in range(count)]
