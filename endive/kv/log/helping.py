"""Helping: the process that creates the next WAL entry carries out all intentions that it sees.

A writer puts its calls into an intention (`endive.kv.log.intentions`), an object under a name of its own. Every writer
that commits carries out the pending intentions of the others with its own: their effects and results are rows of the
same WAL entry. So all processes that wait share one create, as threads of one process do.

**Carrying out** an intention is a transaction function like any other: it looks for the intention's result, and does
nothing if there is one, or if the intention has expired; otherwise it runs the calls and puts their rows and the
result. Everything that `endive.kv.log.committing` promises of transaction functions holds for it.

**What can race.** Several writers carry out the same intention: each builds on the entries before, so at most one of
them finds no result. An owner crashes, stalls, or does not get its reply: the intention stays pending, any writer may
carry it out, and the owner finds the result under its name when it is back. A delayed put brings an object back after
it was deleted, or a helper that stalled still holds it: the result's row shows that it was decided.

**Guarantees.** An intention takes effect at most once, and its owner is told what the entry says.
*Proof.* In the history of the store's rows, an intention x made at position p takes effect only in a state without its
result and with a horizon h <= p, and its result is put in the same entry. Only `forget_outcomes` removes the result, in
an entry that sets the horizon above p; the horizon never falls. So x does not take effect again. No clock is involved.
An owner that finds no result, and a horizon above p, cannot know: `IntentionExpiredError` says so.

**When an intention is deleted.** Only when it is decided or has expired in a durable state: from then on nobody can
carry it out, whichever process still holds it. Until then it is in the listing, so that whatever it names can be kept.

**Set aside.** An intention that cannot be decoded gets a result that says so. So does a call that fails by a defect: it
writes nothing, and the others are carried out. An intention with a procedure that this process does not have is left
to others, and uses up no limit. If it is never carried out, it expires: the horizon rises above old intentions that are
still open (`is_forgetting_due`). An error of the object store decides nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from endive.errors import (
    CorruptObjectError,
    EndiveError,
    IntentionExpiredError,
    MissingObjectError,
    OutcomeUnknownError,
    RefusalError,
    StorageAccessError,
    StorageUnavailableError,
)
from endive.kv.log.intentions import (
    DONE,
    FAILED,
    HORIZON,
    PREFIX,
    REFUSED,
    CallResult,
    Decided,
    Intention,
    decode_decided,
    decode_intention,
    encode_decided,
    encode_intention,
    name_in,
    name_of,
    names_in,
    outcome_key,
    outcomes_before,
    position_of,
    topic_of,
)
from endive.kv.log.state import StoreState, newest_state, refreshed
from endive.kv.log.wal import WAL, decode_entries
from endive.kv.manifest_format import MANIFESTS
from endive.kv.procedures import Call
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import Transaction, run_function
from endive.protocol.requests import Delete, Get, GetAll, List, NewId, Put, Sleep, Steps, ask
from endive.protocol.sequenced import update

CARRIED_MAX = 256
"""Intentions that one WAL entry takes. The others wait for the next."""
CARRIED_BYTES_MAX = 16 * 1024 * 1024
"""...and bytes of their arguments."""
FORGOTTEN_MAX = 10_000
"""Results that one transaction removes."""
STORAGE_ERRORS = (
    StorageUnavailableError,
    StorageAccessError,
    OutcomeUnknownError,
    MissingObjectError,
    CorruptObjectError,
)
"""Errors that say nothing about a call."""


# Making an intention.


def announce(state: StoreState, calls: tuple[Call, ...], writer: str, topic: str = "") -> Steps[Intention]:
    """Put an intention where every writer finds it. Its owner goes on with `commit_batch` in any case.

    The manifest says first that there are intentions, once for each store: an older Endive refuses it from then on. If
    this fails, nothing was announced. After any other error the object may exist or not. Its owner has the intention
    itself, and carries it out under this name.
    """
    if not state.manifest.value.has_intentions:
        put_id = yield from ask(NewId())
        yield from update(MANIFESTS, lambda newest: newest.value.with_intentions(put_id))
    intention_id = yield from ask(NewId())
    intention = Intention(name_of(state.wal_end, intention_id, topic), calls, writer)
    try:
        # Not synced: an object that a power failure takes away is as one that never arrived.
        yield from ask(Put(intention.path, encode_intention(intention), is_durable=False))
    except STORAGE_ERRORS:
        return intention
    return intention


def await_entry(state: StoreState, polls: int, poll_ms: float) -> Steps[StoreState]:
    """Return a newer state as soon as the next entry exists; the same one if none has appeared after `polls` looks.

    To save requests: another writer is at work. Nothing relies on it.
    """
    for _ in range(polls):
        body = yield from ask(Get(WAL.path_of(state.wal_end + 1)))
        if body is not None:
            entries = decode_entries(state.wal_end, (body,), state.wal_epoch)
            return (yield from refreshed(state, read=entries))
        yield from ask(Sleep(poll_ms))
    return state


# Carrying out.


def pending(state: StoreState, topic: str = "") -> tuple[str, ...]:
    """Return the listed intentions on a topic that no WAL entry in memory has decided, oldest first."""
    named = (name for name in state.intentions if topic_of(name) == topic)
    return tuple(name for name in named if state.recent.find(outcome_key(name)) is None)


def can_run(intention: Intention) -> bool:
    """Whether this process can carry out an intention by its procedures."""
    return intention.is_known


def read_intentions(
    state: StoreState,
    known: tuple[Intention, ...],
    topic: str = "",
    can_carry_out: Callable[[Intention], bool] = can_run,
) -> Steps[tuple[Intention, ...]]:
    """Return pending intentions on a topic, in the order of their names: at least as many as the next entry takes.

    `known` ones are not read again. Those that this process cannot carry out are among the returned ones, so that they
    need not be read again; they do not count.
    """
    names = pending(state, topic)
    held: dict[str, Intention | None] = {one.name: one for one in known}
    for _ in range(len(names)):
        missing = _to_read(names, held, can_carry_out)
        if not missing:
            break
        bodies = yield from ask(GetAll(tuple(PREFIX + name for name in missing)))
        for name, body in zip(missing, bodies, strict=True):
            # None: deleted since the listing, so it is decided or has expired.
            held[name] = None if body is None else decode_intention(name, body)
    found = (held.get(name) for name in names)
    return tuple(one for one in found if one is not None)


def _to_read(
    names: Sequence[str], held: Mapping[str, Intention | None], can_carry_out: Callable[[Intention], bool]
) -> tuple[str, ...]:
    """Return the names of the intentions that must be read before the next entry's are known."""
    missing: list[str] = []
    count = 0
    for name in names:
        one = held.get(name)
        if name not in held:
            missing.append(name)
        elif one is None or not can_carry_out(one):
            continue
        count += 1
        if count == CARRIED_MAX:
            break
    return tuple(missing)


