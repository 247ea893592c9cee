"""Finding rows in the levels: one key, or a range of keys.

An SST that is gone raises `MissingObjectError`: the caller takes a newer manifest and tries again, and lets the error
through only if there is none.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from endive.kv.manifest import SortedRun, SstInfo
from endive.kv.sst.bloom import may_contain
from endive.kv.sst.format import Rows
from endive.kv.sst.merge import KeyRange, blocks_within, merge
from endive.kv.sst.reading import Fetched, TableCache, fetch_blocks, fetch_indexes
from endive.protocol.requests import Steps


class Row(NamedTuple):
    """A row as it was found. A value of None: the key was deleted. One is made for each get: a tuple is cheapest."""

    value: bytes | None
    seq: int


def find_in_runs(runs: tuple[SortedRun, ...], key: bytes, cache: TableCache) -> Steps[Row | None]:
    """Return the newest row of `key` in the levels; None if they have none."""
    found = yield from find_many(runs, (key,), cache)
    return found.get(key)


def find_many(runs: tuple[SortedRun, ...], keys: Sequence[bytes], cache: TableCache) -> Steps[dict[bytes, Row]]:
    """Return the newest row of each key that the levels have, in two round trips at most."""
    places = tuple((key, sst) for key in keys for sst in _candidates(runs, key))
    fetched = Fetched(cache)
    yield from fetch_indexes([sst for _, sst in places], fetched)
    held = tuple((key, sst, number) for key, sst in places for number in _block_of(sst, key, fetched))
    yield from fetch_blocks(_by_sst(held), fetched)
    found: dict[bytes, Row] = {}
    for key, sst, number in held:
        if key in found:
            continue  # newer runs come first
        row = _row_in(fetched.blocks[sst.id, number], key)
        if row is not None:
            found[key] = row
    return found


def _candidates(runs: tuple[SortedRun, ...], key: bytes) -> list[SstInfo]:
    """Return the SSTs in whose range `key` is, newest first."""
    found = (sst_of(run, key) for run in runs)
    return [sst for sst in found if sst is not None]


def _block_of(sst: SstInfo, key: bytes, fetched: Fetched) -> tuple[int, ...]:
    """Return the number of the block that may hold `key`; nothing if the filter says that none does."""
    index = fetched.indexes[sst.id]
    number = index.block_of(key)
    return () if number is None or not may_contain(index.filter, key) else (number,)


def _by_sst(held: Sequence[tuple[bytes, SstInfo, int]]) -> tuple[tuple[SstInfo, list[int]], ...]:
    numbers: dict[SstInfo, list[int]] = {}
    for _, sst, number in held:
        numbers.setdefault(sst, []).append(number)
    return tuple(numbers.items())


def _row_in(rows: Rows, key: bytes) -> Row | None:
    place = bisect_left(rows.keys, key)
    if place == len(rows.keys) or rows.keys[place] != key:
        return None
    return Row(rows.values[place], rows.seqs[place])


class _NotCached(Enum):
    NOT_CACHED = "not cached"


NOT_CACHED = _NotCached.NOT_CACHED
"""Result of `find_cached` if the row is not cached and takes a request."""


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


def overlapping(runs: tuple[SortedRun, ...], keys: KeyRange) -> tuple[SstInfo, ...]:
    """Return the SSTs that may hold keys of a range, oldest run first."""
    return tuple(sst for run in reversed(runs) for sst in _overlapping(run, keys))


def _overlapping(run: SortedRun, keys: KeyRange) -> tuple[SstInfo, ...]:
    low = 0 if keys.start is None else max(bisect_right(run.first_keys, keys.start) - 1, 0)
    high = len(run.ssts) if keys.end is None else bisect_left(run.first_keys, keys.end)
    if low < high and keys.start is not None and run.ssts[low].last_key < keys.start:
        low += 1
    return run.ssts[low:high]


def rows_in_range(ssts: tuple[SstInfo, ...], keys: KeyRange, cache: TableCache) -> Steps[Rows]:
    """Return the newest row of each key of a range, tombstones included; the SSTs come oldest first."""
    found = yield from rows_in_ranges(((ssts, keys),), cache)
    return found[0]


def rows_in_ranges(
    wanted: Sequence[tuple[tuple[SstInfo, ...], KeyRange]], cache: TableCache
) -> Steps[tuple[Rows, ...]]:
    """Do the same for several ranges, each with its SSTs, in two round trips at most."""
    fetched = Fetched(cache)
    yield from fetch_indexes([sst for ssts, _ in wanted for sst in ssts], fetched)
    blocks = tuple((sst, blocks_within(fetched.indexes[sst.id], keys)) for ssts, keys in wanted for sst in ssts)
    yield from fetch_blocks(blocks, fetched)
    return tuple(merge([_range_of(sst, keys, fetched) for sst in ssts], keep_tombstones=True) for ssts, keys in wanted)


def _range_of(sst: SstInfo, keys: KeyRange, fetched: Fetched) -> Rows:
    found = Rows([], [], [])
    for number in blocks_within(fetched.indexes[sst.id], keys):
        rows = fetched.blocks[sst.id, number]
        low = 0 if keys.start is None else bisect_left(rows.keys, keys.start)
        high = len(rows.keys) if keys.end is None else bisect_left(rows.keys, keys.end)
        found.keys.extend(rows.keys[low:high])
        found.values.extend(rows.values[low:high])
        found.seqs.extend(rows.seqs[low:high])
    return found
