"""Snapshots from parent to child, with states that are followed along, and their manifest lists read ahead.

A child's manifests are its parent's with a few changes. A state is moved on from parent to child, and copied only where
a line of snapshots branches.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, Self, TypeVar

from pyiceberg.io import FileIO
from pyiceberg.table.snapshots import Snapshot

from endive.catalog.maintenance.raw_lists import ListChange, ListState, advance, read_raw

READERS = 16
"""Threads that read files: over a remote store most of the time would be waiting."""
READ_AHEAD = 64
"""Lists that are read before they are needed; each may have hundreds of kilobytes."""

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Step:
    """A snapshot, and the id of the snapshot before it in its line; None if that is not known."""

    snapshot: Snapshot
    parent: int | None

    @property
    def id(self) -> int:
        """The snapshot's id."""
        return self.snapshot.snapshot_id


def lineage(snapshots: Sequence[Snapshot]) -> list[Step]:
    """Return the snapshots so that each follows its parent, line by line."""
    known = {one.snapshot_id for one in snapshots}
    children: dict[int | None, list[Snapshot]] = {}
    for one in snapshots:
        parent = one.parent_snapshot_id
        children.setdefault(parent if parent in known else None, []).append(one)
    ordered, waiting = [], [Step(one, None) for one in reversed(children.get(None, []))]
    while waiting:
        step = waiting.pop()
        ordered.append(step)
        waiting += [Step(one, step.id) for one in reversed(children.get(step.id, []))]
    if len(ordered) < len(snapshots):  # a cycle of parents: each by itself
        seen = {step.id for step in ordered}
        ordered += [Step(one, None) for one in snapshots if one.snapshot_id not in seen]
    return ordered


class Copyable(Protocol):
    """A state that can be followed along two lines."""

    def copy(self) -> Self:
        """Return a copy that can be changed by itself."""
        ...


S = TypeVar("S", bound=Copyable)


class States(Generic[S]):
    """States of snapshots whose children are still to come. The last child gets its parent's, others get copies."""

    def __init__(self, ordered: Iterable[Step]) -> None:
        self._held: dict[int, S] = {}
        self._children: dict[int, int] = {}
        for step in ordered:
            if step.parent is not None:
                self._children[step.parent] = self._children.get(step.parent, 0) + 1

    def take(self, step: Step) -> S | None:
        """Return the state of a snapshot's parent; None if there is none."""
        if step.parent is None or step.parent not in self._held:
            return None
        self._children[step.parent] -= 1
        if self._children[step.parent] == 0:
            return self._held.pop(step.parent)
        return self._held[step.parent].copy()

    def keep(self, step: Step, state: S) -> None:
        """Keep the state of a snapshot for its children."""
        if self._children.get(step.id):
            self._held[step.id] = state


def list_changes(
    io: FileIO, ordered: Sequence[Step], pool: ThreadPoolExecutor
) -> Iterator[tuple[Step, ListChange | Exception]]:
    """Read the manifest lists of snapshots; yield each one's difference to its parent's, or the error of reading it."""
    states: States[ListState] = States(ordered)
    lists = _ahead(pool, lambda step: read_raw(io, step.snapshot.manifest_list), ordered)
    for step, reading in zip(ordered, lists, strict=True):
        state = states.take(step)
        try:
            after, change = advance(state, reading.result())
        except Exception as error:  # noqa: BLE001 - the caller decides
            yield step, error
            continue
        states.keep(step, after)
        yield step, change


def _ahead(pool: ThreadPoolExecutor, function: Callable[[A], B], items: Iterable[A]) -> Iterator["Future[B]"]:
    """Run a function on items in threads, a bounded number ahead; yield the results in order."""
    rest = iter(items)
    running = [pool.submit(function, one) for one in islice(rest, READ_AHEAD)]
    while running:
        yield running.pop(0)
        running += [pool.submit(function, one) for one in islice(rest, 1)]
