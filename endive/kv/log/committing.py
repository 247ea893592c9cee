"""Committing a batch: run its transaction functions on a state, and append their rows as the next WAL entry.

The writer that creates entry N has committed on top of everything before N. A writer that loses reads the entries of
the others and computes its own again.

**What can race.** Two shared writers create the same entry: the object store lets one win. A writer stalls while
others create its entry, compact it and delete it: its create succeeds, in a part of the log that is not read any
more. Such an object is *stale*. Other writers that are as far behind may read it.

**Guarantees.** A commit is acknowledged if and only if its entry is part of the log. Let M(N) be the first
manifest whose last compacted entry is N or later. M(N) exists before N is deleted (`endive.kv.log.state`).

*Shared writers.* A writer wins entry N, and then looks for a newer manifest. If none has compacted N, then N was not
deleted before the create, so the create made the entry that counts. If one has, either that is so and a compactor was
quick, or another writer's entry counted and the create made a stale object. The manifest says which: it keeps the put
ids of the entries compacted last (`StoreManifest.wal_put_ids`), as the compactor read them. A compactor does not read
stale objects: it reads entries behind the last compacted one, and publishes only if no other compactor has moved that
meanwhile. Where the entry is too far back for the manifest, the outcome is unknown, and is reported so.

*An exclusive writer* need not look: a create that succeeds counts. N lies behind this epoch's fences, so no other
process created N before a newer epoch was claimed. A claimer fences a run of as many entries as can be in flight, and
starts the run again behind every entry of ours that it meets. So N is one of its fences, which are not deleted
(decision 21), and the create fails; or N lies before the run, and exists. If the reply to a create is lost, N may exist
and be deleted like any other entry: after an unknown outcome the epoch is given up, and another one is claimed before
the next create.

*Several entries in flight.* An exclusive writer computes the next batch from the state after the batch in flight, and
sends it before the reply. If a fence takes the place of the first, the second is void (`endive.kv.log.wal`). It
acknowledges in the order of the entries, and if one fails, all behind it fail (`endive.kv.pipeline`).

**Limits.** Fairness: a shared writer that has just won knows the end of the log without reading, and is
likely to win again. `endive.kv.turns` lets it wait for others now and then. Calls of procedures need not wait for their
turn: the winner carries them out (`endive.kv.log.helping`, `endive.kv.log.combining`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from endive.errors import (
    AttemptsExhaustedError,
    EndiveError,
    FencedError,
    InvariantError,
    MissingObjectError,
    OutcomeUnknownError,
)
from endive.kv.log.epochs import REFRESHES_MAX, reopen
from endive.kv.log.helping import carry_out, read_intentions, result_of, to_carry_out
from endive.kv.log.intentions import Decided, Intention
from endive.kv.log.state import StoreState, look, refreshed
from endive.kv.log.wal import WAL, WalEntry
from endive.kv.sst.format import Rows, encode_sst
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import Outcome, TransactionFunction, run_functions
from endive.kv.views import newer_than
from endive.protocol.fencing import ROLE
from endive.protocol.requests import NewId, Steps, ask, create
from endive.protocol.sequenced import ATTEMPTS_MAX

NO_ROWS: Mapping[bytes, bytes | None] = {}


@dataclass(frozen=True)
class Prepared:
    """A batch, computed from a state: the outcome of each function, and the WAL entry with all rows."""

    before: StoreState
    outcomes: tuple[Outcome, ...]
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    entry: WalEntry | None = None
    """None: there is nothing to write."""

    @property
    def after(self) -> StoreState:
        """The state when the entry is durable."""
        return self.before if self.entry is None else self.before.with_entries((self.entry,))


@dataclass(frozen=True)
class Committed:
    """A batch that is durable: the state after it, and the outcome of each function."""

    state: StoreState
    outcomes: tuple[Outcome, ...]
    entry: int = 0
    """Number of its WAL entry; 0 if it wrote no rows."""
    losses: int = 0
    """Races that were lost on the way."""
    decided: Decided | None = None
    """How the writer's own intention was decided."""
    carried: tuple[str, ...] = ()
    """Names of the intentions that its entry has decided."""
    closed: tuple[str, ...] = ()
    """Names of intentions that were decided or had expired before: their objects can be deleted."""
    known: tuple[Intention, ...] = ()
    """Intentions that were read, for the next batch."""
    is_lost: bool = False
    """Nothing was committed: other writers have won as many races as were allowed."""
    own: Intention | None = None
    """The intention that was announced for this batch."""


