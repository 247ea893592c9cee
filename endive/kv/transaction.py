"""Transactions: what a transaction function reads, and the rows that it wants to write. No I/O.

A *transaction function* is a generator over a transaction: it reads, decides and puts, all in memory. It is run against
one state of the store, and again against a newer one if another writer was faster, so it must depend on nothing but its
reads. Its rows become durable as a whole, together with those of the other functions of its batch, or not at all.

**What an error may reveal.** A function that raises writes nothing, and its error is its result. It may have seen rows
of functions before it in the batch, so the result waits until those are durable; a batch of errors and reads alone
waits until its state is known to be the newest (`endive.kv.log.committing`). So an error is about durable state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from endive.errors import MissingObjectError, ReadOnlyError
from endive.kv.log.recent import Recent
from endive.kv.manifest import SortedRun
from endive.kv.sst.format import KEY_BYTES_MAX, VALUE_BYTES_MAX, Rows
from endive.kv.sst.lookup import NOT_CACHED, Row, find_cached, find_in_runs, find_many, overlapping, rows_in_ranges
from endive.kv.sst.merge import KeyRange
from endive.kv.sst.reading import TableCache
from endive.protocol.requests import Steps

T = TypeVar("T")

RESERVED = b"\x00endive\x00"
"""Keys that begin so are the store's own rows (`endive.kv.log.intentions`). Scans leave them out."""


def checked_row(key: bytes, value: bytes | None) -> tuple[bytes, bytes | None]:
    """Return a row that can be stored; one that cannot must not get into a batch with the rows of others."""
    if type(key) is not bytes or not (value is None or type(value) is bytes):
        raise TypeError(f"keys and values are bytes, not {type(key).__name__} and {type(value).__name__}")
    if len(key) > KEY_BYTES_MAX or (value is not None and len(value) > VALUE_BYTES_MAX):
        raise ValueError(f"a key may have {KEY_BYTES_MAX:,} bytes, a value {VALUE_BYTES_MAX:,}")
    if key.startswith(RESERVED):
        raise ValueError(f"keys that begin with {RESERVED!r} are reserved for the store")
    return key, value


