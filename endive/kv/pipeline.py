"""Commit batches on their way into the WAL. A state machine without threads, clock and I/O.

The store (threads) and the simulation (virtual time) run the same one; the caller holds a lock around each call.

A *batch* becomes one WAL entry: rows of `put`, `delete` and `write`, and behind them the rows of transaction functions.
It waits; it is taken and computed from the state after the batch before it; its entry is in flight; it is durable.
One batch at a time is computed, up to `parallel_writes` are in flight.

**Order.** Rows and functions that wait together have all been submitted and none has been acknowledged, so any order
among them is one that their callers can explain. Rows come first, since a caller may put rows without waiting and then
run a function that reads them.

**Acknowledgement** is in the order of the entries: a batch is durable when its entry and all before it are. If an entry
fails, so do all batches behind it, for they were computed from rows that may not exist. If it is certain that the entry
is not in the log and never will be, because a newer writer's fence is in its place, the batches can wait again instead.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from endive.errors import EndiveError
from endive.kv.commit_times import BatchTimes
from endive.kv.log.committing import Prepared
from endive.kv.log.state import StoreState
from endive.kv.procedures import Call
from endive.kv.transaction import Outcome, TransactionFunction

ROW_OVERHEAD_BYTES = 100


class Answer(Protocol):
    """Where the outcome of a transaction function goes."""

    def give(self, outcome: Outcome) -> None:
        """Take the outcome."""
        ...


@dataclass(eq=False)
class Written:
    """Whether the rows of a batch are durable; `error`: they will not be, as far as is known."""

    is_durable: bool = False
    error: EndiveError | None = None
    is_reported: bool = False
    """A caller that waited got the error."""


@dataclass(eq=False)
class Batch:
    """Rows and transaction functions that become one WAL entry."""

    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    """Of `put`, `delete` and `write`."""
    size_bytes: int = 0
    functions: list[tuple[TransactionFunction[Any], Answer]] = field(default_factory=list)
    written: tuple[Written, ...] = field(default_factory=lambda: (Written(),))
    prepared: Prepared | None = None
    """None: it waits, or is being computed."""
    after: StoreState | None = None
    """The state when it is durable."""
    is_landed: bool = False
    times: BatchTimes = field(default_factory=BatchTimes)
    """When it was taken, and its WAL entry written."""
    helped: tuple[str, ...] = ()
    """Intentions of other processes that its entry carries out, behind its functions."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.rows and not self.functions

    @property
    def transactions(self) -> tuple[TransactionFunction[Any], ...]:
        """Its transaction functions."""
        return tuple(function for function, _ in self.functions)

    @property
    def calls(self) -> tuple[Call, ...]:
        """Its transactions, if all of them are calls and there are no rows; any process can carry them out then."""
        calls = tuple(function for function, _ in self.functions if isinstance(function, Call))
        return calls if len(calls) == len(self.functions) and not self.rows else ()

    @property
    def held(self) -> dict[bytes, bytes | None]:
        """All its rows, as far as they are computed."""
        return self.rows if self.prepared is None else self.prepared.rows


