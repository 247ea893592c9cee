"""Several processes write one store: members, works, groups, reads."""

import os
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from endive.errors import (
    ExclusiveWriterError,
    FencedError,
    ForkedError,
    OutcomeUnknownError,
    ReadOnlyError,
    StorageUnavailableError,
    StoreClosedError,
    StoreNotFoundError,
)
from endive.kv import Reader, SharedOptions, SharedStore, Store
from endive.kv.maintenance.check import check_store
from endive.kv.transaction import Transaction, TransactionFunction
from endive.objects import MemoryStore
from endive.protocol.requests import Steps

QUIET = SharedOptions(compact_here=False, poll_interval_ms=3_600_000, retention_ms=0)


def put(key: bytes, value: bytes) -> TransactionFunction[None]:
    def work(tx: Transaction) -> Steps[None]:
        yield from ()
        tx.put(key, value)

    return work


def get(key: bytes) -> TransactionFunction[bytes | None]:
    def work(tx: Transaction) -> Steps[bytes | None]:
        return (yield from tx.get(key))

    return work


def scan(prefix: bytes) -> TransactionFunction[tuple[tuple[bytes, bytes], ...]]:
    def work(tx: Transaction) -> Steps[tuple[tuple[bytes, bytes], ...]]:
        return (yield from tx.scan(prefix))

    return work


def add_one(key: bytes) -> TransactionFunction[int]:
    def work(tx: Transaction) -> Steps[int]:
        held = yield from tx.get(key)
        count = int(held or b"0") + 1
        tx.put(key, b"%d" % count)
        return count

    return work


class TooManyError(Exception):
    """The test's own."""


def add_one_up_to(key: bytes, most: int) -> TransactionFunction[int]:
    def work(tx: Transaction) -> Steps[int]:
        held = yield from tx.get(key)
        tx.put(key, b"%d" % (int(held or b"0") + 1))
        if int(held or b"0") >= most:
            raise TooManyError(int(held or b"0"))
        return int(held or b"0") + 1

    return work


def in_threads(count: int, action: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=action, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# One process.


def test_a_work_reads_and_writes() -> None:
    with SharedStore(MemoryStore(), QUIET) as store:
        assert store.transact(add_one(b"n")) == 1
        assert store.transact(add_one(b"n")) == 2
        assert store.read(get(b"n")) == b"2"
        assert store.read_cached(get(b"n")) == b"2"


def test_a_scan_sees_levels_recent_rows_and_its_own() -> None:
    def work(tx: Transaction) -> Steps[tuple[tuple[bytes, bytes], ...]]:
        tx.put(b"a/4", b"own")
        tx.delete(b"a/1")
        return (yield from tx.scan(b"a/"))

    with SharedStore(MemoryStore(), QUIET) as store:
        for number in range(3):
            store.transact(put(b"a/%d" % number, b"level"))
        store.compact()
        store.transact(put(b"a/3", b"recent"))
        store.transact(put(b"b/1", b"other"))

        assert store.transact(work) == (
            (b"a/0", b"level"),
            (b"a/2", b"level"),
            (b"a/3", b"recent"),
            (b"a/4", b"own"),
        )
        assert store.read(scan(b"a/"))[0] == (b"a/0", b"level")
        assert store.read(get(b"a/1")) is None


def test_a_work_that_raises_writes_nothing_and_leaves_the_others_alone() -> None:
    errors: list[int] = []

    def work(number: int) -> None:
        try:
            store.transact(add_one_up_to(b"n", 10))
        except TooManyError as error:
            errors.append(error.args[0])

    with SharedStore(MemoryStore(), QUIET) as store:
        in_threads(20, work)

        assert store.read(get(b"n")) == b"10"
        assert errors == [10] * 10


def test_an_error_is_about_the_newest_state() -> None:
    def require(tx: Transaction) -> Steps[None]:
        held = yield from tx.get(b"table")
        if held is None:
            raise KeyError("no such table")

    objects = MemoryStore()
    with SharedStore(objects, QUIET) as store, SharedStore(objects, QUIET) as other:
        with pytest.raises(KeyError):
            store.transact(require)
        other.transact(put(b"table", b"1"))

        store.transact(require)


def test_threads_share_requests() -> None:
    with SharedStore(MemoryStore(), QUIET) as store:
        in_threads(32, lambda _: [store.transact(add_one(b"n")) for _ in range(10)])

        assert store.read(get(b"n")) == b"320"
        assert store.stats()["works"] == 320
        assert store.stats()["groups"] <= 320


def test_a_read_cannot_write() -> None:
    with SharedStore(MemoryStore(), QUIET) as store, pytest.raises(ReadOnlyError):
        store.read(put(b"a", b"1"))


@pytest.mark.parametrize(("key", "value"), [("text", b""), (b"k", "text"), (b"k" * 70_000, b"")])
def test_what_cannot_be_stored_is_refused_for_its_work_alone(key: bytes, value: bytes) -> None:
    with SharedStore(MemoryStore(), QUIET) as store:
        with pytest.raises((TypeError, ValueError)):
            store.transact(put(key, value))
        store.transact(put(b"a", b"1"))


def test_a_store_that_is_not_there_is_said_so() -> None:
    with pytest.raises(StoreNotFoundError):
        SharedStore(MemoryStore(), QUIET, create=False)


def test_a_work_cannot_wait_for_a_transaction_of_its_own_store() -> None:
    def work(tx: Transaction) -> Steps[None]:
        yield from ()
        store.transact(add_one(b"n"))

    with SharedStore(MemoryStore(), QUIET) as store:
        with pytest.raises(RuntimeError, match="wait for itself"):
            store.transact(work)
        assert store.transact(add_one(b"n")) == 1


def test_closing_is_final() -> None:
    store = SharedStore(MemoryStore(), QUIET)
    store.close()
    store.close()

    with pytest.raises(StoreClosedError):
        store.transact(add_one(b"n"))


def test_use_after_a_fork_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with SharedStore(MemoryStore(), QUIET) as store:
        pid = os.getpid()
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: pid + 1)
            with pytest.raises(ForkedError):
                store.read(get(b"n"))
        store.transact(add_one(b"n"))


