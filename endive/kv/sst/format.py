"""The SST: sorted rows in checksummed blocks, then index, filter and footer. The WAL and the levels share it.

    block*   codec byte, then the block's payload, compressed if that is shorter index    where each block is, its
    checksum, its first key; the file's last key filter   see `bloom`; may be empty footer   fixed size: magic,
    version, chained or not, epoch, put id, range of row sequence numbers, where index and filter are

A block's payload is a row count, three arrays (sequence numbers, key lengths, value lengths), all keys, all values.
A *fence* is an SST without rows: a footer and nothing else, so its size alone tells it from every other.

The writer's epoch and the put id are in the footer and not in the object's attributes: a local directory has none.
Every number read is checked before it is used; a damaged file gives `CorruptObjectError`, whatever the damage.
"""

import struct
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from google_crc32c import value as crc32c

from endive.errors import CorruptObjectError
from endive.kv.sst.bloom import build_filter
from endive.kv.sst.compression import compress, decompress

MAGIC = b"ENDIVESS"
FORMAT_VERSION = 1
BLOCK_BYTES = 16 * 1024
"""A block is closed when its keys and values reach this. Small enough to read one row, large enough to compress."""
BLOCK_BYTES_MAX = 1 << 30
TOMBSTONE = (1 << 32) - 1
"""The length that stands for "deleted"."""
KEY_BYTES_MAX = 1 << 16
VALUE_BYTES_MAX = 1 << 28
_RAW, _ZSTD = 0, 1
_COMPRESS_MIN = 256
_FOOTER = struct.Struct("<8sHB5xQ16sQQQQIIIII")
FENCE_SIZE_BYTES = _FOOTER.size
PASSING_FENCE_BYTES = FENCE_SIZE_BYTES + 4
"""Size of a fence that is deleted like any other entry. Older versions of Endive do the same with it."""
_COUNT = struct.Struct("<I")
_BLOCK_PLACE = struct.Struct("<QII")


@dataclass(frozen=True)
class Rows:
    """Rows in key order, each key once. A value of None: deleted."""

    keys: list[bytes]
    values: list[bytes | None]
    seqs: list[int]


@dataclass(frozen=True)
class Footer:
    """The footer of an SST."""

    epoch: int
    put_id: str
    seq_first: int
    seq_last: int
    rows: int
    index_offset: int
    index_bytes: int
    index_crc: int
    filter_bytes: int
    filter_crc: int
    is_chained: bool = False
    """A WAL entry computed from the entries before it, with several writes in flight: void behind a newer epoch."""

    @property
    def is_fence(self) -> bool:
        """Whether this is an empty SST."""
        return self.rows == 0


@dataclass(frozen=True)
class BlockPlace:
    """Where a block is."""

    offset: int
    length: int
    crc: int
    first_key: bytes


@dataclass(frozen=True)
class Index:
    """The end of an SST, decoded: all that is needed to find a row's block."""

    footer: Footer
    places: tuple[BlockPlace, ...]
    first_keys: list[bytes]
    last_key: bytes
    filter: bytes

    def block_of(self, key: bytes) -> int | None:
        """Return the number of the block in which `key` would be; None if it is outside of the file's range."""
        place = bisect_right(self.first_keys, key) - 1
        return None if place < 0 or key > self.last_key else place


# Writing.


def encode_fence(epoch: int, put_id: str, is_kept: bool = True) -> bytes:
    """Return an SST without rows.

    One that need not be kept has another size, which tells the garbage collector so (`endive.kv.log.opening`).
    """
    body = _footer(Footer(epoch, put_id, 0, 0, 0, 0, 0, crc32c(b""), 0, crc32c(b"")))
    return body if is_kept else bytes(PASSING_FENCE_BYTES - len(body)) + body