def to_carry_out(intentions: Sequence[Intention], own: Intention | None) -> tuple[Intention, ...]:
    """Return the intentions that the next entry takes, in the order of their names; the own one in any case.

    Those that this process cannot carry out are left out, and use up no limit.
    """
    chosen: list[Intention] = []
    size = 0 if own is None else own.size_bytes
    for one in intentions:
        if not one.is_known or (own is not None and one.name == own.name):
            continue
        size += one.size_bytes
        if size > CARRIED_BYTES_MAX or len(chosen) == CARRIED_MAX:
            break
        chosen.append(one)
    mine = () if own is None else (own,)
    return tuple(sorted((*chosen, *mine), key=lambda one: one.name))


def carry_out(intention: Intention, by: str, tx: Transaction) -> Steps[Decided | None]:
    """Carry out an intention, as a transaction function; None if it is decided already, or has expired."""
    may_act = yield from is_open(intention.name, tx)
    if not may_act:
        return None
    results: tuple[CallResult, ...] = ()
    if intention.problem:
        results = (CallResult(FAILED, intention.problem.encode()),)
    for number in range(len(intention.calls)):
        before = dict(tx.rows)
        result = yield from _result(intention.calls[number], tx)
        if result.kind != DONE:
            tx.rows = before
        results = (*results, result)
    return record_results(intention.name, Decided(by, results), tx)


def record_results(name: str, decided: Decided, tx: Transaction) -> Decided:
    """Put the results of an open intention, beside the rows that they describe."""
    tx.rows[outcome_key(name)] = encode_decided(decided)
    return decided


def is_open(name: str, tx: Transaction) -> Steps[bool]:
    """Whether an intention may take effect: it has no result, and has not expired."""
    decided = yield from tx.get(outcome_key(name))
    if decided is not None:
        return False
    horizon = yield from tx.get(HORIZON)
    return position_of(name) >= int(horizon or b"0")


