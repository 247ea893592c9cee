"""Locks of tables: the groups of one process that write files for the same table are committed one after the other.

Correctness does not need it: of commits that race, all but one would have written their files in vain. Commits that are
applied in the transaction do not race, and take no lock.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from weakref import WeakValueDictionary

from endive.catalog.model.names import Identifier


class _TableLock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = Lock()


class TableLocks:
    """The locks of all tables."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Identifier, _TableLock] = WeakValueDictionary()
        self._lock = Lock()

    @contextmanager
    def held(self, identifiers: Iterable[Identifier]) -> Iterator[None]:
        """Hold the locks of tables, in sorted order, so that two commits to the same tables cannot block each other."""
        with self._lock:
            locks = [self._locks.setdefault(one, _TableLock()) for one in sorted(identifiers)]
        with ExitStack() as stack:
            for each in locks:
                stack.enter_context(each.lock)
            yield
