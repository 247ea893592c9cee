"""Compactor and garbage collector inside a writer's process: one background thread, with the same protocols."""

import logging
import os
import threading
from collections.abc import Iterator
from threading import Event, Lock, Thread, main_thread
from time import monotonic
from typing import Protocol
from weakref import WeakSet

from endive.drivers.blocking import BlockingDriver
from endive.errors import EndiveError, FencedError, OutcomeUnknownError, StoreClosedError
from endive.kv.maintenance.claim import Claim, Maintained, claim_maintenance, maintain, release_maintenance
from endive.kv.maintenance.compactor import Compaction, compact_levels, compact_wal
from endive.kv.maintenance.garbage_collector import FOREIGN_AGE_MS, Collected, collect_garbage
from endive.kv.options import StoreOptions
from endive.logs import log_error, log_event
from endive.objects.api import HasTemporaries
from endive.objects.two_phase import TwoPhaseStore
from endive.protocol.requests import Now

log = logging.getLogger(__name__)

ENTRIES_WORTH_A_PASS = 64
"""A pass over fewer entries was the last one: entries that came meanwhile are for the next time."""
REST_POLLS = 5
"""How long a compactor that was fenced leaves compaction to the other one, in poll intervals."""


class MaintainedStore(Protocol):
    """A store that is open for writing, as background maintenance sees it."""

    def poll(self) -> None:
        """Refresh now and then, if commits do not."""
        ...

    def refresh(self) -> None:
        """Take over the manifest that a compaction has just written."""
        ...

    def collect_intentions(self) -> tuple[str, ...]:
        """Delete the intentions that are decided or have expired."""
        ...

    def wants_compaction(self) -> bool:
        """Whether enough rows are in the WAL that are not in the levels."""
        ...


def compactions(driver: BlockingDriver, epoch: int, everything: bool = False) -> Iterator[Compaction]:
    """Merge the WAL into the levels, and levels, until there is nothing more to do; yield the result of each pass.

    Entries that were written during the last pass are left: under load there are always a few, and levels would wait.
    """
    while (done := driver.run(compact_wal(epoch))) is not None:
        log_event(log, "compacted", epoch=epoch, entries=done.entries, rows=done.rows, manifest_id=done.manifest.number)
        yield done
        if done.entries < ENTRIES_WORTH_A_PASS:
            break
    while (done := driver.run(compact_levels(epoch, everything))) is not None:
        log_event(log, "merged", epoch=epoch, runs=done.runs, rows=done.rows, manifest_id=done.manifest.number)
        yield done


def collect_now(driver: BlockingDriver, retention_ms: int) -> Collected:
    """Delete objects that no reader or writer needs. On two-phase create, unfinished creates are finished first."""
    if isinstance(driver.objects, TwoPhaseStore):
        _recover(driver.objects)
    done = driver.run(collect_garbage(retention_ms))
    stale = 0
    if isinstance(driver.objects, HasTemporaries):
        stale = driver.objects.delete_temporaries(driver.answer(Now()) - FOREIGN_AGE_MS)
    _log_collected(done, stale)
    return done


def _log_collected(done: Collected, stale: int = 0) -> None:
    log_event(
        log,
        "collected",
        manifests=len(done.manifests),
        wal_entries=len(done.wal_entries),
        ssts=len(done.ssts),
        foreign=len(done.foreign) + stale,
    )


def _recover(objects: TwoPhaseStore) -> None:
    done = objects.recover()
    if done.copied or done.orphans or done.lost:
        level = logging.ERROR if done.lost else logging.INFO
        log_event(log, "recovered", level, copied=len(done.copied), orphans=len(done.orphans), lost=" ".join(done.lost))


def report(done: Maintained) -> None:
    """Log what a process has done before its end."""
    for one in done.compactions:
        event, count = ("compacted", one.entries) if one.entries else ("merged", one.runs)
        kind = "entries" if one.entries else "runs"
        log_event(log, event, rows=one.rows, manifest_id=one.manifest.number, **{kind: count})
    if done.collected is not None:
        _log_collected(done.collected)


