"""One seeded run: shared writers, exclusive ones with batches in flight, readers, compactors, garbage collectors.

Every transaction function appends a number of its own to two keys: a value is the history of its key. At the end

* every acknowledged number is there once, and no number twice;
* what any read saw is the beginning of that history, and both keys held the same;
* a read saw what was acknowledged before it began, and nothing that was begun after it ended;
* a number that was acknowledged before another was begun stands before it.

python -m tests.simulation.shared_run 17          # replays seed 17 and says what happened
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf

from endive.errors import EndiveError, MissingObjectError
from endive.kv.log.committing import commit_batch
from endive.kv.log.epochs import open_exclusive, open_shared
from endive.kv.log.state import StoreState, newest_state, refreshed
from endive.kv.maintenance.check import check_store
from endive.kv.maintenance.claim import maintain
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction, run_functions
from endive.protocol.requests import Sleep, Steps, ask
from endive.rng import Stream
from endive.testing.virtual_time import ClusterFaults, Machine
from tests.simulation.pipelined import PipelinedWriter
from tests.simulation.run import DURATION_MS, QUIET_MS, Run

KEYS = (b"a", b"b")
SHARE_ENTRIES = 4
"""WAL entries that are worth a share of maintenance."""
Numbers = tuple[str, ...]


@dataclass
class Appended:
    """One number, and when it was begun and acknowledged."""

    begun_ms: float
    acknowledged_ms: float = inf


@dataclass
class Seen:
    """What one read found."""

    begun_ms: float
    ended_ms: float
    held: tuple[Numbers, Numbers]


class RefusedError(Exception):
    """An error of a transaction function."""


def append_number(number: str, refuses: bool, transaction: Transaction) -> Steps[None]:
    for place in range(len(KEYS)):
        held = yield from transaction.get(KEYS[place])
        transaction.put(KEYS[place], (held + b"," if held else b"") + number.encode())
    if refuses:
        raise RefusedError(number)


def read_both(transaction: Transaction) -> Steps[tuple[Numbers, Numbers]]:
    first = yield from transaction.get(KEYS[0])
    second = yield from transaction.get(KEYS[1])
    return numbers_in(first), numbers_in(second)


def numbers_in(value: bytes | None) -> Numbers:
    return tuple(value.decode().split(",")) if value else ()


@dataclass
class SharedRun(Run):
    """Everything that happens to a shared store under one seed."""

    appended: dict[str, Appended] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    seen: list[Seen] = field(default_factory=list)
    shares: int = 0
    """Shares of maintenance that short-lived processes have done."""
    owners: float = 0.0
    """Share of the writers that claim an epoch exclusively, and commit one batch after the other."""

    def play(self) -> list[str]:
        for number in range(3 + int(3 * self.rng.random())):
            self._boot(f"writer {number}", self.shared_writer, delayed=number > 1)
        for number in range(2):
            self._boot(f"reader {number}", self.shared_reader)
        for number in range(1 + int(2 * self.rng.random())):
            self._boot(f"compactor {number}", self.compactor)
            self._boot(f"collector {number}", self.collector)
        if self.rng.random() < 0.4:
            self._boot("alone", self.alone)
        for number in range(int(4 * self.rng.random())):
            self._boot(f"short-lived {number}", self.short_lived)
        self.owners = max(0.0, self.rng.random() - 0.5)
        self.cluster.run(DURATION_MS)
        for machine in self.cluster.machines:
            self.cluster.crash(machine)
        self.cluster.run(QUIET_MS)
        return self._verdict()

    # Lives.

    def shared_writer(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Join, or take the store, commit batches until something ends it, join again."""
        yield from ask(Sleep(delay_ms))
        while True:
            try:
                state = yield from open_exclusive() if rng.random() < self.owners else open_shared()
                for _ in range(3 + int(10 * rng.random())):
                    yield from ask(Sleep(2000 * rng.random() ** 2))
                    state = yield from self.batch(state, rng)
            except EndiveError as error:
                self._note(machine, error)
            yield from ask(Sleep(3000 * rng.random()))

    def short_lived(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Open, commit once and do a share of maintenance; again and again, as new processes do."""
        yield from ask(Sleep(delay_ms))
        while True:
            try:
                state = yield from open_shared()
                state = yield from self.batch(state, rng)
                if state.uncompacted_entries >= SHARE_ENTRIES:
                    done = yield from maintain(10_000, 1 + int(10 * rng.random()), int(10 ** (4 * rng.random())))
                    self.shares += done is not None
            except EndiveError as error:
                self._note(machine, error)
            yield from ask(Sleep(4000 * rng.random()))

    def batch(self, state: StoreState, rng: Stream) -> Steps[StoreState]:
        """Commit one to three functions, some of which raise an error."""
        numbers = [self._new_number() for _ in range(1 + int(3 * rng.random()))]
        refusals = [rng.random() < 0.2 for _ in numbers]
        functions = [partial(append_number, *pair) for pair in zip(numbers, refusals, strict=True)]
        self.refused.update(number for number, refuses in zip(numbers, refusals, strict=True) if refuses)
        committed = yield from commit_batch(state, functions, NoCache())
        for number, outcome in zip(numbers, committed.outcomes, strict=True):
            if outcome.error is None:
                self.appended[number].acknowledged_ms = self.cluster.now_ms
            elif not isinstance(outcome.error, RefusedError):
                raise outcome.error
        return committed.state

    def shared_reader(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Read again and again, from a state that gets older and older, or newly found."""
        yield from ask(Sleep(delay_ms / 10))
        state: StoreState | None = None
        while True:
            begun_ms = self.cluster.now_ms
            try:
                if state is None:
                    state = yield from newest_state()
                    fresh = state
                else:
                    fresh = yield from refreshed(state)
                if fresh is not None:
                    manifest = fresh.manifest.value
                    outcomes, _ = yield from run_functions((read_both,), manifest.runs, fresh.recent, NoCache())
                    self.seen.append(Seen(begun_ms, self.cluster.now_ms, outcomes[0].value))
                    state = fresh if rng.random() < 0.5 else state
            except MissingObjectError:
                state = None  # collected under the reader's hands
            except EndiveError as error:
                self._note(machine, error)
            yield from ask(Sleep(6000 * rng.random()))

    def alone(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Claim the store exclusively, and let three clients commit with several batches in flight."""
        yield from ask(Sleep(delay_ms))
        for _ in range(1 + int(3 * rng.random())):
            parallel_writes = 1 + int(4 * rng.random())
            try:
                state = yield from open_exclusive(parallel_writes=parallel_writes)
            except EndiveError as error:
                self._note(machine, error)
                continue
            writer = PipelinedWriter(state, parallel_writes)
            clients = [
                self.cluster.start(machine, self.client_of_functions(machine, writer, rng.child(number)))
                for number in range(3)
            ]
            while not all(client.is_over for client in clients):
                yield from ask(Sleep(50))

    def client_of_functions(self, machine: Machine, writer: PipelinedWriter, rng: Stream) -> Steps[None]:
        """Commit functions, one after the other, until the writer fails."""
        for _ in range(2 + int(6 * rng.random())):
            yield from ask(Sleep(500 * rng.random()))
            if writer.error is not None:
                return
            number, refuses = self._new_number(), rng.random() < 0.2
            if refuses:
                self.refused.add(number)
            result = writer.submit(partial(append_number, number, refuses))
            while result.outcome is None and writer.error is None:
                if not writer.pipeline.can_take():
                    yield from ask(Sleep(5))
                    continue
                yield from writer.commit()
                for error in writer.errors:
                    self._note(machine, error)
            if result.outcome is not None and result.outcome.error is None:
                self.appended[number].acknowledged_ms = self.cluster.now_ms

    def _new_number(self) -> str:
        self.values += 1
        self.appended[str(self.values)] = Appended(self.cluster.now_ms)
        return str(self.values)

    # The end.

    def _verdict(self) -> list[str]:
        self.cluster.faults = ClusterFaults()
        wrong = [note for note in self.notes if "StoreNotFound" not in note]
        end = self.cluster.machine("the end")
        looking = self.cluster.start(end, self._end())
        self.cluster.run(self.cluster.now_ms + 3_600_000)
        if looking.error is not None or not isinstance(looking.result, tuple):
            return [*wrong, f"at the end: {looking.error}"]
        first, second = looking.result
        return wrong + list(self._faults(first, second))

    def _end(self) -> Steps[tuple[Numbers, Numbers]]:
        state = yield from open_shared()
        committed = yield from commit_batch(state, (read_both,), NoCache())
        report = yield from check_store()
        if report.findings:
            raise MissingObjectError("; ".join(map(str, report.findings)))
        found: tuple[Numbers, Numbers] = committed.outcomes[0].value
        return found

    def _faults(self, history: Numbers, second: Numbers) -> Iterator[str]:
        if history != second:
            yield f"torn: {history} and {second}"
        if len(set(history)) != len(history):
            yield f"a number is there twice: {history}"
        if self.refused & set(history):
            yield f"refused, but there: {sorted(self.refused & set(history))}"
        for number, one in self.appended.items():
            if one.acknowledged_ms < inf and number not in history:
                yield f"{number} was acknowledged at {one.acknowledged_ms:.0f} ms and is missing: {history}"
        yield from self._disorder(history)
        for read in self.seen:
            yield from self._misread(read, history)

    def _disorder(self, history: Sequence[str]) -> Iterator[str]:
        latest_begun_ms = -inf
        for number in history:
            one = self.appended[number]
            if one.acknowledged_ms < latest_begun_ms:
                yield f"{number} was acknowledged before one was begun that stands before it: {history}"
            latest_begun_ms = max(latest_begun_ms, one.begun_ms)

    def _misread(self, read: Seen, history: Numbers) -> Iterator[str]:
        first, second = read.held
        if first != second:
            yield f"a read saw a torn group: {read}"
        if history[: len(first)] != first:
            yield f"a read saw what never was: {read}; {history}"
        for number, one in self.appended.items():
            if one.acknowledged_ms < read.begun_ms and number not in first:
                yield f"a read missed {number}, acknowledged at {one.acknowledged_ms:.0f} ms: {read}"
            if one.begun_ms > read.ended_ms and number in first:
                yield f"a read saw {number} before it was begun: {read}"


def failures(seeds: range) -> Iterator[str]:
    """Play seeds, and yield a message for each that goes wrong, with the command that replays it."""
    for seed in seeds:
        wrong = SharedRun(seed).play()
        if wrong:
            yield "\n".join((f"seed {seed}: python -m tests.simulation.shared_run {seed}", *wrong))


if __name__ == "__main__":
    run = SharedRun(int(sys.argv[1]))
    problems = run.play()
    done = sum(one.acknowledged_ms < inf for one in run.appended.values())
    print(f"{done} of {len(run.appended)} numbers acknowledged, {len(run.seen)} reads; {run.cluster.faults}")  # noqa: T201
    print("\n".join(problems) or "nothing wrong")  # noqa: T201
    sys.exit(bool(problems))
