"""The explorer: a model checker that runs several protocols on one object store in every order of their steps.

A step is one request: it takes effect and is answered atomically. Between any two steps of a protocol, every other
protocol may take any number of steps. Within `Bounds`, the search also injects faults:

* **lost replies**: the protocol gets `OutcomeUnknownError`, and the request may take effect at any later step, or
  never. Requests that a driver retries by itself (`Bounds.resent`) are sent again while the first may still arrive;
* **refusals**: the protocol gets `StorageUnavailableError`, and the request has no effect;
* **crashes**: a protocol takes no more steps. Every prefix of a run is already a crash for the invariants, which are
  checked in every state; an explicit crash matters for the results of the surviving protocols;
* **clock jumps**: the clock moves past every expiry. Each protocol sees the jump when it next reads the clock.

If the state space is too large, bound the number of *preemptions*: how often a protocol that could take a step has to
wait for another one. Most races need one or two.

Equal states are visited once. A state is the objects, the recorded events, the state of each protocol and the
remaining bounds. The search is breadth first, so a violation comes with a shortest trace that leads to it.
"""

import gc
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Generic, TypeVar

from endive.errors import (
    AttemptsExhaustedError,
    EndiveError,
    InvariantError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from endive.protocol.requests import Delete, Get, List, Now, ObjectInfo, Put, PutIfAbsent, Request, Sleep
from endive.protocol.two_phase import CommitRecord, DeleteRecord, GetRecord
from endive.testing.automaton import Automaton, Node, Program, Raise
from endive.testing.store_state import CHANGES, Contents, StoreState, apply_request

T = TypeVar("T", bound=Hashable)

JUMP_MS = 10_000_000_000
"""Length of a clock jump: months, longer than any expiry."""


@dataclass(frozen=True)
class RecordEvent(Request[None]):
    """Record an event, such as an acknowledgement, for the invariants. Takes no step."""

    event: Hashable


@dataclass(frozen=True)
class Bounds:
    """Limits of a search: how many faults of each kind may occur in one run."""

    lost_replies: int = 0
    crashes: int = 0
    clock_jumps: int = 0
    refusals: int = 0
    resent: tuple[type[Request[Any]], ...] = (Put, Delete)
    """Requests that the driver retries after a lost reply. Other requests raise `OutcomeUnknownError`."""
    preemptions: int | None = None
    """How often a protocol that could take a step has to wait for another one. None: no limit."""
    states_max: int = 20_000_000

    def __str__(self) -> str:
        chosen = (one.name for one in fields(self) if getattr(self, one.name) != one.default)
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in chosen) or "no injected faults"


Invariant = Callable[[Contents, frozenset[Hashable]], str | None]
"""Checks the store's contents against the events so far; returns a description of the violation, or None."""

State = tuple[int, ...]
"""Numbers of the node of each protocol (`CRASHED` after a crash), the store state, the events, the environment."""
CRASHED = -1


@dataclass(frozen=True)
class Environment:
    """Requests in flight without a waiting protocol, the clock, and the remaining bounds."""

    in_flight: tuple[Request[Any], ...]
    clock: int
    lost_replies: int
    crashes: int
    clock_jumps: int
    refusals: int
    preemptions: int | None
    last: int
    """Index of the protocol that took the last step; constant if preemptions are not bounded."""


@dataclass
class Exploration:
    """Result of a search."""

    states: int = 0
    steps: int = 0
    end_states: int = 0
    """States from which no step is possible."""
    results: set[tuple[Hashable, ...]] = field(default_factory=set)
    """Results of the protocols in each end state."""
    violation: str | None = None
    trace: tuple[str, ...] = ()
    """A shortest run that leads to the violation, one line per step."""

    def __str__(self) -> str:
        found = f"{self.states:,} states, {self.steps:,} steps, {self.end_states:,} end states"
        if self.violation is None:
            return f"{found}: no violation"
        return "\n".join((f"{found}: {self.violation}", *self.trace))