def encode_sst(rows: Rows, epoch: int, put_id: str, is_chained: bool = False) -> bytes:
    """Return the bytes of an SST that holds `rows`, at least one."""
    parts: list[bytes] = []
    places: list[BlockPlace] = []
    offset = 0
    for start, end in _block_bounds(rows):
        stored = _stored(_payload(rows, start, end))
        places.append(BlockPlace(offset, len(stored), crc32c(stored), rows.keys[start]))
        parts.append(stored)
        offset += len(stored)
    index = _stored(_index_payload(places, rows.keys[-1]))
    packed = build_filter(rows.keys)
    footer = Footer(
        epoch,
        put_id,
        min(rows.seqs),
        max(rows.seqs),
        len(rows.keys),
        offset,
        len(index),
        crc32c(index),
        len(packed),
        crc32c(packed),
        is_chained,
    )
    return b"".join((*parts, index, packed, _footer(footer)))


def _block_bounds(rows: Rows) -> list[tuple[int, int]]:
    """Cut the rows where a block's bytes are reached."""
    bounds: list[tuple[int, int]] = []
    start, size = 0, 0
    for place, (key, value) in enumerate(zip(rows.keys, rows.values, strict=True), 1):
        size += len(key) + (0 if value is None else len(value)) + 16
        if size >= BLOCK_BYTES:
            bounds.append((start, place))
            start, size = place, 0
    if start < len(rows.keys):
        bounds.append((start, len(rows.keys)))
    return bounds


def _payload(rows: Rows, start: int, end: int) -> bytes:
    keys, values = rows.keys[start:end], rows.values[start:end]
    seqs = array("Q", rows.seqs[start:end]).tobytes()
    key_lengths = array("I", map(len, keys)).tobytes()
    value_lengths = array("I", (TOMBSTONE if value is None else len(value) for value in values)).tobytes()
    held = (value for value in values if value is not None)
    return b"".join((_COUNT.pack(end - start), seqs, key_lengths, value_lengths, *keys, *held))


def _index_payload(places: list[BlockPlace], last_key: bytes) -> bytes:
    parts = [_COUNT.pack(len(places))]
    for place in places:
        parts += (
            _BLOCK_PLACE.pack(place.offset, place.length, place.crc),
            _COUNT.pack(len(place.first_key)),
            place.first_key,
        )
    return b"".join((*parts, last_key))


def _stored(payload: bytes) -> bytes:
    if len(payload) >= _COMPRESS_MIN:
        compressed = compress(payload)
        if len(compressed) < len(payload):
            return bytes((_ZSTD,)) + compressed
    return bytes((_RAW,)) + payload


def _footer(footer: Footer) -> bytes:
    body = _FOOTER.pack(
        MAGIC,
        FORMAT_VERSION,
        footer.is_chained,
        footer.epoch,
        bytes.fromhex(footer.put_id),
        footer.seq_first,
        footer.seq_last,
        footer.rows,
        footer.index_offset,
        footer.index_bytes,
        footer.index_crc,
        footer.filter_bytes,
        footer.filter_crc,
        0,
    )
    return body[:-4] + _COUNT.pack(crc32c(body[:-4]))


# Reading.


def decode_footer(path: str, tail: bytes) -> Footer:
    """Return the footer at the end of `tail`."""
    if len(tail) < _FOOTER.size:
        raise CorruptObjectError(
            path, f"an SST has at least {_FOOTER.size} bytes, not {len(tail)}: cut short or foreign"
        )
    body = tail[-_FOOTER.size :]
    if not body.startswith(MAGIC):
        raise CorruptObjectError(path, "not an SST of an Endive store, or cut short")
    if crc32c(body[:-4]) != _COUNT.unpack(body[-4:])[0]:
        raise CorruptObjectError(path, "the footer's checksum does not match: the object is damaged")
    _, version, is_chained, epoch, put_id, *numbers, _ = _FOOTER.unpack(body)
    if version != FORMAT_VERSION:
        raise CorruptObjectError(path, f"format version {version}; this Endive reads version {FORMAT_VERSION}")
    return replace(Footer(epoch, put_id.hex(), *numbers), is_chained=bool(is_chained))


def decode_index(path: str, tail: bytes) -> Index:
    """Return index and filter from the end of an SST; `tail` may be the whole file."""
    footer = decode_footer(path, tail)
    length = footer.index_bytes + footer.filter_bytes + _FOOTER.size
    if length > len(tail):
        raise CorruptObjectError(path, "the footer says that the index is longer than the file: cut short")
    end = tail[len(tail) - length : len(tail) - _FOOTER.size]
    stored, packed = end[: footer.index_bytes], end[footer.index_bytes :]
    if crc32c(stored) != footer.index_crc or crc32c(packed) != footer.filter_crc:
        raise CorruptObjectError(path, "the checksum of index or filter does not match: the object is damaged")
    if footer.is_fence:
        return Index(footer, (), [], b"", b"")
    places, last_key = _places(path, _loaded(path, stored))
    return Index(footer, places, [place.first_key for place in places], last_key, packed)


