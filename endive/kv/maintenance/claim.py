"""Maintenance by processes that share a store: one of them at a time, by a claim.

Processes that live for one commit have to compact the log and collect garbage between them, and ten that end at the
same moment should not all do the same work. A process therefore *claims* maintenance before it starts: it takes the
next compactor epoch and, in the same change of the manifest, adds a checkpoint named `endive:maintenance` that expires
after a lease. While there is such a checkpoint that has not expired, other processes leave maintenance to its owner.

**What can race.** Two processes claim at once: the claim is a conditional write, and the second sees the first one's. A
process crashes while it holds the claim: the lease expires, and the next process claims. A process that is only slow,
or whose clock is wrong, goes on after its lease: it has an older compactor epoch then, and cannot publish.

**Guarantees.** Only the owner of the newest compactor epoch publishes, whatever the clocks say; a claim only
saves work. The checkpoint keeps the files that a compaction reads for as long as the lease. An expiry further away than
any lease, from a clock that is far ahead, counts for nothing.

**Limits.** A merge of more than `merge_bytes_max` is left to a process that lives longer, or to an operator's
`endive kv compact`: a process that wants to end should not have to merge gigabytes first.
"""

from dataclasses import dataclass, replace
from functools import partial

from endive.errors import AttemptsExhaustedError, FencedError, OutcomeUnknownError, StoreNotFoundError
from endive.kv.maintenance.compactor import Compaction, compact_levels, compact_wal
from endive.kv.maintenance.garbage_collector import RETENTION_MS, Collected, collect_garbage
from endive.kv.manifest import RESERVED, Checkpoint, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.protocol.requests import NewId, Now, Steps, ask
from endive.protocol.sequenced import ATTEMPTS_MAX, Numbered, newest, propose, update

CLAIM = f"{RESERVED}maintenance"
"""Name of the checkpoint that is a claim."""
LEASE_S = 60
"""How long others leave maintenance to its owner. A pass over the WAL takes seconds."""
LEASE_MAX_S = 24 * 3600
"""A claim that expires later than this from now is from a clock that is wrong."""
MERGE_BYTES_MAX = 128 * 1024 * 1024
"""Size of the largest merge of a process that is about to end: a few seconds of work."""
PASSES_MAX = 20


@dataclass(frozen=True)
class Claim:
    """Maintenance is this process's own: its compactor epoch, and its checkpoint in the manifest."""

    epoch: int
    id: str
    expire_unix_s: int


@dataclass(frozen=True)
class Maintained:
    """Result of the maintenance of one process."""

    compactions: tuple[Compaction, ...] = ()
    collected: Collected | None = None
    """None: there was no time for it, or another process has taken maintenance over."""


def is_claimed(manifest: StoreManifest, now_unix_s: int, own: str = "") -> bool:
    """Whether another process has claimed maintenance, and may still be at it."""
    return any(
        each.name == CLAIM and each.id != own and now_unix_s <= each.expire_unix_s <= now_unix_s + LEASE_MAX_S
        for each in manifest.checkpoints
    )


def claim_maintenance(lease_s: int = LEASE_S, own: str = "", is_forced: bool = False) -> Steps[Claim | None]:
    """Claim maintenance. None: another process has it, or it is not known whether this one got it.

    `own`: the id of an earlier claim of this process, which the new one replaces. `is_forced`: take it from any other
    process, which learns so when it wants to publish.
    """
    put_id = yield from ask(NewId())
    for _ in range(ATTEMPTS_MAX):
        now_ms = yield from ask(Now())
        base = yield from newest(MANIFESTS)
        if base is None:
            raise StoreNotFoundError(MANIFESTS.prefix)
        if not is_forced and is_claimed(base.value, now_ms // 1000, own):
            return None
        checkpoint = Checkpoint(put_id, base.number + 1, now_ms // 1000 + lease_s, CLAIM)
        try:
            claimed = yield from propose(MANIFESTS, base, with_claim(base.value, checkpoint))
        except OutcomeUnknownError:
            return None
        if claimed is not None:
            return Claim(claimed.value.compactor_epoch, put_id, checkpoint.expire_unix_s)
    raise AttemptsExhaustedError(MANIFESTS.prefix, ATTEMPTS_MAX)


def with_claim(manifest: StoreManifest, claim: Checkpoint) -> StoreManifest:
    """Return the manifest with the next compactor epoch and this claim in the place of all others."""
    others = tuple(each for each in manifest.checkpoints if each.name != CLAIM)
    return replace(manifest.with_compactor(claim.id), checkpoints=(*others, claim))


def release_maintenance(claim: Claim) -> Steps[None]:
    """Let other processes claim maintenance. Idempotent."""
    put_id = yield from ask(NewId())
    yield from update(MANIFESTS, partial(_without_claim, put_id=put_id, claim_id=claim.id))


def _without_claim(base: Numbered[StoreManifest], put_id: str, claim_id: str) -> StoreManifest:
    return base.value.without_checkpoints(put_id, frozenset((claim_id,)))


def maintain(
    budget_ms: float,
    lease_s: int = LEASE_S,
    retention_ms: int = RETENTION_MS,
    merge_bytes_max: int = MERGE_BYTES_MAX,
) -> Steps[Maintained | None]:
    """Do a process's share: compact the WAL, merge levels, collect garbage. None: another process does.

    No pass is started after `budget_ms`. A process may stop at any request; another one goes on when the lease has
    expired.
    """
    claim = yield from claim_maintenance(lease_s)
    if claim is None:
        return None
    started_ms = yield from ask(Now())
    try:
        done = yield from _maintain(claim, started_ms + budget_ms, retention_ms, merge_bytes_max)
    except FencedError:
        return Maintained()  # another process has taken maintenance over
    yield from release_maintenance(claim)
    return done


def _maintain(claim: Claim, end_ms: float, retention_ms: int, merge_bytes_max: int) -> Steps[Maintained]:
    done: tuple[Compaction, ...] = ()
    compacted = yield from compact_wal(claim.epoch)
    for _ in range(PASSES_MAX):
        done = done if compacted is None else (*done, compacted)
        now_ms = yield from ask(Now())
        if now_ms >= end_ms:
            return Maintained(done)
        compacted = yield from compact_levels(claim.epoch, bytes_max=merge_bytes_max)
        if compacted is None:
            break
    collected = yield from collect_garbage(retention_ms)
    return Maintained(done, collected)
