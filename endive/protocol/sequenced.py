"""Numbered objects: the newest one is the truth, and every id is created exactly once.

A family is a directory of objects named by 20-digit ids that start at 1 and are contiguous. To change the family's
value is to create the next id; a process that loses that race starts over from the newer object.

**What can race.** Two processes create the same id: the object store lets one win. A process stalls between reading the
newest object and creating the next, while others go on and a garbage collector deletes old ids: the create succeeds,
on an id that was created, superseded and deleted before, and an update that was acknowledged is lost.

**Guarantees.** An id that was deleted never counts again. Before a garbage collector deletes ids it creates a
*boundary*, an empty object whose name is the highest id that may have been deleted. A process that creates an id lists
the boundaries afterwards, and trusts its own object only if it is above them. If the id had been deleted before the
create, the boundary was there before the create, so the listing shows it.

**Limits.** Void objects stay until the next collection; no process reads them, because the newest id is above
every boundary. Boundaries are superseded, not changed: the last few are kept, since a listing of a directory
that changes meanwhile may miss an object that is replaced by another.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from endive.errors import (
    AttemptsExhaustedError,
    ConfigurationError,
    MissingObjectError,
    OutcomeUnknownError,
    StoreNotFoundError,
)
from endive.protocol.requests import Delete, Get, List, ObjectInfo, Steps, Together, ask, create
from endive.protocol.two_phase import MARKER

T = TypeVar("T")

ATTEMPTS_MAX = 1000
"""Races that an update may lose. Each loss is the success of another process."""
BOUNDARIES_KEPT = 8
DELETES_AT_ONCE = 256
REMEDY = "open it with that record store: `records`, --records or the property endive.records"
DIGITS = 20
"""Fits an unsigned 64-bit integer, and makes the order of names the order of numbers."""


def numbered(prefix: str, number: int, suffix: str) -> str:
    """Return the path of object `number`."""
    return f"{prefix}{number:0{DIGITS}d}{suffix}"


def number_of(path: str, prefix: str, suffix: str) -> int | None:
    """Return the number in a path; None if it is not a path of this kind."""
    name = path.removeprefix(prefix).removesuffix(suffix)
    if path != f"{prefix}{name}{suffix}" or len(name) != DIGITS or not (name.isascii() and name.isdigit()):
        return None
    return int(name)


@dataclass(frozen=True)
class Family(Generic[T]):
    """A family of numbered objects that hold values of one type."""

    prefix: str
    suffix: str
    encode: Callable[[T], bytes]
    """Two writers must never encode to the same bytes: the value carries an id of its own."""
    decode: Callable[[str, bytes], T]

    def path_of(self, number: int) -> str:
        """Return the path of object `number`."""
        return numbered(self.prefix, number, self.suffix)

    def number_of(self, path: str) -> int | None:
        """Return the number of the object at `path`; None if the path is not of this family."""
        return number_of(path, self.prefix, self.suffix)

    @property
    def boundary_prefix(self) -> str:
        """Where the boundaries are. Not below `prefix`, so that a listing of one is not one of the other."""
        return f"{self.prefix.removesuffix('/')}-boundary/"


@dataclass(frozen=True)
class Numbered(Generic[T]):
    """One object of a family."""

    number: int
    value: T


def numbers_in(listing: Iterable[ObjectInfo], prefix: str, suffix: str) -> list[int]:
    """Return the numbers in a listing, ascending; other objects are left out."""
    numbers = (number_of(info.path, prefix, suffix) for info in listing)
    return [number for number in numbers if number is not None]


def require_no_marker(listing: Iterable[ObjectInfo]) -> None:
    """Raise if a record store decides this store's creates. The store that has these records hides the marker."""
    for info in listing:
        if info.path.startswith(MARKER):
            raise ConfigurationError(info.path, [f"the store was written with a record store; {REMEDY}"])


def newest(family: Family[T], after: int = 0) -> Steps[Numbered[T] | None]:
    """Return the newest object of the family; None if it has none above id `after`."""
    found, _ = yield from newest_listed(family, after)
    return found


def newest_listed(family: Family[T], after: int = 0) -> Steps[tuple[Numbered[T] | None, tuple[ObjectInfo, ...]]]:
    """Return the same, and the listing that shows it: all objects in the family's directory above id `after`."""
    start = family.path_of(after) if after else ""
    for _ in range(ATTEMPTS_MAX):
        listing = yield from ask(List(family.prefix, start))
        require_no_marker(listing)
        numbers = numbers_in(listing, family.prefix, family.suffix)
        if not numbers:
            return None, listing
        body = yield from ask(Get(family.path_of(numbers[-1])))
        if body is not None:
            return Numbered(numbers[-1], family.decode(family.path_of(numbers[-1]), body)), listing
        # Superseded, then deleted, between the two requests.
    raise AttemptsExhaustedError(family.prefix, ATTEMPTS_MAX)


