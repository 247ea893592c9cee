"""A simulated cluster in virtual time: machines that run protocols on one object store, with faults from a seed.

A request takes effect in the store half-way through its latency, and its reply arrives at the end. The seed decides
which faults occur:

* the reply is lost: the request takes effect in time, late or never. After a timeout, a create raises
  `OutcomeUnknownError` in the protocol; other requests are retried, as by the blocking driver;
* the request is refused, and retried after a pause;
* the machine stalls, as in a long garbage collection pause of a runtime;
* the machine crashes. Requests in flight may still take effect.

Clocks differ between machines and may jump. An hour of virtual time passes in milliseconds, and the same seed gives the
same run.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from endive.errors import EndiveError, InvariantError, OutcomeUnknownError
from endive.objects.api import execute_request
from endive.objects.memory import MemoryStore
from endive.protocol.requests import (
    Delete,
    Get,
    GetAll,
    GetRange,
    List,
    Now,
    Put,
    PutIfAbsent,
    Request,
    Sleep,
    Steps,
    Together,
)
from endive.rng import Stream, stream
from endive.testing.automaton import with_single_requests
from endive.testing.fault_injection import Delay

TIMEOUT_MS = 5_000.0
EVENTS_MAX = 1_000_000


@dataclass(frozen=True)
class ClusterFaults:
    """Probability of each injected fault, per request, and the size of stalls and clock errors."""

    lost_reply: float = 0.0
    refusal: float = 0.0
    stall: float = 0.0
    stall_ms: float = 60_000.0
    crash: float = 0.0
    clock_skew_ms: float = 0.0
    """Maximum offset of a machine's clock."""
    clock_jump: float = 0.0
    clock_jump_ms: float = 3_600_000.0
    """Maximum clock jump, forwards or backwards."""


LatencyOf = Callable[[Request[Any], Stream], float]
"""Latency of one request in milliseconds, from a random stream."""


def short_latency(request: Request[Any], rng: Stream) -> float:  # noqa: ARG001 - the same for all
    """Return a latency between 10 and 100 ms."""
    return 10.0 + 90.0 * rng.random()


def latency_from(delay: Delay) -> LatencyOf:
    """Return latencies by operation and size, such as those of a provider's profile.

    The size of a range read is the length of the range; a read of a whole object counts as 0 bytes.
    """

    def latency_ms(request: Request[Any], rng: Stream) -> float:
        match request:
            case PutIfAbsent(_, body):
                return delay("cas", len(body), rng)
            case Put(_, body):
                return delay("write", len(body), rng)
            case GetRange(_, _, length):
                return delay("read", length, rng)
            case List():
                return delay("list", 0, rng)
            case Delete():
                return delay("delete", 0, rng)
        return delay("read", 0, rng)

    return latency_ms


@dataclass
class Machine:
    """Processes that share memory, stall together and crash together."""

    name: str
    clock_offset_ms: float = 0.0
    clock_jumps: int = 0
    is_up: bool = True
    stalled_until_ms: float = 0.0
    processes: list["SimulatedProcess"] = field(default_factory=list)


@dataclass
class SimulatedProcess:
    """One protocol, running on a machine."""

    machine: Machine
    steps: Steps[Any]
    result: object = None
    error: EndiveError | None = None
    ended_ms: float | None = None
    """When the protocol returned or raised. None: it is still running, or its machine has crashed."""

    @property
    def is_over(self) -> bool:
        """Whether the protocol has returned or raised."""
        return self.ended_ms is not None


