"""A log of numbered slots with one writer at a time.

Every writer has an *epoch*, claimed elsewhere by a conditional write, and writes its epoch into each object. A new
writer *fences* the older ones: it fills slots with empty objects of its own epoch, in the order of the slots, from the
first open one on.

**What can race.** An older writer fills the slot first: the fence goes one further. A newer writer has been there: this
one is fenced, and stops. An older writer has several writes under way, on slots of a *window* that is as long as its
number of parallel writes: one fence may land inside the window with an older write behind it, so as many fences in a
row are needed as there can be parallel writes. If one of them meets an older write, the row starts anew after it.

**What is promised.** Once a writer has its row of fences, no object of an older epoch appears behind the row, provided

* slots were never filled and deleted before: a fence in such a slot fences nobody. The caller looks at the manifest
  after fencing and starts over if the row is not above what was compacted (`endive.kv.log.opening`);
* fences are never deleted. A writer that slept through everything would otherwise find its slot free again, fill it,
  and acknowledge a write that nobody will ever read.

A writer learns that it was fenced when its own write meets an object of a newer epoch, and not before.
"""

from collections.abc import Callable
from dataclasses import dataclass

from endive.errors import AttemptsExhaustedError, FencedError, InvariantError, OutcomeUnknownError
from endive.protocol.requests import Get, List, Steps, ask, create
from endive.protocol.sequenced import number_of, numbered, numbers_in

SLOTS_MAX = 100_000
"""Occupied slots that a fence walks over. The walk begins at the end of a listing, so they are few."""
ROLE = "writer"


@dataclass(frozen=True)
class SlotLog:
    """Where the slots are, and how to read an epoch."""

    prefix: str
    suffix: str
    epoch_of: Callable[[str, bytes], int]

    def path_of(self, slot: int) -> str:
        """Return the path of a slot."""
        return numbered(self.prefix, slot, self.suffix)

    def slot_of(self, path: str) -> int | None:
        """Return the slot at `path`; None if the path is not one of this log."""
        return number_of(path, self.prefix, self.suffix)


def contiguous_end(log: SlotLog, after: int) -> Steps[int]:
    """Return the last slot of those that follow `after` without a gap; `after` itself if the next one is open."""
    end, _ = yield from contiguous(log, after, 0)
    return end


def contiguous(log: SlotLog, after: int, window: int) -> Steps[tuple[int, bool]]:
    """Return the same, and whether the slot behind it must have been filled, and has vanished.

    With up to `window` writes under way, a slot is filled only if the one `window` before it is. One further behind a
    gap is proof that the gap was filled: it was collected, and the manifest that said so is not the newest one, or it
    was lost.
    """
    listing = yield from ask(List(log.prefix, log.path_of(after)))
    slots = numbers_in(listing, log.prefix, log.suffix)
    end = after
    for slot in slots:
        if slot != end + 1:
            break
        end = slot
    return end, bool(slots) and slots[-1] > end + window


def append(log: SlotLog, slot: int, body: bytes, epoch: int) -> Steps[None]:
    """Fill `slot` with the open writer's `body`. `FencedError`: a newer writer has been there; halt."""
    is_ours = yield from create(log.path_of(slot), body)
    if is_ours:
        return
    found = yield from ask(Get(log.path_of(slot)))
    if found is None:
        raise OutcomeUnknownError(log.path_of(slot))
    found_epoch = log.epoch_of(log.path_of(slot), found)
    if found_epoch > epoch:
        raise FencedError(ROLE, epoch, found_epoch)
    raise InvariantError("slots behind a writer's fences are its own", f"{log.path_of(slot)} has epoch {found_epoch}")


def fence(log: SlotLog, start: int, epoch: int, count: int, body: bytes) -> Steps[int | None]:
    """Fill `count` slots in a row with fences, from `start` or later; return the first of the row.

    None: an object vanished on the way, so slots from here have been collected; read the manifest and start over.
    `FencedError`: a newer writer was met. `InvariantError`: another writer has this very epoch.
    """
    first = slot = start
    for _ in range(SLOTS_MAX):
        if slot == first + count:
            return first
        is_ours = yield from create(log.path_of(slot), body)
        slot += 1
        if is_ours:
            continue
        found = yield from ask(Get(log.path_of(slot - 1)))
        if found is None:
            return None
        if found != body:  # our own fence, from before a fresh start, counts
            _require_older(log, slot - 1, found, epoch)
            first = slot
    raise AttemptsExhaustedError(log.prefix, SLOTS_MAX)


def _require_older(log: SlotLog, slot: int, found: bytes, epoch: int) -> None:
    found_epoch = log.epoch_of(log.path_of(slot), found)
    if found_epoch > epoch:
        raise FencedError(ROLE, epoch, found_epoch)
    if found_epoch == epoch:
        raise InvariantError("epochs are claimed once", f"{log.path_of(slot)} has epoch {epoch}, but is not ours")
