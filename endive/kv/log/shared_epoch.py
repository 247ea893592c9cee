"""Several processes write: members of one writer epoch, each appending to the next WAL slot.

A *member* holds a state: a manifest, and the rows of all WAL slots after the last compacted one, up to slot N-1. It
computes its rows from that state and creates slot N. Whoever wins has committed on top of everything before; whoever
loses reads what the others wrote and computes anew. Nothing is written to join: an epoch that is *shared* may be used
by anybody. A process that finds an epoch that is not claims the next one, fences older writers as
`endive.kv.log.opening` does, and only when the fences stand marks the epoch as shared, in the manifest.

**What can race.** Two members create the same slot: the object store lets one win. A member stalls while others fill
its slot, compact it and collect it: its create succeeds, in a part of the log that nobody reads any more. Such an
object is a *ghost*. Others that are as far behind may read the ghost. An exclusive writer opens the store meanwhile.

**What is promised.** A state holds exactly what the log holds up to its end, and a commit is acknowledged if and only
if its slot is part of the log. For slot N, call *filled* the first create of it that succeeded, and let M(N) be the
first manifest whose last compacted slot is N or later.

1. A slot is deleted only by a collector that has read a manifest with a later last compacted slot. So M(N) was there
   before N was deleted. The last compacted slot only grows from manifest to manifest, and the newest manifest is
   never deleted, so whoever looks for newer manifests after the deletion finds one with at least N.
2. *Reading.* A member reads slots and then looks for a newer manifest. If none has compacted the slots it read, none
   of them had been deleted before it read them, and what it read is what the log holds. Otherwise it starts over from
   the newer manifest. The same look makes a read fresh: it has everything that was durable before it began.
3. *Creating.* A member wins slot N, and then looks for a newer manifest. If none has compacted N, then N was not
   deleted before the create, so the create filled it. If one has, either the create filled N and a compactor was
   quick, or N was filled by somebody else and the create made a ghost. The manifest tells: it remembers the put ids
   of the slots compacted last (`StoreManifest.wal_put_ids`), as the compactor read them. A compactor does not read
   ghosts: it reads slots behind the last compacted one, and publishes only if no other compactor has moved that
   meanwhile. Where the slot is too far back to be remembered, the outcome is unknown, and is said to be.
4. *Fences.* A member does not create behind a newer epoch's fences: it would have to know the slot of the first
   fence, and it reads the manifest after it has read slots, so that it knows the newer epoch too. A process that
   joins has read a manifest that says that the fences stand, and the WAL after that; slots before the fences are
   filled.

A fence that is met is no reason to give up: the newest manifest says whether the newer epoch is shared, too. If an
exclusive writer has it, a member waits a while for the epoch to be shared again, then says so.

**A member on its own.** A process may keep the epoch that it has claimed (`MemberState.own_epoch`). Nobody joins it
then, and rule 3 becomes shorter: a create that wins slot N has filled it, and no look follows. N lies behind this
epoch's fences, so nobody else filled it before a newer epoch was claimed. Whoever claims one fences the first open slot
from there on: that is N, or N was filled by us before. The fence is never deleted (decision 21), and in its place the
create would not have won. If N was filled by us and the answer was lost, N may be collected like any other slot: after
an unknown outcome the epoch is given up, and another one claimed before the next create; its fence is in N or behind.

A process that wants to write meanwhile claims an epoch; the one before meets its fence, has written nothing, and goes
on as a member of the new epoch if that is shared. One write at a time is essential: a slot that was computed from one
under way would stay in the log if a fence took the other's place.

**What is left out.** Fairness: a member that has just won knows the end of the log without reading, and is likely to
win again. `endive.kv.turns` lets it wait for others now and then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from endive.errors import (
    AttemptsExhaustedError,
    EndiveError,
    ExclusiveWriterError,
    FencedError,
    InvariantError,
    MissingObjectError,
    OutcomeUnknownError,
    StoreNotFoundError,
)
from endive.kv.log.opening import Group, open_writer, replay
from endive.kv.log.recent import Recent
from endive.kv.log.wal import WAL, slots_between
from endive.kv.manifest import StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.format import Rows, decode_sst, encode_sst
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import Outcome, TransactionFunction, run_functions
from endive.kv.views import newer_than
from endive.protocol.fencing import contiguous_end
from endive.protocol.requests import GetAll, NewId, Sleep, Steps, ask, create
from endive.protocol.sequenced import ATTEMPTS_MAX, Numbered, newest, update

ROLE = "member"
ROUNDS_MAX = 100
LOOKS_MAX = 20
"""How often to look whether an epoch has become one to join, before giving up."""
LOOK_PAUSE_MS = 250.0
CLAIM_PAUSE_MS = 1000.0
"""From one claim for oneself to the next, if others came in between."""
CLAIMS_MAX = 10
READ_AHEAD = 2
"""Slots that a member asks for together when it has lost one: usually it is one or two behind."""


@dataclass(frozen=True)
class MemberState:
    """What a member knows: a manifest, and all rows of the WAL after it, up to a slot. True of that slot for ever."""

    manifest: Numbered[StoreManifest]
    wal_end: int
    """The last slot of which the rows are known."""
    row_seq_last: int
    recent: Recent = field(default_factory=Recent)
    own_epoch: int = 0
    """The epoch that this process keeps to itself; 0: it writes in one that is shared."""

    @property
    def is_joined(self) -> bool:
        """Whether the epoch is one to write in."""
        newest = self.manifest.value
        return newest.writer_epoch == self.own_epoch if self.own_epoch else newest.is_joinable

    def with_groups(self, groups: Sequence[Group]) -> "MemberState":
        """Return the state after the next slots."""
        state = self
        for group in groups:
            recent = state.recent
            if group.rows.keys:
                recent = recent.with_group(group, state.manifest.value.wal_id_last_compacted)
            seq = max([state.row_seq_last, *group.rows.seqs])
            state = replace(state, wal_end=group.slot, row_seq_last=seq, recent=recent)
        return state

    def with_manifest(self, newer: Numbered[StoreManifest]) -> "MemberState":
        """Return the state with a newer manifest that has compacted nothing that is not known."""
        recent = self.recent.without(newer.value.wal_id_last_compacted)
        return replace(self, manifest=newer, recent=recent)


def state_at(manifest: Numbered[StoreManifest], own_epoch: int = 0) -> MemberState:
    """Return the state of a manifest without any of the WAL behind it."""
    newest = manifest.value
    return MemberState(manifest, newest.wal_id_last_compacted, newest.row_seq_last_compacted, own_epoch=own_epoch)


@dataclass(frozen=True)
class Committed:
    """What became of a group: the state after it, and each work's outcome."""

    state: MemberState
    outcomes: tuple[Outcome, ...]
    slot: int = 0
    """Where its rows are; 0 if it had none."""
    losses: int = 0
    """Races that were lost on the way."""