class SimulatedCluster:
    """Machines that run protocols on one object store, in virtual time.

    Add machines with `machine`, start protocols on them with `start`, let time pass with `run`, then inspect the
    results of the processes and the store `objects`.
    """

    def __init__(
        self,
        seed: int,
        faults: ClusterFaults = ClusterFaults(),  # noqa: B008 - frozen
        latency: LatencyOf = short_latency,
        parallel_gets: bool = False,
    ) -> None:
        self.now_ms = 0.0
        self._parallel_gets = parallel_gets
        """Whether the requests of one `GetAll` travel side by side, to measure; else one by one, so that orders mix."""
        self.faults = faults
        self.objects = MemoryStore(clock=lambda: int(self.now_ms))
        self.machines: list[Machine] = []
        self._rng = stream(seed, "world")
        self._latency = latency
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._started = 0

    # Machines and processes.

    def machine(self, name: str) -> Machine:
        """Add a machine."""
        made = Machine(name, self._up_to(self.faults.clock_skew_ms))
        self.machines.append(made)
        return made

    def start(self, machine: Machine, steps: Steps[Any]) -> SimulatedProcess:
        """Start a protocol on a machine that is up."""
        self._started += 1
        process = SimulatedProcess(machine, with_single_requests(steps, self._started, not self._parallel_gets))
        machine.processes.append(process)
        self._at(self.now_ms, lambda: self._resume(process, lambda: next(process.steps)))
        return process

    def crash(self, machine: Machine) -> None:
        """Stop a machine permanently. Requests in flight may still take effect."""
        machine.is_up = False

    def run(self, until_ms: float) -> None:
        """Let virtual time pass."""
        for _ in range(EVENTS_MAX):
            if not self._events or self._events[0][0] > until_ms:
                self.now_ms = until_ms
                return
            self.now_ms, _, happens = heapq.heappop(self._events)
            happens()
        raise InvariantError("a simulation makes progress", f"{EVENTS_MAX:,} events and no end")

    # Requests.

    def _resume(self, process: SimulatedProcess, advance: Callable[[], Request[Any]]) -> None:
        machine = process.machine
        if not machine.is_up:
            return
        if self.now_ms < machine.stalled_until_ms:
            self._at(machine.stalled_until_ms, lambda: self._resume(process, advance))
            return
        try:
            request = advance()
        except StopIteration as stop:
            process.result, process.ended_ms = stop.value, self.now_ms
        except EndiveError as error:
            process.error, process.ended_ms = error, self.now_ms
        else:
            self._send(process, request)

    def _send(self, process: SimulatedProcess, request: Request[Any]) -> None:
        match request:
            case Sleep(ms):
                self._reply(process, self.now_ms + ms, None)
                return
            case Now():
                self._reply(process, self.now_ms, int(self.now_ms + process.machine.clock_offset_ms))
                return
            case GetAll(paths):
                self._send(process, Together(tuple(map(Get, paths))))
                return
            case Together(requests):
                back_ms = self.now_ms + max((self._latency(one, self._rng) for one in requests), default=0.0)
                self._reply(process, back_ms, tuple(execute_request(self.objects, one) for one in requests))
                return
        if self._chance(self.faults.crash):
            self._travel_alone(request)
            self.crash(process.machine)
            return
        if self._chance(self.faults.clock_jump):
            process.machine.clock_offset_ms += self._up_to(self.faults.clock_jump_ms)
            process.machine.clock_jumps += 1
        if self._chance(self.faults.stall):
            process.machine.stalled_until_ms = self.now_ms + self._rng.random() * self.faults.stall_ms
        if self._chance(self.faults.refusal):
            self._at(self.now_ms + 200.0 * self._rng.random(), lambda: self._send(process, request))
        elif self._chance(self.faults.lost_reply):
            self._lose_reply(process, request)
        else:
            self._travel(process, request)

    def _travel(self, process: SimulatedProcess, request: Request[Any]) -> None:
        """Let a request take effect half-way through its latency, and reply at the end."""
        latency_ms = self._latency(request, self._rng)
        back_ms = self.now_ms + latency_ms

        def arrive() -> None:
            self._reply(process, back_ms, execute_request(self.objects, request))

        self._at(self.now_ms + latency_ms / 2, arrive)

    def _lose_reply(self, process: SimulatedProcess, request: Request[Any]) -> None:
        self._travel_alone(request)
        timeout_ms = self.now_ms + TIMEOUT_MS
        if isinstance(request, PutIfAbsent):
            error = OutcomeUnknownError(request.path)
            self._at(timeout_ms, lambda: self._resume(process, lambda: process.steps.throw(error)))
        else:
            self._at(timeout_ms, lambda: self._send(process, request))

    def _travel_alone(self, request: Request[Any]) -> None:
        """Let a request without a waiting process take effect: soon, late or never."""
        fate = self._rng.random()
        if fate < 0.7:
            delay_ms = self._latency(request, self._rng) if fate < 0.4 else self._rng.random() * 10 * TIMEOUT_MS
            self._at(self.now_ms + delay_ms, lambda: execute_request(self.objects, request))

    # Time.

    def _reply(self, process: SimulatedProcess, when_ms: float, reply: object) -> None:
        self._at(when_ms, lambda: self._resume(process, lambda: process.steps.send(reply)))

    def _at(self, when_ms: float, happens: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._events, (when_ms, self._order, happens))

    def _up_to(self, limit_ms: float) -> float:
        return (self._rng.random() * 2 - 1) * limit_ms

    def _chance(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability
