"""Opening the store for writing: claim an epoch, fence older writers, learn what the WAL holds.

**What can race.** Two writers open at the same time; an older writer is still at work; a compactor and a collector move
the beginning of the WAL meanwhile.

**What is promised.** When `open_writer` returns, no WAL object of an older epoch appears at `next_slot` or behind it,
and every write that any older writer acknowledged is in the levels or in the slots before `next_slot`.

The order of the steps carries the promise:

1. Read the newest manifest, *then* list the WAL, *then* claim the next epoch by creating the next manifest. Whoever
   claims a later epoch fences later, so its fences are not before the end that was listed here: this writer walks
   into them and stops. Were the WAL listed after the claim, this writer could start behind a newer one's fences. The
   claim fails if the manifest has moved, so the listing agrees with the manifest it is built on.
2. Fence: `endive.protocol.fencing`.
3. Read the newest manifest again. If the epoch is not ours any more, stop. If slots from the first fence on have been
   compacted, they were filled before, and the fence fences nobody: fence again, from where the WAL begins now.
"""

from dataclasses import dataclass

from endive.errors import AttemptsExhaustedError, FencedError, MissingObjectError, OutcomeUnknownError
from endive.kv.log.wal import WAL, slots_between
from endive.kv.manifest import Checkpoint, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.format import Rows, decode_sst, encode_fence
from endive.protocol.fencing import ROLE, contiguous, fence
from endive.protocol.requests import GetAll, NewId, Now, Steps, ask
from endive.protocol.sequenced import ATTEMPTS_MAX, Numbered, newest, newest_for_certain, propose

PIN_S = 120
"""How long the manifest on which a writer opens is pinned: replaying the WAL takes seconds."""
REPLAYED_AT_ONCE = 64
"""WAL objects that are asked for together."""


@dataclass(frozen=True)
class Lease:
    """What an open writer holds: its epoch, the next slot, and the manifest as it was when the fences stood."""

    epoch: int
    next_slot: int
    manifest: Numbered[StoreManifest]


@dataclass(frozen=True)
class Group:
    """The rows of one WAL slot; they became durable together."""

    slot: int
    rows: Rows


def open_writer(parallel_writes: int = 1, claims_max: int = ATTEMPTS_MAX) -> Steps[Lease]:
    """Claim the next writer epoch and fence all older writers. `FencedError`: a newer one came first.

    `AttemptsExhaustedError`: others have changed the manifest each time; no epoch was claimed.
    """
    claimed, end = yield from _claim(parallel_writes, claims_max)
    epoch = claimed.value.writer_epoch
    body = encode_fence(epoch, claimed.value.put_id)
    for _ in range(ATTEMPTS_MAX):
        first = yield from fence(WAL, end + 1, epoch, claimed.value.max_parallel_writes, body)
        manifest = yield from require_newest()
        if manifest.value.writer_epoch != epoch:
            raise FencedError(ROLE, epoch, manifest.value.writer_epoch)
        if first is not None and first > manifest.value.wal_id_last_compacted:
            return Lease(epoch, first + claimed.value.max_parallel_writes, manifest)
        end = manifest.value.wal_id_last_compacted
    raise AttemptsExhaustedError(WAL.prefix, ATTEMPTS_MAX)


def _claim(parallel_writes: int, claims_max: int) -> Steps[tuple[Numbered[StoreManifest], int]]:
    """Claim the next epoch; return the manifest that does, and the end of the WAL as listed before."""
    now_ms = yield from ask(Now())
    for _ in range(claims_max):
        put_id = yield from ask(NewId())
        base = yield from newest(MANIFESTS)
        before = StoreManifest("") if base is None else base.value
        end, has_vanished = yield from contiguous(WAL, before.wal_id_last_compacted, before.max_parallel_writes)
        number = 1 if base is None else base.number + 1
        is_headless = base is None and end > 0
        if has_vanished or is_headless:
            again = yield from newest_for_certain(MANIFESTS)
            if again is None or again.number < number:
                # A fence in its place would hide what is behind it; a first manifest, everything there is.
                raise MissingObjectError(MANIFESTS.path_of(1) if base is None else WAL.path_of(end + 1))
            continue
        pin = Checkpoint(put_id, number, now_ms // 1000 + PIN_S, "opening")
        try:
            claimed = yield from propose(MANIFESTS, base, before.with_writer(put_id, parallel_writes, pin))
        except OutcomeUnknownError:
            # If that claim counted, the next one fences it like any other. If its id was spent: was the newest lost?
            yield from newest_for_certain(MANIFESTS)
            continue
        if claimed is not None:
            return claimed, end
    raise AttemptsExhaustedError(MANIFESTS.prefix, claims_max)


def require_newest() -> Steps[Numbered[StoreManifest]]:
    """Return the newest manifest of a store that exists."""
    manifest = yield from newest(MANIFESTS)
    if manifest is None:
        raise MissingObjectError(MANIFESTS.prefix)
    return manifest


def replay(after: int, end: int) -> Steps[tuple[Group, ...] | None]:
    """Return the groups in the slots after `after`, up to `end`. None: a slot is missing; read the manifest again."""
    groups: tuple[Group, ...] = ()
    for start in range(after, end, REPLAYED_AT_ONCE):
        paths = slots_between(start, min(start + REPLAYED_AT_ONCE, end))
        bodies = yield from ask(GetAll(paths))
        if None in bodies:
            return None
        groups += tuple(
            Group(start + 1 + place, decode_sst(path, body)[1])
            for place, (path, body) in enumerate(zip(paths, bodies, strict=True))
            if body is not None
        )
    return groups


def replay_writer(lease: Lease) -> Steps[tuple[Numbered[StoreManifest], tuple[Group, ...]]]:
    """Return what an open writer must know of the WAL: a manifest, and the groups that are not in its levels."""
    manifest = lease.manifest
    for _ in range(ATTEMPTS_MAX):
        groups = yield from replay(manifest.value.wal_id_last_compacted, lease.next_slot - 1)
        if groups is not None:
            return manifest, groups
        again = yield from require_newest()
        if again.number == manifest.number:
            raise MissingObjectError(WAL.prefix)
        manifest = again
        if manifest.value.writer_epoch != lease.epoch:
            raise FencedError(ROLE, lease.epoch, manifest.value.writer_epoch)
    raise AttemptsExhaustedError(WAL.prefix, ATTEMPTS_MAX)
