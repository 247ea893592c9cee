"""The write-ahead log: numbered SSTs, one for each group of writes that became durable together."""

from endive.kv.sst.format import FENCE_SIZE_BYTES, decode_footer
from endive.protocol.fencing import SlotLog
from endive.protocol.requests import ObjectInfo


def epoch_of(path: str, body: bytes) -> int:
    """Return the epoch of the writer that wrote a WAL object."""
    return decode_footer(path, body).epoch


WAL = SlotLog("wal/", ".sst", epoch_of)
"""Where WAL slots are: `wal/00000000000000000001.sst` and so on."""


def is_fence(info: ObjectInfo) -> bool:
    """Whether a WAL object is a fence, by its size: nothing that holds a row is as small."""
    return info.size_bytes <= FENCE_SIZE_BYTES


def slots_between(after: int, end: int) -> tuple[str, ...]:
    """Return the paths of the slots after `after`, up to `end`."""
    return tuple(WAL.path_of(slot) for slot in range(after + 1, end + 1))
