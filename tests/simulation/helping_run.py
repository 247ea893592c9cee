"""One seeded run: writers that help each other, owners that die and are succeeded, results that are forgotten.

As in `tests.simulation.shared_run`, every call appends a number of its own to two keys, and some refuse. An owner may
announce an intention and die, or give up; its successor finds the result under the intention's name, or carries it out.
Beside them are transaction functions, exclusive writers, compactors and garbage collectors.

python -m tests.simulation.helping_run 17          # replays seed 17 and says what happened
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf

from endive.errors import EndiveError, ExclusiveWriterError, OutcomeUnknownError, RefusalError
from endive.kv.log.combining import Contention, commit_calls, outcomes_of
from endive.kv.log.committing import Committed, commit_batch
from endive.kv.log.epochs import open_exclusive, open_shared
from endive.kv.log.helping import announce, collect_intentions, delete_intention, forget_outcomes
from endive.kv.log.intentions import Intention
from endive.kv.log.state import StoreState, refreshed
from endive.kv.procedures import Call, procedure
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction
from endive.protocol.requests import Sleep, Steps, ask
from endive.rng import Stream
from endive.testing.virtual_time import Machine
from tests.simulation.shared_run import KEYS, SharedRun, append_number


@procedure("simulation.append", 1)
def append(tx: Transaction, argument: bytes) -> Steps[bytes]:
    """Append a number to both keys; one with an exclamation mark refuses, after it has put."""
    number = argument.decode().removesuffix("!")
    yield from append_number(number, False, tx)
    if argument.endswith(b"!"):
        raise RefusalError(argument)
    held = yield from tx.get(KEYS[0])
    return held or b""


@dataclass
class HelpingRun(SharedRun):
    """Everything that happens to writers that help each other under one seed."""

    diary: dict[str, Intention] = field(default_factory=dict)
    """Intentions whose owners have died or given up, as on their disks."""
    told: dict[str, bytes] = field(default_factory=dict)
    """What owners were told: the first key's value after their number."""
    by_others: int = 0
    expired: int = 0

    def play(self) -> list[str]:
        for number in range(int(4 * self.rng.random())):
            self._boot(f"early writer {number}", self.shared_writer, delayed=False)
        self._boot("successor", self.successor)
        if self.rng.random() < 0.7:
            self._boot("forgetter", self.forgetter)
        return super().play()

    # Lives.

    def shared_writer(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Join, or take the store, commit calls and functions until something ends it, join again."""
        yield from ask(Sleep(delay_ms))
        contention = Contention()
        pause_ms = 10.0 ** (0.5 + 2.5 * rng.random())
        while True:
            try:
                state = yield from open_exclusive() if rng.random() < self.owners else open_shared()
                last = -1
                for _ in range(5 + int(40 * rng.random())):
                    yield from ask(Sleep(pause_ms * rng.random()))
                    kind = rng.random()
                    if kind < 0.15:
                        state = yield from self.batch(state, rng)
                    elif kind < 0.3:
                        state = yield from self.abandoned(state, rng)
                    else:
                        begun_ms = self.cluster.now_ms
                        hints = contention.hints(begun_ms, state.wal_end == last)
                        calls = self._calls(rng)
                        done = yield from commit_calls(state, calls, NoCache(), hints, machine.name)
                        self._answered(calls, done)
                        now_ms, state, last = self.cluster.now_ms, done.state, done.entry or last
                        contention.update(done, now_ms, now_ms - begun_ms, 0)
                        if done.own is not None and rng.random() < 0.8:
                            yield from delete_intention(done.own)
            except EndiveError as error:
                self._note(machine, error)
            yield from ask(Sleep(3000 * rng.random()))

    def abandoned(self, state: StoreState, rng: Stream) -> Steps[StoreState]:
        """Announce calls; an owner that dies afterwards, or gives up, leaves them to its successor."""
        own = yield from announce(state, self._calls(rng), "gone")
        self.diary[own.name] = own
        return state

    def successor(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Find out what became of intentions whose owners are gone, and carry out what nobody has."""
        yield from ask(Sleep(delay_ms / 10))
        while True:
            yield from ask(Sleep(10_000 * rng.random()))
            names = sorted(self.diary)
            if not names:
                continue
            name = names[int(len(names) * rng.random())]
            try:
                state = yield from open_shared(create_store=False)
                done = yield from commit_batch(state, (), NoCache(), own=self.diary[name], by=machine.name)
                self._settle(name, done)
            except ExclusiveWriterError:
                continue  # later
            except OutcomeUnknownError:
                self.expired += 1
                self.diary.pop(name, None)
            except EndiveError as error:
                self._note(machine, error)

    def _settle(self, name: str, done: Committed) -> None:
        own = self.diary.pop(name, None)
        if own is not None and done.decided is not None:
            outcomes = outcomes_of(own.calls, done.decided)
            self._answered(own.calls, Committed(done.state, outcomes, decided=done.decided))

    def forgetter(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Forget results that are not old at all, and delete intentions that nobody can carry out any more."""
        yield from ask(Sleep(delay_ms / 5))
        while True:
            try:
                state = yield from open_shared(create_store=False)
                for _ in range(10):
                    yield from ask(Sleep(8000 * rng.random()))
                    state = yield from refreshed(state)
                    before = state.wal_end - int(40 * rng.random() ** 2)
                    done = yield from commit_batch(state, (partial(forget_outcomes, before),), NoCache())
                    state = done.state
                    yield from collect_intentions(NoCache(), state)
            except EndiveError as error:
                self._note(machine, error)
            yield from ask(Sleep(3000 * rng.random()))

    # Numbers.

    def _calls(self, rng: Stream) -> tuple[Call, ...]:
        calls: list[Call] = []
        for _ in range(1 + int(2 * rng.random())):
            number = self._new_number()
            if rng.random() < 0.2:
                self.refused.add(number)
                number += "!"
            calls.append(Call("simulation.append", 1, number.encode()))
        return tuple(calls)

    def _answered(self, calls: tuple[Call, ...], done: Committed) -> None:
        self.by_others += done.decided is not None and not done.entry
        for call, outcome in zip(calls, done.outcomes, strict=True):
            number = call.argument.decode()
            if outcome.error is None:
                self.appended[number].acknowledged_ms = self.cluster.now_ms
                self.told[number] = outcome.value
            elif not isinstance(outcome.error, RefusalError):
                raise outcome.error

    def _faults(self, history: tuple[str, ...], second: tuple[str, ...]) -> Iterator[str]:
        yield from super()._faults(history, second)
        for number, held in self.told.items():
            told = tuple(held.decode().split(","))
            if history[: len(told)] != told or told[-1] != number:
                yield f"the owner of {number} was told {told}, but the history is {history}"


def failures(seeds: range) -> Iterator[str]:
    """Play seeds, and yield a message for each that goes wrong, with the command that replays it."""
    for seed in seeds:
        wrong = HelpingRun(seed).play()
        if wrong:
            yield "\n".join((f"seed {seed}: python -m tests.simulation.helping_run {seed}", *wrong))


if __name__ == "__main__":
    run = HelpingRun(int(sys.argv[1]))
    problems = run.play()
    done = sum(one.acknowledged_ms < inf for one in run.appended.values())
    print(f"{done} of {len(run.appended)} numbers acknowledged, {run.by_others} by others; {run.cluster.faults}")  # noqa: T201
    print("\n".join(problems) or "nothing wrong")  # noqa: T201
    sys.exit(bool(problems))
