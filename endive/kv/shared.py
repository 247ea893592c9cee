"""The store, open for writing by several processes at once.

Threads around `endive.kv.log.shared_epoch`. Works of all threads that wait are committed as one group, in one WAL
object (`endive.kv.group_commit`). Reads of all threads that wait share their look at the log. This process
holds the store as one value, replaced when something newer is learned, so a read needs no lock while it runs.

A member is never dead for good. After an outcome that is not known the works under way get the error, and the next
call goes on. A store that somebody else keeps is taken by who wants to commit, after a moment.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from threading import Condition, Lock
from time import monotonic, sleep
from typing import Any, TypeVar

from endive.closing import Closing
from endive.drivers.blocking import BlockingDriver, random_id
from endive.errors import ExclusiveWriterError, FencedError, ForkedError, MissingObjectError, StoreClosedError
from endive.kv.counters import counters
from endive.kv.group_commit import Committer
from endive.kv.log.shared_epoch import (
    Committed,
    MemberState,
    catch_up,
    commit_group,
    join_alone,
    join_shared,
    newest_state,
)
from endive.kv.maintenance.background import Housekeeper
from endive.kv.manifest import StoreManifest
from endive.kv.options import SharedOptions
from endive.kv.sst.cache import BlockCache
from endive.kv.transaction import Outcome, Transaction, TransactionFunction, run_function
from endive.kv.turns import Turns
from endive.objects.api import ObjectStore, require_conditional_writes
from endive.protocol.sequenced import Numbered
from endive.rng import stream

log = logging.getLogger(__name__)

T = TypeVar("T")

TAKING_LOOKS_MAX = 4
"""How often a commit looks whether an epoch that somebody keeps is shared again, before it takes the store."""
COMPACTIONS_MAX = 3
REFRESHES_MAX = 10
"""How often a read takes a newer state because a file was gone."""


class SharedStore(Closing):
    """A key-value store that any number of processes have open for writing. Safe to use from several threads.

    Not after a fork: open it in the child.
    """

    def __init__(
        self,
        objects: ObjectStore,
        options: SharedOptions = SharedOptions(),  # noqa: B008 - frozen
        create: bool = True,
    ) -> None:
        self.options = options
        self.driver = BlockingDriver(require_conditional_writes(objects))
        self.cache = BlockCache(options.cache_bytes)
        self._pid = os.getpid()
        self._changed = Condition(Lock())
        self._closed = False
        self._must_join = False
        """Whether the next commit has to make sure that there is an epoch to write in."""
        self._losses = 0
        self._turns = Turns()
        self._turn_s = 0.0
        """When this process may commit again."""
        self._met_s = -inf
        """When others had last written, as far as commits have shown."""
        self._looks_begun = 0
        self._looks_done = 0
        self._is_looking = False
        self._state: MemberState = self._opened(create)
        self._learned_s = monotonic()
        self._own_slot_last = self._state.wal_end
        """The last slot that this process has filled, or that was there before it came."""
        self._factor = 1.0 + stream(int(random_id(), 16), "housekeeping").random()
        self._committer = Committer(self._commit, objects.url, options.group_works_max, options.linger_max_ms)
        self._housekeeper = Housekeeper(self, self._factor)
        self._housekeeper.start()

    def _opened(self, create: bool) -> MemberState:
        """Return the newest state. Who only reads need not fence an exclusive writer: the first commit does."""
        state = self.driver.run(newest_state())
        if state is None:
            return self._joined(create)
        self._must_join = not state.is_joined
        return state

    def _joined(self, create: bool) -> MemberState:
        return self.driver.run(join_alone(create) if self.options.exclusive else join_shared(create))

    # Transactions and reads.

    def transact(self, work: TransactionFunction[T]) -> T:
        """Run a work on the newest state, and return what it returns when everything it has put is durable.

        What the work raises is raised here; nothing of it was written then. `OutcomeUnknownError`: it may have been,
        or may still be; it is not run again.
        """
        self._require_usable()
        result: T = self._committer.submit(work).result()
        return result

    def read(self, work: TransactionFunction[T]) -> T:
        """Run a work that only reads, on a state at least as new as this call."""
        self._require_usable()
        return self._read(work, self._fresh())

    def read_cached(self, work: TransactionFunction[T]) -> T:
        """Run a work that only reads, on the state that this process knows. It may be behind others' commits."""
        self._require_usable()
        return self._read(work, self._state)

    def refresh(self) -> None:
        """Take note of everything that others have committed."""
        self._require_usable()
        self._fresh()

    def _read(self, work: TransactionFunction[T], state: MemberState) -> T:
        for _ in range(REFRESHES_MAX):
            transaction = Transaction(state.manifest.value.runs, state.recent, self.cache, is_writable=False)
            try:
                outcome = self.driver.run(run_function(work, transaction))
            except MissingObjectError:
                before, state = state, self._fresh()
                if state.manifest.number == before.manifest.number:
                    raise
                continue
            if outcome.error is not None:
                raise outcome.error
            result: T = outcome.value
            return result
        raise MissingObjectError(self.driver.objects.url)

    def _commit(self, works: Sequence[TransactionFunction[Any]]) -> tuple[Outcome, ...]:
        """Commit a group, in the committer's thread."""
        before = self._ready_to_write()
        self._await_turn()
        started_s = monotonic()
        try:
            committed = self._committed(before, works)
        except BaseException:
            # A slot that was filled unnoticed may be collected: nothing may be created in an epoch of one's own now.
            self._must_join = True
            raise
        with self._changed:
            self._learn(committed.state)
        self._losses += committed.losses
        if committed.slot:
            others = committed.slot - 1 - self._own_slot_last
            self._own_slot_last = committed.slot
            self._met_s = monotonic() if others else self._met_s
            if not committed.state.own_epoch:
                self._turn_s = monotonic() + self._turns.after_commit(monotonic() - started_s, others)
        if self.wants_compaction() and self.options.compact_here:
            self._housekeeper.hurry()
        return committed.outcomes

    def _ready_to_write(self) -> MemberState:
        """Return the state to begin a commit from; joins or claims an epoch if it is time."""
        state = self._state
        if self._must_join:
            state = self._joined(create=False)
            self._must_join = False
        elif self._wants_back(state):
            state = self.driver.run(catch_up(state))
            if state.wal_end > self._own_slot_last:  # others have written since this process did, or opened
                self._met_s, self._own_slot_last = monotonic(), state.wal_end
            else:
                state = self._joined(create=False)
        elif monotonic() - self._learned_s > self.options.idle_max_ms / 1000:
            state = self.driver.run(catch_up(state))
        return state

    def _wants_back(self, state: MemberState) -> bool:
        """Whether this process wants the store for itself, has to share it, and seems to be alone again."""
        is_quiet = monotonic() - self._met_s >= self.options.retake_ms / 1000
        return self.options.exclusive and not state.own_epoch and is_quiet

    def _committed(self, state: MemberState, works: Sequence[TransactionFunction[Any]]) -> Committed:
        """Commit a group; takes the store if somebody else keeps it, for nothing was written then."""
        try:
            return self.driver.run(commit_group(state, works, self.cache, TAKING_LOOKS_MAX))
        except ExclusiveWriterError:
            self._must_join = True
        return self.driver.run(commit_group(self._ready_to_write(), works, self.cache, TAKING_LOOKS_MAX))

    def _await_turn(self) -> None:
        """Let others go first, if it is their turn."""
        pause_s = self._turn_s - monotonic()
        if pause_s > 0:
            sleep(pause_s)

    # What is known.

    def _fresh(self) -> MemberState:
        """Return a state at least as new as this call. A look that begins after the call serves all who wait."""
        with self._changed:
            needed = self._looks_begun + 1
            while self._looks_done < needed and self._is_looking:
                self._changed.wait()
            if self._looks_done >= needed:
                return self._state
            self._is_looking = True
            self._looks_begun += 1
            begun = self._looks_begun
            state = self._state
        try:
            state = self.driver.run(catch_up(state))
        except BaseException:
            with self._changed:
                self._is_looking = False
                self._changed.notify_all()
            raise
        with self._changed:
            self._learn(state)
            self._is_looking = False
            self._looks_done = begun
            self._changed.notify_all()
        return state

    def _learn(self, state: MemberState) -> None:
        """Take note of a state. Holding the lock.

        Commits and looks go on side by side. The one that knows more of the log may know an older manifest, or not yet
        that an epoch was claimed.
        """
        known = self._state
        newer, older = (state, known) if state.wal_end >= known.wal_end else (known, state)
        if older.manifest.number > newer.manifest.number:
            newer = newer.with_manifest(older.manifest)
        if newer.manifest.value.writer_epoch in (known.own_epoch, state.own_epoch):
            newer = replace(newer, own_epoch=newer.manifest.value.writer_epoch)
        self._state = newer
        self._learned_s = monotonic()

    # For the housekeeper.

    def look_around(self) -> None:
        """Look for what others have done, if commits do not bring the news: somebody may wait for its turn."""
        if self._state.own_epoch:
            self._fresh()

    def learn_compaction(self) -> None:
        """Take the manifest that a compaction has just written."""
        self._fresh()

    def wants_compaction(self) -> bool:
        """Whether enough is in the WAL that is not in the levels."""
        state = self._state
        slots = state.wal_end - state.manifest.value.wal_id_last_compacted
        return (
            slots >= self.options.compact_slots * self._factor
            or state.recent.size_bytes >= self.options.compact_bytes * self._factor
        )

    # The rest.

    @property
    def is_exclusive_elsewhere(self) -> bool:
        """Whether another process keeps the store to itself, as far as this one knows; a commit would take it away."""
        return not self._state.is_joined

    @property
    def manifest(self) -> Numbered[StoreManifest]:
        """The newest manifest that this process knows."""
        return self._state.manifest

    def compact(self, everything: bool = False) -> None:
        """Bring the WAL into the levels now, and merge levels; `everything`: into one run.

        `FencedError`: other members' compactors came in between again and again; they have done most of it.
        """
        self._require_usable()
        for _ in range(COMPACTIONS_MAX - 1):
            try:
                return self._housekeeper.compact(everything)
            except FencedError as error:
                log.info("compacting again: %s", error)
        return self._housekeeper.compact(everything)

    def collect(self) -> None:
        """Delete what nobody needs any more."""
        self._require_usable()
        self._housekeeper.collect()

    def stats(self) -> dict[str, int]:
        """Return counters and sizes, by name."""
        state = self._state
        manifest = state.manifest.value
        held = {
            "epoch": manifest.writer_epoch,
            "manifest_id": state.manifest.number,
            "wal_end": state.wal_end,
            "row_seq": state.row_seq_last,
            "uncompacted_slots": state.wal_end - manifest.wal_id_last_compacted,
            "uncompacted_bytes": state.recent.size_bytes,
            "groups": self._committer.groups,
            "works": self._committer.works,
            "lost_races": self._losses,
            "looks": self._looks_done,
        }
        return held | counters(manifest, self.cache, self.driver)

    def close(self) -> None:
        """Commit what waits, then let go. Closing twice is no mistake; after a fork there is nothing to close."""
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        self._committer.close()
        self._housekeeper.stop()
        self.driver.close()

    def _require_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(self.driver.objects.url, self._pid, os.getpid())
        if self._closed:
            raise StoreClosedError(self.driver.objects.url)
