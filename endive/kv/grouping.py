"""Group commit: one thread takes all works that wait, has them committed together, and answers each.

**Why a thread of its own.** The works of many callers run in it. Were it one of the callers, an interrupt that is
meant for that caller would hit the others' works.

**One group, not two halves.** Committers that were just answered come back with their next work in a moment. If a
group left at once with those who arrived meanwhile, the committers would fall into two halves that take turns, each
waiting for two requests. So a group waits for as many works as were under way or waiting when the last one ended, but
no longer than a tenth of a commit, and less and less if that has not helped lately.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Condition, Lock, Thread, current_thread
from time import monotonic
from typing import Any

from endive.errors import EndiveError, OutcomeUnknownError, StoreClosedError
from endive.kv.transaction import Outcome, Work

log = logging.getLogger(__name__)

LINGER_SHARE = 0.1
"""Of a commit's time: what waiting for others may add to it."""
RETRY_LINGER_GROUPS = 16
"""After waiting in vain, it is tried again once in so many groups."""

Commit = Callable[[Sequence[Work[Any]]], tuple[Outcome, ...]]


class Committer:
    """A queue of works, and the thread that commits them."""

    def __init__(self, commit: Commit, url: str, works_max: int, linger_max_ms: float) -> None:
        self._commit = commit
        self._url = url
        self._works_max = works_max
        self._linger_max_s = linger_max_ms / 1000
        self._waiting: deque[tuple[Work[Any], Future[Any]]] = deque()
        self._changed = Condition(Lock())
        self._closed = False
        self._expected = 0
        """Works that will probably arrive in a moment, counting those that wait."""
        self._commit_s = 0.0
        """How long a commit took lately."""
        self._in_vain = 0
        """Groups since waiting helped."""
        self.groups = 0
        self.works = 0
        self._thread = Thread(target=self._work, name="endive-commit", daemon=True)
        self._thread.start()

    def submit(self, work: Work[Any]) -> "Future[Any]":
        """Let a work wait for the next group."""
        if current_thread() is self._thread:
            raise RuntimeError("a work cannot wait for another transaction: it would wait for itself")
        future: Future[Any] = Future()
        with self._changed:
            if self._closed:
                raise StoreClosedError(self._url)
            self._waiting.append((work, future))
            if len(self._waiting) == 1 or len(self._waiting) >= self._expected:
                self._changed.notify()
        return future

    def close(self) -> None:
        """Commit what waits, then stop."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while True:
            group = self._next_group()
            if not group:
                return
            started_s = monotonic()
            self._answer(group)
            took_s = monotonic() - started_s
            with self._changed:
                self._commit_s = took_s if not self._commit_s else 0.7 * self._commit_s + 0.3 * took_s
                self._expected = min(len(group) + len(self._waiting), self._works_max)
                self.groups += 1
                self.works += len(group)

    def _next_group(self) -> list[tuple[Work[Any], "Future[Any]"]]:
        """Return the works of the next group; none if the store is closed."""
        with self._changed:
            self._linger()
            while not self._waiting and not self._closed:
                self._changed.wait()
            count = min(len(self._waiting), self._works_max)
            return [self._waiting.popleft() for _ in range(count)]

    def _linger(self) -> None:
        """Wait a moment for those who were answered last. Holding the lock."""
        before = len(self._waiting)
        wanted = self._expected - before
        if wanted <= 0 or self._closed or (self._in_vain and self._in_vain % RETRY_LINGER_GROUPS):
            self._in_vain += 1 if self._in_vain else 0
            return
        deadline_s = monotonic() + min(self._linger_max_s, LINGER_SHARE * self._commit_s)
        while len(self._waiting) < self._expected and not self._closed:
            left_s = deadline_s - monotonic()
            if left_s <= 0 or not self._changed.wait(left_s):
                break
        helped = 2 * (len(self._waiting) - before) >= wanted
        self._in_vain = 0 if helped else self._in_vain + 1

    def _answer(self, group: list[tuple[Work[Any], "Future[Any]"]]) -> None:
        try:
            outcomes = self._commit([work for work, _ in group])
        except EndiveError as error:
            log.warning("a group of %d works failed: %s", len(group), error)
            for _, future in group:
                future.set_exception(copy_of(error))
        except BaseException:
            log.exception("a group of %d works failed", len(group))
            for _, future in group:
                future.set_exception(OutcomeUnknownError(self._url))
        else:
            for (_, future), outcome in zip(group, outcomes, strict=True):
                if outcome.error is None:
                    future.set_result(outcome.value)
                else:
                    future.set_exception(outcome.error)


def copy_of(error: EndiveError) -> EndiveError:
    """Return an equal error: one that is raised in several threads must not share its traceback."""
    copied = type(error)(*error.args)
    copied.__cause__ = error
    return copied
