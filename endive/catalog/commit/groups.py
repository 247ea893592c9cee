"""Groups of commits to one table: those of a process that wait for one another are committed together.

A commit that writes files takes its turn at the table. Those that arrive meanwhile wait, and become the next group: the
thread of one of them leads, and commits all of them by one metadata file and one transaction
(`endive.catalog.commit.commit_loop`). A commit that finds nobody waiting is a group of one.

**When a group leaves.** Threads that were just answered come back with their next commit in a moment. If the first of
them led a group of its own, the others would wait for it. So a group waits for as many commits as were waiting or
answered last, at most for a share of the time that the last group took; and less often if waiting has not helped.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from threading import Condition, Lock
from time import monotonic
from weakref import WeakValueDictionary

from pyiceberg.table.metadata import TableMetadata

from endive.catalog.commit.change import TableChange
from endive.catalog.commit.decision import WritesFileFirst
from endive.catalog.commit.rebase import KnownLists
from endive.catalog.model.catalog_records import CommitRecord
from endive.catalog.model.names import Identifier
from endive.stages import Stage, recorded_stages, recording

LINGER_SHARE = 0.2
"""Of the time that the last group took: how long the next one waits for commits at most."""
RETRY_LINGER_GROUPS = 8
"""After waiting in vain, it is tried again once in so many groups."""
QUEUES_KEPT = 256
"""Tables whose queues are kept while no commit waits, with the manifests of their newest list."""
COMPANY_S = 2.0
"""So long after a sign of other processes that commit to a table, its commits are announced to them."""
GROUP_MAX = 64
"""Commits of one group; their manifest lists are written at the same time."""


@dataclass(frozen=True, slots=True)
class CommittedState:
    """A table as a group left it."""

    version: int
    metadata: TableMetadata
    metadata_location: str


@dataclass(frozen=True, slots=True)
class GroupResult:
    """The result of a member of a group."""

    record: CommitRecord
    change: TableChange | None
    """The change as it was committed: perhaps rebased. None: another process has committed it."""
    state: CommittedState | None
    """The table as the group left it; None if it has to be loaded."""


class Waiting:
    """A commit that waits for its group."""

    __slots__ = ("arrived_s", "change", "commit_id", "committed", "error", "stages", "writes_file_first")

    def __init__(self, change: TableChange, commit_id: str, writes_file_first: WritesFileFirst | None = None) -> None:
        self.change = change
        self.commit_id = commit_id
        self.writes_file_first = writes_file_first
        """Of the process that made the change, if it is another one."""
        self.committed: GroupResult | None = None
        self.error: BaseException | None = None
        self.stages = recorded_stages()
        """Gets the stages of its commit, which another thread may lead; None: nobody wants to know."""
        self.arrived_s = monotonic() if self.stages is not None else 0.0

    @property
    def is_answered(self) -> bool:
        """Whether the commit has succeeded or failed."""
        return self.committed is not None or self.error is not None


class TableQueue:
    """The commits to one table that wait."""

    def __init__(self) -> None:
        lock = Lock()
        self.changed = Condition(lock)
        """Notified when a group is over."""
        self.arrived = Condition(lock)
        """Notified when a commit arrives, for the leader that waits for it."""
        self.waiting: list[Waiting] = []
        self.is_led = False
        self.known = KnownLists()
        """For the leader: manifest lists that need not be read."""
        self.is_contended = False
        """For the leader: another process has committed to the table in between lately."""
        self.lead_s = 0.0
        """For the leader: how long it took lately to commit what several processes had announced; 0: not known."""
        self._company_s = -inf
        self._expected = 0
        self._took_s = 0.0
        self._in_vain = 0

    @property
    def has_company(self) -> bool:
        """Whether another process has committed to the table, or wants to, a moment ago."""
        return monotonic() - self._company_s < COMPANY_S

    def met_company(self) -> None:
        """Take note of another process that commits to the table."""
        self._company_s = monotonic()

    def commit(self, one: Waiting, lead: Callable[["TableQueue", list[Waiting]], None]) -> None:
        """Return when a commit is answered. `lead` commits a group and answers all its members."""
        with self.changed:
            self.waiting.append(one)
            self.arrived.notify()
        try:
            while self._must_lead(one):
                self._lead(lead)
        finally:  # interrupted, perhaps
            with self.changed:
                if one in self.waiting:
                    self.waiting.remove(one)

    def _must_lead(self, one: Waiting) -> bool:
        """Wait until a commit is answered, or nobody leads; whether the caller leads now."""
        with self.changed:
            while not one.is_answered and self.is_led:
                self.changed.wait()
            if one.is_answered:
                return False
            self.is_led = True
            return True

    def _lead(self, lead: Callable[["TableQueue", list[Waiting]], None]) -> None:
        group: list[Waiting] = []
        started_s = monotonic()
        try:
            with self.changed:
                self._linger()
                group, self.waiting = _next_group(self.waiting)
            started_s = monotonic()
            with _reported(group, started_s):
                lead(self, group)
        finally:
            with self.changed:
                self.waiting[:0] = [one for one in group if not one.is_answered]
                self._expected = len(group) + len(self.waiting)
                self._took_s = monotonic() - started_s
                self.is_led = False
                self.changed.notify_all()

    def _linger(self) -> None:
        """Wait a moment for the threads that were answered last. Holding the lock."""
        before = len(self.waiting)
        if before >= self._expected or (self._in_vain and self._in_vain % RETRY_LINGER_GROUPS):
            self._in_vain += 1 if self._in_vain else 0
            return
        end_s = monotonic() + LINGER_SHARE * self._took_s
        while len(self.waiting) < self._expected and (left_s := end_s - monotonic()) > 0:
            self.arrived.wait(left_s)
        self._in_vain = 0 if len(self.waiting) > before else self._in_vain + 1


@contextmanager
def _reported(group: Sequence[Waiting], started_s: float) -> Iterator[None]:
    """Report what the leader does as the stages of every member that is recorded."""
    recorded = [(one.stages, one.arrived_s) for one in group if one.stages is not None]
    if not recorded:
        yield
        return
    with recording() as stages:
        try:
            yield
        finally:
            for into, arrived_s in recorded:
                into.append(Stage("commit.queue", arrived_s, started_s, {"commit.group.size": len(group)}))
                into.extend(stages)


def _next_group(waiting: Sequence[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
    """Return the next group, and the commits that wait on.

    A group has every commit id once. A retry that arrives while its first try still waits here is for the group after:
    there its stored result is found.
    """
    group: dict[str, Waiting] = {}
    left = []
    for one in waiting:
        if len(group) < GROUP_MAX and one.commit_id not in group:
            group[one.commit_id] = one
        else:
            left.append(one)
    return list(group.values()), left


class TableQueues:
    """The queues of all tables."""

    def __init__(self) -> None:
        self._queues: WeakValueDictionary[Identifier, TableQueue] = WeakValueDictionary()
        self._kept: dict[Identifier, TableQueue] = {}
        self._lock = Lock()

    def of(self, identifier: Identifier) -> TableQueue:
        """Return the queue of a table; those of the last tables are kept, with what they know."""
        with self._lock:
            queue = self._queues.setdefault(identifier, TableQueue())
            self._kept.pop(identifier, None)
            self._kept[identifier] = queue
            if len(self._kept) > QUEUES_KEPT:
                del self._kept[next(iter(self._kept))]
            return queue
