"""One seeded run: writers, readers, compactors and collectors on machines that fail, checked at the end.

python -m tests.simulation.run 17          # replays seed 17 and says what happened
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

from endive.errors import CheckpointGoneError, EndiveError, FencedError, MissingObjectError, OutcomeUnknownError
from endive.kv.log.epochs import open_exclusive
from endive.kv.maintenance.check import check_store
from endive.kv.maintenance.compactor import compact_levels, compact_wal
from endive.kv.maintenance.garbage_collector import collect_garbage
from endive.kv.sst.lookup import find_in_runs
from endive.kv.sst.reading import NoCache
from endive.kv.views import View, create_checkpoint, newest_view, view_at
from endive.protocol.requests import Sleep, Steps, ask
from endive.rng import Stream, stream
from endive.sim.config.profiles import load_profile_set
from endive.sim.delays import delay_of
from endive.testing.virtual_time import ClusterFaults, Machine, SimulatedCluster, latency_from, short_latency
from tests.simulation.history import NOTHING, History, Operation
from tests.simulation.pipelined import PipelinedWriter
from tests.store_protocols import claim_compactor, find_in_entries

Life = Callable[[Machine, Stream, float], Steps[None]]

KEYS = ("a", "b", "c")
PROVIDERS = (None, "s3", "s3x", "azure", "gcp")
"""Whose latencies a run has; None: short ones that differ much, which mixes orders more."""
DURATION_MS = 120_000.0
QUIET_MS = 3_600_000.0
"""Afterwards no process takes a step, until all late requests have arrived."""


@dataclass
class Run:
    """Everything that happens under one seed."""

    seed: int
    cluster: SimulatedCluster = field(init=False)
    rng: Stream = field(init=False)
    history: History = field(default_factory=History)
    values: int = 0
    checkpoints_kept: int = 0
    parallel_writes: int = 1
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = stream(self.seed, "run")
        draw = self.rng.random
        faults = ClusterFaults(
            lost_reply=0.1 * draw() ** 2,
            refusal=0.1 * draw() ** 2,
            stall=0.05 * draw() ** 2,
            stall_ms=10.0 ** (2 + 3 * draw()),
            crash=0.02 * draw() ** 2,
            clock_skew_ms=10.0 ** (6 * draw()),
            clock_jump=0.02 * draw() ** 2,
            clock_jump_ms=10.0 ** (3 + 8 * draw()),  # up to three years
        )
        self.parallel_writes = 1 if draw() < 0.7 else 2 + int(3 * draw())
        provider = PROVIDERS[int(len(PROVIDERS) * draw())]
        latency = short_latency if provider is None else latency_from(delay_of(load_profile_set("measured")[provider]))
        self.cluster = SimulatedCluster(self.seed, faults, latency)

    # Machines, each with a life of its own.

    def play(self) -> list[str]:
        """Run to the end, and return what is wrong."""
        for number in range(2 + int(2 * self.rng.random())):
            self._boot(f"writer {number}", self.writer, delayed=number > 0)
        for number in range(2):
            self._boot(f"reader {number}", self.reader)
        self._boot("keeper", self.keeper)
        for number in range(1 + int(2 * self.rng.random())):
            self._boot(f"compactor {number}", self.compactor)
            self._boot(f"collector {number}", self.collector)
        self.cluster.run(DURATION_MS)
        for machine in self.cluster.machines:
            self.cluster.crash(machine)
        self.cluster.run(QUIET_MS)
        return self._verdict()

    def _boot(self, name: str, life: Life, delayed: bool = True) -> None:
        machine = self.cluster.machine(name)
        draws = self.rng.child(len(self.cluster.machines))
        self.cluster.start(machine, life(machine, draws, draws.random() * DURATION_MS / 2 if delayed else 0.0))

    def writer(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Open, write until something ends it, open again."""
        yield from ask(Sleep(delay_ms))
        while True:
            try:
                state = yield from open_exclusive(parallel_writes=self.parallel_writes, claims_max=1)
            except EndiveError as error:
                self._note(machine, error)
                yield from ask(Sleep(1000 * rng.random()))
                continue
            writer = PipelinedWriter(state, self.parallel_writes)
            clients = [
                self.cluster.start(machine, self.client(machine, writer, rng.child(number))) for number in range(3)
            ]
            while not all(client.is_over for client in clients):
                yield from ask(Sleep(50))
            if rng.random() < 0.5:
                return
            yield from ask(Sleep(20_000 * rng.random()))

    def client(self, machine: Machine, writer: PipelinedWriter, rng: Stream) -> Steps[None]:
        """Put rows, one write after the other, until the writer fails."""
        for _ in range(3 + int(6 * rng.random())):
            yield from ask(Sleep(3000 * rng.random()))
            if writer.error is not None:
                return
            rows, called = self._new_rows(rng)
            written = writer.pipeline.add_rows(rows)
            while not written.is_durable and writer.error is None:
                if not writer.pipeline.can_take():
                    yield from ask(Sleep(5))
                    continue
                yield from writer.commit()
                for error in writer.errors:
                    self._note(machine, error)
            for operation in called:
                # A write that was not confirmed may still turn out to have happened.
                operation.answered_ms = self.cluster.now_ms if written.is_durable else inf

    def reader(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Look at the newest state again and again, all keys in one view."""
        yield from ask(Sleep(delay_ms / 10))
        while True:
            called = [self.history.call(key, self.cluster.now_ms) for key in KEYS]
            try:
                view = yield from newest_view()
                found = yield from self._values(view)
            except EndiveError as error:
                if not isinstance(error, MissingObjectError):  # collected under the reader's hands: look again
                    self._note(machine, error)
                for operation in called:
                    operation.is_void = True
            else:
                for operation, value in zip(called, found, strict=True):
                    operation.value, operation.answered_ms = value, self.cluster.now_ms
                pairs = {value.partition("/")[0] for value in found[:2]}
                if len(pairs) > 1:
                    self.notes.append(f"torn: {found}")
            yield from ask(Sleep(8000 * rng.random()))

    def _values(self, view: View) -> Steps[list[str]]:
        found = []
        for key in KEYS:
            row = find_in_entries(view.entries, key.encode())
            if row is None:
                row = yield from find_in_runs(view.manifest.value.runs, key.encode(), NoCache())
            found.append(NOTHING if row is None or row.value is None else row.value.decode())
        return found

    def keeper(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        """Pin the state, and look at it again and again: it must not change, nor vanish before its time."""
        yield from ask(Sleep(delay_ms))
        while True:
            lifetime_s = 0 if rng.random() < 0.5 else 1 + int(60 * rng.random())
            try:
                checkpoint = yield from create_checkpoint(lifetime_s)
                seen: list[list[str]] = []
                for _ in range(3):
                    view = yield from view_at(checkpoint.id)
                    found = yield from self._values(view)
                    seen.append(found)
                    yield from ask(Sleep(15_000 * rng.random()))
                self.checkpoints_kept += 1
                if seen[1:] != seen[:-1]:
                    self.notes.append(f"a checkpoint has changed: {seen}")
            except EndiveError as error:
                if lifetime_s == 0 or not isinstance(error, CheckpointGoneError | MissingObjectError):
                    self._note(machine, error)
            yield from ask(Sleep(5000 * rng.random()))

    def compactor(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        yield from ask(Sleep(delay_ms))
        while True:
            try:
                epoch = yield from claim_compactor()
                for _ in range(20):
                    yield from compact_wal(epoch)
                    yield from compact_levels(epoch, everything=rng.random() < 0.2)
                    yield from ask(Sleep(6000 * rng.random()))
            except EndiveError as error:
                self._note(machine, error)
                yield from ask(Sleep(10_000 * rng.random()))

    def collector(self, machine: Machine, rng: Stream, delay_ms: float) -> Steps[None]:
        yield from ask(Sleep(delay_ms))
        while True:
            try:
                yield from collect_garbage(retention_ms=int(10 ** (4 * rng.random())))
            except EndiveError as error:
                self._note(machine, error)
            yield from ask(Sleep(5000 * rng.random()))

    def _new_rows(self, rng: Stream) -> tuple[list[tuple[bytes, bytes | None]], list[Operation]]:
        """Return rows for a batch: `a` and `b` always together, with the same number, `c` sometimes."""
        self.values += 1
        rows: list[tuple[bytes, bytes | None]] = [(key.encode(), f"{self.values}/{key}".encode()) for key in KEYS[:2]]
        if rng.random() < 0.5:
            rows.append((b"c", f"{self.values}/c".encode()))
        now_ms = self.cluster.now_ms
        return rows, [self.history.call(key.decode(), now_ms, (value or b"").decode()) for key, value in rows]

    def _note(self, machine: Machine, error: EndiveError) -> None:
        if not isinstance(error, FencedError | OutcomeUnknownError) and "attempts" not in str(error):
            self.notes.append(f"{self.cluster.now_ms:.0f} ms, {machine.name}: {type(error).__name__}: {error}")

    # The end.

    def _verdict(self) -> list[str]:
        """Return what is wrong: unexpected errors, lost or torn writes, impossible orders, objects that do not fit."""
        self.cluster.faults = ClusterFaults()
        wrong = [note for note in self.notes if "StoreNotFound" not in note]
        end = self.cluster.machine("the end")
        checking = self.cluster.start(end, self._last_look())
        self.cluster.run(self.cluster.now_ms + 3_600_000)
        if checking.error is not None and "StoreNotFound" not in type(checking.error).__name__:
            wrong.append(f"at the end: {checking.error}")
        return wrong + self.history.faults()

    def _last_look(self) -> Steps[None]:
        called = [self.history.call(key, self.cluster.now_ms) for key in KEYS]
        state = yield from open_exclusive(parallel_writes=self.parallel_writes)
        for operation in called:
            row = state.recent.find(operation.key.encode())
            if row is None:
                row = yield from find_in_runs(state.manifest.value.runs, operation.key.encode(), NoCache())
            value = None if row is None else row.value
            operation.value, operation.answered_ms = (value or b"").decode(), self.cluster.now_ms
        report = yield from check_store()
        self.notes.extend(map(str, report.findings))
        if report.findings:
            raise MissingObjectError("; ".join(map(str, report.findings)))


def failures(seeds: range) -> Iterator[str]:
    """Play seeds, and yield a message for each that goes wrong, with the command that replays it."""
    for seed in seeds:
        wrong = Run(seed).play()
        if wrong:
            yield "\n".join((f"seed {seed}: python -m tests.simulation.run {seed}", *wrong))


if __name__ == "__main__":
    run = Run(int(sys.argv[1]))
    problems = run.play()
    done = sum(one.answered_ms < inf for one in run.history.operations)
    print(f"{done} of {len(run.history.operations)} operations answered; {run.cluster.faults}")  # noqa: T201
    print("\n".join(problems) or "nothing wrong")  # noqa: T201
    sys.exit(bool(problems))
