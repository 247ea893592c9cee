"""The garbage collector deletes objects that no reader or writer needs. Any number may run at the same time.

**Active files.** A manifest is *active* if it is the newest one, or if a checkpoint in the newest one names it.
Here it also is for a while after it was superseded, so that a scan without a checkpoint can finish. Needed are the
active manifests, the SSTs they name, and of the WAL: for the newest manifest all entries from the last compacted one
on, for others the entries between the last compacted and the last seen one.

**What can race.**

* *A checkpoint that expires while its owner refreshes it.* Expired checkpoints are first removed from the manifest, by
  the same conditional write as every change; a process that refreshes one comes first, or gets an error because it
  is gone. No clock decides.
* *Manifests that appear meanwhile.* Garbage stays garbage: a later manifest names SSTs of the earlier one or new ones,
  has checkpoints of active manifests only, and needs no more of the WAL.
* *An SST that no manifest names yet* is being written or garbage. Ids ascend in the order of publication, so one that
  is not above the newest manifest's `sst_id_last` was published or will never be.
* *A clone that needs no file of its parent any more* (`endive.kv.clone`): it deletes its checkpoint there first, then
  the parent from its manifest. No later manifest of the clone needs such a file again, since garbage stays garbage.
* *Objects that are not the store's* are deleted after a day, so that a copy or an upload in progress is left alone.
  Nothing of the store depends on that day: its own objects are recognised by their names.
* *A process that stalled* creates a manifest id again: the boundary, in `endive.protocol.sequenced`. It creates a WAL
  entry again: that entry had its own rows, which are in the levels, or was a fence, and fences stay.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from endive.errors import AttemptsExhaustedError, StoreNotFoundError
from endive.kv.log.intentions import PREFIX as INTENTIONS
from endive.kv.log.wal import WAL, is_fence
from endive.kv.manifest import Parent, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.reading import LEVELS_PREFIX, LEVELS_SUFFIX, sst_path
from endive.kv.views import delete_checkpoint
from endive.protocol.requests import GetAll, List, NewId, Now, ObjectInfo, Steps, ask, elsewhere
from endive.protocol.sequenced import Numbered, collect, delete_all, newest, number_of, numbers_in, update
from endive.protocol.two_phase import MARKER, destination_of

RETENTION_MS = 15 * 60 * 1000
"""How long a superseded manifest stays active without a checkpoint. A scan that takes longer should make one."""
ROUNDS_MAX = 10


FOREIGN_AGE_MS = 24 * 3600 * 1000
"""Objects that are not the store's own are deleted from its directories when they are older than this."""


@dataclass(frozen=True)
class Collected:
    """Ids of the objects that one pass deleted, and paths of foreign ones."""

    manifests: tuple[int, ...] = ()
    wal_entries: tuple[int, ...] = ()
    ssts: tuple[int, ...] = ()
    foreign: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Needs:
    current: Numbered[StoreManifest]
    others: tuple[Numbered[StoreManifest], ...]
    listing: tuple[ObjectInfo, ...]
    now_ms: int


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
    foreign = foreign_in((*needs.listing, *wal, *levels), needs.now_ms)
    yield from delete_all((*map(WAL.path_of, entries), *map(sst_path, ssts), *foreign))
    yield from collect(MANIFESTS, manifests)
    unused = unused_parents(needs.current.value, [other.value for other in needs.others])
    if unused:
        yield from release_parents(unused)
        put_id = yield from ask(NewId())
        yield from update(MANIFESTS, partial(_without_parents, put_id=put_id, parents=unused))
    return Collected(manifests, entries, ssts, foreign)


def foreign_in(listing: Iterable[ObjectInfo], now_ms: int) -> tuple[str, ...]:
    """Return the old objects in a listing of the store's directories that no version of Endive has put there."""
    return tuple(info.path for info in listing if info.modified_unix_ms + FOREIGN_AGE_MS < now_ms and _is_foreign(info))


def _is_foreign(info: ObjectInfo) -> bool:
    """Whether an object is none of a store's. Temporary ones of two-phase create are for its recovery to judge."""
    path = info.path
    kinds = (MANIFESTS.number_of(path), WAL.number_of(path), number_of(path, LEVELS_PREFIX, LEVELS_SUFFIX))
    is_numbered = any(number is not None for number in kinds)
    return not (is_numbered or path.startswith((MARKER, INTENTIONS)) or destination_of(path) is not None)


def unused_parents(current: StoreManifest, others: Iterable[StoreManifest]) -> tuple[Parent, ...]:
    """Return the stores that this one was cloned from, and none of whose files any active manifest needs."""
    used = {sst.store for manifest in (current, *others) for run in manifest.runs for sst in run.ssts if sst.store}
    return tuple(parent for parent in current.parents if parent.url not in used)


def release_parents(parents: tuple[Parent, ...]) -> Steps[None]:
    """Delete the checkpoints of this store in stores whose files it needs no more. Idempotent."""
    for number in range(len(parents)):
        try:  # noqa: SIM105 - a context manager would be state that the explorer cannot see
            yield from elsewhere(parents[number].url, delete_checkpoint(parents[number].checkpoint_id))
        except StoreNotFoundError:
            pass  # the store was deleted with all of its checkpoints


def _without_parents(base: Numbered[StoreManifest], put_id: str, parents: tuple[Parent, ...]) -> StoreManifest:
    return base.value.without_parents(put_id, parents)


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
        return _Needs(current, others, listing, now_ms)
    raise AttemptsExhaustedError(MANIFESTS.prefix, ROUNDS_MAX)


def checkpointed_by(manifest: StoreManifest, now_unix_s: int) -> set[int]:  # noqa: ARG001 - a mutant in its place uses the time
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
