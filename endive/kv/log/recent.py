"""Rows that are durable but not in the levels, as a value that never changes.

A writer keeps the rows that the WAL holds behind the last compacted entry. Several threads read different states of it
at the same time, so a state is not changed but followed by another. Rows are in sorted *layers*; a new WAL entry
becomes a layer, and neighbouring layers of similar size are merged. So a state costs about as much as its newest rows,
and a look-up goes through about log(n) layers.

A layer that reaches below the last compacted entry is not merged any more, since it would never become old enough to be
released; nor is one of `LAYER_BYTES`, so that memory is released in pieces of about that size.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

from endive.kv.log.wal import WalEntry
from endive.kv.sst.format import Rows
from endive.kv.sst.lookup import Row
from endive.kv.sst.merge import KeyRange, merge

ROW_OVERHEAD_BYTES = 100
LAYER_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Layer:
    """The newest rows of consecutive WAL entries."""

    first: int
    last: int
    rows: Rows

    @cached_property
    def size_bytes(self) -> int:
        """Approximate memory of its rows."""
        held = sum(map(len, self.rows.keys)) + sum(len(value) for value in self.rows.values if value is not None)
        return held + ROW_OVERHEAD_BYTES * len(self.rows.keys)


@dataclass(frozen=True)
class Recent:
    """Layers, oldest first."""

    layers: tuple[Layer, ...] = ()

    def with_entry(self, entry: WalEntry, compacted: int) -> "Recent":
        """Return the rows with those of the next WAL entry; entries up to `compacted` are in the levels."""
        layers = self.layers
        newest = Layer(entry.number, entry.number, entry.rows)
        while layers and layers[-1].first > compacted and _are_alike(layers[-1], newest):
            older = layers[-1]
            rows = merge((older.rows, newest.rows), keep_tombstones=True)
            layers, newest = layers[:-1], Layer(older.first, newest.last, rows)
        return Recent((*layers, newest))

    def without(self, compacted: int) -> "Recent":
        """Return the rows without the layers that are entirely in the levels."""
        return Recent(tuple(layer for layer in self.layers if layer.last > compacted))

    def find(self, key: bytes) -> Row | None:
        """Return the newest row of `key`; None if there is none."""
        for layer in reversed(self.layers):
            rows = layer.rows
            place = bisect_left(rows.keys, key)
            if place < len(rows.keys) and rows.keys[place] == key:
                return Row(rows.values[place], rows.seqs[place])
        return None

    def within(self, keys: KeyRange) -> dict[bytes, bytes | None]:
        """Return the newest values of a range of keys; None for those that were deleted."""
        found: dict[bytes, bytes | None] = {}
        for layer in self.layers:
            rows = layer.rows
            low = 0 if keys.start is None else bisect_left(rows.keys, keys.start)
            high = len(rows.keys) if keys.end is None else bisect_left(rows.keys, keys.end)
            found.update(zip(rows.keys[low:high], rows.values[low:high], strict=True))
        return found

    @cached_property
    def size_bytes(self) -> int:
        """Approximate memory of all rows."""
        return sum(layer.size_bytes for layer in self.layers)


def _are_alike(older: Layer, newer: Layer) -> bool:
    """Whether two layers are worth merging: then every row is merged about log(n) times."""
    return len(older.rows.keys) <= 2 * len(newer.rows.keys) and older.size_bytes + newer.size_bytes <= LAYER_BYTES
