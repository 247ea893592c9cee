"""A consistent view in this process: rows in memory over the runs of one manifest."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from endive.drivers.blocking import BlockingDriver
from endive.errors import MissingObjectError, ViewExpiredError
from endive.kv.log.wal import WalEntry
from endive.kv.manifest import StoreManifest
from endive.kv.sst.format import BLOCK_BYTES, Rows
from endive.kv.sst.lookup import find_in_runs, overlapping, rows_in_range
from endive.kv.sst.merge import KeyRange, key_ranges, merge
from endive.kv.sst.reading import Fetched, TableCache, fetch_indexes
from endive.kv.transaction import RESERVED

SCAN_BYTES = 1 << 20
"""How much a scan reads first, before compression."""
PARTS_AHEAD_MAX = 16
"""A scan that goes on reads twice as much each time, up to so many times the first part."""
RESERVED_END = RESERVED[:-1] + b"\x01"


class ReadView:
    """The rows that one scan or one checkpoint sees. Later writes do not change it."""

    def __init__(self, manifest: StoreManifest, memory: Rows, driver: BlockingDriver, cache: TableCache) -> None:
        self.manifest = manifest
        self._memory = memory
        self._driver = driver
        self._cache = cache

    @classmethod
    def of_entries(
        cls, manifest: StoreManifest, entries: Sequence[WalEntry], driver: BlockingDriver, cache: TableCache
    ) -> "ReadView":
        """Return the view of a manifest and the WAL entries that follow it."""
        return cls(manifest, merge((entry.rows for entry in entries), keep_tombstones=True), driver, cache)

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`; None if it has none."""
        place = bisect_left(self._memory.keys, key)
        if place < len(self._memory.keys) and self._memory.keys[place] == key:
            return self._memory.values[place]
        row = self._driver.run(find_in_runs(self.manifest.runs, key, self._cache))
        return None if row is None else row.value

    def scan(self, start: bytes | None = None, end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order, from `start` on, up to but without `end`.

        `ViewExpiredError` if the scan takes so long that its files were deleted.
        """
        wanted = KeyRange(start, end)
        ssts = overlapping(self.manifest.runs, wanted)
        try:
            fetched = Fetched(self._cache)
            self._driver.run(fetch_indexes(ssts, fetched))
            cuts = key_ranges([fetched.indexes[sst.id] for sst in ssts], SCAN_BYTES, BLOCK_BYTES)
            for keys in _growing(tuple(_within(cuts, wanted))):
                yield from self._rows(keys)
        except MissingObjectError as error:
            raise ViewExpiredError(error.path) from error

    def _rows(self, keys: KeyRange) -> Iterator[tuple[bytes, bytes]]:
        stored = self._driver.run(rows_in_range(overlapping(self.manifest.runs, keys), keys, self._cache))
        low = 0 if keys.start is None else bisect_left(self._memory.keys, keys.start)
        high = len(self._memory.keys) if keys.end is None else bisect_left(self._memory.keys, keys.end)
        if low < high:
            memory = Rows(self._memory.keys[low:high], self._memory.values[low:high], self._memory.seqs[low:high])
            stored = merge((stored, memory), keep_tombstones=True)
        stored = _without_reserved(stored)
        for key, value in zip(stored.keys, stored.values, strict=True):
            if value is not None:
                yield key, value


def _growing(parts: tuple[KeyRange, ...]) -> Iterator[KeyRange]:
    """Yield ranges that each read ahead twice as far as the one before, up to a limit."""
    start, count = 0, 1
    while start < len(parts):
        end = min(start + count, len(parts))
        yield KeyRange(parts[start].start, parts[end - 1].end)
        start, count = end, min(2 * count, PARTS_AHEAD_MAX)


def _without_reserved(rows: Rows) -> Rows:
    """Return rows without the store's own."""
    low, high = bisect_left(rows.keys, RESERVED), bisect_left(rows.keys, RESERVED_END)
    if low == high:
        return rows
    return Rows(
        rows.keys[:low] + rows.keys[high:], rows.values[:low] + rows.values[high:], rows.seqs[:low] + rows.seqs[high:]
    )


def _within(cuts: tuple[KeyRange, ...], wanted: KeyRange) -> Iterator[KeyRange]:
    """Yield the parts of the ranges that are wanted."""
    for keys in cuts:
        start = max((key for key in (keys.start, wanted.start) if key is not None), default=None)
        end = min((key for key in (keys.end, wanted.end) if key is not None), default=None)
        if start is None or end is None or start < end:
            yield KeyRange(start, end)


def rows_of(
    durable: dict[bytes, bytes | None], buffered: Iterable[Mapping[bytes, bytes | None]], keys: KeyRange
) -> Rows:
    """Return the rows of a range in memory, in key order: those of the WAL, and over them rows that are not durable."""
    newest = durable
    for rows in buffered:
        newest.update((key, value) for key, value in rows.items() if keys.holds(key))
    ordered = sorted(newest)
    return Rows(ordered, [newest[key] for key in ordered], [0] * len(ordered))
