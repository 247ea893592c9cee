"""The writer's memory: groups that wait, groups under way, and what is durable but not yet in the levels.

A plain state machine without threads, clock or I/O, so that the store (threads) and the simulation (virtual time) run
the same one. Whoever uses it holds a lock around each call.

A *group* is what goes into one WAL object: all rows that were put while earlier groups were under way. At most
`parallel_writes` groups are under way; their slots are consecutive, and a slot is taken only if the slot
`parallel_writes` before it is durable, since that is what the fences of the next writer are counted for.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from endive.errors import EndiveError
from endive.kv.log.opening import Group
from endive.kv.sst.format import Rows

ROW_OVERHEAD_BYTES = 100
Row = tuple[bytes | None, int]
"""A value (None: deleted) and its sequence number."""


@dataclass
class Batch:
    """Rows that wait for the next WAL object, or are on their way."""

    number: int
    rows: dict[bytes, Row] = field(default_factory=dict)
    size_bytes: int = 0
    slot: int = 0
    """0: still waiting."""
    is_durable: bool = False

    def sorted_rows(self) -> Rows:
        """Return the rows in key order."""
        keys = sorted(self.rows)
        return Rows(keys, [self.rows[key][0] for key in keys], [self.rows[key][1] for key in keys])


@dataclass
class Memtable:
    """Durable rows of consecutive slots, kept in memory until they are in the levels."""

    rows: dict[bytes, Row] = field(default_factory=dict)
    size_bytes: int = 0
    slot_last: int = 0

    def absorb(self, rows: dict[bytes, Row], size_bytes: int, slot: int) -> None:
        """Take in the next slot's rows."""
        self.rows.update(rows)
        self.size_bytes += size_bytes
        self.slot_last = slot


class WriteQueue:
    """Rows on their way from `put` to the levels."""

    def __init__(
        self, next_slot: int, row_seq_last: int, groups: Iterable[Group], parallel_writes: int, memtable_bytes: int
    ) -> None:
        self.parallel_writes = parallel_writes
        self.row_seq_last = row_seq_last
        self.halted: EndiveError | None = None
        self._memtable_bytes = memtable_bytes
        self._next_slot = next_slot
        self.waiting = Batch(1)
        self.under_way: tuple[Batch, ...] = ()
        """In the order of their slots. A durable one stays until those before it are durable too."""
        self.memtables: tuple[Memtable, ...] = (Memtable(),)
        """Newest last; the last one takes rows."""
        self.unflushed_bytes = 0
        """Bytes that are not durable yet."""
        self.uncompacted_bytes = 0
        """Bytes that are durable, but not in the levels as far as this writer knows."""
        for group in groups:
            self._recover(group)

    # Writing.

    def add(self, rows: Iterable[tuple[bytes, bytes | None]]) -> Batch:
        """Let rows wait for the next WAL object; they become durable together."""
        if self.halted is not None:
            raise self.halted
        batch = self.waiting
        seq, size = self.row_seq_last, 0
        for key, value in rows:
            seq += 1
            batch.rows[key] = (value, seq)
            size += len(key) + ROW_OVERHEAD_BYTES + (0 if value is None else len(value))
        self.row_seq_last = seq
        batch.size_bytes += size
        self.unflushed_bytes += size
        return batch

    def can_take(self) -> bool:
        """Whether rows wait and another WAL write may start."""
        return bool(self.waiting.rows) and len(self.under_way) < self.parallel_writes and self.halted is None

    def take(self) -> Batch:
        """Give the waiting rows a slot. The caller writes them, then calls `landed` or `halt`."""
        batch = self.waiting
        batch.slot = self._next_slot
        self._next_slot += 1
        self.under_way = (*self.under_way, batch)  # before it stops waiting: see `find`
        self.waiting = Batch(batch.number + 1)
        return batch

    def landed(self, batch: Batch) -> None:
        """Take note that a WAL write was confirmed."""
        batch.is_durable = True
        while self.under_way and self.under_way[0].is_durable:
            first = self.under_way[0]
            self._absorb(first.rows, first.size_bytes, first.slot)
            self.under_way = self.under_way[1:]
            self.unflushed_bytes -= first.size_bytes

    def halt(self, error: EndiveError) -> None:
        """Nothing more will be written. What waits or is under way without confirmation gets the error."""
        self.halted = self.halted or error

    # Reading.

    def find(self, key: bytes, durable_only: bool = False) -> Row | None:
        """Return the newest row of `key` in memory; None if there is none.

        The one call that needs no lock: rows are looked for where they are newest first, and appear in the next place
        before they vanish from the one before. None: look at the manifest that is newest *after* this call.
        """
        if not durable_only:
            row = self.waiting.rows.get(key)
            if row is not None:
                return row
        for batch in reversed(self.under_way):
            row = batch.rows.get(key)
            if row is not None and (batch.is_durable or not durable_only):
                return row
        for memtable in reversed(self.memtables):
            row = memtable.rows.get(key)
            if row is not None:
                return row
        return None

    def layers(self, durable_only: bool = False) -> list[dict[bytes, Row]]:
        """Return all rows in memory, oldest layer first: the queue's own dictionaries, to be copied under the lock."""
        found = [memtable.rows for memtable in self.memtables]
        found += [batch.rows for batch in self.under_way if batch.is_durable or not durable_only]
        return found if durable_only else [*found, self.waiting.rows]

    # Memory.

    def compacted(self, slot: int) -> None:
        """All slots up to `slot` are in the levels: forget memtables that hold nothing later."""
        self.memtables = tuple(one for one in self.memtables if one.slot_last > slot) or (Memtable(),)
        self.uncompacted_bytes = sum(memtable.size_bytes for memtable in self.memtables)

    def _absorb(self, rows: dict[bytes, Row], size_bytes: int, slot: int) -> None:
        if self.memtables[-1].size_bytes >= self._memtable_bytes:
            self.memtables = (*self.memtables, Memtable())
        self.memtables[-1].absorb(rows, size_bytes, slot)
        self.uncompacted_bytes += size_bytes

    def _recover(self, group: Group) -> None:
        rows = group.rows
        held = dict(zip(rows.keys, zip(rows.values, rows.seqs, strict=True), strict=True))
        size = sum(len(key) + len(value or b"") + ROW_OVERHEAD_BYTES for key, (value, _) in held.items())
        self._absorb(held, size, group.slot)
        self.row_seq_last = max([self.row_seq_last, *rows.seqs])
