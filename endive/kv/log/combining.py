"""Committing calls: alone if the log is idle, and with the help of other writers if it is not.

An idle log takes the short way: the calls are run as transaction functions and create the next entry, with the same
requests as any other batch. A writer that has just created the newest entry does the same, and carries out what is
pending with its own calls. All others announce an intention. One writer at work is enough, so they wait for its entry,
and carry out everything themselves when none appears for a while: the longer, the more of them were there before.

**Guarantees.** Nothing more than by `endive.kv.log.helping`. How long a process waits is a guess that saves
requests; a wrong guess costs a lost race. After the intention was announced, every error is `OutcomeUnknownError`: any
writer may carry it out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from endive.errors import EndiveError, ExclusiveWriterError, OutcomeUnknownError, ProcedureFailedError, RefusalError
from endive.kv.log.committing import Committed, commit_batch
from endive.kv.log.epochs import REFRESHES_MAX, open_shared
from endive.kv.log.guests import POLLS_MAX, await_exclusive
from endive.kv.log.helping import announce, await_entry, pending, result_of
from endive.kv.log.intentions import DONE, FAILED, Decided, Intention
from endive.kv.log.state import StoreState, refreshed
from endive.kv.procedures import Call
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import Outcome
from endive.protocol.requests import Steps
from endive.protocol.sequenced import ATTEMPTS_MAX

RACES_ALONE = 2
"""Races that a batch of calls may lose before it is announced. The first shows only that the state was old."""
POLLS = 4
"""Looks for another writer's entry, for each writer that is before this one, at least."""
CYCLES = 1.5
"""...and for as long as so many entries have taken lately: writers that are short of CPU take longer than the store."""
CYCLE_ENTRIES_MAX = 10.0
"""The time from entry to entry counts up to so many times that of an undisturbed commit."""
POLLS_PER_ENTRY = 12.0
"""Pauses between looks are this part of the time that an entry takes."""
LOOKS_PER_ENTRY = 3.0
"""A look takes about this part of the time of an entry: a create takes twice as long as a read."""
POLL_MIN_MS = 1.0
BUSY_MS = 2000.0
"""So long after a sign of other writers a commit expects them to be there."""
PENDING_MAX = 1000
"""With so many intentions pending nobody announces another one: they are carried out first."""


@dataclass(frozen=True)
class Hints:
    """What a writer guesses from its last commits."""

    is_busy: bool = False
    """Other writers have committed lately."""
    is_last: bool = False
    """The newest known entry is this writer's."""
    entry_ms: float = 50.0
    """The time of an undisturbed commit."""
    cycle_ms: float = 0.0
    """The time from one entry of any writer to the next, lately; 0: not known."""

    @property
    def poll_ms(self) -> float:
        """The pause between looks for another writer's entry."""
        return max(self.entry_ms / POLLS_PER_ENTRY, POLL_MIN_MS)

    @property
    def polls(self) -> int:
        """Looks for another writer's entry, before this one takes its place."""
        look_ms = self.poll_ms + self.entry_ms / LOOKS_PER_ENTRY
        cycle_ms = min(self.cycle_ms, CYCLE_ENTRIES_MAX * self.entry_ms)
        return max(POLLS, ceil(CYCLES * cycle_ms / look_ms))


class Contention:
    """Guesses of one writer about the others, from its last commits. Times are of any clock, in milliseconds."""

    def __init__(self) -> None:
        self._busy_ms = -inf
        self._entry_ms = Hints().entry_ms
        self._cycle_ms = 0.0
        self._seen_ms, self._seen_end = -inf, 0
        """When this writer was updated last, and the last entry then."""

    def hints(self, now_ms: float, is_last: bool) -> Hints:
        """Return the guesses for the next commit; `is_last`: the newest known entry is this writer's."""
        return Hints(now_ms - self._busy_ms < BUSY_MS, is_last, self._entry_ms, self._cycle_ms)

    def update(self, committed: Committed, now_ms: float, took_ms: float, others: int) -> None:
        """Take in a commit; `others`: entries that others have written since this writer's last one."""
        own = () if committed.own is None else (committed.own.name,)
        strange = (one.name for one in committed.known if not one.is_known)  # they may be there for long
        has_company = bool(set(committed.state.intentions).difference(own, strange, committed.closed))
        is_helped = committed.own is not None and not committed.entry
        if committed.losses or others or is_helped or has_company or set(committed.carried) - set(own):
            self._busy_ms = now_ms
        if committed.entry and not committed.losses and committed.own is None:
            self._entry_ms += 0.2 * (took_ms - self._entry_ms)
        self._update_cycle(now_ms, committed.state.wal_end)

    def _update_cycle(self, now_ms: float, wal_end: int) -> None:
        """Take in how many entries there are since the last commit of this writer, if that was not long ago."""
        entries, since_ms = wal_end - self._seen_end, now_ms - self._seen_ms
        self._seen_ms, self._seen_end = now_ms, wal_end
        if entries > 0 and since_ms < BUSY_MS:
            cycle_ms = since_ms / entries
            self._cycle_ms += (0.3 if self._cycle_ms else 1.0) * (cycle_ms - self._cycle_ms)