def prepare(
    state: StoreState,
    functions: Sequence[TransactionFunction[Any]],
    cache: TableCache,
    rows: Mapping[bytes, bytes | None] = NO_ROWS,
) -> Steps[Prepared]:
    """Run functions on a state, one after the other, behind `rows` that are put in any case.

    `MissingObjectError`: the state is too old, refresh it.
    """
    outcomes: tuple[Outcome, ...] = ()
    written = dict(rows)
    if functions:
        outcomes, written = yield from run_functions(functions, state.manifest.value.runs, state.recent, cache, rows)
    if not written:
        return Prepared(state, outcomes)
    put_id = yield from ask(NewId())
    entry = WalEntry(
        state.wal_end + 1, _numbered(written, state.row_seq_last), state.manifest.value.writer_epoch, put_id
    )
    return Prepared(state, outcomes, written, entry)


def commit_batch(
    state: StoreState,
    functions: Sequence[TransactionFunction[Any]],
    cache: TableCache,
    refreshes_max: int = REFRESHES_MAX,
    rows: Mapping[bytes, bytes | None] = NO_ROWS,
    own: Intention | None = None,
    by: str = "",
    known: tuple[Intention, ...] = (),
    races_max: int = ATTEMPTS_MAX,
) -> Steps[Committed]:
    """Run functions on the newest state and make their rows durable in one WAL entry, with no other entry in flight.

    Pending intentions are carried out in the same entry, `by` this writer; `known` ones are not read again. With an
    `own` intention it returns when that is decided, by this writer or another one. After `races_max` lost races the
    result `is_lost`.

    Errors of single functions are in their outcomes. `OutcomeUnknownError`: the batch may be durable or not; a state
    with an epoch of its own must not be used again. Any other error: nothing was written, except by an `own` intention.
    """
    is_fresh = False
    for losses in range(ATTEMPTS_MAX):
        if not state.is_writable:
            state = yield from reopen(state, state.manifest.value.max_parallel_writes, refreshes_max)
            is_fresh = True
        try:
            if own is not None:
                decided = yield from result_of(own, state, cache)
                if decided is not None:
                    return Committed(state, (), 0, losses, decided, known=known)
            known = yield from read_intentions(state, known)
            chosen = to_carry_out(known, own)
            helped = tuple(partial(carry_out, one, by) for one in chosen)
            prepared = yield from prepare(state, (*functions, *helped), cache, rows)
        except MissingObjectError as error:
            state = yield from after_missing(state, error)
            is_fresh = True
            continue
        if prepared.entry is not None:
            is_named = own is not None and not (functions or rows)
            ended, is_committed = yield from _append(prepared, prepared.entry, is_named)
        elif is_fresh or not (functions or own):
            ended, is_committed = state, True
        else:
            ended = yield from refreshed(state)
            is_committed = ended.wal_end == state.wal_end
        if is_committed:
            return _committed(ended, prepared, len(functions), chosen, own, losses, known)
        state = ended
        is_fresh = True
        if losses + 1 >= races_max:
            return Committed(state, (), 0, losses + 1, known=known, is_lost=True)
    raise AttemptsExhaustedError(WAL.prefix, ATTEMPTS_MAX)


def _committed(
    state: StoreState,
    prepared: Prepared,
    functions: int,
    chosen: tuple[Intention, ...],
    own: Intention | None,
    losses: int,
    known: tuple[Intention, ...],
) -> Committed:
    """Return the result of a batch: its entry counts, or it has nothing to write and its state is the newest."""
    helped = tuple(zip(chosen, prepared.outcomes[functions:], strict=True))
    mine = next((outcome for one, outcome in helped if own is not None and one.name == own.name), Outcome())
    if mine.error is not None:
        raise mine.error  # an error of the object store: the intention is not decided
    return Committed(
        state,
        prepared.outcomes[:functions],
        0 if prepared.entry is None else prepared.entry.number,
        losses,
        mine.value,
        tuple(one.name for one, outcome in helped if outcome.value is not None),
        tuple(one.name for one, outcome in helped if outcome.value is None and outcome.error is None),
        known,
    )


