"""A server in front of a catalog: workers that serve one commit after the other, a lock, or group commit.

A commit enters the station when its request reaches the server, and is decided when its service ends. The end is known
at the entry: queues are first in, first out, and a service takes a time that is drawn at the entry. So a station is
a few numbers, exact, and the same in both engines.

* **Workers.** Each of `workers` serves one commit at a time. A commit takes the worker that is free first.
* **Lock.** One worker for each table. A commit that finds the lock taken asks again after `poll_ms`, then after longer
  waits, and has its turn when it next asks; after `wait_max_ms` it gives up. Hive's metastore queues locks in this way:
  a later request does not overtake an earlier one that has not asked again yet.
* **Group commit.** Commits that arrive while `batches` batches are being written wait for the next one, and are decided
  together when that is written. Batches end in the order in which they begin. A process prepares one commit after the
  other, for `prepare_ms` each, before they can join a batch.
* **Helping.** Group commit of several processes on one log. A process that finds the log idle creates an entry and
  lists the bucket. If an entry is under way, it announces its commit by a write, and joins the next entry that begins
  after that; the process that creates this one lists, reads and creates, and the owner's next look finds the result.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from endive.timing import to_ticks

SERVER_ROWS = ("work", "work_read", "work_write")
"""Latencies of a server's work for one commit: its own, and those of the table metadata that it reads and writes.

Where processes help each other: creating an entry of the log, reading or listing, and announcing a commit.
"""


@dataclass(frozen=True)
class Station:
    """Rules of a server. The default is no server: a request is decided when it arrives."""

    workers: int = 0
    """Commits served at a time. 0: as many as arrive, at once."""
    batches: int = 0
    """Batches written at a time (group commit). 0: no batches."""
    per_table: bool = False
    """Each pointer of the catalog has workers of its own."""
    poll_ms: float = 0.0
    poll_multiplier: float = 1.0
    poll_max_ms: float = 0.0
    wait_max_ms: float = 0.0
    """A commit that has waited so long for a worker gives up. 0: never."""
    retries: int = 0
    """A commit that lost against commits that do not overlap is served again, so many times."""
    serves: bool = False
    """There is a server at all."""
    prepare_ms: float = 0.0
    """Time of the process for each commit of a batch, one after the other."""
    helping: bool = False
    """Batches are entries of a log that processes share."""

    def entry_rows(self, is_announced: bool) -> tuple[str, ...]:
        """Return the requests that write a batch: processes that help each other also list, and read announcements."""
        if not self.helping:
            return SERVER_ROWS
        return ("work", "work_read", "work_read") if is_announced else ("work", "work_read")

    @cached_property
    def prepare_ticks(self) -> int:
        """Ticks of the process for each commit of a batch."""
        return to_ticks(self.prepare_ms)

    @cached_property
    def polls(self) -> tuple[int, ...]:
        """Ticks after its arrival at which a waiting commit asks for its turn; empty: it is called at once."""
        if not self.poll_ms:
            return ()
        waits, wait_ms, limit = [0], self.poll_ms, to_ticks(self.wait_max_ms)
        while sum(waits) < limit:
            waits.append(to_ticks(wait_ms))
            wait_ms = min(wait_ms * self.poll_multiplier, self.poll_max_ms)
        return tuple(accumulate(waits))

    @property
    def wait_max_ticks(self) -> int:
        """The longest wait; -1: no limit."""
        return to_ticks(self.wait_max_ms) if self.wait_max_ms else -1

    def turn(self, wait_ticks: int) -> int:
        """Return when a commit has its turn that could have it after `wait_ticks`; -1: it has given up."""
        if self.polls and wait_ticks > 0:
            place = bisect_left(self.polls, wait_ticks)
            wait_ticks = self.polls[place] if place < len(self.polls) else wait_ticks
        return -1 if 0 <= self.wait_max_ticks < wait_ticks else wait_ticks


@dataclass
class Queue:
    """The workers of one station, or of one of its tables."""

    free_at: list[int] = field(default_factory=list)
    """The tick at which each worker is free."""

    def enter(self, station: Station, now: int, work: Callable[[], int]) -> int:
        """Enter at tick `now`; return the ticks until the service ends, or -1: the commit gives up.

        `work` draws how long the service takes.
        """
        if not station.workers:
            return work()
        if not self.free_at:
            self.free_at = [0] * station.workers
        first = self.free_at.index(min(self.free_at))
        turn = station.turn(max(self.free_at[first] - now, 0))
        if turn < 0:
            return -1
        self.free_at[first] = now + turn + work()
        return self.free_at[first] - now


@dataclass
class Batches:
    """The batches of a station with group commit."""

    starts_at: int = -1
    """When the last batch begins: until then, commits join it."""
    ends_at: list[int] = field(default_factory=list)
    """When the last `batches` batches end, oldest first."""
    prepared_at: int = 0
    """When the last commit is prepared."""
    written: int = 0
    announced: int = 0
    """Commits that a process announced because an entry was under way."""

    def enter(self, station: Station, now: int, draw: Callable[[str], int]) -> int:
        """Join the batch that has not begun, or open one; return the ticks until it is written.

        `draw` returns the ticks of one request: a row of `SERVER_ROWS`.
        """
        if not self.ends_at:
            self.ends_at = [0] * station.batches
        is_announced = station.helping and now < self.ends_at[-1]
        ready = self.prepared_at = max(now, self.prepared_at) + station.prepare_ticks
        look = 0
        if is_announced:
            self.announced += 1
            ready, look = ready + draw("work_write"), draw("work_read")
        if ready >= self.starts_at:
            self.written += 1
            self.starts_at = max(ready, self.ends_at[0])
            end = self.starts_at + sum(draw(row) for row in station.entry_rows(is_announced))
            self.ends_at = [*self.ends_at[1:], max(self.ends_at[-1], end)]
        return self.ends_at[-1] + look - now
