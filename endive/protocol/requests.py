"""Requests of a protocol, and how it makes them.

A request carries the type of its reply: `body = yield from ask(Get(path))` is `bytes | None` to a type checker.
Protocol code keeps to a form that `tests/races/test_protocol_form.py` checks, because the interleaved driver
recognises equal states by looking at a generator's variables:

* a `yield from` stands alone on the right of an assignment, in a `return`, in a condition or as a statement;
* all state is in local variables, and is made of plain and frozen values;
* every loop has a limit.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from endive.errors import EndiveError, InvariantError, OutcomeUnknownError, StorageAccessError, StorageUnavailableError

REQUESTS_MAX = 1_000_000_000
T = TypeVar("T")
Reply = TypeVar("Reply")


class Request(Generic[Reply]):
    """A request of a protocol to its driver; `Reply` is the type of the reply."""

    __slots__ = ()


Steps = Generator[Request[Any], Any, T]
"""A protocol: yields requests, receives replies, returns a `T`."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One line of a listing."""

    path: str
    size_bytes: int
    modified_unix_ms: int
    """When the object was written, by the object store's clock."""


@dataclass(frozen=True, slots=True)
class Get(Request[bytes | None]):
    """The object's bytes; None if there is no such object."""

    path: str


@dataclass(frozen=True, slots=True)
class GetRange(Request[bytes | None]):
    """So many of the object's bytes from `start`, fewer at its end; None if there is no such object."""

    path: str
    start: int
    length: int


@dataclass(frozen=True, slots=True)
class GetAll(Request[tuple[bytes | None, ...]]):
    """Several objects, each as with `Get`, in any order and not at one moment: a driver may fetch them side by side."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Together(Request[tuple[Any, ...]]):
    """Several reads, listings or deletes whose order does not matter, answered in the order in which they are given.

    They happen in any order and not at one moment: a driver may send them side by side, as one round trip.
    """

    requests: tuple[Request[Any], ...]


@dataclass(frozen=True)
class Elsewhere(Request[Reply]):
    """A request to another object store, by its URL; the driver reaches it in the same way as the protocol's own."""

    url: str
    request: Request[Reply]


@dataclass(frozen=True, slots=True)
class PutIfAbsent(Request[bool]):
    """Create the object. False: there is one already, and it was not touched.

    The driver raises `OutcomeUnknownError` inside the protocol when the answer was lost: the object may be there, may
    not be there, or may still appear. `create` deals with that.
    """

    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Put(Request[None]):
    """Write the object, replacing any other. Only for names that no other process uses: see `two_phase`."""

    path: str
    body: bytes
    is_durable: bool = True
    """False: other processes must see it, but it need not survive a power failure."""


@dataclass(frozen=True, slots=True)
class List(Request[tuple[ObjectInfo, ...]]):
    """The objects whose path starts with `prefix` and sorts after `after`, sorted by path."""

    prefix: str
    after: str = ""


@dataclass(frozen=True, slots=True)
class Delete(Request[None]):
    """Delete the object. Idempotent, so a driver may repeat it."""

    path: str


@dataclass(frozen=True, slots=True)
class Now(Request[int]):
    """Unix time in milliseconds. Clocks of different processes may differ, and may jump."""


@dataclass(frozen=True, slots=True)
class Sleep(Request[None]):
    """Wait for so many milliseconds. For the progress of other processes; nothing relies on it."""

    ms: float


@dataclass(frozen=True, slots=True)
class NewId(Request[str]):
    """A new unique id of 32 hexadecimal digits."""


def ask(request: Request[Reply]) -> Steps[Reply]:
    """Make a request, and return the reply with its type."""
    reply: Reply = yield request
    return reply


def elsewhere(url: str, steps: Steps[T]) -> Steps[T]:
    """Run a protocol on another object store."""
    error: EndiveError | None = None
    reply: Any = None
    for _ in range(REQUESTS_MAX):
        try:
            request = steps.send(reply) if error is None else steps.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        error, reply = None, None
        try:
            reply = yield request if isinstance(request, Now | NewId | Sleep) else Elsewhere(url, request)
        except EndiveError as raised:
            error = raised
    raise InvariantError("a protocol ends", f"{REQUESTS_MAX:,} requests to {url}")


def drive(steps: Steps[T], answer: Callable[[Request[Any]], Any]) -> T:
    """Answer a protocol's requests until it returns or raises. Errors are raised inside it: it may handle them."""
    try:
        request = next(steps)
        while True:
            try:
                reply = answer(request)
            except EndiveError as error:
                request = steps.throw(error)
            else:
                request = steps.send(reply)
    except StopIteration as stop:
        result: T = stop.value
        return result


TRIES_MAX = 5
"""How often a create is sent when its replies get lost. The driver has retried other failures before that."""


def create(path: str, body: bytes) -> Steps[bool]:
    """Create an object with bytes that no other process would write. True: it is ours. False: it is another's.

    After a lost reply the same create is sent again: it is either carried out, or finds an object, whose bytes show
    whether it is ours. A first request that arrives late finds the object and does nothing. If objects of this kind are
    ever deleted, the first request may have been carried out and its object deleted before the second.
    """
    was_unsure = False
    for _ in range(TRIES_MAX):
        try:
            created = yield from ask(PutIfAbsent(path, body))
            if created or not was_unsure:
                return created
            found = yield from ask(Get(path))
        except OutcomeUnknownError:
            was_unsure = True
            continue
        except (StorageUnavailableError, StorageAccessError):
            if was_unsure:  # this request did nothing, but an earlier one may have
                break
            raise
        if found is None:
            break  # an object that was deleted since: it may have been ours
        return found == body
    raise OutcomeUnknownError(path)
