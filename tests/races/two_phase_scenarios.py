"""Two-phase create for the explorer: its own protocols, and those of the store on top of them.

`in_two_phases` does for generators what `TwoPhaseStore` and the blocking driver do for threads: it executes each
request to an object store by the two-phase protocols, and retries refused requests.
"""

from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import Any, TypeVar

from endive.errors import EndiveError, OutcomeUnknownError, StorageUnavailableError
from endive.kv.log.opening import open_writer
from endive.protocol.requests import (
    Delete,
    Get,
    GetAll,
    GetRange,
    List,
    NewId,
    PutIfAbsent,
    Request,
    Steps,
    Together,
    ask,
    drive,
)
from endive.protocol.two_phase import (
    ORPHAN_AGE_MS,
    TransferRecord,
    create_in_two_phases,
    delete_in_two_phases,
    destination_of,
    get_in_two_phases,
    list_in_two_phases,
    recover,
)
from endive.testing.explorer import Invariant, RecordEvent
from endive.testing.store_state import Contents, StoreState, apply_request
from tests.races import scenarios

T = TypeVar("T")

PATH = "wal/1"
AT_ONCE_MS = -1
"""Age limit at which every temporary object counts as old."""
NOTHING_LOST = "no name is taken for nothing"
TRIES_MAX = 2
"""Attempts of a refused request; the explorer refuses once."""


# The store's protocols, on an object store without conditional writes.


def in_two_phases(steps: Steps[T]) -> Steps[T]:
    try:
        request = next(steps)
        while True:
            try:
                reply = yield from answered(request)
            except EndiveError as error:
                request = steps.throw(error)
            else:
                request = steps.send(reply)
    except StopIteration as stop:
        result: T = stop.value
        return result


def answered(request: Request[Any]) -> Steps[Any]:
    for _ in range(TRIES_MAX):
        try:
            reply = yield from translated(request)
        except StorageUnavailableError:
            continue
        except OutcomeUnknownError:
            if isinstance(request, PutIfAbsent):
                raise
            continue
        return reply
    raise OutcomeUnknownError("more refusals than the explorer has")


def translated(request: Request[Any]) -> Steps[Any]:  # noqa: PLR0911
    match request:
        case PutIfAbsent(path, body):
            return (yield from create_in_two_phases(path, body, 0))
        case Get(path):
            return (yield from get_in_two_phases(path))
        case GetRange(path, start, length):
            found = yield from get_in_two_phases(path)
            return None if found is None else found[start : start + length]
        case GetAll(paths):
            replies: tuple[Any, ...] = ()
            for number in range(len(paths)):
                found = yield from get_in_two_phases(paths[number])
                replies = (*replies, found)
            return replies
        case Together(requests):
            answers: tuple[Any, ...] = ()
            for number in range(len(requests)):
                reply = yield from translated(requests[number])
                answers = (*answers, reply)
            return answers
        case List(prefix, after):
            return (yield from list_in_two_phases(prefix, after))
        case Delete(path):
            return (yield from delete_in_two_phases(path))
    return (yield from ask(request))


# Processes.


def creator(name: str) -> Steps[str]:
    """Create the object, and record the outcome."""
    try:
        is_ours = yield from create_in_two_phases(PATH, name.encode(), 0)
    except OutcomeUnknownError:
        return "does not know"
    except StorageUnavailableError:
        yield from ask(RecordEvent(("nothing done", name)))
        return "refused"
    yield from ask(RecordEvent(("created" if is_ours else "somebody else's", name)))
    return "done"


def recovery(orphan_age_ms: int = ORPHAN_AGE_MS) -> Steps[str]:
    """Recover; with `AT_ONCE_MS`, every temporary object without a record counts as old."""
    try:
        yield from recover("", orphan_age_ms)
    except EndiveError:
        return "gave up"
    return "done"


def reading_process() -> Steps[str]:
    """Read the object twice, then list; an object that was seen once must be seen again."""
    try:
        first = yield from get_in_two_phases(PATH)
        second = yield from get_in_two_phases(PATH)
        third = yield from list_in_two_phases("wal/", "")
    except EndiveError:
        return "gave up"
    yield from ask(RecordEvent(("looked", first, second, tuple(info.path for info in third))))
    return "done"


def deleter() -> Steps[str]:
    """Create the object, then delete it."""
    is_ours = yield from create_in_two_phases(PATH, b"deleter", 0)
    if is_ours:
        yield from delete_in_two_phases(PATH)
    return "done"


# Invariants.


def at_rest(contents: Contents, steps: Steps[T]) -> T:
    """Run a protocol to its end with no concurrent process."""
    held = StoreState(tuple((path, body, 0) for path, body in sorted(contents.items())), contents.records)

    def answer(request: Request[Any]) -> Any:
        nonlocal held
        if isinstance(request, NewId):
            return "f" * 32
        held, reply = apply_request(held, request, 0)
        return reply

    return drive(steps, answer)


