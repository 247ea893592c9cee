"""Group commit: threads that wait share commit batches.

All rows and transaction functions that wait become one batch, and what arrives meanwhile shares the next one
(`endive.kv.pipeline`). A batch with transaction functions is committed by a thread of the store: were it one of
the callers, an interrupt meant for that caller would hit the functions of others. A batch of rows alone is committed by
a thread that waits for it, which saves a change of threads; rows that no thread waits for are committed by a thread of
the store, after an interval or when there are enough of them.

**When a batch leaves.** Callers that were just answered come back with their next function in a moment. If a batch left
with the first of them, the others would wait for the next, and batches would be many and small. So a batch waits for as
many functions as were waiting or answered last. How long? Functions that come one after the other are worth waiting for
while the next one comes sooner than a function of this batch takes on average: with n functions here, (time between
batches + time waited) / n. After that, each further moment would commit fewer functions per second, not more. Threads
of one interpreter come in bursts, so a few times that is granted. It never waits longer than half the time between
batches, and less and less often if that has not helped lately. With several entries in flight, the time between
batches is that share of a commit's time.
"""

from collections.abc import Callable, Iterable, Sequence
from threading import Condition, Lock, Thread, current_thread
from time import monotonic
from typing import Any, Generic, TypeVar

from endive.errors import EndiveError, StoreClosedError, copy_of
from endive.kv.commit_times import BatchTimes, CommitTimes
from endive.kv.options import StoreOptions
from endive.kv.pipeline import Batch, Pipeline, Written
from endive.kv.transaction import Outcome, TransactionFunction
from endive.stages import recorded_stages

T = TypeVar("T")

LINGER_SHARE = 0.5
"""Of the time between batches: how much waiting for others may add to it at most."""
PATIENCE = 4.0
"""How many times a function's share of a commit may pass without another one, before a batch leaves."""
UNHURRIED_S = 0.15
"""How long a function that is not urgent waits for a batch with others."""
RETRY_LINGER_BATCHES = 8
"""After waiting without a gain, it is tried again once in so many batches."""


class Result(Generic[T]):
    """The outcome of a function, for the thread that waits for it. A `Future` costs five times as much."""

    __slots__ = ("_known", "_outcome", "submitted_s", "times")

    def __init__(self) -> None:
        self._known = Lock()
        self._known.acquire()
        self._outcome = Outcome()
        self.submitted_s = monotonic()
        self.times: BatchTimes | None = None
        """Of the batch that it is in."""

    def give(self, outcome: Outcome) -> None:
        """Let the waiting thread continue."""
        self._outcome = outcome
        self._known.release()

    def wait(self) -> T:
        """Return what the function returned, or raise what it raised, once that is known."""
        with self._known:
            recorded = recorded_stages()
            if recorded is not None and self.times is not None:
                recorded.extend(self.times.stages(self.submitted_s, monotonic()))
            if self._outcome.error is not None:
                raise self._outcome.error
            value: T = self._outcome.value
            return value


