"""The explorer: every order in which several protocols can act on one object store (`endive.testing.holdings`).

A step is one request: it takes effect and is answered at one moment. Between any two steps of a protocol, every other
protocol may take any number of steps. Within bounds that the caller states, the search also tries

* **lost replies**: the protocol learns that the outcome is unknown, and the request may take effect at any later
  moment, or never. A delete is sent again by the driver, as in production, while the first one may still arrive;
* **refusals**: the protocol learns that a request was not carried out;
* **crashes**: a protocol takes no more steps. (A protocol that is not chosen for the rest of a run has crashed too, and
  invariants are looked at in every state; the explicit crash is for what is looked at when everything has ended.)
* **jumps of the clock**: every checkpoint expires at once, for one protocol earlier than for the next, since each
  reads the clock when its turn comes.

Where that is too much, the search can be bounded by the number of *preemptions*: how often a protocol that could go
on is made to wait for another. Most races need one or two.

States that are equal are visited once: the objects, the events recorded, each protocol's own state, what is left of the
bounds. The search is breadth first, so a violation is reported with a shortest run that leads to it.
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
from endive.testing.holdings import CHANGES, Contents, Holdings, effect

T = TypeVar("T", bound=Hashable)

JUMP_MS = 10_000_000_000
"""A jump of the clock: months, longer than anything expires."""


@dataclass(frozen=True)
class Record(Request[None]):
    """Tells the explorer that something happened that an invariant speaks of, such as an acknowledgement."""

    event: Hashable


@dataclass(frozen=True)
class Bounds:
    """How much may go wrong in one run."""

    lost_replies: int = 0
    crashes: int = 0
    clock_jumps: int = 0
    refusals: int = 0
    repeated: tuple[type[Request[Any]], ...] = (Put, Delete)
    """What the driver sends again by itself after a lost reply; of other changes the protocol is told."""
    preemptions: int | None = None
    """How often a protocol that could go on has to let another one go first. None: any number of times."""
    states_max: int = 20_000_000

    def __str__(self) -> str:
        chosen = (one.name for one in fields(self) if getattr(self, one.name) != one.default)
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in chosen) or "nothing goes wrong"


Invariant = Callable[[Contents, frozenset[Hashable]], str | None]
"""Looks at what is held and at the events so far; returns what is wrong, or None."""

State = tuple[int, ...]
"""Numbers: each protocol's node (`CRASHED` if it is no more), then what is held, the events, the weather."""
CRASHED = -1


@dataclass(frozen=True)
class Environment:
    """What is under way without anybody waiting for it, the time, and what is left of the bounds."""

    under_way: tuple[Request[Any], ...]
    clock: int
    lost_replies: int
    crashes: int
    clock_jumps: int
    refusals: int
    preemptions: int | None
    last: int
    """Who took the last step, where that matters."""


@dataclass
class Exploration:
    """What a search has found."""

    states: int = 0
    steps: int = 0
    ends: int = 0
    """States in which every protocol has ended."""
    results: set[tuple[Hashable, ...]] = field(default_factory=set)
    """What the protocols returned, in each of those."""
    violation: str | None = None
    run: tuple[str, ...] = ()
    """The shortest run to the violation, a step a line."""

    def __str__(self) -> str:
        found = f"{self.states:,} states, {self.steps:,} steps, {self.ends:,} ends"
        if self.violation is None:
            return f"{found}: nothing wrong"
        return "\n".join((f"{found}: {self.violation}", *self.run))


class _Numbers(Generic[T]):
    """Gives each value a number."""

    def __init__(self, first: T) -> None:
        self.values = [first]
        self._numbers: dict[T, int] = {first: 0}

    def of(self, value: T) -> int:
        """Return the number of a value, a new one if it has none."""
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
    """Try every order of the programs' steps. `merge=False`: states are told apart by their histories, for checking."""
    collecting = gc.isenabled()
    gc.disable()  # millions of small tuples, none of them garbage
    try:
        return _Search(programs, invariants, bounds, objects or {}, merge).run()
    finally:
        if collecting:
            gc.enable()


