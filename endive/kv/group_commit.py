"""Group commit: one thread takes all works that wait, has them committed together, and answers each.

**Why a thread of its own.** The works of many callers run in it. Were it one of the callers, an interrupt that is
meant for that caller would hit the others' works.

**One group, not two halves.** Committers that were just answered come back with their next work in a moment. If a
group left at once with those who arrived meanwhile, the committers would fall into two halves that take turns, each
waiting for two requests. So a group waits for as many works as were under way or waiting when the last one ended.

How long? Works that come one after the other are worth waiting for while the next one comes sooner than a work of this
group takes on average: with n works here, (time of a commit + time waited) / n. After that, each further moment would
commit fewer works per second, not more. Threads of one interpreter come in bursts, so a few times that is granted. It
never waits longer than half a commit, and less and less often if that has not helped lately.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Lock, Thread, current_thread
from time import monotonic
from typing import Any

from endive.errors import EndiveError, OutcomeUnknownError, StoreClosedError
from endive.kv.transaction import Outcome, TransactionFunction
from endive.logs import log_error

log = logging.getLogger(__name__)

LINGER_SHARE = 0.5
"""Of a commit's time: what waiting for others may add to it at most."""
PATIENCE = 4.0
"""How many times a work's share of a commit may pass without another one, before a group leaves."""
RETRY_LINGER_GROUPS = 8
"""After waiting in vain, so that fewer works were committed per second, it is tried again once in so many groups."""

Commit = Callable[[Sequence[TransactionFunction[Any]]], tuple[Outcome, ...]]


class Answer:
    """What becomes of a work, for the thread that waits for it. A `Future` does more and costs five times as much."""

    __slots__ = ("_known", "_outcome")

    def __init__(self) -> None:
        self._known = Lock()
        self._known.acquire()
        self._outcome = Outcome()

    def give(self, outcome: Outcome) -> None:
        """Let who waits go on."""
        self._outcome = outcome
        self._known.release()

    def result(self) -> Any:  # noqa: ANN401 - what the work returns
        """Return what the work returned, or raise what it raised, once that is known."""
        with self._known:
            if self._outcome.error is not None:
                raise self._outcome.error
            return self._outcome.value


class Committer:
    """A queue of works, and the thread that commits them."""

    def __init__(self, commit: Commit, url: str, works_max: int, linger_max_ms: float) -> None:
        self._commit = commit
        self._url = url
        self._works_max = works_max
        self._linger_max_s = linger_max_ms / 1000
        self._waiting: deque[tuple[TransactionFunction[Any], Answer]] = deque()
        self._arrived_s = 0.0
        """When the last one of them came."""
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

    def submit(self, work: TransactionFunction[Any]) -> Answer:
        """Let a work wait for the next group."""
        if current_thread() is self._thread:
            raise RuntimeError("a work cannot wait for another transaction: it would wait for itself")
        answer = Answer()
        with self._changed:
            if self._closed:
                raise StoreClosedError(self._url)
            self._waiting.append((work, answer))
            self._arrived_s = monotonic()
            if len(self._waiting) == 1 or len(self._waiting) >= self._expected:  # others need not wake the thread
                self._changed.notify()
        return answer

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
            outcomes = self._outcomes([work for work, _ in group])
            took_s = monotonic() - started_s
            with self._changed:  # before anybody is answered, who could come back and be counted twice
                self._commit_s = took_s if not self._commit_s else 0.7 * self._commit_s + 0.3 * took_s
                self._expected = min(len(group) + len(self._waiting), self._works_max)
                self.groups += 1
                self.works += len(group)
            for (_, answer), outcome in zip(group, outcomes, strict=True):
                answer.give(outcome)

    def _next_group(self) -> list[tuple[TransactionFunction[Any], Answer]]:
        """Return the works of the next group; none if the store is closed."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            self._linger()
            count = min(len(self._waiting), self._works_max)
            return [self._waiting.popleft() for _ in range(count)]

    def _linger(self) -> None:
        """Wait a moment for those who were answered last. Holding the lock."""
        before = len(self._waiting)
        if before >= self._expected or self._closed or (self._in_vain and self._in_vain % RETRY_LINGER_GROUPS):
            self._in_vain += 1 if self._in_vain else 0
            return
        started_s = now_s = monotonic()
        end_s = started_s + min(self._linger_max_s, LINGER_SHARE * self._commit_s)
        while len(self._waiting) < self._expected and not self._closed:
            patience_s = PATIENCE * (self._commit_s + now_s - started_s) / len(self._waiting)
            left_s = min(max(self._arrived_s, started_s) + patience_s, end_s) - now_s
            if left_s <= 0:
                break
            self._changed.wait(left_s)
            now_s = monotonic()
        helped = len(self._waiting) * self._commit_s >= before * (self._commit_s + monotonic() - started_s)
        self._in_vain = 0 if helped else self._in_vain + 1

    def _outcomes(self, works: Sequence[TransactionFunction[Any]]) -> Sequence[Outcome]:
        """Commit works as a group; return what became of each."""
        try:
            return self._commit(works)
        except EndiveError as error:
            log_error(log, "group_failed", error, works=len(works))
            return [Outcome(error=copy_of(error)) for _ in works]
        except BaseException:
            log.exception("a group of %d works failed, by a defect", len(works))
            return [Outcome(error=OutcomeUnknownError(self._url)) for _ in works]


def copy_of(error: EndiveError) -> EndiveError:
    """Return an equal error: one that is raised in several threads must not share its traceback."""
    copied = type(error)(*error.args)
    copied.__cause__ = error
    return copied
