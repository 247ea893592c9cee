"""Writer epochs: an exclusive writer has one for itself, shared writers write in one together.

A process that wants to write exclusively claims the next epoch and fences older writers as `endive.kv.log.opening`
does. Shared writers do the same and, when the fences stand, mark the epoch as *shared* in the manifest; from then on
any process may append in it, and joining writes nothing. A writer that meets a newer epoch's fence may go on: the
newest manifest says whether that epoch is shared.

**Why fences suffice.** A shared writer does not create an entry behind a newer epoch's fences: it would have to know
the entry of the first fence, and it reads the manifest after it has read entries, so that it knows the newer epoch,
too. A process that joins has read a manifest that says that the fences stand, and the WAL after that; entries
before the fences exist.
"""

from dataclasses import replace

from endive.errors import (
    AttemptsExhaustedError,
    ExclusiveWriterError,
    FencedError,
    OutcomeUnknownError,
    StoreNotFoundError,
)
from endive.kv.log.opening import open_writer
from endive.kv.log.state import StoreState, newest_state, refreshed, state_at
from endive.kv.manifest_format import MANIFESTS
from endive.protocol.fencing import ROLE
from endive.protocol.requests import NewId, Sleep, Steps, ask
from endive.protocol.sequenced import newest, update

REFRESHES_MAX = 20
"""How often to check whether an epoch has become shared, before giving up."""
REFRESH_PAUSE_MS = 250.0
CLAIM_PAUSE_MS = 1000.0
"""From one claim of an exclusive writer to the next, if other processes claimed epochs in between."""
CLAIMS_MAX = 10


def open_shared(
    create_store: bool = True, refreshes_max: int = REFRESHES_MAX, claims_max: int = CLAIMS_MAX
) -> Steps[StoreState]:
    """Return a state to write from. Claims an epoch if the newest one is not shared: exclusive writers are fenced.

    `StoreNotFoundError`: there is no store, and none is to be created. `ExclusiveWriterError`: other processes opened
    the store exclusively, again and again.
    """
    epoch = 0
    for _ in range(claims_max):
        state = yield from newest_state()
        if state is None and not create_store:
            raise StoreNotFoundError(MANIFESTS.prefix)
        if state is not None and state.is_writable:
            return state
        epoch = 0 if state is None else state.manifest.value.writer_epoch
        try:  # noqa: SIM105 - a context manager would be state that the explorer cannot see
            yield from claim_shared()
        except (AttemptsExhaustedError, FencedError, OutcomeUnknownError):
            pass  # another process claimed an epoch at the same time: perhaps it is shared
        state = yield from _shared_soon(epoch, refreshes_max)
        if state is not None:
            return state
    raise ExclusiveWriterError(ROLE, 0, epoch)


def open_exclusive(
    create_store: bool = True, parallel_writes: int = 1, claims_max: int = CLAIMS_MAX
) -> Steps[StoreState]:
    """Claim an epoch for this process alone; return a state to write from. All other writers are fenced.

    `StoreNotFoundError`: there is no store, and none is to be created. `ExclusiveWriterError`: other processes claimed
    a newer epoch, again and again.
    """
    if not create_store:
        manifest = yield from newest(MANIFESTS)
        if manifest is None:
            raise StoreNotFoundError(MANIFESTS.prefix)
    epoch = 0
    for attempt in range(claims_max):
        if attempt:  # if all that claim went on at once, none would get to its fences
            yield from ask(Sleep(CLAIM_PAUSE_MS))
        try:
            lease = yield from open_writer(parallel_writes, claims_max=1)
        except (AttemptsExhaustedError, FencedError, OutcomeUnknownError):
            continue
        epoch = lease.epoch
        state = yield from refreshed(state_at(lease.manifest, epoch))
        if state.is_writable:
            return state
    raise ExclusiveWriterError(ROLE, epoch, epoch + 1)


def share_epoch(epoch: int) -> Steps[None]:
    """Let other processes join an epoch that this process has had for itself, and in which it writes no more.

    All of its entries must be known to exist or not. `FencedError`: another process has claimed a newer epoch.
    """
    put_id = yield from ask(NewId())
    yield from update(MANIFESTS, lambda base: base.value.with_shared(put_id, epoch))


def claim_shared() -> Steps[None]:
    """Claim the next writer epoch and fence older writers; when the fences stand, mark it as shared.

    One attempt: many processes may start at once, and the others can join the first.
    """
    lease = yield from open_writer(claims_max=1)
    yield from share_epoch(lease.epoch)


def _shared_soon(epoch: int, refreshes_max: int) -> Steps[StoreState | None]:
    """Return a state to write from; None if no epoch after `epoch` was claimed, or none is shared for a while."""
    for attempt in range(refreshes_max):
        if attempt:
            yield from ask(Sleep(REFRESH_PAUSE_MS))
        state = yield from newest_state()
        if state is None or state.manifest.value.writer_epoch == epoch:
            return None
        if state.is_writable:
            return state
    return None


def reopen(state: StoreState, parallel_writes: int = 1, refreshes_max: int = REFRESHES_MAX) -> Steps[StoreState]:
    """Return a state to write from, for a writer that was fenced.

    It joins an epoch that is shared, also if it was exclusive: the process that claimed it wants to write, too, and
    would never get to if the epoch were claimed back at once. Where none is shared for a while, an exclusive writer
    claims another one. `ExclusiveWriterError`: the store has had another exclusive writer for a while, which a shared
    writer does not fence here.
    """
    was_exclusive = state.own_epoch != 0
    state = replace(state, own_epoch=0)
    for attempt in range(refreshes_max):
        if attempt:
            yield from ask(Sleep(REFRESH_PAUSE_MS))
        state = yield from refreshed(state)
        if state.is_writable:
            return state
    if was_exclusive:
        return (
            yield from open_exclusive(create_store=False, parallel_writes=parallel_writes, claims_max=refreshes_max)
        )
    raise ExclusiveWriterError(ROLE, state.manifest.value.shared_epoch, state.manifest.value.writer_epoch)