# Joining.


def join_shared(
    create_store: bool = True, looks_max: int = LOOKS_MAX, claims_max: int = CLAIMS_MAX
) -> Steps[MemberState]:
    """Return a state to write from. Claims an epoch if the newest one is not shared: exclusive writers are fenced.

    `StoreNotFoundError`: there is no store, and none is to be created. `ExclusiveWriterError`: others opened the store
    for themselves, again and again.
    """
    epoch = 0
    for _ in range(claims_max):
        state = yield from newest_state()
        if state is None and not create_store:
            raise StoreNotFoundError(MANIFESTS.prefix)
        if state is not None and state.is_joined:
            return state
        epoch = 0 if state is None else state.manifest.value.writer_epoch
        try:  # noqa: SIM105 - a context manager would be state that the explorer cannot see
            yield from claim_shared()
        except (AttemptsExhaustedError, FencedError, OutcomeUnknownError):
            pass  # others were at it: perhaps they share what they have claimed
        state = yield from _joinable_soon(epoch, looks_max)
        if state is not None:
            return state
    raise ExclusiveWriterError(ROLE, 0, epoch)


def join_alone(create_store: bool = True, claims_max: int = CLAIMS_MAX) -> Steps[MemberState]:
    """Claim an epoch and keep it; return a state to write from. Everybody else is fenced.

    `StoreNotFoundError`: there is no store, and none is to be created. `ExclusiveWriterError`: others claimed a newer
    epoch, again and again.
    """
    if not create_store:
        manifest = yield from newest(MANIFESTS)
        if manifest is None:
            raise StoreNotFoundError(MANIFESTS.prefix)
    epoch = 0
    for attempt in range(claims_max):
        if attempt:  # others were at it: were all to go on at once, none would get to its fences
            yield from ask(Sleep(CLAIM_PAUSE_MS))
        try:
            lease = yield from open_writer(claims_max=1)
        except (AttemptsExhaustedError, FencedError, OutcomeUnknownError):
            continue
        epoch = lease.epoch
        state = yield from catch_up(state_at(lease.manifest, epoch))
        if state.is_joined:
            return state
    raise ExclusiveWriterError(ROLE, epoch, epoch + 1)


