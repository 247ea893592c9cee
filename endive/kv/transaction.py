"""Transactions: what a work sees and what it wants to write. No I/O.

A *work* is a generator over a transaction: it reads, decides and puts, all in memory. It is run against one state of
the store, and again against a newer one if somebody else was faster, so it must depend on nothing but what it reads.
What it puts becomes durable as a whole, together with the other works of its group, or not at all.

**What an error may reveal.** A work that raises contributes nothing, and its error is its answer. It may have seen
rows of works before it in the group, so the answer waits until those are durable; a group of errors and reads alone
waits until its state is known to be the newest (`endive.kv.log.shared_epoch`). So an error speaks of durable state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from endive.errors import MissingObjectError, ReadOnlyError
from endive.kv.log.recent import Recent
from endive.kv.manifest import SortedRun
from endive.kv.sst.format import KEY_BYTES_MAX, VALUE_BYTES_MAX, Rows
from endive.kv.sst.lookup import NOT_CACHED, Row, find_cached, find_in_runs, overlapping, rows_in_range
from endive.kv.sst.merge import KeyRange
from endive.kv.sst.reading import TableCache
from endive.protocol.requests import Steps

T = TypeVar("T")


@dataclass
class Transaction:
    """One work's view of one state of the store: levels, recent rows, rows of works before it, its own rows."""

    runs: tuple[SortedRun, ...]
    recent: Recent
    cache: TableCache
    earlier: dict[bytes, bytes | None] = field(default_factory=dict)
    """Rows of the works before it in the same group."""
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    """What this work wants to write; None deletes."""
    is_writable: bool = True
    missing: str = ""
    """An object that was gone: the state is too old to be read."""

    def get(self, key: bytes) -> Steps[bytes | None]:
        """Return the value of `key`; None if it has none."""
        if key in self.rows:
            return self.rows[key]
        if key in self.earlier:
            return self.earlier[key]
        row = self.recent.find(key)
        if row is None:
            row = yield from self._find_in_levels(key)
        return None if row is None else row.value

    def scan(self, prefix: bytes) -> Steps[tuple[tuple[bytes, bytes], ...]]:
        """Return all keys that start with `prefix` and their values, in key order."""
        keys = KeyRange.of_prefix(prefix)
        held = yield from self._range_of_levels(keys)
        found = dict(zip(held.keys, held.values, strict=True))
        found.update(self.recent.within(keys))
        for rows in (self.earlier, self.rows):
            found.update((key, value) for key, value in rows.items() if key.startswith(prefix))
        return tuple((key, value) for key, value in sorted(found.items()) if value is not None)

    def put(self, key: bytes, value: bytes) -> None:
        """Set `key` to `value`, if the work succeeds."""
        if type(value) is not bytes:
            raise TypeError(f"values are bytes, not {type(value).__name__}")
        if len(value) > VALUE_BYTES_MAX:
            raise ValueError(f"a value may have {VALUE_BYTES_MAX:,} bytes")
        self._write(key, value)

    def delete(self, key: bytes) -> None:
        """Remove `key`, if it is there and the work succeeds."""
        self._write(key, None)

    def _write(self, key: bytes, value: bytes | None) -> None:
        if type(key) is not bytes:
            raise TypeError(f"keys are bytes, not {type(key).__name__}")
        if len(key) > KEY_BYTES_MAX:
            raise ValueError(f"a key may have {KEY_BYTES_MAX:,} bytes")
        if not self.is_writable:
            raise ReadOnlyError(key)
        self.rows[key] = value

    def _find_in_levels(self, key: bytes) -> Steps[Row | None]:
        found = find_cached(self.runs, key, self.cache)
        if found is not NOT_CACHED:
            return found
        try:
            row = yield from find_in_runs(self.runs, key, self.cache)
        except MissingObjectError as error:
            self.missing = error.path
            raise
        return row

    def _range_of_levels(self, keys: KeyRange) -> Steps[Rows]:
        try:
            rows = yield from rows_in_range(overlapping(self.runs, keys), keys, self.cache)
        except MissingObjectError as error:
            self.missing = error.path
            raise
        return rows


TransactionFunction = Callable[[Transaction], Steps[T]]
"""Reads, decides and puts. May be run several times; raising an error aborts this work alone."""


@dataclass(frozen=True)
class Outcome:
    """How a work ended: with a value, or with an error that is its answer."""

    value: Any = None
    error: Exception | None = None


def run_function(work: TransactionFunction[Any], transaction: Transaction) -> Steps[Outcome]:
    """Run one work to its end. `MissingObjectError`: the state is too old, whatever the work made of that."""
    try:
        value = yield from work(transaction)
    except Exception as error:  # noqa: BLE001 - whatever a work raises is its own answer
        outcome = Outcome(error=error)
    else:
        outcome = Outcome(value)
    if transaction.missing:
        raise MissingObjectError(transaction.missing)
    return outcome


def run_functions(
    works: Sequence[TransactionFunction[Any]], runs: tuple[SortedRun, ...], recent: Recent, cache: TableCache
) -> Steps[tuple[tuple[Outcome, ...], dict[bytes, bytes | None]]]:
    """Run works one after the other, each on what those before it have put. Return outcomes, and all rows to write."""
    rows: dict[bytes, bytes | None] = {}
    outcomes: tuple[Outcome, ...] = ()
    for number in range(len(works)):
        transaction = Transaction(runs, recent, cache, rows)
        outcome = yield from run_function(works[number], transaction)
        if outcome.error is None:
            rows.update(transaction.rows)
        outcomes = (*outcomes, outcome)
    return outcomes, rows
