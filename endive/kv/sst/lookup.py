"""Finding rows in the levels: one key, or a range of keys.

An SST that is gone raises `MissingObjectError`: the caller takes a newer manifest and tries again, and lets the error
through only if there is none.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from endive.errors import MissingObjectError
from endive.kv.log.wal import WalEntry
from endive.kv.manifest import SortedRun, SstInfo
from endive.kv.sst.bloom import may_contain
from endive.kv.sst.format import Rows
from endive.kv.sst.merge import KeyRange, blocks_within, merge
from endive.kv.sst.reading import TableCache, load_block, load_index, sst_path
from endive.protocol.requests import Steps


class Row(NamedTuple):
    """A row as it was found. A value of None: the key was deleted. One is made for each get: a tuple is cheapest."""

    value: bytes | None
    seq: int


def find_in_entries(entries: Sequence[WalEntry], key: bytes) -> Row | None:
    """Return the newest row of `key` in WAL entries; None if they have none."""
    for entry in reversed(entries):
        place = bisect_left(entry.rows.keys, key)
        if place < len(entry.rows.keys) and entry.rows.keys[place] == key:
            return Row(entry.rows.values[place], entry.rows.seqs[place])
    return None


def find_in_runs(runs: tuple[SortedRun, ...], key: bytes, cache: TableCache) -> Steps[Row | None]:
    """Return the newest row of `key` in the levels; None if they have none."""
    for number in range(len(runs)):
        sst = sst_of(runs[number], key)
        if sst is None:
            continue
        row = yield from find_in_sst(sst, key, cache)
        if row is not None:
            return row
    return None


class _NotCached(Enum):
    NOT_CACHED = "not cached"


NOT_CACHED = _NotCached.NOT_CACHED
"""What `find_cached` returns if it would have to ask."""


def find_cached(runs: tuple[SortedRun, ...], key: bytes, cache: TableCache) -> Row | _NotCached | None:
    """Do what `find_in_runs` does, as far as that needs no requests: a plain function is several times faster."""
    for run in runs:
        sst = sst_of(run, key)
        if sst is None:
            continue
        index = cache.index(sst.id)
        if index is None:
            return NOT_CACHED
        number = index.block_of(key)
        if number is None:
            continue
        rows = cache.block(sst.id, number)
        if rows is None:
            if may_contain(index.filter, key):
                return NOT_CACHED
            continue
        keys = rows.keys
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key:
            return Row(rows.values[place], rows.seqs[place])
    return None


def sst_of(run: SortedRun, key: bytes) -> SstInfo | None:
    """Return the SST of a run in whose range `key` is."""
    place = bisect_right(run.first_keys, key) - 1
    if place < 0 or key > run.ssts[place].last_key:
        return None
    return run.ssts[place]


def find_in_sst(sst: SstInfo, key: bytes, cache: TableCache) -> Steps[Row | None]:
    """Return the row of `key` in one SST; None if it has none."""
    index = yield from load_index(sst, cache)
    if index is None:
        raise MissingObjectError(sst_path(sst.id))
    number = index.block_of(key)
    if number is None or not may_contain(index.filter, key):
        return None
    rows = yield from load_block(sst, index, number, cache)
    if rows is None:
        raise MissingObjectError(sst_path(sst.id))
    place = bisect_left(rows.keys, key)
    if place == len(rows.keys) or rows.keys[place] != key:
        return None
    return Row(rows.values[place], rows.seqs[place])


def overlapping(runs: tuple[SortedRun, ...], keys: KeyRange) -> tuple[SstInfo, ...]:
    """Return the SSTs that may hold keys of a range, oldest run first."""
    return tuple(
        sst
        for run in reversed(runs)
        for sst in run.ssts
        if (keys.end is None or sst.first_key < keys.end) and (keys.start is None or sst.last_key >= keys.start)
    )


def rows_in_range(ssts: tuple[SstInfo, ...], keys: KeyRange, cache: TableCache) -> Steps[Rows]:
    """Return the newest row of each key of a range, tombstones included; the SSTs come oldest first."""
    sources: list[Rows] = []
    for number in range(len(ssts)):
        rows = yield from _range_of(ssts[number], keys, cache)
        sources.append(rows)
    return merge(sources, keep_tombstones=True)


def _range_of(sst: SstInfo, keys: KeyRange, cache: TableCache) -> Steps[Rows]:
    index = yield from load_index(sst, cache)
    if index is None:
        raise MissingObjectError(sst_path(sst.id))
    found = Rows([], [], [])
    for number in blocks_within(index, keys):
        rows = yield from load_block(sst, index, number, cache)
        if rows is None:
            raise MissingObjectError(sst_path(sst.id))
        low = 0 if keys.start is None else bisect_left(rows.keys, keys.start)
        high = len(rows.keys) if keys.end is None else bisect_left(rows.keys, keys.end)
        found.keys.extend(rows.keys[low:high])
        found.values.extend(rows.values[low:high])
        found.seqs.extend(rows.seqs[low:high])
    return found
