"""The writing half of an open store: its state, its epoch, and how it commits a batch.

A writer holds the store as one value (`endive.kv.log.state`), which is replaced when something newer is learned, so a
read needs no lock while it runs. Batches come from `endive.kv.group_commit`.

An *exclusive* writer computes a batch from the state after the batch in flight, and sends its entry at once. A *shared*
writer, and an exclusive one that has to share the store for a while, commits one batch after the other.

A writer that may reopen is never dead for good: after a failed write the next batch claims another epoch, and a fence
means that the batches are committed again in the epoch of the other writer. One that may not halts, and reports the
error to every caller from then on.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic, sleep
from typing import Any

from endive.drivers.blocking import BlockingDriver
from endive.errors import (
    EndiveError,
    ExclusiveWriterError,
    FencedError,
    MissingObjectError,
    OutcomeUnknownError,
)
from endive.kv.group_commit import GroupCommit, answer, reject
from endive.kv.helper import Helper
from endive.kv.log.combining import RACES_ALONE, Hints, commit_calls
from endive.kv.log.committing import Committed, Prepared, after_missing, append_exclusive, commit_batch, prepare
from endive.kv.log.epochs import open_exclusive, open_shared, share_epoch
from endive.kv.log.guests import read_as_guest
from endive.kv.log.helping import carry_out, pending, read_intentions, to_carry_out
from endive.kv.log.intentions import INTENTION_BYTES_MAX, Intention
from endive.kv.log.state import StoreState, newest_state_warmed, refreshed
from endive.kv.options import StoreOptions
from endive.kv.pipeline import Batch, Pipeline
from endive.kv.procedures import Call
from endive.kv.recorded import Recorded, as_calls, size_of
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import TransactionFunction
from endive.kv.turns import Turns
from endive.logs import log_error
from endive.protocol.beside import beside
from endive.protocol.fencing import ROLE
from endive.protocol.requests import Steps
from endive.protocol.sequenced import ATTEMPTS_MAX

log = logging.getLogger(__name__)

REFRESHES_MAX = 4
"""How often a commit checks whether another writer's exclusive epoch has become shared, before it takes the store."""
REFUSALS_MAX = 10
"""So often an exclusive writer elsewhere may refuse functions because their reads have changed, before it is fenced."""
HELP_ROUNDS_MAX = 100
"""Entries in a row that a writer makes for others alone."""


