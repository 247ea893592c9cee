"""Reading SSTs of the levels: first all indexes that are needed, side by side, then all blocks.

So a look-up takes two round trips, however many files it touches; one, if the files are small enough to be read whole.
Neighbouring blocks are read by one request. A file that is gone raises `MissingObjectError`: the manifest that names it
was superseded.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple, Protocol

from endive.errors import MissingObjectError
from endive.kv.manifest import SstInfo
from endive.kv.sst.format import Index, Rows, decode_block, decode_blocks, decode_index
from endive.kv.sst.merge import KeyRange, between, blocks_within
from endive.protocol.requests import Elsewhere, GetRange, Request, Steps, Together, ask
from endive.protocol.sequenced import numbered

WHOLE_BYTES = 128 * 1024
"""A file up to this size is read as a whole: its bytes take less time than a second request."""
PIECE_BYTES = 4 * 1024 * 1024
"""Neighbouring blocks that one request reads. Larger pieces are slower than several side by side."""
AT_ONCE = 256
"""Requests that are made together at most; the driver sends as many at a time as it has threads."""
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


@dataclass
class Fetched:
    """Indexes and blocks of one look-up, read or found in a cache, which may evict them before the look-up ends."""

    cache: TableCache
    indexes: dict[int, Index] = field(default_factory=dict)
    blocks: dict[tuple[int, int], Rows] = field(default_factory=dict)

    def has_index(self, sst_id: int) -> bool:
        """Whether an index need not be read."""
        if sst_id not in self.indexes:
            known = self.cache.index(sst_id)
            if known is not None:
                self.indexes[sst_id] = known
        return sst_id in self.indexes

    def has_block(self, sst_id: int, number: int) -> bool:
        """Whether a block need not be read."""
        if (sst_id, number) not in self.blocks:
            known = self.cache.block(sst_id, number)
            if known is not None:
                self.blocks[sst_id, number] = known
        return (sst_id, number) in self.blocks

    def keep_index(self, sst_id: int, index: Index, size_bytes: int) -> None:
        """Keep an index that was read."""
        self.indexes[sst_id] = index
        self.cache.keep_index(sst_id, index, size_bytes)

    def keep_block(self, sst_id: int, number: int, rows: Rows, size_bytes: int) -> None:
        """Keep a block that was read."""
        self.blocks[sst_id, number] = rows
        self.cache.keep_block(sst_id, number, rows, size_bytes)


class Blocks(NamedTuple):
    """Neighbouring blocks of an SST, from `first` to before `end`."""

    sst: SstInfo
    first: int
    end: int


def fetch_indexes(ssts: Sequence[SstInfo], fetched: Fetched) -> Steps[None]:
    """Read the indexes of SSTs that are not known yet; small SSTs as a whole."""
    missing = tuple(sst for sst in dict.fromkeys(ssts) if not fetched.has_index(sst.id))
    for start in range(0, len(missing), AT_ONCE):
        part = missing[start : start + AT_ONCE]
        ends = yield from ask(Together(tuple(map(_index_request, part))))
        for sst, end in zip(part, ends, strict=True):
            _keep_end(sst, end, fetched)


def range_request(sst: SstInfo, start: int, length: int) -> Request[bytes | None]:
    """Return the request for a part of an SST, wherever it is."""
    request = GetRange(sst_path(sst.id), start, length)
    return Elsewhere(sst.store, request) if sst.store else request


def _index_request(sst: SstInfo) -> Request[bytes | None]:
    start = 0 if sst.size_bytes <= WHOLE_BYTES else sst.index_offset
    return range_request(sst, start, sst.size_bytes - start)


def _keep_end(sst: SstInfo, end: bytes | None, fetched: Fetched) -> None:
    path = sst_path(sst.id)
    if end is None:
        raise MissingObjectError(path)
    index = decode_index(path, end)
    fetched.keep_index(sst.id, index, sst.size_bytes - sst.index_offset)
    if sst.size_bytes <= WHOLE_BYTES:
        for number, place in enumerate(index.places):
            rows = decode_block(path, place, end[place.offset : place.offset + place.length])
            fetched.keep_block(sst.id, number, rows, place.length)


def fetch_blocks(wanted: Sequence[tuple[SstInfo, Sequence[int]]], fetched: Fetched) -> Steps[None]:
    """Read blocks that are not known yet, by their numbers, of SSTs whose indexes are known."""
    pieces = tuple(piece for sst, numbers in wanted for piece in _pieces(sst, numbers, fetched))
    for start in range(0, len(pieces), AT_ONCE):
        part = pieces[start : start + AT_ONCE]
        bodies = yield from ask(Together(tuple(_blocks_request(piece, fetched) for piece in part)))
        for piece, body in zip(part, bodies, strict=True):
            _keep_blocks(piece, body, fetched)


def _pieces(sst: SstInfo, numbers: Sequence[int], fetched: Fetched) -> list[Blocks]:
    """Return the blocks that are not known, neighbours together."""
    index = fetched.indexes[sst.id]
    missing = [number for number in sorted(set(numbers)) if not fetched.has_block(sst.id, number)]
    pieces: list[Blocks] = []
    for _, neighbours in groupby(enumerate(missing), lambda place: place[1] - place[0]):
        first = size = 0
        for _, number in neighbours:
            if not size or size >= PIECE_BYTES:
                first, size = number, 0
                pieces.append(Blocks(sst, first, first))
            size += index.places[number].length
            pieces[-1] = Blocks(sst, first, number + 1)
    return pieces


def _blocks_request(piece: Blocks, fetched: Fetched) -> Request[bytes | None]:
    places = fetched.indexes[piece.sst.id].places
    start, last = places[piece.first].offset, places[piece.end - 1]
    return range_request(piece.sst, start, last.offset + last.length - start)


def _keep_blocks(piece: Blocks, body: bytes | None, fetched: Fetched) -> None:
    path = sst_path(piece.sst.id)
    if body is None:
        raise MissingObjectError(path)
    places = fetched.indexes[piece.sst.id].places
    start = places[piece.first].offset
    for number in range(piece.first, piece.end):
        place = places[number]
        rows = decode_block(path, place, body[place.offset - start : place.offset - start + place.length])
        fetched.keep_block(piece.sst.id, number, rows, place.length)


def load_ranges(files: Sequence[tuple[SstInfo, Index]], keys: KeyRange) -> Steps[tuple[Rows, ...]]:
    """Return the rows of a key range of several SSTs, with one request for each, keeping nothing."""
    touched = tuple((sst, index, blocks_within(index, keys)) for sst, index in files)
    requests = tuple(_range_request(sst, index, numbers) for sst, index, numbers in touched if numbers)
    bodies = yield from ask(Together(requests))
    rows: tuple[Rows, ...] = ()
    for (sst, index, numbers), body in zip((each for each in touched if each[2]), bodies, strict=True):
        path = sst_path(sst.id)
        if body is None:
            raise MissingObjectError(path)
        found = decode_blocks(path, index, numbers, body, index.places[numbers[0]].offset)
        rows = (*rows, between(found, keys.start, keys.end))
    return rows


def _range_request(sst: SstInfo, index: Index, numbers: range) -> Request[bytes | None]:
    start, last = index.places[numbers[0]].offset, index.places[numbers[-1]]
    return range_request(sst, start, last.offset + last.length - start)