# Several members.


def test_joining_writes_nothing() -> None:
    objects = MemoryStore()
    with SharedStore(objects, QUIET) as first:
        first.transact(add_one(b"n"))
        before = {info.path for info in objects.list("")}
        with SharedStore(objects, QUIET) as second:
            assert {info.path for info in objects.list("")} == before
            assert second.transact(add_one(b"n")) == 2
        assert first.read_cached(get(b"n")) == b"1"
        assert first.read(get(b"n")) == b"2"
        assert first.transact(add_one(b"n")) == 3


def test_members_in_threads_lose_no_increment() -> None:
    objects = MemoryStore()
    options = SharedOptions(compact_slots=5, poll_interval_ms=5, collect_interval_ms=10, retention_ms=0)
    stores = [SharedStore(objects, options) for _ in range(4)]
    try:
        in_threads(16, lambda number: [stores[number % 4].transact(add_one(b"n")) for _ in range(20)])

        assert [store.read(get(b"n")) for store in stores] == [b"320"] * 4
        assert stores[0].driver.run(check_store()).findings == ()
    finally:
        for store in stores:
            store.close()


def test_a_reader_sees_what_members_commit() -> None:
    objects = MemoryStore()
    with SharedStore(objects, QUIET) as store:
        store.transact(put(b"a", b"1"))
        with Reader(objects) as reader:
            assert reader.get(b"a") == b"1"


def test_members_go_on_after_compaction_and_collection_by_others() -> None:
    objects = MemoryStore()
    with SharedStore(objects, QUIET) as idle, SharedStore(objects, QUIET) as busy:
        idle.transact(add_one(b"n"))
        for _ in range(5):
            busy.transact(add_one(b"n"))
        busy.compact()
        busy.collect()

        assert idle.transact(add_one(b"n")) == 7
        assert busy.read(get(b"n")) == b"7"


# Members and exclusive writers.


def test_an_exclusive_writer_opens_what_members_wrote() -> None:
    objects = MemoryStore()
    with SharedStore(objects, QUIET) as store:
        store.transact(put(b"a", b"1"))
    with Store(objects) as alone:
        assert alone.get(b"a") == b"1"
        alone.put(b"b", b"2")
    with SharedStore(objects, QUIET) as store:
        assert store.read(get(b"b")) == b"2"


def test_a_member_waits_for_an_exclusive_writer_then_takes_the_store() -> None:
    objects, pauses = MemoryStore(), list[float]()
    with SharedStore(objects, QUIET) as store:
        store.transact(add_one(b"n"))
        store.driver._sleep = pauses.append
        with Store(objects) as alone:
            alone.put(b"n", b"10")
            assert store.read(get(b"n")) == b"10"
            assert pauses == []
            assert store.transact(add_one(b"n")) == 11
            assert pauses
            with pytest.raises(FencedError):
                alone.put(b"n", b"20")
        assert store.transact(add_one(b"n")) == 12


class Taken(MemoryStore):
    """A store of which somebody claims the next epoch whenever somebody else has."""

    rival: Callable[[], object] | None = None

    def put_if_absent(self, path: str, body: bytes) -> bool:
        done = super().put_if_absent(path, body)
        rival = self.rival
        if done and rival is not None and path.startswith("manifest/"):
            self.rival = None
            rival()
            self.rival = rival
        return done


def test_a_member_that_never_gets_the_store_says_so_and_goes_on_when_it_can() -> None:
    objects = Taken()
    with SharedStore(objects, QUIET) as store:
        store.driver._sleep = lambda _: None
        store.transact(add_one(b"n"))
        Store(objects).close()
        objects.rival = lambda: Store(objects).close()
        with pytest.raises(ExclusiveWriterError, match="is the exclusive writer"):
            store.transact(add_one(b"n"))
        objects.rival = None

        assert store.transact(add_one(b"n")) == 2


# Trouble.


class Gone(MemoryStore):
    """A store that can be made to lose replies to creates, or everything."""

    is_gone = False
    loses_replies = False

    def put_if_absent(self, path: str, body: bytes) -> bool:
        if self.is_gone:
            raise StorageUnavailableError(path, "gone")
        done = super().put_if_absent(path, body)
        if self.loses_replies:
            raise OutcomeUnknownError(path)
        return done


@pytest.mark.parametrize("exclusive", [False, True])
def test_an_unknown_outcome_is_reported_not_repeated_and_not_the_end(exclusive: bool) -> None:
    objects = Gone()
    with SharedStore(objects, replace(QUIET, exclusive=exclusive)) as store:
        store.transact(add_one(b"n"))
        objects.loses_replies = True
        with pytest.raises(OutcomeUnknownError):
            store.transact(add_one(b"n"))
        objects.loses_replies = False

        assert store.transact(add_one(b"n")) == 3


def test_an_object_store_that_is_gone_changes_nothing() -> None:
    objects = Gone()
    with SharedStore(objects, QUIET) as store:
        store.driver._sleep = lambda _: None
        store.transact(add_one(b"n"))
        objects.is_gone = True
        with pytest.raises(StorageUnavailableError):
            store.transact(add_one(b"n"))
        objects.is_gone = False

        assert store.transact(add_one(b"n")) == 2