def commit_calls(
    state: StoreState,
    calls: tuple[Call, ...],
    cache: TableCache,
    hints: Hints = Hints(),  # noqa: B008 - frozen
    by: str = "",
    known: tuple[Intention, ...] = (),
    refreshes_max: int = REFRESHES_MAX,
    guest_polls_max: int = POLLS_MAX,
) -> Steps[Committed]:
    """Run calls on the newest state and make their rows durable, by this writer or another one.

    `Committed.own` is the intention, if one was announced; its object can be deleted. `OutcomeUnknownError`: the calls
    may have been carried out, or may still be, once. Any other error: nothing was written. `guest_polls_max`: looks for
    the result before the store of an exclusive writer is claimed.
    """
    is_full = len(pending(state)) >= PENDING_MAX
    if is_full or (state.is_writable and (hints.is_last or not hints.is_busy)):
        races = ATTEMPTS_MAX if is_full else RACES_ALONE
        committed = yield from commit_batch(state, calls, cache, refreshes_max, by=by, known=known, races_max=races)
        if not committed.is_lost:
            return committed
        state, known = committed.state, committed.known
    own = yield from announce(state, calls, by)
    try:
        committed = yield from _decided(state, own, cache, hints, by, known, refreshes_max, guest_polls_max)
    except OutcomeUnknownError:
        raise
    except EndiveError as error:
        raise OutcomeUnknownError(own.path) from error
    return committed


def _decided(
    state: StoreState,
    own: Intention,
    cache: TableCache,
    hints: Hints,
    by: str,
    known: tuple[Intention, ...],
    refreshes_max: int,
    guest_polls_max: int,
) -> Steps[Committed]:
    """Wait until an intention is decided, and carry it out if others do not."""
    before = state.wal_end
    state = yield from refreshed(state, is_behind=True)
    for _ in range(ATTEMPTS_MAX):
        decided = yield from result_of(own, state, cache)
        if decided is not None:
            return answered(Committed(state, (), decided=decided, known=known), own)
        if not state.is_writable:
            state, decided = yield from await_exclusive(state, own, cache, guest_polls_max)
            if decided is not None:
                return answered(Committed(state, (), decided=decided, known=known), own)
        else:
            strange = {one.name for one in known if not one.is_known}  # their owners carry them out
            rank = sum(name < own.name for name in pending(state) if name not in strange)
            is_at_work = state.wal_end > before
            polls = hints.polls * (1 + rank) if rank or is_at_work or hints.is_busy else 0
            before = state.wal_end
            state = yield from await_entry(state, polls, hints.poll_ms)
            if state.wal_end > before:
                continue
        try:
            committed = yield from commit_batch(state, (), cache, refreshes_max, own=own, by=by, known=known)
        except ExclusiveWriterError:  # it does not take intentions: fence it
            state = yield from open_shared(create_store=False, refreshes_max=refreshes_max)
            continue
        return answered(committed, own)
    raise OutcomeUnknownError(own.path)


def answered(committed: Committed, own: Intention) -> Committed:
    """Return the result of a batch with the outcome of each call of its own intention."""
    decided = committed.decided
    if decided is None:
        raise OutcomeUnknownError(own.path)
    return replace(committed, outcomes=outcomes_of(own.calls, decided), own=own)


def outcomes_of(calls: Sequence[Call], decided: Decided) -> tuple[Outcome, ...]:
    """Return the outcome of each call, as if it had been run here."""
    outcomes: list[Outcome] = []
    for number, call in enumerate(calls):
        result = decided.results[min(number, len(decided.results) - 1)]  # one that cannot be decoded has one result
        if result.kind == DONE:
            outcomes.append(Outcome(result.body))
        elif result.kind == FAILED:
            outcomes.append(Outcome(error=ProcedureFailedError(str(call), result.body.decode(errors="replace"))))
        else:
            outcomes.append(Outcome(error=RefusalError(result.body)))
    return tuple(outcomes)