def claim_shared() -> Steps[None]:
    """Claim the next writer epoch and fence older writers; when the fences stand, let others join.

    One try: many processes may start at once, and the others can join who is first.
    """
    lease = yield from open_writer(claims_max=1)
    put_id = yield from ask(NewId())
    yield from update(MANIFESTS, lambda base: base.value.with_shared(put_id, lease.epoch))


def _joinable_soon(epoch: int, looks_max: int) -> Steps[MemberState | None]:
    """Return a state to write from; None if there is none for a while, or nobody has claimed an epoch after `epoch`."""
    for look in range(looks_max):
        if look:
            yield from ask(Sleep(LOOK_PAUSE_MS))
        state = yield from newest_state()
        if state is None or state.manifest.value.writer_epoch == epoch:
            return None
        if state.is_joined:
            return state
    return None


def newest_state() -> Steps[MemberState | None]:
    """Return the newest state; None if there is no store."""
    manifest = yield from newest(MANIFESTS)
    if manifest is None:
        return None
    return (yield from catch_up(state_at(manifest)))


def rejoin(state: MemberState, looks_max: int = LOOKS_MAX) -> Steps[MemberState]:
    """Return a state to write from, for a member that was fenced.

    It joins an epoch that is shared, also if it had one of its own: who claimed it wants to write, too, and would never
    get a turn if it were claimed back at once. Where none is shared for a while, who had an epoch of its own claims
    another one. `ExclusiveWriterError`: the store has been somebody's own for a while; others are not fenced.
    """
    was_alone = state.own_epoch != 0
    state = replace(state, own_epoch=0)
    for look in range(looks_max):
        if look:
            yield from ask(Sleep(LOOK_PAUSE_MS))
        state = yield from catch_up(state)
        if state.is_joined:
            return state
    if was_alone:
        return (yield from join_alone(create_store=False, claims_max=looks_max))
    raise ExclusiveWriterError(ROLE, state.manifest.value.shared_epoch, state.manifest.value.writer_epoch)


# Reading.


def catch_up(state: MemberState, is_behind: bool = False) -> Steps[MemberState]:
    """Return the newest state: it has everything that was durable when this was called.

    `is_behind`: somebody has filled the next slot, so a few slots are asked for at once instead of listed first.
    """
    for _ in range(ROUNDS_MAX):
        groups: tuple[Group, ...] | None = ()
        if is_behind:
            groups = yield from _next_groups(state.wal_end)
        if not groups or len(groups) == READ_AHEAD:
            end = yield from contiguous_end(WAL, state.wal_end)
            groups = yield from replay(state.wal_end, end)
        is_behind = False
        newer = yield from newer_than(state.manifest)
        if newer is not None and newer.value.wal_id_last_compacted > state.wal_end:
            # What was read may be ghosts, and what is missing may have been collected.
            state = state_at(newer, state.own_epoch)
            continue
        if groups is None:
            raise MissingObjectError(WAL.path_of(state.wal_end + 1))
        caught_up = state.with_groups(groups)
        if newer is None:
            return caught_up
        was_shared = newer.value.shared_epoch == state.manifest.value.shared_epoch
        state = caught_up.with_manifest(newer)
        if was_shared:
            return state
        # The fences of that epoch may have come after the listing: look again, so that the state includes them.
    raise AttemptsExhaustedError(WAL.prefix, ROUNDS_MAX)


