"""The write-ahead log: numbered SSTs, one for each commit batch. An entry without rows is a fence.

**Void entries.** An exclusive writer may have several entries in flight, each computed from the one before it. If a
newer writer puts a fence in the place of one of them, the entries behind it stay in the log, computed from rows that
never became durable. They are *chained* (a flag in the footer), and an entry that is chained and follows an entry of a
newer epoch is void: its rows do not count. A writer acknowledges entries in their order, so none that was acknowledged
can be void. Entries without the flag always count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from endive.kv.sst.format import FENCE_SIZE_BYTES, Footer, Rows, decode_footer, decode_sst
from endive.protocol.fencing import NumberedLog
from endive.protocol.requests import GetAll, ObjectInfo, Steps, ask

NO_ROWS = Rows([], [], [])
REPLAYED_AT_ONCE = 1024
"""WAL entries that are requested together: all of them, as long as compaction keeps up."""


def epoch_of(path: str, body: bytes) -> int:
    """Return the epoch of the writer that wrote a WAL entry."""
    return decode_footer(path, body).epoch


WAL = NumberedLog("wal/", ".sst", epoch_of)
"""Where WAL entries are: `wal/00000000000000000001.sst` and so on."""


@dataclass(frozen=True)
class WalEntry:
    """The rows of one WAL entry, which became durable together. A fence and a void entry have none."""

    number: int
    rows: Rows
    epoch: int = 0
    put_id: str = ""


def is_fence(info: ObjectInfo) -> bool:
    """Whether a WAL object is a fence that must be kept, by its size: no object with a row is as small."""
    return info.size_bytes <= FENCE_SIZE_BYTES


def is_void(footer: Footer, epoch: int) -> bool:
    """Whether an entry does not count; `epoch`: the highest one of the entries before it."""
    return footer.is_chained and footer.epoch < epoch


def paths_between(after: int, end: int) -> tuple[str, ...]:
    """Return the paths of the entries after `after`, up to `end`."""
    return tuple(WAL.path_of(number) for number in range(after + 1, end + 1))


def decode_entries(after: int, bodies: Sequence[bytes], epoch: int) -> tuple[WalEntry, ...]:
    """Return the entries that follow `after`; `epoch`: the highest one of the entries before them."""
    entries: list[WalEntry] = []
    for number, body in enumerate(bodies, after + 1):
        footer, rows = decode_sst(WAL.path_of(number), body)
        entries.append(WalEntry(number, NO_ROWS if is_void(footer, epoch) else rows, footer.epoch, footer.put_id))
        epoch = max(epoch, footer.epoch)
    return tuple(entries)


def read_bodies(after: int, end: int) -> Steps[tuple[bytes | None, ...]]:
    """Return the objects of the entries after `after`, up to `end`; None for those that do not exist."""
    bodies: tuple[bytes | None, ...] = ()
    for start in range(after, end, REPLAYED_AT_ONCE):
        found = yield from ask(GetAll(paths_between(start, min(start + REPLAYED_AT_ONCE, end))))
        bodies += tuple(found)
    return bodies


def replay(after: int, end: int, epoch: int = 0) -> Steps[tuple[WalEntry, ...] | None]:
    """Return the entries after `after`, up to `end`. None: an entry is missing; read the manifest again."""
    bodies = yield from read_bodies(after, end)
    found = [body for body in bodies if body is not None]
    return decode_entries(after, found, epoch) if len(found) == len(bodies) else None
