"""Transaction functions, object stores and options that the tests of the store share."""

import threading
from collections.abc import Callable
from dataclasses import replace

from endive.errors import OutcomeUnknownError, StorageUnavailableError
from endive.kv import Store, StoreOptions
from endive.kv.store import WriterKind
from endive.kv.transaction import Transaction, TransactionFunction
from endive.objects import MemoryStore, ObjectStore
from endive.protocol.requests import Steps

QUIET = StoreOptions(compact_here=False, poll_interval_ms=3_600_000, retention_ms=0)
"""Nothing happens in the background."""
REOPENING = replace(QUIET, reopen=True, retake_ms=3_600_000, max_parallel_writes=4)
"""An exclusive writer that goes on when it was fenced, as a catalog's does, and does not take the store back."""
KINDS: dict[str, tuple[WriterKind, StoreOptions]] = {
    "exclusive": ("exclusive", QUIET),
    "exclusive, four writes in flight": ("exclusive", replace(QUIET, max_parallel_writes=4)),
    "exclusive, reopening": ("exclusive", REOPENING),
    "shared": ("shared", QUIET),
}
"""The kinds of writer: one contract holds for all."""


def shared(objects: ObjectStore, options: StoreOptions = QUIET, create: bool = True) -> Store:
    return Store(objects, "shared", options, create)


def reopening(objects: ObjectStore, options: StoreOptions = REOPENING, create: bool = True) -> Store:
    return Store(objects, "exclusive", options, create)


def put(key: bytes, value: bytes) -> TransactionFunction[None]:
    def function(tx: Transaction) -> Steps[None]:
        yield from ()
        tx.put(key, value)

    return function


def get(key: bytes) -> TransactionFunction[bytes | None]:
    def function(tx: Transaction) -> Steps[bytes | None]:
        return (yield from tx.get(key))

    return function


def scan(prefix: bytes) -> TransactionFunction[tuple[tuple[bytes, bytes], ...]]:
    def function(tx: Transaction) -> Steps[tuple[tuple[bytes, bytes], ...]]:
        return (yield from tx.scan(prefix))

    return function


def add_one(key: bytes) -> TransactionFunction[int]:
    def function(tx: Transaction) -> Steps[int]:
        held = yield from tx.get(key)
        count = int(held or b"0") + 1
        tx.put(key, b"%d" % count)
        return count

    return function


class TooManyError(Exception):
    """An error of a transaction function."""


def add_one_up_to(key: bytes, most: int) -> TransactionFunction[int]:
    def function(tx: Transaction) -> Steps[int]:
        held = yield from tx.get(key)
        tx.put(key, b"%d" % (int(held or b"0") + 1))
        if int(held or b"0") >= most:
            raise TooManyError(int(held or b"0"))
        return int(held or b"0") + 1

    return function


def in_threads(count: int, action: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=action, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Unreliable(MemoryStore):
    """A store that can be made to lose replies to creates, or to refuse them all."""

    is_gone = False
    loses_replies = False

    def put_if_absent(self, path: str, body: bytes) -> bool:
        if self.is_gone:
            raise StorageUnavailableError(path, "gone")
        done = super().put_if_absent(path, body)
        if self.loses_replies:
            raise OutcomeUnknownError(path)
        return done


class Paused(MemoryStore):
    """A store whose next create of a WAL entry waits until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.may_go_on = threading.Event(), threading.Event()
        self.pauses = False

    def put_if_absent(self, path: str, body: bytes) -> bool:
        if self.pauses and path.startswith("wal/"):
            self.pauses = False
            self.waits.set()
            assert self.may_go_on.wait(30)
        return super().put_if_absent(path, body)
