"""Opening the store for writing: claim an epoch and fence older writers.

**What can race.** Two writers open at the same time; an older writer is still writing; a compactor and a garbage
collector move the beginning of the WAL meanwhile.

**Guarantees.** When `open_writer` returns, no WAL entry of an older epoch appears at `next_entry` or behind it,
and every write that any older writer acknowledged is in the levels or in the entries before `next_entry`.

The order of the steps carries the promise:

1. Read the newest manifest, *then* list the WAL, *then* claim the next epoch by creating the next manifest. A writer
   that claims a later epoch fences later, so its fences are not before the end that was listed here: this writer walks
   into them and stops. Were the WAL listed after the claim, this writer could start behind a newer one's fences. The
   claim fails if the manifest has moved, so the listing agrees with the manifest it is built on.
2. Fence: `endive.protocol.fencing`.
3. Read the newest manifest again. If the epoch is not ours any more, stop. If entries from the first fence on have been
   compacted, they existed before, and the fence is in the place of a deleted entry: fence again, from where the
   WAL begins now.

**Fences that need not be kept.** A fence is kept for ever because an exclusive writer that stalled trusts a create that
succeeds (decision 21). Shared writers do not: they look at the manifest afterwards. So a fence behind an epoch that was
shared when the next one was claimed may be deleted with other entries. Exclusive writers of still older epochs are
stopped by the fences of the first epoch after their own. A writer that closes in good order, with all of its entries
known, shares its epoch (`endive.kv.log.epochs.share_epoch`), so only crashed exclusive writers leave fences for ever.
"""

from dataclasses import dataclass

from endive.errors import AttemptsExhaustedError, FencedError, MissingObjectError, OutcomeUnknownError
from endive.kv.log.wal import WAL
from endive.kv.manifest import Checkpoint, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.format import encode_fence
from endive.protocol.fencing import ROLE, contiguous, fence
from endive.protocol.requests import NewId, Now, Steps, ask
from endive.protocol.sequenced import ATTEMPTS_MAX, Numbered, newest, newest_for_certain, propose

CHECKPOINT_S = 120
"""Lifetime of the checkpoint of the manifest on which a writer opens: replaying the WAL takes seconds."""


@dataclass(frozen=True)
class Lease:
    """An open writer's epoch, the number of its first WAL entry, and the manifest when the fences stood."""

    epoch: int
    next_entry: int
    manifest: Numbered[StoreManifest]


def open_writer(parallel_writes: int = 1, claims_max: int = ATTEMPTS_MAX) -> Steps[Lease]:
    """Claim the next writer epoch and fence all older writers. `FencedError`: a newer one came first.

    `AttemptsExhaustedError`: other processes have changed the manifest each time; no epoch was claimed.
    """
    claimed, end, is_kept = yield from _claim(parallel_writes, claims_max)
    epoch = claimed.value.writer_epoch
    body = encode_fence(epoch, claimed.value.put_id, is_kept)
    for _ in range(ATTEMPTS_MAX):
        first = yield from fence(WAL, end + 1, epoch, claimed.value.max_parallel_writes, body)
        manifest = yield from require_newest()
        if manifest.value.writer_epoch != epoch:
            raise FencedError(ROLE, epoch, manifest.value.writer_epoch)
        if first is not None and first > manifest.value.wal_id_last_compacted:
            return Lease(epoch, first + claimed.value.max_parallel_writes, manifest)
        end = manifest.value.wal_id_last_compacted
    raise AttemptsExhaustedError(WAL.prefix, ATTEMPTS_MAX)


def _claim(parallel_writes: int, claims_max: int) -> Steps[tuple[Numbered[StoreManifest], int, bool]]:
    """Claim the next epoch; return the manifest that does, the WAL's end as listed before, and the kind of fence."""
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
                # A fence in its place would hide the entries behind it; a first manifest would hide the whole store.
                raise MissingObjectError(MANIFESTS.path_of(1) if base is None else WAL.path_of(end + 1))
            continue
        checkpoint = Checkpoint(put_id, number, now_ms // 1000 + CHECKPOINT_S, "opening")
        try:
            claimed = yield from propose(MANIFESTS, base, before.with_writer(put_id, parallel_writes, checkpoint))
        except OutcomeUnknownError:
            # If that claim counted, the next one fences it like any other. If its id was spent: was the newest lost?
            yield from newest_for_certain(MANIFESTS)
            continue
        if claimed is not None:
            return claimed, end, must_be_kept(before)
    raise AttemptsExhaustedError(MANIFESTS.prefix, claims_max)


def must_be_kept(before: StoreManifest) -> bool:
    """Whether the fences of the next epoch must be kept for ever: an exclusive writer may still want their places."""
    return not before.is_joinable


def require_newest() -> Steps[Numbered[StoreManifest]]:
    """Return the newest manifest of a store that exists."""
    manifest = yield from newest(MANIFESTS)
    if manifest is None:
        raise MissingObjectError(MANIFESTS.prefix)
    return manifest