class _Numbers(Generic[T]):
    """Numbers distinct values in the order of their first use."""

    def __init__(self, first: T) -> None:
        self.values = [first]
        self._numbers: dict[T, int] = {first: 0}

    def of(self, value: T) -> int:
        """Return the number of a value; a new value gets the next number."""
        number = self._numbers.setdefault(value, len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number


def explore(
    programs: Mapping[str, Program],
    invariants: Mapping[str, Invariant],
    bounds: Bounds = Bounds(),  # noqa: B008 - frozen
    objects: Mapping[str, bytes] | None = None,
    merge: bool = True,
) -> Exploration:
    """Run `programs` on one object store in every order of their steps and check `invariants` in every state.

    `programs` maps names to functions that start a protocol; `objects` is the initial content of the store.
    `merge=False` keeps states with different histories apart: slower, to validate the merging of equal states.
    """
    gc_enabled = gc.isenabled()
    gc.disable()  # millions of small tuples, none of them garbage
    try:
        return _Search(programs, invariants, bounds, objects or {}, merge).run()
    finally:
        if gc_enabled:
            gc.enable()


@dataclass(frozen=True, slots=True)
class _Step:
    """Effect of the next request of one protocol; cached, because it recurs in many global states."""

    node: int
    held: int
    events: frozenset[Hashable]
    """Events that the protocol records after the step."""
    what: str


class _Search:
    def __init__(
        self,
        programs: Mapping[str, Program],
        invariants: Mapping[str, Invariant],
        bounds: Bounds,
        objects: Mapping[str, bytes],
        merge: bool,
    ) -> None:
        self._names = tuple(programs)
        self._automata = tuple(Automaton(program, place, merge) for place, program in enumerate(programs.values()))
        self._invariants = invariants
        self._bounds = bounds
        self._stores = _Numbers(StoreState(tuple((path, body, 0) for path, body in sorted(objects.items()))))
        self._events: _Numbers[frozenset[Hashable]] = _Numbers(frozenset())
        self._environments = _Numbers(
            Environment(
                in_flight=(),
                clock=0,
                lost_replies=bounds.lost_replies,
                crashes=bounds.crashes,
                clock_jumps=bounds.clock_jumps,
                refusals=bounds.refusals,
                preemptions=bounds.preemptions,
                last=CRASHED,
            )
        )
        self._steps: dict[tuple[int, int, int, int, type[EndiveError] | None], _Step] = {}
        self._checked: set[tuple[int, int]] = set()
        self._origins: dict[State, State | None] = {}

    def run(self) -> Exploration:
        found = Exploration()
        start = self._start()
        self._origins[start] = None
        queue: deque[State] = deque((start,))
        while queue:
            state = queue.popleft()
            found.states += 1
            found.violation = self._violation_in(state)
            if found.violation:
                found.trace = self._trace_to(state)
                return found
            before = found.steps
            try:
                for _, successor in self._successors(state):
                    found.steps += 1
                    if successor not in self._origins:
                        self._origins[successor] = state
                        queue.append(successor)
            except InvariantError as error:  # raised by a protocol's own check
                found.violation, found.trace = str(error), self._trace_to(state)
                return found
            if found.steps == before:
                found.end_states += 1
                found.results.add(self._results(state))
            if len(self._origins) > self._bounds.states_max:
                raise AttemptsExhaustedError("the search", self._bounds.states_max)
        return found

    def _start(self) -> State:
        nodes: list[int] = []
        events: frozenset[Hashable] = frozenset()
        for place, automaton in enumerate(self._automata):
            node, recorded = self._past_events(place, automaton.start)
            nodes.append(node.number)
            events |= recorded
        return (*nodes, 0, self._events.of(events), 0)

    # Successor states.

    def _successors(self, state: State) -> Iterator[tuple[str, State]]:
        environment = self._environments.values[state[-1]]
        working = False
        for place, automaton in enumerate(self._automata):
            number = state[place]
            if number == CRASHED or automaton.nodes[number].request is None:
                continue
            working = True
            now = self._environment_of(state, place, environment)
            if now is not None:
                step = self._step(place, number, state[-3], environment.clock)
                yield step.what, self._moved(state, place, step, now)
                request = automaton.nodes[number].request
                if environment.lost_replies and isinstance(request, CHANGES):
                    yield self._reply_lost(state, place, request, self._environments.values[now])
                if environment.refusals and not isinstance(request, Now):
                    yield self._refused(state, place, self._environments.values[now])
            if environment.crashes:
                after = self._environments.of(replace(environment, crashes=environment.crashes - 1))
                yield f"{self._names[place]} crashes", (*state[:place], CRASHED, *state[place + 1 : -1], after)
        yield from self._late_requests(state, environment)
        if environment.clock_jumps and working:
            jumped = replace(environment, clock=environment.clock + JUMP_MS, clock_jumps=environment.clock_jumps - 1)
            yield "the clock jumps", (*state[:-1], self._environments.of(jumped))

    def _environment_of(self, state: State, place: int, environment: Environment) -> int | None:
        """Return the environment after a protocol was scheduled; None if no preemption is left for it."""
        if environment.preemptions is None or environment.last == place:
            return state[-1]
        interrupted = environment.last != CRASHED and state[environment.last] != CRASHED
        interrupted = (
            interrupted and self._automata[environment.last].nodes[state[environment.last]].request is not None
        )
        if interrupted and not environment.preemptions:
            return None
        return self._environments.of(
            replace(environment, last=place, preemptions=environment.preemptions - interrupted)
        )

    def _reply_lost(
        self, state: State, place: int, request: Request[Any], environment: Environment
    ) -> tuple[str, State]:
        in_flight = tuple(sorted((*environment.in_flight, request), key=repr))
        after = self._environments.of(
            replace(environment, in_flight=in_flight, lost_replies=environment.lost_replies - 1)
        )
        if isinstance(request, self._bounds.resent):
            what = f"{self._names[place]}: {_brief(request)} -> reply lost, sent again"
            return what, (*state[:-1], after)
        step = self._step(place, state[place], state[-3], environment.clock, OutcomeUnknownError)
        return step.what, self._moved(state, place, step, after)

    def _refused(self, state: State, place: int, environment: Environment) -> tuple[str, State]:
        step = self._step(place, state[place], state[-3], environment.clock, StorageUnavailableError)
        after = self._environments.of(replace(environment, refusals=environment.refusals - 1))
        return step.what, self._moved(state, place, step, after)

    def _late_requests(self, state: State, environment: Environment) -> Iterator[tuple[str, State]]:
        for request in set(environment.in_flight):
            held, _ = apply_request(self._stores.values[state[-3]], request, environment.clock)
            after = self._environments.of(replace(environment, in_flight=_without(environment.in_flight, request)))
            yield f"late: {_brief(request)}", (*state[:-3], self._stores.of(held), state[-2], after)

    def _moved(self, state: State, place: int, step: _Step, environment: int) -> State:
        events = state[-2]
        if step.events:
            events = self._events.of(self._events.values[events] | step.events)
        return (*state[:place], step.node, *state[place + 1 : -3], step.held, events, environment)

    def _step(self, place: int, number: int, held: int, clock: int, error: type[EndiveError] | None = None) -> _Step:
        key = (place, number, held, clock, error)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._take_step(*key)
        return step

    def _take_step(self, place: int, number: int, held: int, clock: int, error: type[EndiveError] | None) -> _Step:
        """Apply a request, or, if `error` is given, leave the store unchanged and raise it in the protocol."""
        node = self._automata[place].nodes[number]
        request = node.request
        assert request is not None  # noqa: S101 - the protocol has not ended
        after, reply = apply_request(self._stores.values[held], request, clock)
        if error is not None:
            after, reply = self._stores.values[held], Raise(_raised(error, request))
        node, recorded = self._past_events(place, self._automata[place].after(node, reply))
        what = f"{self._names[place]}: {_brief(request)} -> {_brief(reply)}"
        return _Step(node.number, self._stores.of(after), recorded, what)

    def _past_events(self, place: int, node: Node) -> tuple[Node, frozenset[Hashable]]:
        """Answer the requests that no other protocol can observe: events, sleeps, and the clock if it cannot jump.

        A sleep ends at once: every order is tried anyway, and no protocol may rely on its length.
        """
        recorded: frozenset[Hashable] = frozenset()
        while isinstance(node.request, RecordEvent | Sleep) or (
            isinstance(node.request, Now) and not self._bounds.clock_jumps
        ):
            if isinstance(node.request, RecordEvent):
                recorded |= {node.request.event}
            node = self._automata[place].after(node, 0 if isinstance(node.request, Now) else None)
        return node, recorded

    # Results.

    def _violation_in(self, state: State) -> str | None:
        seen = (state[-3], state[-2])
        if seen in self._checked:
            return None
        self._checked.add(seen)
        contents = self._stores.values[state[-3]].contents()
        for name, invariant in self._invariants.items():
            wrong = invariant(contents, self._events.values[state[-2]])
            if wrong is not None:
                return f"{name}: {wrong}"
        return None

    def _results(self, state: State) -> tuple[Hashable, ...]:
        numbers = zip(self._automata, state, strict=False)
        return tuple(
            "crashed" if number == CRASHED else automaton.nodes[number].result for automaton, number in numbers
        )

    def _trace_to(self, state: State) -> tuple[str, ...]:
        lines: list[str] = []
        before = self._origins[state]
        while before is not None:
            lines.append(next(what for what, successor in self._successors(before) if successor == state))
            state, before = before, self._origins[before]
        return tuple(reversed(lines))


def _raised(error: type[EndiveError], request: Request[Any]) -> EndiveError:
    place = next(iter(getattr(request, name) for name in ("path", "prefix", "destination") if hasattr(request, name)))
    return OutcomeUnknownError(place) if error is OutcomeUnknownError else StorageUnavailableError(place, "refused")


def _without(requests: tuple[Request[Any], ...], one: Request[Any]) -> tuple[Request[Any], ...]:
    place = requests.index(one)
    return requests[:place] + requests[place + 1 :]


def _brief(value: object) -> str:  # noqa: PLR0911 - one line for each kind of value
    """Return a short form for a trace."""
    match value:
        case Get(path) | Delete(path):
            return f"{type(value).__name__} {path}"
        case PutIfAbsent(path, body) | Put(path, body):
            return f"{type(value).__name__} {path} ({len(body)} bytes)"
        case List(prefix, after):
            return f"List {prefix}" + (f" after {after}" if after else "")
        case GetRecord(destination) | CommitRecord(destination) | DeleteRecord(destination):
            return f"{type(value).__name__} {destination}"
        case Raise(error):
            return type(error).__name__
        case bytes():
            return f"{len(value)} bytes"
        case tuple():
            names = (one.path if isinstance(one, ObjectInfo) else one.destination for one in value)
            return "[" + ", ".join(name.rpartition("/")[2] for name in names) + "]"
    return repr(value)
