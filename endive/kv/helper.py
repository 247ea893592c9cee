"""Helping, as the threads of a store do it: hints for the next commit, intentions of others, deletions.

Nothing here is needed for safety: see `endive.kv.log.helping`.
"""

import logging
import os
import platform
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

from endive.drivers.blocking import BlockingDriver, random_id
from endive.errors import EndiveError
from endive.kv.log.combining import Contention, Hints
from endive.kv.log.committing import Committed
from endive.kv.log.intentions import PREFIX, Decided, Intention
from endive.kv.transaction import Outcome
from endive.logs import log_event
from endive.protocol.requests import Delete, ask

log = logging.getLogger(__name__)


class Helper:
    """What one process knows of the writers around it, and what it has done for them."""

    def __init__(self, driver: BlockingDriver) -> None:
        self.name = f"{platform.node()}:{os.getpid()}:{random_id()[:4]}"
        """Recorded with every intention that this process carries out."""
        self.known: tuple[Intention, ...] = ()
        """Intentions that were read and may still be pending."""
        self.tried: frozenset[str] = frozenset()
        """Intentions that the last batch of an exclusive writer has tried to carry out, or could not."""
        self.announced = 0
        """Batches of this process that were announced."""
        self.carried_by_others = 0
        """...and carried out by another process."""
        self.carried_for_others = 0
        """Intentions of other processes that this one has carried out."""
        self._driver = driver
        self._contention = Contention()
        self._deleting = ThreadPoolExecutor(1, thread_name_prefix="endive-intentions")

    def hints(self, is_last: bool) -> Hints:
        """Return the guesses for the next commit; `is_last`: the newest known entry is this process's."""
        return self._contention.hints(1000 * monotonic(), is_last)

    def update(self, committed: Committed, took_s: float, others: int) -> None:
        """Take in a commit; `others`: entries that other processes have written since this one's last."""
        self.known = committed.known
        self._contention.update(committed, 1000 * monotonic(), 1000 * took_s, others)
        self._count(committed)
        self.delete(PREFIX + name for name in committed.closed)
        if committed.own is not None:
            self.delete((committed.own.path,))

    def served(self, names: Sequence[str], outcomes: Sequence[Outcome]) -> None:
        """Count intentions that a durable entry of an exclusive writer has carried out, and delete closed ones."""
        self.carried_for_others += sum(outcome.value is not None for outcome in outcomes)
        found = zip(names, outcomes, strict=True)
        self.delete(PREFIX + name for name, outcome in found if outcome.value is None and outcome.error is None)

    def _count(self, committed: Committed) -> None:
        own, decided = committed.own, committed.decided
        self.carried_for_others += len(set(committed.carried) - ({own.name} if own is not None else set()))
        if own is not None and decided is not None:
            self.count(own, decided, committed.state.wal_end)

    def count(self, own: Intention, decided: Decided, entry: int) -> None:
        """Take note of an own intention that is decided, as a WAL entry up to this one says."""
        self.announced += 1
        self.carried_by_others += decided.by != self.name
        log_event(
            log,
            "carried_out",
            logging.DEBUG,
            intention=own.name,
            by=decided.by,
            calls=len(own.calls),
            entry=entry,
        )

    def delete(self, paths: Iterable[str]) -> None:
        """Delete intentions that are decided, without waiting. The garbage collector deletes the rest."""
        for path in paths:
            self._deleting.submit(self._delete, path)

    def _delete(self, path: str) -> None:
        try:
            self._driver.run(ask(Delete(path)))
        except EndiveError as error:
            log.debug("an intention stays for the garbage collector: %s", error)

    def close(self) -> None:
        """Finish deletions."""
        self._deleting.shutdown()
