"""Compactor and garbage collector inside a writer's process: one background thread, with the same protocols."""

import logging
from collections.abc import Iterator
from threading import Event, Lock, Thread, main_thread
from time import monotonic
from typing import Protocol

from endive.drivers.blocking import BlockingDriver
from endive.errors import EndiveError, FencedError, OutcomeUnknownError, StoreClosedError
from endive.kv.maintenance.compactor import Compaction, claim_compactor, compact_levels, compact_wal
from endive.kv.maintenance.garbage_collector import Collected, collect_garbage
from endive.kv.options import StoreOptions
from endive.logs import log_error, log_event
from endive.objects.two_phase import TwoPhaseStore

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
        """Delete the intentions that nobody can carry out any more."""
        ...

    def wants_compaction(self, factor: float) -> bool:
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
    log_event(log, "collected", manifests=len(done.manifests), wal_entries=len(done.wal_entries), ssts=len(done.ssts))
    return done


def _recover(objects: TwoPhaseStore) -> None:
    done = objects.recover()
    if done.copied or done.orphans or done.lost:
        level = logging.ERROR if done.lost else logging.INFO
        log_event(log, "recovered", level, copied=len(done.copied), orphans=len(done.orphans), lost=" ".join(done.lost))


class BackgroundMaintenance:
    """A thread that polls, and compacts and collects garbage if the store was opened that way."""

    def __init__(
        self, store: MaintainedStore, driver: BlockingDriver, options: StoreOptions, factor: float = 1.0
    ) -> None:
        self._store = store
        self._driver = driver
        self._options = options
        self._factor = factor
        """By how much compactions and collections are rarer than the options say."""
        self._epoch = 0
        """Of the compactor; 0: not claimed. It is claimed when there is something to compact."""
        self._busy = Lock()
        self._stopped = Event()
        self._wanted = Event()
        self._thread = Thread(target=self._run, name="endive-maintenance", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread when it has finished its present pass."""
        self._stopped.set()
        self._wanted.set()
        self._thread.join()

    def hurry(self) -> None:
        """Begin the next round now: writes wait for compaction."""
        self._wanted.set()

    def compact(self, everything: bool = False) -> None:
        """Merge the WAL into the levels, and levels, until there is nothing more to do."""
        with self._busy:
            try:
                self._compact(everything)
            except FencedError:
                self._epoch = 0  # another compactor is active; claim again when there is something to compact
                raise

    def collect(self) -> Collected:
        """Run the garbage collector."""
        with self._busy:
            collected = collect_now(self._driver, self._options.retention_ms)
        deleted = self._store.collect_intentions()
        if deleted:
            log_event(log, "intentions_deleted", intentions=len(deleted))
        return collected

    def _compact(self, everything: bool) -> None:
        self._epoch = self._epoch or self._driver.run(claim_compactor())
        for _ in compactions(self._driver, self._epoch, everything):
            self._store.refresh()
            if self._stopped.is_set():
                return

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
                if self._store.wants_compaction(self._factor) and monotonic() >= rested_s:
                    self.compact()
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
