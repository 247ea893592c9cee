"""One seeded run of a shared store: members, readers, compactors, collectors and now and then an exclusive writer.

Every work appends a number of its own to two keys, so that a value is the history of its key. At the end

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
from endive.kv.log.opening import open_writer, replay_writer
from endive.kv.log.shared_epoch import MemberState, catch_up, commit_group, join_alone, join_shared, newest_state
from endive.kv.log.wal import WAL
from endive.kv.maintenance.check import check_store
from endive.kv.sst.format import Rows, encode_sst
from endive.kv.sst.lookup import find_in_groups, find_in_runs
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction, run_functions
from endive.protocol.fencing import append
from endive.protocol.requests import NewId, Sleep, Steps, ask
from endive.rng import Stream
from endive.testing.virtual_time import ClusterFaults, Machine
from tests.simulation.run import DURATION_MS, QUIET_MS, Run

KEYS = (b"a", b"b")
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
    """A work's own error."""


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
    owners: float = 0.0
    """How many of those who join keep their epoch to themselves."""

    def play(self) -> list[str]:
        for number in range(3 + int(3 * self.rng.random())):
            self._boot(f"member {number}", self.member, delayed=number > 1)
        for number in range(2):
            self._boot(f"reader {number}", self.shared_reader)
        for number in range(1 + int(2 * self.rng.random())):
            self._boot(f"compactor {number}", self.compactor)
            self._boot(f"collector {number}", self.collector)
        if self.rng.random() < 0.4:
            self._boot("alone", self.alone)
        self.owners = max(0.0, self.rng.random() - 0.5)
        self.cluster.run(DURATION_MS)
        for machine in self.cluster.machines:
            self.cluster.crash(machine)
        self.cluster.run(QUIET_MS)
        return self._verdict()

    # Lives.

    def member(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Join, or take the store, commit groups until something ends it, join again."""
        yield from ask(Sleep(delay_ms))
        while True:
            try:
                state = yield from join_alone() if rng.random() < self.owners else join_shared()
                for _ in range(3 + int(10 * rng.random())):
                    yield from ask(Sleep(2000 * rng.random() ** 2))
                    state = yield from self.group(state, rng)
            except EndiveError as error:
                self._note(machine, error)
            yield from ask(Sleep(3000 * rng.random()))

    def group(self, state: MemberState, rng: Stream) -> Steps[MemberState]:
        """Commit one to three works, some of which refuse."""
        numbers = [self._new_number() for _ in range(1 + int(3 * rng.random()))]
        refusals = [rng.random() < 0.2 for _ in numbers]
        works = [partial(append_number, *pair) for pair in zip(numbers, refusals, strict=True)]
        self.refused.update(number for number, refuses in zip(numbers, refusals, strict=True) if refuses)
        committed = yield from commit_group(state, works, NoCache())
        for number, outcome in zip(numbers, committed.outcomes, strict=True):
            if outcome.error is None:
                self.appended[number].acknowledged_ms = self.cluster.now_ms
            elif not isinstance(outcome.error, RefusedError):
                raise outcome.error
        return committed.state

    def shared_reader(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Read again and again, from a state that gets older and older, or newly found."""
        yield from ask(Sleep(delay_ms / 10))
        state: MemberState | None = None
        while True:
            begun_ms = self.cluster.now_ms
            try:
                if state is None:
                    state = yield from newest_state()
                    fresh = state
                else:
                    fresh = yield from catch_up(state)
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
        """Open the store as an exclusive writer, and append a few numbers."""
        yield from ask(Sleep(delay_ms))
        try:
            lease = yield from open_writer(1 + int(2 * rng.random()))
            manifest, groups = yield from replay_writer(lease)
            row = find_in_groups(groups, KEYS[0])
            if row is None:
                row = yield from find_in_runs(manifest.value.runs, KEYS[0], NoCache())
            held = numbers_in(None if row is None else row.value)
            for count in range(1 + int(3 * rng.random())):
                number = self._new_number()
                held = (*held, number)
                value = ",".join(held).encode()
                seq = 1_000_000 * lease.epoch + count
                put_id = yield from ask(NewId())
                body = encode_sst(Rows(list(KEYS), [value, value], [seq, seq]), lease.epoch, put_id)
                yield from append(WAL, lease.next_slot + count, body, lease.epoch)
                self.appended[number].acknowledged_ms = self.cluster.now_ms
                yield from ask(Sleep(500 * rng.random()))
        except EndiveError as error:
            self._note(machine, error)

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
        state = yield from join_shared()
        committed = yield from commit_group(state, (read_both,), NoCache())
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
