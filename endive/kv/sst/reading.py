"""Reading SSTs of the levels: their index, then only the blocks that are needed."""

from dataclasses import dataclass
from typing import Protocol

from endive.kv.manifest import SstInfo
from endive.kv.sst.format import BlockPlace, Index, Rows, decode_block, decode_blocks, decode_index
from endive.kv.sst.merge import KeyRange, between, blocks_within
from endive.protocol.requests import GetRange, Steps, ask
from endive.protocol.sequenced import numbered

LEVELS_PREFIX, LEVELS_SUFFIX = "levels/", ".sst"


def sst_path(sst_id: int) -> str:
    """Return the path of an SST in the levels."""
    return numbered(LEVELS_PREFIX, sst_id, LEVELS_SUFFIX)


class TableCache(Protocol):
    """A cache of decoded indexes and blocks. SSTs never change, so it is never out of date."""

    def index(self, sst_id: int) -> Index | None:
        """Return an index, if it is cached."""
        ...

    def block(self, sst_id: int, number: int) -> Rows | None:
        """Return a block, if it is cached."""
        ...

    def keep_index(self, sst_id: int, index: Index, size_bytes: int) -> None:
        """Cache an index."""
        ...

    def keep_block(self, sst_id: int, number: int, rows: Rows, size_bytes: int) -> None:
        """Cache a block."""
        ...


@dataclass(frozen=True)
class NoCache:
    """A cache that keeps nothing."""

    def index(self, sst_id: int) -> Index | None:  # noqa: ARG002
        return None

    def block(self, sst_id: int, number: int) -> Rows | None:  # noqa: ARG002
        return None

    def keep_index(self, sst_id: int, index: Index, size_bytes: int) -> None:
        pass

    def keep_block(self, sst_id: int, number: int, rows: Rows, size_bytes: int) -> None:
        pass


def load_index(sst: SstInfo, cache: TableCache) -> Steps[Index | None]:
    """Return the index of an SST; None if the object is gone: the manifest that names it was superseded."""
    known = cache.index(sst.id)
    if known is not None:
        return known
    path = sst_path(sst.id)
    tail = yield from ask(GetRange(path, sst.index_offset, sst.size_bytes - sst.index_offset))
    if tail is None:
        return None
    index = decode_index(path, tail)
    cache.keep_index(sst.id, index, len(tail))
    return index


def load_block(sst: SstInfo, index: Index, number: int, cache: TableCache) -> Steps[Rows | None]:
    """Return the rows of one block; None if the object is gone."""
    known = cache.block(sst.id, number)
    if known is not None:
        return known
    place: BlockPlace = index.places[number]
    path = sst_path(sst.id)
    stored = yield from ask(GetRange(path, place.offset, place.length))
    if stored is None:
        return None
    rows = decode_block(path, place, stored)
    cache.keep_block(sst.id, number, rows, place.length)
    return rows


def load_range(sst: SstInfo, index: Index, keys: KeyRange) -> Steps[Rows | None]:
    """Return the rows of a key range with one request; None if the object is gone."""
    numbers = blocks_within(index, keys)
    if not numbers:
        return Rows([], [], [])
    start, last = index.places[numbers[0]].offset, index.places[numbers[-1]]
    path = sst_path(sst.id)
    data = yield from ask(GetRange(path, start, last.offset + last.length - start))
    if data is None:
        return None
    return between(decode_blocks(path, index, numbers, data, start), keys.start, keys.end)
