"""An exclusive writer with several batches in flight, in virtual time, as `endive.kv.writer` with threads."""

from dataclasses import dataclass, field
from typing import Any

from endive.errors import EndiveError, FencedError, MissingObjectError
from endive.kv.log.committing import after_missing, append_exclusive, prepare
from endive.kv.log.state import StoreState, refreshed
from endive.kv.pipeline import Batch, Pipeline
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Outcome, TransactionFunction
from endive.protocol.requests import Sleep, Steps, ask


@dataclass
class Result:
    """The outcome of a function; None: not known yet."""

    outcome: Outcome | None = None

    def give(self, outcome: Outcome) -> None:
        self.outcome = outcome


@dataclass
class PipelinedWriter:
    """A writer that stops at the first error."""

    state: StoreState
    parallel_writes: int
    pipeline: Pipeline = field(init=False)
    errors: list[EndiveError] = field(default_factory=list)

    @property
    def error(self) -> EndiveError | None:
        """What stopped the writer."""
        return self.errors[0] if self.errors else None

    def __post_init__(self) -> None:
        self.pipeline = Pipeline(self.parallel_writes, 100)

    def submit(self, function: TransactionFunction[Any]) -> Result:
        result = Result()
        self.pipeline.waiting.functions.append((function, result))
        return result

    def commit(self) -> Steps[None]:
        """Take the batch that waits, compute it, send it, and acknowledge in order."""
        batch = self.pipeline.take()
        try:
            is_sent = yield from self._compute(batch)
        except EndiveError as error:
            self._fail(batch, error)
            return
        finally:
            self.pipeline.computed()
        if not is_sent:
            return
        prepared = batch.prepared
        assert prepared is not None
        assert prepared.entry is not None
        try:
            yield from append_exclusive(prepared.before, prepared.entry)
        except EndiveError as error:
            self._fail(batch, error)
            return
        durable = self.pipeline.landed(batch)
        for one in durable:
            assert one.after is not None
            assert one.prepared is not None
            self.state = self.state.combined(one.after)
            self._answer(one, one.prepared.outcomes)
        self.pipeline.remove(durable)

    def _compute(self, batch: Batch) -> Steps[bool]:
        functions = tuple(function for function, _ in batch.functions)
        while True:
            base = self.pipeline.base(batch, self.state)
            try:
                prepared = yield from prepare(base, functions, NoCache(), batch.rows)
                break
            except MissingObjectError as error:  # compacted and collected elsewhere
                newer = yield from after_missing(self.state, error)
                self.state = self.state.combined(newer)
        if batch not in self.pipeline.under_way:
            return False
        if prepared.entry is not None:
            self.pipeline.sent(batch, prepared)
            return True
        while batch in self.pipeline.under_way and not self.pipeline.is_first(batch):
            yield from ask(Sleep(5))
        if batch not in self.pipeline.under_way:
            return False
        newest = yield from refreshed(self.state)
        if not newest.is_writable or newest.wal_end != base.wal_end:
            raise FencedError("writer", base.own_epoch, newest.manifest.value.writer_epoch)
        self.state = self.state.combined(newest)
        self._answer(batch, prepared.outcomes)
        self.pipeline.remove((batch,))
        return False

    def _fail(self, batch: Batch, error: EndiveError) -> None:
        for one in self.pipeline.fail(batch, retries=False):
            self._answer(one, tuple(Outcome(error=error) for _ in one.functions))
        self.errors.append(error)

    def _answer(self, batch: Batch, outcomes: tuple[Outcome, ...]) -> None:
        for (_, result), outcome in zip(batch.functions, outcomes, strict=True):
            result.give(outcome)