@dataclass
class Transaction:
    """One state of the store as a function sees it: levels, recent rows, rows of functions before it, its own rows."""

    runs: tuple[SortedRun, ...]
    recent: Recent
    cache: TableCache
    earlier: dict[bytes, bytes | None] = field(default_factory=dict)
    """Rows of the functions before it in the same batch."""
    rows: dict[bytes, bytes | None] = field(default_factory=dict)
    """Rows that this function wants to write; None deletes."""
    is_writable: bool = True
    missing: str = ""
    """Path of an object that no longer exists: the state is too old to be read."""

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

    def get_many(self, keys: Sequence[bytes]) -> Steps[tuple[bytes | None, ...]]:
        """Return the value of each key, None if it has none; two round trips at most, however many keys."""
        levels = tuple(key for key in dict.fromkeys(keys) if self._row_in_memory(key) is None)
        found: dict[bytes, Row] = {}
        try:
            found = yield from find_many(self.runs, levels, self.cache)
        except MissingObjectError as error:
            self.missing = error.path
            raise
        rows = ((self._row_in_memory(key) or found.get(key)) for key in keys)
        return tuple(None if row is None else row.value for row in rows)

    def _row_in_memory(self, key: bytes) -> Row | None:
        """Return the row of a key that is not in the levels alone."""
        for rows in (self.rows, self.earlier):
            if key in rows:
                return Row(rows[key], 0)
        return self.recent.find(key)

    def scan_many(self, prefixes: Sequence[bytes]) -> Steps[tuple[tuple[tuple[bytes, bytes], ...], ...]]:
        """Return what `scan` does, for each prefix; two round trips at most, however many prefixes."""
        found = yield from self._scan_ranges(tuple(map(KeyRange.of_prefix, prefixes)))
        return tuple(tuple(row for row in rows if not row[0].startswith(RESERVED)) for rows in found)

    def scan(self, prefix: bytes) -> Steps[tuple[tuple[bytes, bytes], ...]]:
        """Return all keys that start with `prefix` and their values, in key order."""
        found = yield from self.scan_many((prefix,))
        return found[0]

    def scan_range(self, keys: KeyRange) -> Steps[tuple[tuple[bytes, bytes], ...]]:
        """Return all keys of a range and their values, in key order; rows of the store's own among them."""
        found = yield from self._scan_ranges((keys,))
        return found[0]

    def _scan_ranges(self, ranges: tuple[KeyRange, ...]) -> Steps[tuple[tuple[tuple[bytes, bytes], ...], ...]]:
        try:
            held = yield from rows_in_ranges(tuple((overlapping(self.runs, keys), keys) for keys in ranges), self.cache)
        except MissingObjectError as error:
            self.missing = error.path
            raise
        return tuple(self._merged(keys, rows) for keys, rows in zip(ranges, held, strict=True))

    def _merged(self, keys: KeyRange, held: Rows) -> tuple[tuple[bytes, bytes], ...]:
        """Return rows of the levels with those in memory over them."""
        found = dict(zip(held.keys, held.values, strict=True))
        found.update(self.recent.within(keys))
        for rows in (self.earlier, self.rows):
            found.update((key, value) for key, value in rows.items() if keys.holds(key))
        return tuple((key, value) for key, value in sorted(found.items()) if value is not None)

    def put(self, key: bytes, value: bytes) -> None:
        """Set `key` to `value`, if the function succeeds."""
        if type(value) is not bytes:
            raise TypeError(f"values are bytes, not {type(value).__name__}")
        if len(value) > VALUE_BYTES_MAX:
            raise ValueError(f"a value may have {VALUE_BYTES_MAX:,} bytes")
        self._write(key, value)

    def delete(self, key: bytes) -> None:
        """Remove `key`, if it has a value and the function succeeds."""
        self._write(key, None)

    def _write(self, key: bytes, value: bytes | None) -> None:
        if type(key) is not bytes:
            raise TypeError(f"keys are bytes, not {type(key).__name__}")
        if len(key) > KEY_BYTES_MAX:
            raise ValueError(f"a key may have {KEY_BYTES_MAX:,} bytes")
        if key.startswith(RESERVED):
            raise ValueError(f"keys that begin with {RESERVED!r} are reserved for the store")
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


TransactionFunction = Callable[[Transaction], Steps[T]]
"""Reads, decides and puts. May be run several times; raising an error aborts this function alone."""


@dataclass(frozen=True)
class Outcome:
    """Result of a transaction function: a value, or the error that it raised."""

    value: Any = None
    error: Exception | None = None


def run_function(function: TransactionFunction[Any], transaction: Transaction) -> Steps[Outcome]:
    """Run one function to its end. `MissingObjectError`: the state is too old, even if the function caught it."""
    try:
        value = yield from function(transaction)
    except Exception as error:  # noqa: BLE001 - an error of the function is its result
        outcome = Outcome(error=error)
    else:
        outcome = Outcome(value)
    if transaction.missing:
        raise MissingObjectError(transaction.missing)
    return outcome


def run_functions(
    functions: Sequence[TransactionFunction[Any]],
    runs: tuple[SortedRun, ...],
    recent: Recent,
    cache: TableCache,
    earlier: Mapping[bytes, bytes | None] | None = None,
) -> Steps[tuple[tuple[Outcome, ...], dict[bytes, bytes | None]]]:
    """Run functions one after the other, each on the rows of those before it; the first sees the rows `earlier`.

    Return their outcomes, and all rows to write, `earlier` included.
    """
    rows = dict(earlier or {})
    outcomes: tuple[Outcome, ...] = ()
    for number in range(len(functions)):
        transaction = Transaction(runs, recent, cache, rows)
        outcome = yield from run_function(functions[number], transaction)
        if outcome.error is None:
            rows.update(transaction.rows)
        outcomes = (*outcomes, outcome)
    return outcomes, rows