def _next_groups(after: int) -> Steps[tuple[Group, ...]]:
    """Return the groups of the slots after `after`, up to the first that is open; no more than a few."""
    paths = slots_between(after, after + READ_AHEAD)
    bodies = yield from ask(GetAll(paths))
    groups: tuple[Group, ...] = ()
    for path, body in zip(paths, bodies, strict=True):
        if body is None:
            break
        groups = (*groups, Group(after + 1 + len(groups), decode_sst(path, body)[1]))
    return groups


# Writing.


def commit_group(
    state: MemberState, works: Sequence[TransactionFunction[Any]], cache: TableCache, looks_max: int = LOOKS_MAX
) -> Steps[Committed]:
    """Run works on the newest state and make what they put durable in one slot.

    Errors of single works are in their outcomes. `OutcomeUnknownError`: whether the group is durable is not known; a
    state with an epoch of its own must not be used again. Any other error: nothing was written.
    """
    works = tuple(works)
    is_fresh = False
    for losses in range(ATTEMPTS_MAX):
        if not state.is_joined:
            state = yield from rejoin(state, looks_max)
            is_fresh = True
        try:
            outcomes, rows = yield from run_functions(works, state.manifest.value.runs, state.recent, cache)
        except MissingObjectError as error:
            state = yield from _after_missing(state, error)
            is_fresh = True
            continue
        if rows:
            ended, committed = yield from _commit(state, rows)
            if committed:
                return Committed(ended, outcomes, state.wal_end + 1, losses)
        else:
            if is_fresh:
                return Committed(state, outcomes, 0, losses)
            ended = yield from catch_up(state)
            if ended.wal_end == state.wal_end:
                return Committed(ended, outcomes, 0, losses)
        state = ended
        is_fresh = True
    raise AttemptsExhaustedError(WAL.prefix, ATTEMPTS_MAX)


def _after_missing(state: MemberState, error: MissingObjectError) -> Steps[MemberState]:
    """Return a newer state, if files of this one were collected; if there is none, they are lost."""
    newer = yield from catch_up(state)
    if newer.manifest.number == state.manifest.number:
        raise MissingObjectError(error.path)
    return newer


def _commit(state: MemberState, rows: dict[bytes, bytes | None]) -> Steps[tuple[MemberState, bool]]:
    """Write rows to the next slot. Return the state after it and True; False and a newer one: others were faster."""
    put_id = yield from ask(NewId())
    group = Group(state.wal_end + 1, _numbered(rows, state.row_seq_last))
    path = WAL.path_of(group.slot)
    body = encode_sst(group.rows, state.manifest.value.writer_epoch, put_id)
    try:
        is_ours = yield from create(path, body)
    except OutcomeUnknownError:
        is_ours = None
    if is_ours is False:
        newer = yield from catch_up(state, is_behind=True)
        if newer.wal_end == state.wal_end:
            raise InvariantError("a slot that is taken can be read", path)
        # The object may be a ghost in the place of ours, which was created unnoticed, compacted and collected.
        return newer, newer.manifest.value.filled_by(group.slot) == put_id
    if is_ours and state.own_epoch:
        return state.with_groups((group,)), True
    try:
        ended = yield from _settle(state, group, put_id, is_ours is True)
    except EndiveError as error:  # the object may be there, so no other error will do
        raise OutcomeUnknownError(path) from error
    return ended


def _settle(state: MemberState, group: Group, put_id: str, is_ours: bool) -> Steps[tuple[MemberState, bool]]:
    """Return what became of a slot that was created, or may have been."""
    newer = yield from newer_than(state.manifest)
    if newer is None or newer.value.wal_id_last_compacted < group.slot:
        if not is_ours:
            raise OutcomeUnknownError(WAL.path_of(group.slot))
        ended = state.with_groups((group,))
        return (ended if newer is None else ended.with_manifest(newer)), True
    filled_by = newer.value.filled_by(group.slot)
    if filled_by is None:
        raise OutcomeUnknownError(WAL.path_of(group.slot))
    caught_up = yield from catch_up(state)
    return caught_up, filled_by == put_id


def _numbered(rows: dict[bytes, bytes | None], seq_last: int) -> Rows:
    """Return rows in key order, with the sequence numbers that follow."""
    keys = sorted(rows)
    return Rows(keys, [rows[key] for key in keys], list(range(seq_last + 1, seq_last + 1 + len(keys))))
