"""Testing a protocol of your own: in every order of its steps, in virtual time, and with injected faults."""

import logging
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from endive.drivers.blocking import BlockingDriver
from endive.errors import AttemptsExhaustedError
from endive.objects import MemoryStore
from endive.protocol.requests import Get, List, Put, Steps, ask, create
from endive.testing import (
    Bounds,
    ClusterFaults,
    Contents,
    FaultInjectingStore,
    FaultProbabilities,
    RecordEvent,
    SimulatedCluster,
    explore,
)


def take_ticket(name: str) -> Steps[int]:
    """Take the next free ticket. A protocol is a generator that yields requests and receives replies."""
    for _ in range(100):
        listing = yield from ask(List("tickets/"))
        number = len(listing) + 1
        is_ours = yield from create(f"tickets/{number:03}", name.encode())
        if is_ours:
            return number
    raise AttemptsExhaustedError("tickets/", 100)


def take_ticket_wrongly(name: str) -> Steps[int]:
    """Check that a ticket is free, then write it: a race."""
    number = 1
    taken = yield from ask(Get(f"tickets/{number:03}"))
    while taken is not None:
        number += 1
        taken = yield from ask(Get(f"tickets/{number:03}"))
    yield from ask(Put(f"tickets/{number:03}", name.encode()))
    return number


def process(protocol: Callable[[str], Steps[int]], name: str) -> Steps[None]:
    """Take a ticket, and record it for the invariant."""
    number = yield from protocol(name)
    yield from ask(RecordEvent((name, number)))


def each_ticket_is_taken_once(_: Contents, events: frozenset[Hashable]) -> str | None:
    """Return the violation of the invariant in a state, if there is one."""
    numbers = [event[1] for event in events if isinstance(event, tuple)]
    return f"taken twice: {numbers}" if len(set(numbers)) < len(numbers) else None


# 1. The explorer runs two processes in every order of their steps, and checks the invariant in every state.
for protocol, bounds in ((take_ticket_wrongly, Bounds()), (take_ticket, Bounds(lost_replies=2, crashes=1))):
    programs = {name: partial(process, protocol, name) for name in ("ann", "bob")}
    print(f"{protocol.__name__}, {bounds}")
    print(explore(programs, {"each ticket is taken once": each_ticket_is_taken_once}, bounds), end="\n\n")

# 2. A simulated cluster runs many processes in virtual time, with latencies and faults from a seed.
cluster = SimulatedCluster(seed=1, faults=ClusterFaults(lost_reply=0.1, stall=0.05, crash=0.02))
machines = [cluster.machine(f"machine {number}") for number in range(20)]
started = [cluster.start(machine, take_ticket(machine.name)) for machine in machines]
cluster.run(until_ms=3_600_000)
tickets = [one.result for one in started if one.error is None and one.is_over]
crashed = sum(not machine.is_up for machine in machines)
last_ms = max(one.ended_ms or 0 for one in started)
print(f"cluster: {len(tickets)} tickets, {len(set(tickets))} different, {crashed} crashes, {last_ms / 1000:.0f} s")

# 3. Real threads on an object store with injected faults. The driver logs every retry.
logging.getLogger("endive").setLevel(logging.ERROR)
faults = FaultProbabilities(refusal=0.1, failure=0.05, lost_reply=0.1)
driver = BlockingDriver(FaultInjectingStore(MemoryStore(), seed=1, faults=faults), sleep=lambda _: None)
with ThreadPoolExecutor(8) as pool:
    tickets = list(pool.map(lambda number: driver.run(take_ticket(f"thread {number}")), range(20)))
driver.close()
print(f"threads: {len(tickets)} tickets, {len(set(tickets))} different")
