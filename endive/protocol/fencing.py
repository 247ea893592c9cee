"""A log of numbered entries with one writer at a time.

Every writer has an *epoch*, claimed elsewhere by a conditional write, and writes its epoch into each entry. A new
writer *fences* the older ones: it creates empty entries of its own epoch, in the order of their numbers, from the
first number without an entry on.

**What can race.** An older writer creates the entry first: the fence goes one further. A newer writer has put a fence
there: this one is fenced, and stops. An older writer has several entries in flight, in a *window* as long as its
number of parallel writes: one fence may land inside the window with an older entry behind it, so as many fences in a
run are needed as there can be parallel writes. If one of them meets an older entry, the run starts again behind it.

**Guarantees.** Once a writer has its run of fences, no entry of an older epoch appears behind the run, provided

* the numbers of the run were never used and deleted before: a fence in such a place stops no writer. The caller reads
  the manifest after fencing and starts over if the run is not above the last compacted entry (`endive.kv.log.opening`);
* fences that a writer may meet are not deleted, if it trusts its creates. One that stalled for long would otherwise
  find its number unused again, create the entry, and acknowledge a write that no process will ever read.

A writer learns that it was fenced when its own create meets a fence of a newer epoch, and not before.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from endive.errors import AttemptsExhaustedError, FencedError, InvariantError
from endive.protocol.requests import Get, List, Steps, ask, create
from endive.protocol.sequenced import number_of, numbered, numbers_in

ENTRIES_MAX = 100_000
"""Existing entries that a fence walks over. The walk begins at the end of a listing, so they are few."""
ROLE = "writer"


@dataclass(frozen=True)
class NumberedLog:
    """Where the entries of a log are, and how to read an entry's epoch."""

    prefix: str
    suffix: str
    epoch_of: Callable[[str, bytes], int]

    def path_of(self, number: int) -> str:
        """Return the path of an entry."""
        return numbered(self.prefix, number, self.suffix)

    def number_of(self, path: str) -> int | None:
        """Return the number of the entry at `path`; None if the path is not one of this log."""
        return number_of(path, self.prefix, self.suffix)


def contiguous_end(log: NumberedLog, after: int) -> Steps[int]:
    """Return the last entry of those that follow `after` without a gap; `after` itself if the next does not exist."""
    end, _ = yield from contiguous(log, after, 0)
    return end


def listed(log: NumberedLog, after: int) -> Steps[tuple[int, ...]]:
    """Return the numbers of the entries behind `after`, sorted."""
    listing = yield from ask(List(log.prefix, log.path_of(after)))
    return tuple(numbers_in(listing, log.prefix, log.suffix))


def contiguous_in(numbers: Sequence[int], after: int) -> int:
    """Return the last of the numbers that follow `after` without a gap; `after` itself if the next is missing."""
    end = after
    for number in numbers[bisect_right(numbers, after) :]:
        if number != end + 1:
            break
        end = number
    return end


def contiguous(log: NumberedLog, after: int, window: int) -> Steps[tuple[int, bool]]:
    """Return the same, and whether the entry behind it must have existed, and has vanished.

    With up to `window` writes in flight, an entry is created only if the one `window` before it exists. One further
    behind a gap is proof that the missing entry existed: it was deleted, and the manifest that recorded its compaction
    is not the newest one, or it was lost.
    """
    numbers = yield from listed(log, after)
    end = contiguous_in(numbers, after)
    return end, bool(numbers) and numbers[-1] > end + window


def fence(log: NumberedLog, start: int, epoch: int, count: int, body: bytes) -> Steps[int | None]:
    """Create `count` fences in a run, from `start` or later; return the number of the first.

    None: an object vanished on the way, so entries from here on have been deleted; read the manifest and start over.
    `FencedError`: a newer writer's entry was met. `InvariantError`: another writer has this very epoch.
    """
    first = number = start
    for _ in range(ENTRIES_MAX):
        if number == first + count:
            return first
        is_ours = yield from create(log.path_of(number), body)
        number += 1
        if is_ours:
            continue
        found = yield from ask(Get(log.path_of(number - 1)))
        if found is None:
            return None
        if found != body:  # our own fence, from before starting over, counts
            _require_older(log, number - 1, found, epoch)
            first = number
    raise AttemptsExhaustedError(log.prefix, ENTRIES_MAX)


def _require_older(log: NumberedLog, number: int, found: bytes, epoch: int) -> None:
    found_epoch = log.epoch_of(log.path_of(number), found)
    if found_epoch > epoch:
        raise FencedError(ROLE, epoch, found_epoch)
    if found_epoch == epoch:
        raise InvariantError("epochs are claimed once", f"{log.path_of(number)} has epoch {epoch}, but is not ours")
