"""Compactor and collector inside a writer's process: one background thread, by the same protocols as on their own."""

import logging
from collections.abc import Iterator
from threading import Event, Lock, Thread, main_thread
from time import monotonic
from typing import Protocol

from endive.drivers.blocking import BlockingDriver
from endive.errors import EndiveError, FencedError, OutcomeUnknownError
from endive.kv.maintenance.compactor import Compaction, claim_compactor, compact_levels, compact_wal
from endive.kv.maintenance.garbage_collector import Collected, collect_garbage
from endive.logs import log_error, log_event
from endive.objects.two_phase import TwoPhaseStore

log = logging.getLogger(__name__)

SLOTS_WORTH_A_PASS = 64
"""A pass over fewer slots was the last one: what came meanwhile is for the next time."""
REST_POLLS = 5
"""How long a compactor that was fenced leaves the work to the other one, in intervals of looking for work."""


class Habits(Protocol):
    """The options that concern housekeeping; `StoreOptions` says what they mean."""

    @property
    def compact_here(self) -> bool:
        """Whether to compact and to collect."""
        ...

    @property
    def poll_interval_ms(self) -> float:
        """How often to look for something to do."""
        ...

    @property
    def collect_interval_ms(self) -> float:
        """How often to collect."""
        ...

    @property
    def retention_ms(self) -> int:
        """How long superseded manifests are kept."""
        ...


class Household(Protocol):
    """A store that is open for writing, as its housekeeper sees it."""

    driver: BlockingDriver

    @property
    def options(self) -> Habits:
        """How often to do what."""
        ...

    def look_around(self) -> None:
        """Take note of what others did, if that is worth a request now and then."""
        ...

    def learn_compaction(self) -> None:
        """Take the manifest that a compaction has just written."""
        ...

    def wants_compaction(self) -> bool:
        """Whether enough is in the WAL that is not in the levels."""
        ...


def compactions(driver: BlockingDriver, epoch: int, everything: bool = False) -> Iterator[Compaction]:
    """Bring the WAL into the levels and merge levels until there is nothing more to do; yield what each pass did.

    Slots that were filled during the last pass are left: under load there are always a few, and levels would wait.
    """
    while (done := driver.run(compact_wal(epoch))) is not None:
        log_event(log, "compacted", epoch=epoch, slots=done.slots, rows=done.rows, manifest_id=done.manifest.number)
        yield done
        if done.slots < SLOTS_WORTH_A_PASS:
            break
    while (done := driver.run(compact_levels(epoch, everything))) is not None:
        log_event(log, "merged", epoch=epoch, runs=done.runs, rows=done.rows, manifest_id=done.manifest.number)
        yield done


def collect_now(driver: BlockingDriver, retention_ms: int) -> Collected:
    """Delete what nobody needs any more. On two-phase create, what others have left unfinished is finished first."""
    if isinstance(driver.objects, TwoPhaseStore):
        _recover(driver.objects)
    done = driver.run(collect_garbage(retention_ms))
    log_event(log, "collected", manifests=len(done.manifests), wal_slots=len(done.wal_slots), ssts=len(done.ssts))
    return done


def _recover(objects: TwoPhaseStore) -> None:
    done = objects.recover()
    if done.copied or done.orphans or done.lost:
        level = logging.ERROR if done.lost else logging.INFO
        log_event(log, "recovered", level, copied=len(done.copied), orphans=len(done.orphans), lost=" ".join(done.lost))


class Housekeeper:
    """Looks for newer manifests, and compacts and collects if the store was opened that way."""

    def __init__(self, store: Household, factor: float = 1.0) -> None:
        self._factor = factor
        """By how much collections are rarer than the options say: several processes should not collect at once."""
        self._store = store
        self._epoch = 0
        """Of the compactor; 0: not claimed. It is claimed when there is something to do."""
        self._busy = Lock()
        self._stopped = Event()
        self._wanted = Event()
        self._thread = Thread(target=self._keep_house, name="endive-housekeeping", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread when it has finished what it does."""
        self._stopped.set()
        self._wanted.set()
        self._thread.join()

    def hurry(self) -> None:
        """Somebody waits for room: do not wait for the next round."""
        self._wanted.set()

    def compact(self, everything: bool = False) -> None:
        """Bring the WAL into the levels and merge levels, until there is nothing more to do."""
        with self._busy:
            try:
                self._compact(everything)
            except FencedError:
                self._epoch = 0  # another compactor is at work; claim anew when there is something to do
                raise

    def collect(self) -> Collected:
        """Delete what nobody needs any more."""
        with self._busy:
            return collect_now(self._store.driver, self._store.options.retention_ms)

    def _compact(self, everything: bool) -> None:
        store = self._store
        self._epoch = self._epoch or store.driver.run(claim_compactor())
        for _ in compactions(store.driver, self._epoch, everything):
            store.learn_compaction()
            if self._stopped.is_set():
                return

    def _keep_house(self) -> None:
        options = self._store.options
        collected_s = monotonic()
        rested_s = 0.0
        while not self._stopped.is_set():
            self._wanted.wait(options.poll_interval_ms / 1000)
            self._wanted.clear()
            if self._stopped.is_set():
                return
            try:
                self._store.look_around()
                if not options.compact_here:
                    continue
                if self._store.wants_compaction() and monotonic() >= rested_s:
                    self.compact()
                if (monotonic() - collected_s) * 1000 >= options.collect_interval_ms * self._factor:
                    collected_s = monotonic()
                    self.collect()
            except FencedError as error:
                log_error(log, "compactor_fenced", error, epoch=error.own_epoch)
                rested_s = monotonic() + REST_POLLS * self._factor * options.poll_interval_ms / 1000
            except OutcomeUnknownError as error:
                log_error(log, "housekeeping_unsure", error)  # the next round looks how it went
            except EndiveError as error:
                log_error(log, "housekeeping_failed", error, logging.ERROR)  # the next round tries again
            except Exception:  # without this thread the log would grow for ever
                if not main_thread().is_alive():
                    return  # the interpreter ends, and its pools take no more work
                log.exception("housekeeping_failed")