def _places(path: str, payload: bytes) -> tuple[tuple[BlockPlace, ...], bytes]:
    try:
        (count,) = _COUNT.unpack_from(payload)
        at = _COUNT.size
        places: list[BlockPlace] = []
        for _ in range(count):
            offset, length, crc = _BLOCK_PLACE.unpack_from(payload, at)
            (key_length,) = _COUNT.unpack_from(payload, at + _BLOCK_PLACE.size)
            at += _BLOCK_PLACE.size + _COUNT.size + key_length
            places.append(BlockPlace(offset, length, crc, payload[at - key_length : at]))
    except struct.error as error:
        raise CorruptObjectError(path, "the index is cut short") from error
    if not places or at > len(payload):
        raise CorruptObjectError(path, "the index is cut short")
    return tuple(places), payload[at:]


def decode_block(path: str, place: BlockPlace, stored: bytes) -> Rows:
    """Return the rows of one block, given its bytes."""
    if len(stored) != place.length or crc32c(stored) != place.crc:
        raise CorruptObjectError(
            path, f"the block at byte {place.offset} is damaged: length or checksum does not match"
        )
    payload = _loaded(path, stored)
    if len(payload) < _COUNT.size:
        raise CorruptObjectError(path, f"the block at byte {place.offset} is cut short")
    (count,) = _COUNT.unpack_from(payload)
    start = _COUNT.size + 16 * count
    if start > len(payload):
        raise CorruptObjectError(path, f"the block at byte {place.offset} says that it has {count} rows")
    seqs = array("Q", payload[4 : 4 + 8 * count])
    key_lengths = array("I", payload[4 + 8 * count : 4 + 12 * count])
    value_lengths = array("I", payload[4 + 12 * count : start])
    key_ends = list(accumulate(key_lengths, initial=start))
    held = (0 if length == TOMBSTONE else length for length in value_lengths)
    value_ends = list(accumulate(held, initial=key_ends[-1]))
    if value_ends[-1] != len(payload):
        raise CorruptObjectError(path, f"the block at byte {place.offset} has lengths that do not add up")
    keys = [payload[a:b] for a, b in pairwise(key_ends)]
    values: list[bytes | None] = [payload[a:b] for a, b in pairwise(value_ends)]
    if TOMBSTONE in value_lengths:
        values = [None if length == TOMBSTONE else value for value, length in zip(values, value_lengths, strict=True)]
    return Rows(keys, values, seqs.tolist())


def decode_blocks(path: str, index: Index, numbers: Sequence[int], data: bytes, start: int) -> Rows:
    """Return the rows of neighbouring blocks, given the file's bytes from `start` on."""
    keys: list[bytes] = []
    values: list[bytes | None] = []
    seqs: list[int] = []
    for number in numbers:
        place = index.places[number]
        rows = decode_block(path, place, data[place.offset - start : place.offset - start + place.length])
        keys += rows.keys
        values += rows.values
        seqs += rows.seqs
    return Rows(keys, values, seqs)


def decode_sst(path: str, body: bytes) -> tuple[Footer, Rows]:
    """Return all rows of an SST, which must hold what its footer says."""
    index = decode_index(path, body)
    rows = decode_blocks(path, index, range(len(index.places)), body, 0)
    if len(rows.keys) != index.footer.rows:
        raise CorruptObjectError(path, f"the footer says {index.footer.rows} rows, the blocks have {len(rows.keys)}")
    return index.footer, rows


def _loaded(path: str, stored: bytes) -> bytes:
    if not stored or stored[0] not in (_RAW, _ZSTD):
        raise CorruptObjectError(path, "unknown codec: the object is damaged or of a newer version")
    return stored[1:] if stored[0] == _RAW else decompress(path, stored[1:], BLOCK_BYTES_MAX)