def newest_for_certain(family: Family[T]) -> Steps[Numbered[T] | None]:
    """Return the newest object, as `newest` does; `MissingObjectError` if a newer one was there and was lost.

    When the boundary was written, an object above it was the newest one, and objects above it there have been ever
    since. So a newest object that is above the boundary, listed at the same time, will do. If it is not, the boundary
    may have been written in between: it is listed first, and the objects afterwards.
    """
    boundaries, listing = yield from ask(Together((List(family.boundary_prefix), List(family.prefix))))
    require_no_marker(listing)
    number = max(numbers_in(listing, family.prefix, family.suffix), default=0)
    if number > max(numbers_in(boundaries, family.boundary_prefix, ""), default=0):
        body = yield from ask(Get(family.path_of(number)))
        if body is not None:
            return Numbered(number, family.decode(family.path_of(number), body))
    boundary = yield from boundary_of(family)
    found = yield from newest(family)
    if boundary and (found is None or found.number <= boundary):
        raise MissingObjectError(family.path_of(boundary + 1))
    return found


def propose(family: Family[T], base: Numbered[T] | None, value: T) -> Steps[Numbered[T] | None]:
    """Create the object after `base` (None: the first one). None: another process has done so; read again.

    `OutcomeUnknownError` if the id turns out to be spent. Either it was deleted before the create, which then counts
    for nothing; or ours was the object that was superseded and deleted, all before the boundaries were listed. The
    two look the same. So they do if another process's object is there: ours may have been created by a request whose
    answer was lost, superseded and deleted, and the other one put in its place by a process as late as this one. The
    caller reads the newest object to find out whether its change is in there.
    """
    number = 1 if base is None else base.number + 1
    is_ours = yield from create(family.path_of(number), family.encode(value))
    boundary = yield from boundary_of(family)
    if number <= boundary:
        raise OutcomeUnknownError(family.path_of(number))
    if base is None:  # a record store may have claimed the new store since `base` was read
        listing = yield from ask(List(family.prefix))
        require_no_marker(listing)
    return Numbered(number, value) if is_ours else None


def update(
    family: Family[T], change: Callable[[Numbered[T]], T], attempts_max: int = ATTEMPTS_MAX
) -> Steps[Numbered[T]]:
    """Apply `change` to the newest object and return what was created. The family must not be empty.

    A lost race starts over from the newer object: a change is applied to what is there, never written over it.
    `change` may raise; nothing was created then. It may return the very value it got: there is nothing to change.
    """
    for _ in range(attempts_max):
        base = yield from newest(family)
        if base is None:
            raise StoreNotFoundError(family.prefix)
        value = change(base)
        if value is base.value:
            return base
        created = yield from propose(family, base, value)
        if created is not None:
            return created
    raise AttemptsExhaustedError(family.prefix, attempts_max)


def boundary_of(family: Family[T]) -> Steps[int]:
    """Return the highest id that may have been deleted, 0 if none was."""
    listing = yield from ask(List(family.boundary_prefix))
    return max(numbers_in(listing, family.boundary_prefix, ""), default=0)


def collect(family: Family[T], numbers: tuple[int, ...]) -> Steps[None]:
    """Delete objects of the family that are not needed. The newest one must not be among them.

    The boundary goes first: from then on, a process that creates one of these ids again learns that it is void.
    """
    if not numbers:
        return
    listing = yield from ask(List(family.boundary_prefix))
    boundaries = numbers_in(listing, family.boundary_prefix, "")
    if max(numbers) > max(boundaries, default=0):
        # Empty, so that two garbage collectors write the same; after a lost reply it is simply sent again.
        yield from create(numbered(family.boundary_prefix, max(numbers), ""), b"")
    superseded = tuple(numbered(family.boundary_prefix, number, "") for number in boundaries[:-BOUNDARIES_KEPT])
    yield from delete_all((*map(family.path_of, numbers), *superseded))


def delete_all(paths: tuple[str, ...]) -> Steps[None]:
    """Delete objects, many side by side."""
    for start in range(0, len(paths), DELETES_AT_ONCE):
        yield from ask(Together(tuple(map(Delete, paths[start : start + DELETES_AT_ONCE]))))