class Writer:
    """State, epoch and commits of one process."""

    def __init__(
        self, driver: BlockingDriver, cache: TableCache, is_exclusive: bool, options: StoreOptions, create: bool
    ) -> None:
        self._driver = driver
        self._cache = cache
        self._is_exclusive = is_exclusive
        self._options = options
        self.may_reopen = options.reopen or not is_exclusive
        self._must_open = False
        """Whether the next batch has to claim or join an epoch first."""
        self._was_fenced = False
        """Whether the next batch has to refresh first: a fence was met."""
        self._turns = Turns()
        self._turn_s = 0.0
        """When this process may commit again."""
        self._met_s = -inf
        """When others had last written, as far as commits have shown."""
        self.losses = 0
        self._refusals = 0
        """Batches in a row whose functions were refused."""
        self._must_race = False
        """Whether the functions of the next batch were refused when others carried them out."""
        self.helper = Helper(driver)
        self.refreshes = 0
        self._refreshes_begun = 0
        self._is_refreshing = False
        self.state: StoreState = self._opened(create)
        self._refreshed_s = monotonic()
        self._own_entry_last = self.state.wal_end
        """The last WAL entry that this process has written, or that existed before it opened the store."""
        self.pipeline = Pipeline(options.max_parallel_writes if is_exclusive else 1, options.batch_functions_max)
        self.group = GroupCommit(self.commit, driver.objects.url, self.pipeline, options)

    def _opened(self, create: bool) -> StoreState:
        """Return the newest state. A writer that may reopen claims no epoch until its first commit."""
        newest = newest_state_warmed(self._options.warm_keys, self._cache)
        state = self._driver.run(newest) if self.may_reopen else None
        if state is None:
            return self._writable(create)
        self._must_open = not state.is_writable
        return state

    def _writable(self, create: bool) -> StoreState:
        """Claim or join an epoch."""
        if self._is_exclusive:
            return self._driver.run(open_exclusive(create, self._options.max_parallel_writes))
        return self._driver.run(open_shared(create))

    # Committing.

    def commit(self, batch: Batch) -> None:
        """Commit a batch that was taken, and answer its callers. Errors go to them."""
        is_computed = False
        batch.times.carried_out_by = self.helper.name
        try:
            prepared = self._computed(batch)
            is_computed = True
            with self.group.changed:
                self.group.computed()
            if prepared is not None and prepared.entry is not None:
                self._driver.run(append_exclusive(prepared.before, prepared.entry), batch.times.created)
                self._landed(batch)
        except EndiveError as error:
            self._failed(batch, error)
        except BaseException as error:
            self._failed(batch, OutcomeUnknownError(self._driver.objects.url))
            if not isinstance(error, Exception):
                raise  # an interrupt of the caller's thread
            log.exception("a batch failed, by a defect")
        finally:
            if not is_computed:
                with self.group.changed:
                    self.group.computed()

    def _computed(self, batch: Batch) -> Prepared | None:
        """Compute a batch, and let its entry be sent; None: it was committed here, or waits again."""
        while (state := self._base(batch)) is not None:
            if not (state.own_epoch and state.is_writable):
                self._commit_alone(batch, state)
                return None
            functions = batch.transactions
            try:
                chosen = self._driver.run(self._read_intentions(state))
                helped = (partial(carry_out, one, self.helper.name) for one in chosen)
                prepared = self._driver.run(prepare(state, (*functions, *helped), self._cache, batch.rows))
            except MissingObjectError as error:
                if not self._renewed(batch, error):
                    return None
                continue
            batch.helped = tuple(one.name for one in chosen)
            with self.group.changed:
                if prepared.entry is not None and batch in self.pipeline.under_way:
                    self.pipeline.sent(batch, prepared)
                    return prepared
            # Nothing to write. Its functions may have seen rows of the batches before it.
            if self._await_first(batch) and self._is_newest(state):
                self.helper.served(batch.helped, prepared.outcomes[len(functions) :])
                self._finished(batch, Committed(self.state, prepared.outcomes[: len(functions)]))
                return None
        return None

    def _read_intentions(self, state: StoreState) -> Steps[tuple[Intention, ...]]:
        """Return the intentions to carry out that the last listing has shown; there is no new listing."""
        state = replace(state, intentions=self.state.intentions)
        if not pending(state):
            return ()
        helper = self.helper
        helper.known = yield from read_intentions(state, helper.known)
        chosen = to_carry_out(helper.known, None)
        strange = (one for one in helper.known if not one.is_known)
        helper.tried = frozenset(one.name for one in (*chosen, *strange))
        return chosen

    def _base(self, batch: Batch) -> StoreState | None:
        """Return the state to compute a batch from; None: one before it has failed, and it waits again."""
        with self.group.changed:
            if batch not in self.pipeline.under_way:
                return None
            state = self.pipeline.base(batch, self.state)
            if not self.pipeline.is_first(batch) and self._may_follow(state):
                return state
        return self._ready(batch) if self._await_first(batch) else None

    def _await_first(self, batch: Batch) -> bool:
        """Wait until no batch before this one is in flight. False: one of them has failed, and this one waits again."""
        with self.group.changed:
            while batch in self.pipeline.under_way and not self.pipeline.is_first(batch):
                self.group.changed.wait()
            return batch in self.pipeline.under_way

    def _renewed(self, batch: Batch, error: MissingObjectError) -> bool:
        """Refresh, since files of the state were deleted. False: they are lost, and the batch has failed, alone."""
        try:
            self.learn(self._driver.run(after_missing(self.state, error)))
        except EndiveError as lost:
            self._report(batch, lost)
            return False
        return True

    def _may_follow(self, state: StoreState) -> bool:
        """Whether a batch may be computed while those before it are in flight. Holding the lock."""
        return state.is_writable and bool(state.own_epoch) and not (self._must_open or self._was_fenced)

    def _is_newest(self, state: StoreState) -> bool:
        """Whether no other writer has committed since `state`, from which functions that put nothing were run."""
        newest = self._driver.run(refreshed(self.state))
        self.learn(newest)
        if not newest.is_writable and not self.may_reopen:
            raise FencedError(ROLE, state.own_epoch, newest.manifest.value.writer_epoch)
        return newest.is_writable and newest.wal_end == state.wal_end

    def _ready(self, batch: Batch) -> StoreState:
        """Return the state to begin from, with no batch in flight; claims or joins an epoch if it is time.

        A shared writer that awaits an exclusive one elsewhere claims none: that one may carry out the batch.
        """
        state = self.state
        if self._must_open and not self._is_exclusive and (batch.calls or self._options.await_exclusive):
            state = self._driver.run(refreshed(state))
            self._must_open = self._was_fenced = False
        elif self._must_open:
            state = self._writable(create=False)
            self._must_open = self._was_fenced = False
        elif self._was_fenced:
            state = self._driver.run(refreshed(state))
            self._was_fenced = False
        elif self._wants_back(state):
            state = self._driver.run(refreshed(state))
            if state.wal_end > self._own_entry_last:  # others have written since this process did, or opened
                self._met_s, self._own_entry_last = monotonic(), state.wal_end
            else:
                state = self._writable(create=False)
        elif not state.own_epoch and monotonic() - self._refreshed_s > self._options.idle_max_ms / 1000:
            state = self._driver.run(refreshed(state))
        if state is not self.state:
            self.learn(state)
        if not state.is_writable and not self.may_reopen:
            raise FencedError(ROLE, state.own_epoch, state.manifest.value.writer_epoch)
        return state

    def _wants_back(self, state: StoreState) -> bool:
        """Whether an exclusive writer has to share the store, and seems to be the only one again."""
        is_quiet = monotonic() - self._met_s >= self._options.retake_ms / 1000
        return self._is_exclusive and not state.own_epoch and is_quiet

    def _commit_alone(self, batch: Batch, state: StoreState) -> None:
        """Commit a batch in an epoch that is not this process's own, with no other in flight."""
        started_s = monotonic()
        must_race, self._must_race = self._must_race, False
        recorded: Recorded | None = None
        if batch.calls and size_of(batch.calls) <= INTENTION_BYTES_MAX:
            committed = self._commit_calls(batch, state, batch.calls, self._hints(state))
        else:
            committed, recorded = self._commit_functions(batch, state, must_race)
        self._learn_from(committed, started_s)
        if committed.decided is not None:
            batch.times.carried_out_by = committed.decided.by
        if recorded is not None:
            committed = self._accepted(batch, committed, recorded)
        self._finished(batch, committed)
        if batch.functions:  # in a thread of the store: a caller that commits its own rows is not kept waiting
            self._help()

    def _commit_functions(self, batch: Batch, state: StoreState, must_race: bool) -> tuple[Committed, Recorded | None]:
        """Commit functions and rows: race for the next entry, or let others carry them out as reads and rows.

        Functions that were refused race the next time (`must_race`): they read rows that change all the time.
        """
        hints = self._hints(state)
        if not state.is_writable and self._options.await_exclusive and not (self._is_exclusive or must_race):
            served = self._commit_as_guest(batch, state, hints)
            if served is not None:
                return served
        if must_race or not hints.is_busy or hints.is_last or not state.is_writable:
            pause_s = self._turn_s - monotonic()
            if pause_s > 0:
                sleep(pause_s)  # let others go first: it is their turn
            committed = self._race(batch, state, ATTEMPTS_MAX if must_race else RACES_ALONE)
            if not committed.is_lost:
                return committed, None
            self.losses += committed.losses
            state = committed.state
            self.learn(state)
        recorded = self._recorded(batch, state)
        if recorded is None:
            return self._race(batch, state, ATTEMPTS_MAX), None
        company = replace(hints, is_busy=True, is_last=False)
        return self._commit_calls(batch, state, recorded.calls, company), recorded

    def _commit_as_guest(
        self, batch: Batch, state: StoreState, hints: Hints
    ) -> tuple[Committed, Recorded | None] | None:
        """Let the exclusive writer elsewhere carry out a batch; None: only this process can commit it."""
        recorded = self._recorded(batch, state)
        if recorded is not None:
            return self._commit_calls(batch, state, recorded.calls, hints), recorded
        guest = read_as_guest(state, batch.transactions, self._cache)
        committed = None if batch.rows else self._driver.run(guest)
        return None if committed is None else (committed, None)

    def _hints(self, state: StoreState) -> Hints:
        return self.helper.hints(is_last=state.wal_end == self._own_entry_last)

    def _commit_calls(self, batch: Batch, state: StoreState, calls: tuple[Call, ...], hints: Hints) -> Committed:
        by, known = self.helper.name, self.helper.known
        steps = commit_calls(state, calls, self._cache, hints, by, known, REFRESHES_MAX)
        return self._driver.run(steps, batch.times.created)

    def _recorded(self, batch: Batch, state: StoreState) -> Recorded | None:
        """Return the functions and rows of a batch as calls; None: only this process can commit them."""
        return self._driver.run(as_calls(batch.transactions, batch.rows, state, self._cache))

    def _accepted(self, batch: Batch, committed: Committed, recorded: Recorded) -> Committed:
        """Let the functions that were refused wait again; return the results of the others."""
        results = recorded.results(committed.outcomes)
        refused = [one for one, result in zip(batch.functions, results, strict=True) if result is None]
        with self.group.changed:
            batch.functions = [one for one in batch.functions if one not in refused]
            self.pipeline.waiting.functions[:0] = refused
            self._refusals = self._refusals + 1 if refused else 0
            self._must_race = bool(refused) and (committed.state.is_writable or self._refusals > REFUSALS_MAX)
        return replace(committed, outcomes=tuple(result for result in results if result is not None))

    def _race(self, batch: Batch, state: StoreState, races_max: int) -> Committed:
        """Commit transaction functions in this process."""
        functions = batch.transactions
        try:
            return self._driver.run(self._commit_batch(state, functions, batch.rows, races_max), batch.times.created)
        except ExclusiveWriterError:  # nothing was written: take the store
            state = self._writable(create=False)
            self._must_open = self._was_fenced = False
            self.learn(state)
            return self._driver.run(self._commit_batch(state, functions, batch.rows), batch.times.created)

    def _commit_batch(
        self,
        state: StoreState,
        functions: Sequence[TransactionFunction[Any]],
        rows: Mapping[bytes, bytes | None],
        races_max: int = ATTEMPTS_MAX,
    ) -> Steps[Committed]:
        by, known = self.helper.name, self.helper.known
        return commit_batch(state, functions, self._cache, REFRESHES_MAX, rows, by=by, known=known, races_max=races_max)

    def _learn_from(self, committed: Committed, started_s: float) -> None:
        """Note what a commit has shown of other writers."""
        took_s = monotonic() - started_s
        self.losses += committed.losses
        others = 0
        if committed.entry:
            others = committed.entry - 1 - self._own_entry_last
            self._own_entry_last = committed.entry
            self._met_s = monotonic() if others else self._met_s
            if not committed.state.own_epoch and not committed.carried:
                self._turn_s = monotonic() + self._turns.after_commit(took_s, others)
        elif committed.own is not None:  # another process has carried it out
            self._met_s = monotonic()
        self.helper.update(committed, took_s, others)

    def _help(self) -> None:
        """Carry out intentions of others while nothing of this process waits. They would do it themselves, later."""
        for _ in range(HELP_ROUNDS_MAX):
            state = self.state
            if self.group.has_work or state.own_epoch or not state.is_writable or not pending(state):
                return
            started_s = monotonic()
            try:
                committed = self._driver.run(self._commit_batch(state, (), {}))
            except EndiveError as error:
                log.debug("intentions of others are left to them: %s", error)
                return
            self._learn_from(committed, started_s)
            if committed.state is not state:  # the same one may have an older listing than is known by now
                self.learn(committed.state)
            if not committed.carried:
                return

    # The end of a batch.

    def _finished(self, batch: Batch, committed: Committed) -> None:
        """Acknowledge a batch that was committed with no other before it."""
        with self.group.changed:
            self._combine(committed.state)
            self.pipeline.remove((batch,))
            self.group.done((batch,))
        answer(batch, committed.outcomes)

    def _landed(self, batch: Batch) -> None:
        """Acknowledge the batches whose entries, and all before them, exist."""
        with self.group.changed:
            durable = self.pipeline.landed(batch)
            for one in durable:
                if one.prepared is not None:
                    self.helper.served(one.helped, one.prepared.outcomes[len(one.functions) :])
                if one.after is not None:  # its listing is as old as the state that it was computed from
                    self._combine(replace(one.after, intentions=self.state.intentions))
                    self._own_entry_last = one.after.wal_end
            self.pipeline.remove(durable)
            self.group.done(durable)
        for one in durable:
            if one.prepared is not None:
                answer(one, one.prepared.outcomes)

    def _failed(self, batch: Batch, error: EndiveError) -> None:
        """Handle a write that failed: halt, or let the next batch claim or join an epoch."""
        is_fence = isinstance(error, FencedError) and not isinstance(error, ExclusiveWriterError)
        with self.group.changed:
            if batch not in self.pipeline.under_way:
                return  # one before it has failed
            self._was_fenced |= is_fence
            self._must_open |= not is_fence
        self._report(batch, error, retries=is_fence and self.may_reopen)
        if not self.may_reopen:
            self._halt(error)

    def _report(self, batch: Batch, error: EndiveError, retries: bool = False) -> None:
        """Report an error to the callers of a batch and of all behind it; with `retries` they wait again instead."""
        with self.group.changed:
            failed = self.pipeline.fail(batch, retries)
            self.group.done(failed)
            self._reject(failed, error)
        if failed:
            log_error(log, "batch_failed", error, transactions=sum(len(one.functions) for one in failed))

    def _reject(self, batches: Sequence[Batch], error: EndiveError) -> None:
        rejected = [written for batch in batches if batch.rows for written in batch.written]
        self.group.rejected = [one for one in self.group.rejected if not one.is_reported] + rejected
        reject(batches, error)

    def _halt(self, error: EndiveError) -> None:
        """Commit nothing more."""
        with self.group.changed:
            if self.group.halted is None:
                log_error(log, "halted", error, epoch=self.state.own_epoch, url=self._driver.objects.url)
            self._reject(self.group.halt(error), error)
            self.group.changed.notify_all()

    def release(self) -> None:
        """Share an epoch that this process has for itself, when it writes no more: the next writer can join it.

        Only if all entries are known, and none is on its way. Its fences then need not be kept.
        """
        with self.group.changed:
            state = self.state
            is_busy = bool(self.pipeline.under_way) or not self.pipeline.waiting.is_empty
        if is_busy or self._must_open or self._was_fenced or not state.own_epoch or not state.is_writable:
            return
        try:
            self._driver.run(share_epoch(state.own_epoch))
        except FencedError:
            return  # another writer has the store
        except EndiveError as error:
            log_error(log, "epoch_not_shared", error)

    # The known state.

    def refresh(self, ahead: Callable[[StoreState], Steps[object]] | None = None) -> StoreState:
        """Return a state at least as new as this call. A refresh that begins after the call serves all that wait."""
        changed = self.group.changed
        with changed:
            needed = self._refreshes_begun + 1
            while self.refreshes < needed and self._is_refreshing:
                changed.wait()
            if self.refreshes >= needed:
                return self.state
            self._is_refreshing = True
            self._refreshes_begun += 1
            begun = self._refreshes_begun
            state = self.state
        try:
            state = self._driver.run(refreshed(state) if ahead is None else beside(refreshed(state), ahead(state)))
        except BaseException:
            with changed:
                self._is_refreshing = False
                changed.notify_all()
            raise
        self.learn(state)
        with changed:
            self._is_refreshing = False
            self.refreshes = begun
            changed.notify_all()
        return state

    def learn(self, state: StoreState) -> None:
        """Take over a state. Halts if it shows that the writer was fenced, and may not reopen."""
        with self.group.changed:
            self._combine(state)
            known = self.state
            self.group.changed.notify_all()
        if known.own_epoch and not known.is_writable and not self.may_reopen:
            self._halt(FencedError(ROLE, known.own_epoch, known.manifest.value.writer_epoch))

    def _combine(self, state: StoreState) -> None:
        """Take over a state. Commits and refreshes go on side by side. Holding the lock."""
        self.state = self.state.combined(state)
        self._refreshed_s = monotonic()