class GroupCommit:
    """Rows and functions that wait, and the threads that commit them."""

    def __init__(self, commit: Callable[[Batch], None], url: str, pipeline: Pipeline, options: StoreOptions) -> None:
        self.pipeline = pipeline
        self.changed = Condition(Lock())
        """Guards the pipeline and the writer's state; notified when a batch is over, or the state is newer."""
        self._work = Condition(self.changed._lock)  # type: ignore[attr-defined] # a second queue of the same lock
        self._arrived = Condition(self.changed._lock)  # type: ignore[attr-defined] # for the thread that lingers
        self._commit = commit
        self._url = url
        self._options = options
        self.halted: EndiveError | None = None
        self.rejected: list[Written] = []
        """Rows that are not durable because their batch failed, unless a caller got the error."""
        self._closed = False
        self._due_s = 0.0
        """When rows that no thread waits for are committed."""
        self._unhurried: list[tuple[TransactionFunction[Any], Result[Any]]] = []
        """Functions that share the next batch with others, whenever that comes."""
        self._unhurried_due_s = 0.0
        """...or are committed alone then."""
        self._arrived_s = 0.0
        """When the last function came."""
        self._commit_s = 0.0
        """How long a commit took lately."""
        self._in_vain = 0
        """Batches since waiting helped."""
        self.batches = 0
        self.functions = 0
        self.times = CommitTimes()
        names = (f"endive-commit-{number}" for number in range(pipeline.parallel_writes))
        self._threads = [Thread(target=self._run, name=name, daemon=True) for name in names]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    # For callers.

    def submit(self, function: TransactionFunction[T]) -> Result[T]:
        """Let a function wait for the next batch."""
        if current_thread() in self._threads:
            raise RuntimeError("a transaction function cannot wait for another transaction: it would wait for itself")
        result: Result[T] = Result()
        with self.changed:
            self.require_open()
            if not is_urgent(function):
                if not self._unhurried:
                    self._unhurried_due_s = monotonic() + UNHURRIED_S
                    self._work.notify()
                self._unhurried.append((function, result))
                return result
            waiting = self.pipeline.waiting.functions
            waiting.append((function, result))
            self._arrived_s = monotonic()
            if len(waiting) == 1:  # others need not wake a thread
                self._work.notify()
            elif len(waiting) >= self._wanted():
                self._arrived.notify()
        return result

    def put(self, rows: Iterable[tuple[bytes, bytes | None]], is_awaited: bool) -> Written:
        """Let rows wait for the next batch."""
        with self.changed:
            self.require_open()
            pipeline = self.pipeline
            is_first, before = not pipeline.waiting.rows, pipeline.waiting.size_bytes
            written = pipeline.add_rows(rows)
            if not is_awaited:
                if pipeline.waiting.size_bytes - before >= self._options.skip_memtable_bytes:
                    self._due_s = 0.0
                    self._work.notify()
                elif is_first:
                    self._due_s = monotonic() + self._options.flush_interval_ms / 1000
                    self._work.notify()
                elif pipeline.waiting.size_bytes >= self._options.flush_bytes:
                    self._work.notify()
        return written

    def wait(self, written: Written) -> None:
        """Return when rows are durable; commits them in this thread if no function waits with them."""
        while True:
            with self.changed:
                while not written.is_durable and written.error is None and not self._may_commit_here(written):
                    self.changed.wait()
                if written.is_durable:
                    return
                if written.error is not None:
                    written.is_reported = True
                    raise copy_of(written.error)
                batch = self.pipeline.take()
            self._lead(batch)

    def _may_commit_here(self, written: Written) -> bool:
        waiting = self.pipeline.waiting
        return self.pipeline.can_take() and not waiting.functions and written in waiting.written

    def flush(self) -> None:
        """Return when all rows that were put so far are durable."""
        with self.changed:
            batches = [batch for batch in (*self.pipeline.under_way, self.pipeline.waiting) if batch.rows]
            pending = [written for batch in batches for written in batch.written]
        for written in pending:
            self.wait(written)

    def require_reported(self) -> None:
        """Raise the error of rows that were not made durable, if no caller got it."""
        for written in self.rejected:
            if written.error is not None and not written.is_reported:
                raise copy_of(written.error)

    def require_open(self) -> None:
        """Raise the error that stopped the store. Holding the lock, or not: an error stays."""
        if self._closed:
            raise StoreClosedError(self._url)
        if self.halted is not None:
            raise copy_of(self.halted)

    # For the writer, holding the lock.

    def halt(self, error: EndiveError) -> tuple[Batch, ...]:
        """Commit nothing more; return the batches that wait, for the caller to answer."""
        self.halted = self.halted or error
        self._hurry()
        waiting, self.pipeline.waiting = self.pipeline.waiting, Batch()
        self.pipeline.unflushed_bytes -= waiting.size_bytes
        self._work.notify_all()
        return () if waiting.is_empty else (waiting,)

    def done(self, batches: Iterable[Batch]) -> None:
        """Count batches that are over, before their callers are answered: these could come back and count twice."""
        for batch in batches:
            self.batches += 1
            self.functions += len(batch.functions)
            returning = sum(is_urgent(function) for function, _ in batch.functions)
            self.pipeline.expected = returning + len(self.pipeline.waiting.functions)
            if returning:  # its callers come back in a moment
                self._unhurried_due_s = monotonic() + UNHURRIED_S
        self.changed.notify_all()
        self._work.notify()

    @property
    def is_open(self) -> bool:
        """Whether more can be submitted."""
        return not self._closed and self.halted is None

    @property
    def has_work(self) -> bool:
        """Whether something waits for the next batch, or the store is being closed."""
        return self._closed or not self.pipeline.waiting.is_empty

    def computed(self) -> None:
        """Let the next batch be computed."""
        self.pipeline.computed()
        if self.pipeline.can_take():
            self.changed.notify_all()
            self._work.notify()

    def close(self) -> None:
        """Commit what waits, then stop the threads."""
        with self.changed:
            self._closed = True
            self._work.notify_all()
            self._arrived.notify_all()
        for thread in self._threads:
            thread.join()

    # Threads.

    def _run(self) -> None:
        while True:
            with self.changed:
                while not self._is_due():
                    if self._closed and self.pipeline.waiting.is_empty and not self._unhurried:
                        return
                    self._work.wait(self._until_due_s())
                if self.pipeline.waiting.functions:
                    self._linger()
                    if not self._is_due():  # another thread took it meanwhile
                        continue
                    self._hurry()
                batch = self.pipeline.take()
            self._lead(batch)

    def _lead(self, batch: Batch) -> None:
        batch.times = times = BatchTimes(len(batch.functions), monotonic())
        results = [one for _, one in batch.functions if isinstance(one, Result)]
        for one in results:
            one.times = times
        self._commit(batch)
        took_s = monotonic() - times.taken_s
        put_s = times.put_s
        self.times.add((times.taken_s - one.submitted_s for one in results), took_s - put_s, put_s)
        with self.changed:
            self._commit_s = took_s if not self._commit_s else 0.7 * self._commit_s + 0.3 * took_s

    def _is_due(self) -> bool:
        """Whether a thread of the store should commit the batch that waits."""
        waiting = self.pipeline.waiting
        if self._unhurried and not self.pipeline.under_way and self._until_unhurried_s() == 0:
            self._hurry()
        if not self.pipeline.can_take():
            return False
        return bool(waiting.functions) or self._until_due_s() == 0

    def _hurry(self) -> None:
        """Let functions that are not urgent wait no longer. Holding the lock."""
        self.pipeline.waiting.functions += self._unhurried
        self._unhurried = []

    def _until_unhurried_s(self) -> float:
        """Seconds until functions that are not urgent are committed alone."""
        return 0 if self._closed else max(self._unhurried_due_s - monotonic(), 0)

    def _until_due_s(self) -> float | None:
        """Seconds until something that no thread is to commit at once has to be; None: only when it is notified."""
        waiting, now_s = self.pipeline.waiting, monotonic()
        until_s = [self._until_unhurried_s()] if self._unhurried and not self.pipeline.under_way else []
        if waiting.rows and self.pipeline.can_take():
            is_full = waiting.size_bytes >= self._options.flush_bytes or self._closed
            until_s.append(0 if is_full else max(self._due_s - now_s, 0))
        return min(until_s, default=None)

    def _wanted(self) -> int:
        """How many functions a batch waits for."""
        return min(self.pipeline.expected, self.pipeline.share())

    def _linger(self) -> None:
        """Wait a moment for the callers that were answered last. Holding the lock."""
        pipeline = self.pipeline
        before = len(pipeline.waiting.functions)
        if before >= self._wanted() or self._closed or (self._in_vain and self._in_vain % RETRY_LINGER_BATCHES):
            self._in_vain += 1 if self._in_vain else 0
            return
        between_s = self._commit_s / pipeline.parallel_writes
        started_s = now_s = monotonic()
        end_s = started_s + min(self._options.linger_max_ms / 1000, LINGER_SHARE * between_s)
        pipeline.is_computing = True  # no other thread takes the batch meanwhile
        while len(pipeline.waiting.functions) < self._wanted() and not self._closed and self.halted is None:
            patience_s = PATIENCE * (between_s + now_s - started_s) / max(len(pipeline.waiting.functions), 1)
            left_s = min(max(self._arrived_s, started_s) + patience_s, end_s) - now_s
            if left_s <= 0:
                break
            self._arrived.wait(left_s)
            now_s = monotonic()
        pipeline.is_computing = False
        helped = len(pipeline.waiting.functions) * between_s >= before * (between_s + monotonic() - started_s)
        self._in_vain = 0 if helped else self._in_vain + 1


def is_urgent(function: TransactionFunction[Any]) -> bool:
    """Whether a function is to be committed as soon as possible."""
    return bool(getattr(function, "is_urgent", True))


def answer(batch: Batch, outcomes: Sequence[Outcome]) -> None:
    """Let the callers of a batch continue. Intentions that it carried out have outcomes, too, behind its own."""
    for (_, result), outcome in zip(batch.functions, outcomes, strict=False):
        result.give(outcome)


def reject(batches: Sequence[Batch], error: EndiveError) -> None:
    """Report an error to all callers of batches that failed."""
    for batch in batches:
        for written in batch.written:
            written.error = error
        answer(batch, [Outcome(error=copy_of(error)) for _ in batch.functions])
