"""A cache of decoded indexes and blocks with a limit on memory.

Entries that were not used since the last pass over them leave first ("second chance"). A hit takes no lock: it looks
into a dictionary and marks what it found.
"""

from dataclasses import dataclass
from threading import Lock
from typing import Any

from endive.kv.sst.format import Index, Rows

ROW_OVERHEAD_BYTES = 150
"""Bytes of memory that Python needs for a row's objects, besides their contents."""
CACHE_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class _Entry:
    what: Index | Rows
    size_bytes: int
    is_used: bool = False


class BlockCache:
    """A cache of indexes and blocks, up to about `bytes_max`. Safe to use from several threads."""

    def __init__(self, bytes_max: int = CACHE_BYTES) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self.hits = 0
        self.misses = 0
        self._lock = Lock()
        self._indexes: dict[int, _Entry] = {}
        self._blocks: dict[tuple[int, int], _Entry] = {}

    def index(self, sst_id: int) -> Index | None:
        entry = self._indexes.get(sst_id)
        if entry is None:
            return None
        entry.is_used = True
        return entry.what  # type: ignore[return-value]  # only indexes are kept there

    def block(self, sst_id: int, number: int) -> Rows | None:
        entry = self._blocks.get((sst_id, number))
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        entry.is_used = True
        return entry.what  # type: ignore[return-value]  # only blocks are kept there

    def keep_index(self, sst_id: int, index: Index, size_bytes: int) -> None:
        entry = _Entry(index, size_bytes + ROW_OVERHEAD_BYTES * len(index.places))
        with self._lock:
            known = self._indexes.pop(sst_id, None)
            self._indexes[sst_id] = entry
            self._make_room(entry.size_bytes - (known.size_bytes if known else 0))

    def keep_block(self, sst_id: int, number: int, rows: Rows, size_bytes: int) -> None:
        held = sum(map(len, rows.keys)) + sum(len(value) for value in rows.values if value is not None)
        entry = _Entry(rows, max(held, size_bytes) + ROW_OVERHEAD_BYTES * len(rows.keys))
        with self._lock:
            known = self._blocks.pop((sst_id, number), None)
            self._blocks[sst_id, number] = entry
            self._make_room(entry.size_bytes - (known.size_bytes if known else 0))

    def _make_room(self, added_bytes: int) -> None:
        """Let blocks go until all fits, then indexes: an index is worth more, being needed for every block."""
        self.bytes_held += added_bytes
        while self.bytes_held > self.bytes_max and (self._blocks or self._indexes):
            entries: dict[Any, _Entry] = self._blocks or self._indexes
            key = next(iter(entries))
            entry = entries.pop(key)
            if entry.is_used:
                entry.is_used = False
                entries[key] = entry
            else:
                self.bytes_held -= entry.size_bytes
