"""Merging rows: for each key the newest row, in key order."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from endive.kv.sst.format import Index, Rows

ROW_OVERHEAD_BYTES = 16


def merge(sources: Iterable[Rows], keep_tombstones: bool) -> Rows:
    """Merge sources, oldest first: a later source's row replaces an earlier one's of the same key."""
    newest: dict[bytes, tuple[bytes | None, int]] = {}
    for rows in sources:
        newest.update(zip(rows.keys, zip(rows.values, rows.seqs, strict=True), strict=True))
    keys = sorted(newest) if keep_tombstones else sorted(key for key, row in newest.items() if row[0] is not None)
    rows_in_order = [newest[key] for key in keys]
    return Rows(keys, [value for value, _ in rows_in_order], [seq for _, seq in rows_in_order])


def between(rows: Rows, start: bytes | None, end: bytes | None) -> Rows:
    """Return the rows with `start` <= key < `end`; None is no limit."""
    kept = [
        place for place, key in enumerate(rows.keys) if (start is None or key >= start) and (end is None or key < end)
    ]
    if len(kept) == len(rows.keys):
        return rows
    low, high = (kept[0], kept[-1] + 1) if kept else (0, 0)
    return Rows(rows.keys[low:high], rows.values[low:high], rows.seqs[low:high])


def cut(rows: Rows, bytes_max: int) -> list[Rows]:
    """Cut rows into pieces of about `bytes_max` of keys and values."""
    pieces: list[Rows] = []
    start, size = 0, 0
    for place, (key, value) in enumerate(zip(rows.keys, rows.values, strict=True), 1):
        size += len(key) + len(value or b"") + ROW_OVERHEAD_BYTES
        if size >= bytes_max or place == len(rows.keys):
            pieces.append(Rows(rows.keys[start:place], rows.values[start:place], rows.seqs[start:place]))
            start, size = place, 0
    return pieces


@dataclass(frozen=True)
class KeyRange:
    """Keys from `start` on, up to but without `end`. None is no limit."""

    start: bytes | None
    end: bytes | None

    @classmethod
    def of_prefix(cls, prefix: bytes) -> "KeyRange":
        """Return the range of all keys that start with `prefix`."""
        shortened = prefix.rstrip(b"\xff")
        return cls(prefix, shortened[:-1] + bytes((shortened[-1] + 1,)) if shortened else None)

    def holds(self, key: bytes) -> bool:
        """Whether a key is in the range."""
        return (self.start is None or key >= self.start) and (self.end is None or key < self.end)


def key_ranges(indexes: Sequence[Index], bytes_max: int, block_bytes: int) -> tuple[KeyRange, ...]:
    """Cut the keys of several files into ranges that each hold about `bytes_max` before compression.

    A block holds about `block_bytes` uncompressed, or its own length if that is more.
    """
    blocks = sorted((place.first_key, max(place.length, block_bytes)) for index in indexes for place in index.places)
    cuts: list[bytes] = []
    size = 0
    for key, length in blocks:
        if size >= bytes_max and (not cuts or key > cuts[-1]):
            cuts.append(key)
            size = 0
        size += length
    starts: list[bytes | None] = [None, *cuts]
    return tuple(map(KeyRange, starts, [*cuts, None]))


def blocks_within(index: Index, keys: KeyRange) -> range:
    """Return the numbers of the blocks that may hold keys of a range."""
    if keys.start is not None and keys.start > index.last_key:
        return range(0)
    first = 0 if keys.start is None else (index.block_of(keys.start) or 0)
    end = len(index.places) if keys.end is None else bisect_left(index.first_keys, keys.end)
    return range(first, max(first, end))
