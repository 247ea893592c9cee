"""A store in memory that runs transaction functions one after the other: the store's contract in fifty lines."""

from collections.abc import Callable, Generator, Sequence
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

from endive.catalog.model.transaction import StoreTransaction, TransactionFunction
from endive.errors import CheckpointGoneError
from endive.protocol.requests import Request, Steps

T = TypeVar("T")


class DictTransaction:
    def __init__(self, rows: dict[bytes, bytes]) -> None:
        self.rows = rows
        self.changes: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> Steps[bytes | None]:
        yield from ()
        return self.changes[key] if key in self.changes else self.rows.get(key)

    def scan(self, prefix: bytes) -> Steps[tuple[tuple[bytes, bytes], ...]]:
        yield from ()
        found = {key: value for key, value in {**self.rows, **self.changes}.items() if key.startswith(prefix)}
        return tuple((key, value) for key, value in sorted(found.items()) if value is not None)

    def scan_many(self, prefixes: Sequence[bytes]) -> Steps[tuple[tuple[tuple[bytes, bytes], ...], ...]]:
        found = []
        for prefix in prefixes:
            rows = yield from self.scan(prefix)
            found.append(rows)
        return tuple(found)

    def put(self, key: bytes, value: bytes) -> None:
        self.changes[key] = value

    def delete(self, key: bytes) -> None:
        self.changes[key] = None


def run(function: Callable[[StoreTransaction], Generator[Request[Any], Any, T]], tx: StoreTransaction) -> T:
    """Run a transaction function that makes no requests."""
    steps = function(tx)
    try:
        next(steps)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a transaction function made a request")


class Submitted(Generic[T]):
    """A transaction that is run when it is waited for, or at once."""

    def __init__(self, transact: Callable[[], T], at_once: bool = False) -> None:
        self._transact = transact
        if at_once:
            value = transact()
            self._transact = lambda: value

    def wait(self) -> T:
        return self._transact()


class DictStore:
    """Runs another commit before or after the next transaction, if a test asks for it."""

    is_exclusive_elsewhere = False
    submits_at_once = False
    """Whether a transaction is over before files are written beside it; else it begins after them."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.lock = Lock()
        self.transactions = 0
        self.before: Callable[[], object] | None = None
        self.after: Callable[[], object] | None = None
        self.copies: dict[DictCheckpoint, dict[bytes, bytes]] = {}

    def transact(self, function: TransactionFunction[T]) -> T:
        before, self.before = self.before, None
        if before is not None:
            before()
        result = self._transact(function)
        after, self.after = self.after, None
        if after is not None:
            after()
        return result

    def submit(self, function: TransactionFunction[T]) -> Submitted[T]:
        return Submitted(lambda: self.transact(function), self.submits_at_once)

    def _transact(self, function: TransactionFunction[T]) -> T:
        with self.lock:
            tx = DictTransaction(self.rows)
            result = run(function, tx)
            for key, value in tx.changes.items():
                if value is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = value
            self.transactions += 1
            return result

    def read(self, function: TransactionFunction[T]) -> T:
        with self.lock:
            tx = DictTransaction(self.rows)
            result = run(function, tx)
            assert tx.changes == {}
            return result

    def read_cached(self, function: TransactionFunction[T]) -> T:
        return self.read(function)

    def settle(self) -> tuple[str, ...]:
        return ()

    # Checkpoints: copies of all rows.

    def checkpoint(self, lifetime_s: int, name: str = "") -> "DictCheckpoint":
        created = DictCheckpoint(f"{len(self.copies)}-{name}", name)
        with self.lock:
            self.copies[created] = dict(self.rows)
        return created

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        self.copies = {one: rows for one, rows in self.copies.items() if one.id != checkpoint_id}

    def refresh_checkpoint(self, checkpoint_id: str, lifetime_s: int) -> None:
        pass

    def checkpoints(self) -> "tuple[DictCheckpoint, ...]":
        return tuple(self.copies)

    def at(self, checkpoint_id: str) -> "DictStore":
        past = DictStore()
        for one, rows in self.copies.items():
            if one.id == checkpoint_id:
                past.rows = dict(rows)
                return past
        raise CheckpointGoneError(checkpoint_id)

    def close(self) -> None:
        pass


class DictCheckpoint(NamedTuple):
    id: str
    name: str


class Died(BaseException):
    """The process is gone."""


class Counting(DictStore):
    """Counts the rows that each transaction changes; dies after a number of transactions."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: list[int] = []
        self.left: int | None = None

    def _transact(self, function: TransactionFunction[T]) -> T:
        if self.left == 0:
            raise Died
        self.left = None if self.left is None else self.left - 1
        with self.lock:
            tx = DictTransaction(self.rows)
            run(function, tx)
            self.changed.append(len(tx.changes))
        return super()._transact(function)