def _result(call: Call, tx: Transaction) -> Steps[CallResult]:
    try:
        body = yield from call(tx)
    except RefusalError as error:
        return CallResult(REFUSED, error.reason)
    except STORAGE_ERRORS:
        raise  # the call is not decided
    except Exception as error:  # noqa: BLE001 - a defect of the call: it must not stop others
        return CallResult(FAILED, f"{type(error).__name__}: {error}".encode())
    return CallResult(DONE, body)


def result_of(intention: Intention, state: StoreState, cache: TableCache) -> Steps[Decided | None]:
    """Return how an intention was decided, in a durable state; None: not yet.

    `IntentionExpiredError`: it has expired. It may have been carried out before, or not, and will not be any more.
    """
    transaction = Transaction(state.manifest.value.runs, state.recent, cache, is_writable=False)
    outcome = yield from run_function(partial(_look_up, intention.name), transaction)
    if outcome.error is not None:
        raise outcome.error
    decided: Decided | None = outcome.value
    return decided


def _look_up(name: str, tx: Transaction) -> Steps[Decided | None]:
    value = yield from tx.get(outcome_key(name))
    if value is not None:
        return decode_decided(value)
    horizon = yield from tx.get(HORIZON)
    if position_of(name) < int(horizon or b"0"):
        raise IntentionExpiredError(PREFIX + name)
    return None


# Garbage collection.


def forget_outcomes(before: int, tx: Transaction) -> Steps[int]:
    """Let intentions made before a position expire, as a transaction function; return how many results it removes.

    The results are removed and the horizon rises in the same entry: an intention whose result is removed cannot be
    carried out any more. The horizon rises even if there is no result: an intention that no process can carry out
    has none.
    """
    horizon = yield from tx.get(HORIZON)
    rows = yield from tx.scan_range(outcomes_before(before))
    if len(rows) > FORGOTTEN_MAX:
        before = position_of(name_in(rows[FORGOTTEN_MAX][0]))
        rows = tuple(row for row in rows if position_of(name_in(row[0])) < before)
    if before <= int(horizon or b"0"):
        return 0
    for key, _ in rows:
        tx.rows[key] = None
    tx.rows[HORIZON] = b"%d" % before
    return len(rows)


def is_forgetting_due(before: int, names: Sequence[str], tx: Transaction) -> Steps[bool]:
    """Whether there are results of intentions made before a position, or open intentions made before it in `names`.

    If not, raising the horizon would write an entry for nothing.
    """
    rows = yield from tx.scan_range(outcomes_before(before))
    if rows:
        return True
    old = tuple(name for name in names if position_of(name) < before)
    for number in range(len(old)):
        may_act = yield from is_open(old[number], tx)
        if may_act:
            return True
    return False


def open_intentions(state: StoreState, cache: TableCache) -> Steps[tuple[str, ...]]:
    """Return the listed intentions that may still take effect, by a durable state.

    If files of the state are deleted meanwhile, those that were not looked up count as open.
    """
    names = state.intentions
    found: tuple[str, ...] = ()
    for number in range(len(names)):
        transaction = Transaction(state.manifest.value.runs, state.recent, cache, is_writable=False)
        try:
            outcome = yield from run_function(partial(is_open, names[number]), transaction)
        except MissingObjectError:
            return (*found, *names[number:])
        if outcome.error is not None:
            raise outcome.error
        if outcome.value is not False:
            found = (*found, names[number])
    return found


def collect_intentions(cache: TableCache, state: StoreState | None = None) -> Steps[tuple[str, ...]]:
    """Delete the intentions that nobody can carry out any more; return their names.

    The listing comes first and the state after it: an intention is deleted only if a durable state has decided it.
    """
    listing = yield from ask(List(PREFIX))
    names = names_in(listing)
    if not names:
        return ()
    state = yield from newest_state() if state is None else refreshed(state)
    if state is None:
        return ()
    found = yield from open_intentions(replace(state, intentions=names), cache)
    closed = tuple(name for name in names if name not in found)
    for number in range(len(closed)):
        yield from ask(Delete(PREFIX + closed[number]))
    return closed


def delete_intention(intention: Intention) -> Steps[None]:
    """Delete an intention that is decided. A failure is for the garbage collector."""
    try:
        yield from ask(Delete(intention.path))
    except EndiveError:
        return