@dataclass(frozen=True, slots=True)
class _Step:
    """What one protocol's next request does: remembered, since it comes up in many states."""

    node: int
    held: int
    events: frozenset[Hashable]
    """What it records after it."""
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
        self._held = _Numbers(Holdings(tuple((path, body, 0) for path, body in sorted(objects.items()))))
        self._events: _Numbers[frozenset[Hashable]] = _Numbers(frozenset())
        self._weather = _Numbers(
            Environment(
                under_way=(),
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
        self._looked_at: set[tuple[int, int]] = set()
        self._origins: dict[State, State | None] = {}

    def run(self) -> Exploration:
        found = Exploration()
        start = self._start()
        self._origins[start] = None
        queue: deque[State] = deque((start,))
        while queue:
            state = queue.popleft()
            found.states += 1
            found.violation = self._wrong_in(state)
            if found.violation:
                found.run = self._run_to(state)
                return found
            before = found.steps
            try:
                for _, successor in self._successors(state):
                    found.steps += 1
                    if successor not in self._origins:
                        self._origins[successor] = state
                        queue.append(successor)
            except InvariantError as error:  # a protocol itself found that something cannot be
                found.violation, found.run = str(error), self._run_to(state)
                return found
            if found.steps == before:
                found.ends += 1
                found.results.add(self._results(state))
            if len(self._origins) > self._bounds.states_max:
                raise AttemptsExhaustedError("the search", self._bounds.states_max)
        return found

    def _start(self) -> State:
        nodes: list[int] = []
        events: frozenset[Hashable] = frozenset()
        for place, automaton in enumerate(self._automata):
            node, recorded = self._past_records(place, automaton.start)
            nodes.append(node.number)
            events |= recorded
        return (*nodes, 0, self._events.of(events), 0)

    # What can happen next.

    def _successors(self, state: State) -> Iterator[tuple[str, State]]:
        weather = self._weather.values[state[-1]]
        working = False
        for place, automaton in enumerate(self._automata):
            number = state[place]
            if number == CRASHED or automaton.nodes[number].request is None:
                continue
            working = True
            now = self._weather_for(state, place, weather)
            if now is not None:
                step = self._step(place, number, state[-3], weather.clock)
                yield step.what, self._moved(state, place, step, now)
                request = automaton.nodes[number].request
                if weather.lost_replies and isinstance(request, CHANGES):
                    yield self._reply_lost(state, place, request, self._weather.values[now])
                if weather.refusals and not isinstance(request, Now):
                    yield self._refused(state, place, self._weather.values[now])
            if weather.crashes:
                after = self._weather.of(replace(weather, crashes=weather.crashes - 1))
                yield f"{self._names[place]} crashes", (*state[:place], CRASHED, *state[place + 1 : -1], after)
        yield from self._late_requests(state, weather)
        if weather.clock_jumps and working:
            jumped = replace(weather, clock=weather.clock + JUMP_MS, clock_jumps=weather.clock_jumps - 1)
            yield "the clock jumps", (*state[:-1], self._weather.of(jumped))

    def _weather_for(self, state: State, place: int, weather: Environment) -> int | None:
        """Return the weather in which a protocol takes its step; None if it must let another one go on."""
        if weather.preemptions is None or weather.last == place:
            return state[-1]
        interrupted = weather.last != CRASHED and state[weather.last] != CRASHED
        interrupted = interrupted and self._automata[weather.last].nodes[state[weather.last]].request is not None
        if interrupted and not weather.preemptions:
            return None
        return self._weather.of(replace(weather, last=place, preemptions=weather.preemptions - interrupted))

    def _reply_lost(self, state: State, place: int, request: Request[Any], weather: Environment) -> tuple[str, State]:
        under_way = tuple(sorted((*weather.under_way, request), key=repr))
        after = self._weather.of(replace(weather, under_way=under_way, lost_replies=weather.lost_replies - 1))
        if isinstance(request, self._bounds.repeated):
            what = f"{self._names[place]}: {_brief(request)} -> reply lost, sent again"
            return what, (*state[:-1], after)
        step = self._step(place, state[place], state[-3], weather.clock, OutcomeUnknownError)
        return step.what, self._moved(state, place, step, after)

    def _refused(self, state: State, place: int, weather: Environment) -> tuple[str, State]:
        step = self._step(place, state[place], state[-3], weather.clock, StorageUnavailableError)
        after = self._weather.of(replace(weather, refusals=weather.refusals - 1))
        return step.what, self._moved(state, place, step, after)

    def _late_requests(self, state: State, weather: Environment) -> Iterator[tuple[str, State]]:
        for request in set(weather.under_way):
            held, _ = effect(self._held.values[state[-3]], request, weather.clock)
            after = self._weather.of(replace(weather, under_way=_without(weather.under_way, request)))
            yield f"late: {_brief(request)}", (*state[:-3], self._held.of(held), state[-2], after)

    def _moved(self, state: State, place: int, step: _Step, weather: int) -> State:
        events = state[-2]
        if step.events:
            events = self._events.of(self._events.values[events] | step.events)
        return (*state[:place], step.node, *state[place + 1 : -3], step.held, events, weather)

    def _step(self, place: int, number: int, held: int, clock: int, error: type[EndiveError] | None = None) -> _Step:
        key = (place, number, held, clock, error)
        step = self._steps.get(key)
        if step is None:
            step = self._steps[key] = self._take_step(*key)
        return step

    def _take_step(self, place: int, number: int, held: int, clock: int, error: type[EndiveError] | None) -> _Step:
        """Let a request be carried out, or not be carried out and answered by an error."""
        node = self._automata[place].nodes[number]
        request = node.request
        assert request is not None  # noqa: S101 - it works
        after, reply = effect(self._held.values[held], request, clock)
        if error is not None:
            after, reply = self._held.values[held], Raise(_raised(error, request))
        node, recorded = self._past_records(place, self._automata[place].after(node, reply))
        what = f"{self._names[place]}: {_brief(request)} -> {_brief(reply)}"
        return _Step(node.number, self._held.of(after), recorded, what)

    def _past_records(self, place: int, node: Node) -> tuple[Node, frozenset[Hashable]]:
        """Take note of what a protocol records, and tell the time where it stands still: nobody else sees it.

        A sleep is over at once: every order is tried anyway, and nothing may rely on how long it takes.
        """
        recorded: frozenset[Hashable] = frozenset()
        while isinstance(node.request, Record | Sleep) or (
            isinstance(node.request, Now) and not self._bounds.clock_jumps
        ):
            if isinstance(node.request, Record):
                recorded |= {node.request.event}
            node = self._automata[place].after(node, 0 if isinstance(node.request, Now) else None)
        return node, recorded

    # What is found.

    def _wrong_in(self, state: State) -> str | None:
        seen = (state[-3], state[-2])
        if seen in self._looked_at:
            return None
        self._looked_at.add(seen)
        contents = self._held.values[state[-3]].contents()
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

    def _run_to(self, state: State) -> tuple[str, ...]:
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
    """Return a short form for the run's listing."""
    match value:
        case Get(path) | Delete(path):
            return f"{type(value).__name__} {path}"
        case PutIfAbsent(path, body) | Put(path, body):
            return f"{type(value).__name__} {path} ({len(body)} bytes)"
        case List(prefix, after):
            return f"List {prefix} after {after or 'the beginning'}"
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
