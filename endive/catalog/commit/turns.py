"""Turns of the commits of one process to a table.

Commits that prepare files for the same table queue. Correctness does not need it: of commits that race, all but one
would have written their files in vain. Commits that are applied in the transaction do not race, and do not queue.
"""

from collections.abc import Iterable
from threading import Lock
from types import TracebackType
from weakref import WeakValueDictionary

from endive.catalog.model.names import Identifier


class _TableLock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = Lock()


class Turns:
    """The queues of all tables."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Identifier, _TableLock] = WeakValueDictionary()
        self._lock = Lock()

    def of(self, identifiers: Iterable[Identifier]) -> "Turn":
        """Return a turn for tables, not taken yet. It ends with its `with` block."""
        return Turn(self, sorted(identifiers))

    def locks(self, identifiers: Iterable[Identifier]) -> list[_TableLock]:
        """Return the locks of tables."""
        with self._lock:
            return [self._locks.setdefault(one, _TableLock()) for one in identifiers]


class Turn:
    """The turn of one commit."""

    def __init__(self, turns: Turns, identifiers: list[Identifier]) -> None:
        self._turns = turns
        self._identifiers = identifiers  # sorted, so that two commits to the same tables cannot block each other
        self._held: list[_TableLock] = []

    @property
    def is_taken(self) -> bool:
        """Whether the turn is this commit's."""
        return bool(self._held)

    def take(self) -> bool:
        """Take the turn; False if this call had to wait, so that the tables may have changed meanwhile."""
        if self._held:
            return True
        was_free = True
        for each in self._turns.locks(self._identifiers):
            if not each.lock.acquire(blocking=False):
                was_free = False
                each.lock.acquire()
            self._held.append(each)
        return was_free

    def __enter__(self) -> "Turn":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in reversed(self._held):
            each.lock.release()
