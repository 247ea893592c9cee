"""The garbage collector deletes objects that no reader or writer needs. Any number may run at the same time.

**What is needed.** A manifest is *active* if it is the newest one, or if a checkpoint in the newest one names it.
Here it also is for a while after it was superseded, so that a scan without a checkpoint can finish. Needed are the
active manifests, the SSTs they name, and of the WAL: for the newest manifest all entries from the last compacted one
on, for others the entries between the last compacted and the last seen one.

**What can race.**

* *A checkpoint that expires while its owner refreshes it.* Expired checkpoints are first removed from the manifest, by
  the same conditional write as every change; a process that refreshes one is told that it is gone, or comes first. No
  clock decides.
* *Manifests that appear meanwhile.* Garbage stays garbage: a later manifest names SSTs of the earlier one or new ones,
  has checkpoints of active manifests only, and needs no more of the WAL.
* *An SST that no manifest names yet* is being written or garbage. Ids ascend in the order of publication, so one that
  is not above the newest manifest's `sst_id_last` was published or will never be.
* *A process that stalled* creates a manifest id again: the boundary, in `endive.protocol.sequenced`. It creates a WAL
  entry again: that entry had its own rows, which are in the levels, or was a fence, and fences stay.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from endive.errors import AttemptsExhaustedError, StoreNotFoundError
from endive.kv.log.wal import WAL, is_fence
from endive.kv.manifest import StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.reading import LEVELS_PREFIX, LEVELS_SUFFIX, sst_path
from endive.protocol.requests import GetAll, List, NewId, Now, ObjectInfo, Steps, ask
from endive.protocol.sequenced import Numbered, collect, delete_all, newest, numbers_in, update

RETENTION_MS = 15 * 60 * 1000
"""How long a superseded manifest stays active without a checkpoint. A scan that takes longer should make one."""
ROUNDS_MAX = 10


@dataclass(frozen=True)
class Collected:
    """Ids of the objects that one pass deleted."""

    manifests: tuple[int, ...] = ()
    wal_entries: tuple[int, ...] = ()
    ssts: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Needs:
    current: Numbered[StoreManifest]
    others: tuple[Numbered[StoreManifest], ...]
    listing: tuple[ObjectInfo, ...]


def collect_garbage(retention_ms: int = RETENTION_MS) -> Steps[Collected]:
    """Delete inactive manifests, WAL entries and SSTs. An object that another process deletes meanwhile is no error."""
    needs = yield from _needs(retention_ms)
    wal = yield from ask(List(WAL.prefix))
    entries = dispensable_entries(wal, needs.current.value, [other.value for other in needs.others])
    levels = yield from ask(List(LEVELS_PREFIX))
    used = needs.current.value.sst_ids().union(*(other.value.sst_ids() for other in needs.others))
    ids = numbers_in(levels, LEVELS_PREFIX, LEVELS_SUFFIX)
    ssts = tuple(sst for sst in ids if sst not in used and is_settled(sst, needs.current.value))
    kept = {needs.current.number, *(other.number for other in needs.others)}
    known = numbers_in(needs.listing, MANIFESTS.prefix, MANIFESTS.suffix)
    manifests = tuple(number for number in known if number < needs.current.number and number not in kept)
    yield from delete_all((*map(WAL.path_of, entries), *map(sst_path, ssts)))
    yield from collect(MANIFESTS, manifests)
    return Collected(manifests, entries, ssts)


def is_settled(sst_id: int, manifest: StoreManifest) -> bool:
    """Whether an SST that no manifest names will never be named by one."""
    return sst_id <= manifest.sst_id_last


def dispensable_entries(
    listing: Iterable[ObjectInfo], current: StoreManifest, others: Iterable[StoreManifest]
) -> tuple[int, ...]:
    """Return the WAL entries that no active manifest needs. Fences are never among them."""
    retained = [range(other.wal_id_last_compacted + 1, other.wal_id_last_seen + 1) for other in others]
    numbers = ((WAL.number_of(info.path), info) for info in listing)
    return tuple(
        number
        for number, info in numbers
        if number is not None
        and number < current.wal_id_last_compacted
        and not is_fence(info)
        and not any(number in held for held in retained)
    )


def _needs(retention_ms: int) -> Steps[_Needs]:
    """Return the active manifests, with expired checkpoints removed from the newest one."""
    put_id = yield from ask(NewId())
    for _ in range(ROUNDS_MAX):
        now_ms = yield from ask(Now())
        found = yield from newest(MANIFESTS)
        if found is None:
            raise StoreNotFoundError(MANIFESTS.prefix)
        current = yield from update(MANIFESTS, partial(_without_expired, put_id=put_id, now_unix_s=now_ms // 1000))
        listing = yield from ask(List(MANIFESTS.prefix))
        checkpointed = checkpointed_by(current.value, now_ms // 1000)
        wanted = tuple(sorted((checkpointed | _superseded_lately(listing, now_ms, retention_ms)) - {current.number}))
        bodies = yield from ask(GetAll(tuple(map(MANIFESTS.path_of, wanted))))
        if None in bodies:
            continue  # another garbage collector is active, with a newer manifest
        others = tuple(
            Numbered(number, MANIFESTS.decode(MANIFESTS.path_of(number), body))
            for number, body in zip(wanted, bodies, strict=True)
            if body is not None
        )
        return _Needs(current, others, listing)
    raise AttemptsExhaustedError(MANIFESTS.prefix, ROUNDS_MAX)


def checkpointed_by(manifest: StoreManifest, now_unix_s: int) -> set[int]:  # noqa: ARG001 - the time does not matter: see above
    """Return the manifests that checkpoints name. An expired checkpoint counts as long as it is in the manifest."""
    return {checkpoint.manifest_id for checkpoint in manifest.checkpoints}


def _without_expired(base: Numbered[StoreManifest], put_id: str, now_unix_s: int) -> StoreManifest:
    return base.value.without_expired(put_id, now_unix_s)


def _superseded_lately(listing: tuple[ObjectInfo, ...], now_ms: int, retention_ms: int) -> set[int]:
    """Return the manifests whose successor is not older than the retention, and those that have none."""
    numbers = numbers_in(listing, MANIFESTS.prefix, MANIFESTS.suffix)
    written = {info.path: info.modified_unix_ms for info in listing}
    return {
        number
        for number in numbers
        if MANIFESTS.path_of(number + 1) in written and written[MANIFESTS.path_of(number + 1)] + retention_ms > now_ms
    }