def one_creator_succeeds(contents: Contents, events: frozenset[Hashable]) -> str | None:
    created = [event for event in events if isinstance(event, tuple) and event[0] == "created"]
    return f"both have created it: {sorted(created)}" if len(created) > 1 else None


def what_was_created_is_there(contents: Contents, events: frozenset[Hashable]) -> str | None:
    """A created object is returned by get and by list, and another create is refused."""
    for event in events:
        match event:
            case ("created", str(name)):
                if at_rest(contents, get_in_two_phases(PATH)) != name.encode():
                    return f"{name} has created an object that is not there"
                if [info.path for info in at_rest(contents, list_in_two_phases("", ""))] != [PATH]:
                    return f"{name} has created an object that is not listed"
                if at_rest(contents, create_in_two_phases(PATH, b"rival", 0)):
                    return f"{name} has created an object, and so has a rival"
    return None


def what_was_not_created_is_not_there(contents: Contents, events: frozenset[Hashable]) -> str | None:
    found = at_rest(contents, get_in_two_phases(PATH))
    for event in events:
        match event:
            case (("nothing done" | "somebody else's") as said, str(name)):
                if found == name.encode():
                    return f"{name} was told {said!r}, but its object is there"
    return None


def what_was_seen_stays(contents: Contents, events: frozenset[Hashable]) -> str | None:
    for event in events:
        match event:
            case ("looked", bytes(), None, _):
                return "an object was there, then it was not"
            case ("looked", _, bytes(), ()):
                return "an object was there, but was not listed"
            case ("looked", bytes(first), bytes(second), _) if first != second:
                return "an object has changed"
    return None


def recovery_leaves_nothing_open(contents: Contents, events: frozenset[Hashable]) -> str | None:
    """A recovery at any time leaves no temporary object."""
    left = at_rest(contents, recovered())
    temporary = [path for path in left if destination_of(path) is not None]
    return f"left behind: {temporary}" if temporary else None


def recovered() -> Steps[tuple[str, ...]]:
    yield from recover("", AT_ONCE_MS)
    listing = yield from ask(List(""))
    return tuple(info.path for info in listing)


def no_name_is_taken_for_nothing(contents: Contents, events: frozenset[Hashable]) -> str | None:
    """Holds unless a temporary object is deleted while its writer is running."""
    done = at_rest(contents, recover())
    return f"the record of {done.lost} is there, its source is not" if done.lost else None


INVARIANTS: dict[str, Invariant] = {
    "one creator succeeds": one_creator_succeeds,
    "what was created is there": what_was_created_is_there,
    "what was not created is not there": what_was_not_created_is_not_there,
    "what was seen stays": what_was_seen_stays,
    "recovery leaves nothing open": recovery_leaves_nothing_open,
    NOTHING_LOST: no_name_is_taken_for_nothing,
}


# The store's own invariants, on what a reader sees.

Frozen = tuple[tuple[str, bytes], ...]
"""Objects by path, sorted: what invariants of the store depend on, as a value."""


def visible(objects: Frozen, records: tuple[TransferRecord, ...]) -> Frozen:
    """Return the objects that readers see, copied or not."""
    contents = Contents(dict(objects), records)
    paths = [info.path for info in at_rest(contents, list_in_two_phases("", ""))]
    bodies = [(path, at_rest(contents, get_in_two_phases(path))) for path in paths]
    return tuple((path, body) for path, body in bodies if body is not None)


def a_new_writer_can_open(objects: Frozen, records: tuple[TransferRecord, ...]) -> str | None:
    try:
        at_rest(Contents(dict(objects), records), in_two_phases(open_writer()))
    except EndiveError as error:
        return f"the store cannot be opened any more: {error}"
    return None


def store_invariants() -> dict[str, Invariant]:
    """Return the store's invariants with cached results, for one search: mutants change the results.

    Most steps of two-phase create change nothing that a reader sees, and most events leave the objects unchanged, so
    most checks repeat an earlier one.
    """
    see, can_open = cache(visible), cache(a_new_writer_can_open)
    wanted = {name: cache(partial(judged, invariant)) for name, invariant in scenarios.INVARIANTS.items()}

    def on_what_is_seen(judge: Callable[[Frozen, frozenset[Hashable]], str | None]) -> Invariant:
        return lambda contents, events: judge(see(*frozen(contents)), events)

    return {
        **{name: on_what_is_seen(judge) for name, judge in wanted.items()},
        "the store cannot be opened": lambda contents, _: can_open(*frozen(contents)),
    }


def judged(invariant: Invariant, objects: Frozen, events: frozenset[Hashable]) -> str | None:
    return invariant(Contents(dict(objects)), events)


def frozen(contents: Contents) -> tuple[Frozen, tuple[TransferRecord, ...]]:
    return tuple(sorted(contents.items())), contents.records