class BackgroundMaintenance:
    """A thread that polls, and compacts and collects garbage if the store was opened that way.

    A process that ends before the thread had something to do does its share at its end (`finish`), whether the store
    is closed or not.
    """

    def __init__(
        self, store: MaintainedStore, driver: BlockingDriver, options: StoreOptions, factor: float = 1.0
    ) -> None:
        self._store = store
        self._driver = driver
        self._options = options
        self._factor = factor
        """By how much collections are rarer than the options say: processes should not all collect at once."""
        self._claim: Claim | None = None
        """While this process compacts, and until the claim expires."""
        self._busy = Lock()
        self._is_finished = not options.compact_here
        self._pid = os.getpid()
        self._stopped = Event()
        self._wanted = Event()
        self._thread = Thread(target=self._run, name="endive-maintenance", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        _unfinished.add(self)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread when it has finished its present pass."""
        self._stopped.set()
        self._wanted.set()
        self._thread.join()

    def finish(self) -> None:
        """Compact and collect garbage before the process ends, if there is enough to do and no other process does it.

        Never raises: the process's commits are acknowledged, and the next process tries again.
        """
        _unfinished.discard(self)
        if self._is_finished or os.getpid() != self._pid:
            return
        self._is_finished = True
        with self._busy:
            try:
                self._release()
                if self._store.wants_compaction():
                    self._share()
            except EndiveError as error:
                log_error(log, "maintenance_failed", error)

    def _share(self) -> None:
        options = self._options
        if isinstance(self._driver.objects, TwoPhaseStore):
            _recover(self._driver.objects)
        share = maintain(options.closing_ms, options.maintenance_lease_s, options.retention_ms)
        done = self._driver.run(share)
        if done is not None:
            report(done)
            self._store.collect_intentions()

    def hurry(self) -> None:
        """Begin the next round now: writes wait for compaction."""
        self._wanted.set()

    def compact(self, everything: bool = False) -> None:
        """Merge the WAL into the levels, and levels, until there is nothing more to do; other compactors are fenced."""
        with self._busy:
            self._compact(everything, is_forced=True)
            self._release()

    def collect(self) -> Collected:
        """Run the garbage collector."""
        with self._busy:
            collected = collect_now(self._driver, self._options.retention_ms)
        deleted = self._store.collect_intentions()
        if deleted:
            log_event(log, "intentions_deleted", intentions=len(deleted))
        return collected

    def _compact(self, everything: bool, is_forced: bool) -> None:
        claim = self._claimed(is_forced)
        if claim is None:
            self._store.refresh()  # another process compacts, or has just done so
            return
        try:
            for _ in compactions(self._driver, claim.epoch, everything):
                self._store.refresh()
                if self._stopped.is_set():
                    return
        except FencedError:
            self._claim = None  # another compactor is active; claim again when there is something to compact
            raise

    def _claimed(self, is_forced: bool) -> Claim | None:
        """Return this process's claim; None: another process has it. One that expires soon is renewed."""
        lease_s, now_s = self._options.maintenance_lease_s, self._driver.answer(Now()) // 1000
        own = self._claim
        if own is None or not now_s + lease_s // 2 <= own.expire_unix_s <= now_s + lease_s:
            self._claim = self._driver.run(claim_maintenance(lease_s, own.id if own else "", is_forced))
        return self._claim

    def _release(self) -> None:
        if self._claim is not None:
            self._driver.run(release_maintenance(self._claim))
            self._claim = None

    def _run(self) -> None:
        options = self._options
        collected_s = monotonic()
        rested_s = 0.0
        while not self._stopped.is_set():
            self._wanted.wait(options.poll_interval_ms / 1000)
            self._wanted.clear()
            if self._stopped.is_set():
                return
            try:
                self._store.poll()
                if not options.compact_here:
                    continue
                if self._store.wants_compaction() and monotonic() >= rested_s:
                    with self._busy:
                        self._compact(everything=False, is_forced=False)
                if (monotonic() - collected_s) * 1000 >= options.collect_interval_ms * self._factor:
                    collected_s = monotonic()
                    self.collect()
            except FencedError as error:
                log_error(log, "compactor_fenced", error, epoch=error.own_epoch)
                rested_s = monotonic() + REST_POLLS * self._factor * options.poll_interval_ms / 1000
            except StoreClosedError:
                return
            except OutcomeUnknownError as error:
                log_error(log, "maintenance_unsure", error)  # the next round finds out
            except EndiveError as error:
                log_error(log, "maintenance_failed", error, logging.ERROR)  # the next round tries again
            except Exception:  # without this thread the log would grow for ever
                if not main_thread().is_alive():
                    return  # the interpreter ends, and its pools take no more work
                log.exception("maintenance_failed")


_unfinished: WeakSet[BackgroundMaintenance] = WeakSet()
"""Of stores that were not closed."""


def _finish_all() -> None:
    for maintenance in list(_unfinished):
        maintenance.stop()
        maintenance.finish()


# Most programs never close a catalog. Pools of threads stop before `atexit`, and this runs before they do, as
# `concurrent.futures` itself does.
threading._register_atexit(_finish_all)  # type: ignore[attr-defined]