class Pipeline:
    """Batches that wait, and batches under way in the order of their entries."""

    def __init__(self, parallel_writes: int, functions_max: int) -> None:
        self.parallel_writes = parallel_writes
        self.functions_max = functions_max
        self.waiting = Batch()
        self.under_way: tuple[Batch, ...] = ()
        """The last one may still be computed."""
        self.is_computing = False
        self.expected = 0
        """Functions that will probably arrive in a moment, counting those that wait."""
        self.unflushed_bytes = 0
        """Bytes of rows of `put`, `delete` and `write` that are not durable yet."""

    def add_rows(self, rows: Iterable[tuple[bytes, bytes | None]]) -> Written:
        """Let rows wait for the next batch; they become durable together."""
        batch, size = self.waiting, 0
        for key, value in rows:
            batch.rows[key] = value
            size += len(key) + ROW_OVERHEAD_BYTES + (0 if value is None else len(value))
        batch.size_bytes += size
        self.unflushed_bytes += size
        return batch.written[0]

    def can_take(self) -> bool:
        """Whether something waits and another batch may be computed."""
        return not self.is_computing and len(self.under_way) < self.parallel_writes and not self.waiting.is_empty

    def take(self) -> Batch:
        """Begin to compute the batch that waits; the caller ends that with `computed`."""
        batch, later = self.waiting, Batch()
        share = self.share()
        if len(batch.functions) > share:
            later.functions = batch.functions[share:]
            del batch.functions[share:]
        self.is_computing = True
        self.under_way = (*self.under_way, batch)  # before it stops waiting: `find` needs no lock
        self.waiting = later
        return batch

    def share(self) -> int:
        """Return how many functions the next batch takes: an equal share for each entry that may be in flight.

        Functions that are expected in a moment count as well. If the first batch took all, the next ones would be
        computed late and sent together.
        """
        in_flight = sum(len(batch.functions) for batch in self.under_way)
        pending = max(len(self.waiting.functions), self.expected) + in_flight
        return min(-(-pending // self.parallel_writes), self.functions_max)

    def base(self, batch: Batch, durable: StoreState) -> StoreState:
        """Return the state to compute a batch from: the one after the batch before it, or the durable one."""
        place = self.under_way.index(batch)
        tail = self.under_way[place - 1].after if place else None
        if tail is None:
            return durable
        return tail.with_manifest(durable.manifest) if durable.manifest.number > tail.manifest.number else tail

    def is_first(self, batch: Batch) -> bool:
        """Whether no batch before this one is under way."""
        return self.under_way[0] is batch

    def computed(self) -> None:
        """Let the next batch be computed."""
        self.is_computing = False

    def sent(self, batch: Batch, prepared: Prepared) -> None:
        """Record a computed batch, whose entry is sent now."""
        batch.prepared, batch.after = prepared, prepared.after

    def landed(self, batch: Batch) -> tuple[Batch, ...]:
        """Record that the entry of a batch exists; return the batches that are durable now, in order.

        None if it failed because one before it did. The caller takes over their states, then calls `remove`.
        """
        batch.is_landed = True
        count = 0
        while count < len(self.under_way) and self.under_way[count].is_landed:
            count += 1
        return self.under_way[:count]

    def remove(self, batches: Sequence[Batch]) -> None:
        """Remove batches at the front, which are durable."""
        self.under_way = self.under_way[len(batches) :]
        self.unflushed_bytes -= sum(batch.size_bytes for batch in batches)
        for batch in batches:
            for written in batch.written:
                written.is_durable = True

    def fail(self, batch: Batch, retries: bool) -> tuple[Batch, ...]:
        """Remove a batch and all behind it; return those that failed, none if it was removed before.

        A batch that was still being computed waits again, and with `retries` all do: they are certain not to be in the
        log. The order of rows is kept.
        """
        if batch not in self.under_way:
            return ()
        place = self.under_way.index(batch)
        behind = self.under_way[place:]
        failed = () if retries else tuple(one for one in behind if one is batch or one.prepared is not None)
        again = Batch(written=())
        for one in (*(one for one in behind if one not in failed), self.waiting):
            again.rows.update(one.rows)
            again.size_bytes += one.size_bytes
            again.functions += one.functions
            again.written += one.written
        self.waiting = again  # before they are removed: `find` needs no lock
        self.under_way = self.under_way[:place]
        self.unflushed_bytes -= sum(one.size_bytes for one in failed)
        return failed

    def find(self, key: bytes) -> tuple[bytes | None] | None:
        """Return the value of a row that is not durable yet, in a tuple; None if there is no such row.

        Needs no lock: a row appears in the next place before it vanishes from the one before. None: look at the state
        that is the newest *after* this call.
        """
        rows = self.waiting.rows
        if key in rows:
            return (rows[key],)
        for batch in reversed(self.under_way):
            held = batch.held
            if key in held:
                return (held[key],)
        return None

    def buffered(self) -> list[dict[bytes, bytes | None]]:
        """Return all rows that are not durable yet, oldest first; to be copied under the lock."""
        return [*(batch.held for batch in self.under_way), self.waiting.rows]