def after_missing(state: StoreState, error: MissingObjectError) -> Steps[StoreState]:
    """Return a newer state, if files of this one were deleted; if there is none, they are lost."""
    newer = yield from refreshed(state)
    if newer.manifest.number == state.manifest.number:
        raise MissingObjectError(error.path)
    return newer


def _append(prepared: Prepared, entry: WalEntry, is_named: bool) -> Steps[tuple[StoreState, bool]]:
    """Append an entry; return the state after it and True, or a newer state and False: others were faster.

    `is_named`: it has intentions only. If its outcome is unknown, the log will show whether they are decided.
    """
    state = prepared.before
    if state.own_epoch:
        try:
            yield from append_exclusive(state, entry)
        except FencedError:
            newer = yield from refreshed(state)
            return newer, False
        return prepared.after, True
    try:
        ended = yield from append_shared(state, entry)
    except OutcomeUnknownError:
        if not is_named:
            raise
        newer = yield from refreshed(state)
        return newer, False
    return ended


def append_exclusive(state: StoreState, entry: WalEntry) -> Steps[None]:
    """Append an entry in an epoch that this process has for itself; others may be in flight.

    `FencedError`: a newer writer's fence is in its place, so it is not in the log and never will be.
    """
    path = WAL.path_of(entry.number)
    is_ours = yield from create(path, _body(state, entry))
    if is_ours:
        return
    try:
        newer = yield from newer_than(state.manifest)
    except EndiveError as error:  # the entry may be in the log, so no other error will do
        raise OutcomeUnknownError(path) from error
    if newer is None or newer.value.writer_epoch <= state.own_epoch:
        raise InvariantError("entries behind an exclusive writer's fences are its own", path)
    if newer.value.wal_id_last_compacted >= entry.number:
        # The object may be a stale fence in the place of ours, which was created unnoticed, compacted and deleted.
        put_id = newer.value.put_id_of(entry.number)
        if put_id is None:
            raise OutcomeUnknownError(path)
        if put_id == entry.put_id:
            return
    raise FencedError(ROLE, state.own_epoch, newer.value.writer_epoch)


def append_shared(state: StoreState, entry: WalEntry) -> Steps[tuple[StoreState, bool]]:
    """Append an entry in a shared epoch; return the state after it and True, or a newer one and False."""
    path = WAL.path_of(entry.number)
    try:
        is_ours = yield from create(path, _body(state, entry))
    except OutcomeUnknownError:
        is_ours = None
    if is_ours is False:
        newer = yield from refreshed(state, is_behind=True)
        if newer.wal_end == state.wal_end:
            raise InvariantError("an entry that exists can be read", path)
        # The object may be a stale one in the place of ours, which was created unnoticed, compacted and deleted.
        return newer, newer.manifest.value.put_id_of(entry.number) == entry.put_id
    try:
        ended = yield from _settle(state, entry, is_ours is True)
    except EndiveError as error:  # the entry may be in the log, so no other error will do
        raise OutcomeUnknownError(path) from error
    return ended


def _settle(state: StoreState, entry: WalEntry, is_ours: bool) -> Steps[tuple[StoreState, bool]]:
    """Return the state after an entry that was created, or may have been, and whether it counts."""
    newer, intentions = yield from look(state.manifest)
    if newer is None or newer.value.wal_id_last_compacted < entry.number:
        if not is_ours:
            raise OutcomeUnknownError(WAL.path_of(entry.number))
        ended = replace(state.with_entries((entry,)), intentions=intentions)
        return (ended if newer is None else ended.with_manifest(newer)), True
    put_id = newer.value.put_id_of(entry.number)
    if put_id is None:
        raise OutcomeUnknownError(WAL.path_of(entry.number))
    newest = yield from refreshed(state)
    return newest, put_id == entry.put_id


def _body(state: StoreState, entry: WalEntry) -> bytes:
    is_chained = state.own_epoch != 0 and state.manifest.value.max_parallel_writes > 1
    return encode_sst(entry.rows, entry.epoch, entry.put_id, is_chained)


def _numbered(rows: Mapping[bytes, bytes | None], seq_last: int) -> Rows:
    """Return rows in key order, with the sequence numbers that follow."""
    keys = sorted(rows)
    return Rows(keys, [rows[key] for key in keys], list(range(seq_last + 1, seq_last + 1 + len(keys))))
