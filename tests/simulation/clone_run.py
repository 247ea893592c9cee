"""One seeded run with a clone: short-lived writers on the source and on the clone, maintenance of both, two cloners.

The clone is the store at the root of the simulated objects, its source is below `source/`. At the end, beside what
`tests.simulation.shared_run` demands of the source,

* the clone holds a beginning of the source's history, with everything that was acknowledged before cloning began;
* the clone holds every number that was acknowledged there, once;
* the check finds nothing in either.

python -m tests.simulation.clone_run 17          # replays seed 17 and says what happened
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf

from endive.errors import CheckpointGoneError, ConfigurationError, EndiveError, MissingObjectError, StoreNotFoundError
from endive.kv.clones import clone_store
from endive.kv.log.committing import commit_batch
from endive.kv.log.epochs import open_shared
from endive.kv.maintenance.check import check_store
from endive.kv.maintenance.claim import maintain
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction
from endive.protocol.requests import Sleep, Steps, ask, elsewhere
from endive.protocol.sequenced import newest
from endive.rng import Stream
from endive.testing.virtual_time import ClusterFaults, Machine
from tests.simulation.run import DURATION_MS, QUIET_MS, Life
from tests.simulation.shared_run import Numbers, SharedRun, numbers_in, read_both

SOURCE = "source/"
OWN = b"own"
EXPECTED = (CheckpointGoneError, ConfigurationError, MissingObjectError, StoreNotFoundError)
"""What a cloner may meet: a jump of the clock, the other cloner, a source that is collected or not there yet."""


def append_own(number: str, transaction: Transaction) -> Steps[None]:
    held = yield from transaction.get(OWN)
    transaction.put(OWN, (held + b"," if held else b"") + number.encode())


def read_clone(transaction: Transaction) -> Steps[tuple[Numbers, Numbers, Numbers]]:
    first, second = yield from read_both(transaction)
    own = yield from transaction.get(OWN)
    return first, second, numbers_in(own)


@dataclass
class CloneRun(SharedRun):
    """Everything that happens to a store and its clone under one seed."""

    cloning_ms: float = inf
    """When the first cloner began."""
    clones: int = 0
    own: dict[str, bool] = field(default_factory=dict)
    """Numbers appended in the clone, and whether they were acknowledged."""

    def play(self) -> list[str]:
        for number in range(3):
            self._boot(f"writer {number}", self._at_source(self.short_lived), delayed=number > 0)
        self._boot("compactor", self._at_source(self.compactor))
        self._boot("collector", self._at_source(self.collector))
        for number in range(2):
            self._boot(f"cloner {number}", self.cloner)
            self._boot(f"clone writer {number}", self.clone_writer)
        self.cluster.run(DURATION_MS)
        for machine in self.cluster.machines:
            self.cluster.crash(machine)
        self.cluster.run(QUIET_MS)
        return self._verdict() + self._clone_verdict()

    def _at_source(self, life: Life) -> Life:
        return lambda machine, rng, delay_ms: elsewhere(SOURCE, life(machine, rng, delay_ms))

    def cloner(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        yield from ask(Sleep(delay_ms))
        for _ in range(20):
            self.cloning_ms = min(self.cloning_ms, self.cluster.now_ms)
            try:
                yield from clone_store("clone", SOURCE)
                self.clones += 1
            except EXPECTED:
                pass
            except EndiveError as error:
                self._note(machine, error)
            yield from ask(Sleep(5000 * rng.random()))

    def clone_writer(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Append to the clone once it exists, maintain it, and merge all of it now and then: that ends the sharing."""
        yield from ask(Sleep(delay_ms))
        while True:
            try:
                found = yield from newest(MANIFESTS)
                if found is not None:
                    number = f"c{len(self.own)}"
                    self.own[number] = False
                    state = yield from open_shared(create_store=False)
                    yield from commit_batch(state, (partial(append_own, number),), NoCache())
                    self.own[number] = True
                    yield from maintain(10_000, 1 + int(10 * rng.random()), int(10 ** (4 * rng.random())))
            except EndiveError as error:
                self._note(machine, error)
            yield from ask(Sleep(4000 * rng.random()))

    # The end.

    def _end(self) -> Steps[tuple[Numbers, Numbers]]:
        return elsewhere(SOURCE, super()._end())

    def _clone_verdict(self) -> list[str]:
        self.cluster.faults = ClusterFaults()
        looking = self.cluster.start(self.cluster.machine("the clone's end"), self._clone_end())
        self.cluster.run(self.cluster.now_ms + 3_600_000)
        if looking.error is not None:
            return [f"the clone, at the end: {looking.error}"]
        return list(self._clone_faults(*looking.result)) if isinstance(looking.result, tuple) else []

    def _clone_end(self) -> Steps[tuple[Numbers, Numbers, Numbers] | None]:
        found = yield from newest(MANIFESTS)
        if found is None:
            return None
        state = yield from open_shared(create_store=False)
        committed = yield from commit_batch(state, (read_clone,), NoCache())
        report = yield from check_store()
        if report.findings:
            raise MissingObjectError("; ".join(map(str, report.findings)))
        held: tuple[Numbers, Numbers, Numbers] = committed.outcomes[0].value
        return held

    def _clone_faults(self, first: Numbers, second: Numbers, own: Numbers) -> Iterator[str]:
        if first != second:
            yield f"the clone is torn: {first} and {second}"
        for number, one in self.appended.items():
            if one.acknowledged_ms < self.cloning_ms and number not in first:
                yield f"the clone lacks {number}, acknowledged before cloning began"
        if len(set(own)) != len(own):
            yield f"a number is in the clone twice: {own}"
        for number, is_acknowledged in self.own.items():
            if is_acknowledged and number not in own:
                yield f"the clone has lost {number}: {own}"


def failures(seeds: range) -> Iterator[str]:
    """Play seeds, and yield a message for each that goes wrong, with the command that replays it."""
    for seed in seeds:
        wrong = CloneRun(seed).play()
        if wrong:
            yield "\n".join((f"seed {seed}: python -m tests.simulation.clone_run {seed}", *wrong))


if __name__ == "__main__":
    run = CloneRun(int(sys.argv[1]))
    problems = run.play()
    print(f"{len(run.appended)} numbers, {run.clones} clones, {sum(run.own.values())} numbers in the clone")  # noqa: T201
    print("\n".join(problems) or "nothing wrong")  # noqa: T201
    sys.exit(bool(problems))
