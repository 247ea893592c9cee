"""Transactions: one contract for every kind of writer."""

import os

import pytest

from endive.errors import (
    ForkedError,
    OutcomeUnknownError,
    ReadOnlyError,
    StorageUnavailableError,
    StoreClosedError,
    StoreNotFoundError,
)
from endive.kv.transaction import Transaction
from endive.protocol.requests import Steps
from tests.store.conftest import Open
from tests.store.functions import TooManyError, Unreliable, add_one, add_one_up_to, get, in_threads, put, scan


def test_a_function_reads_and_writes(open_store: Open) -> None:
    with open_store() as store:
        assert store.transact(add_one(b"n")) == 1
        assert store.transact(add_one(b"n")) == 2
        assert store.read(get(b"n")) == b"2"
        assert store.read_cached(get(b"n")) == b"2"


def test_a_scan_sees_levels_recent_rows_and_its_own(open_store: Open) -> None:
    def function(tx: Transaction) -> Steps[tuple[tuple[bytes, bytes], ...]]:
        tx.put(b"a/4", b"own")
        tx.delete(b"a/1")
        return (yield from tx.scan(b"a/"))

    with open_store() as store:
        for number in range(3):
            store.transact(put(b"a/%d" % number, b"level"))
        store.compact()
        store.transact(put(b"a/3", b"recent"))
        store.transact(put(b"b/1", b"other"))

        assert store.transact(function) == (
            (b"a/0", b"level"),
            (b"a/2", b"level"),
            (b"a/3", b"recent"),
            (b"a/4", b"own"),
        )
        assert store.read(scan(b"a/"))[0] == (b"a/0", b"level")
        assert store.read(get(b"a/1")) is None


def test_a_function_that_raises_writes_nothing_and_leaves_the_others_alone(open_store: Open) -> None:
    errors: list[int] = []

    def attempt(number: int) -> None:
        try:
            store.transact(add_one_up_to(b"n", 10))
        except TooManyError as error:
            errors.append(error.args[0])

    with open_store() as store:
        in_threads(20, attempt)

        assert store.read(get(b"n")) == b"10"
        assert errors == [10] * 10


def test_threads_share_requests(open_store: Open) -> None:
    with open_store() as store:
        in_threads(32, lambda _: [store.transact(add_one(b"n")) for _ in range(10)])

        assert store.read(get(b"n")) == b"320"
        assert store.stats()["transactions"] == 320
        assert store.stats()["batches"] <= 320


def test_a_read_cannot_write(open_store: Open) -> None:
    with open_store() as store, pytest.raises(ReadOnlyError):
        store.read(put(b"a", b"1"))


@pytest.mark.parametrize(("key", "value"), [("text", b""), (b"k", "text"), (b"k" * 70_000, b"")])
def test_a_row_that_cannot_be_stored_fails_its_function_alone(open_store: Open, key: bytes, value: bytes) -> None:
    with open_store() as store:
        with pytest.raises((TypeError, ValueError)):
            store.transact(put(key, value))
        store.transact(put(b"a", b"1"))


def test_a_store_that_does_not_exist_is_not_found(open_store: Open) -> None:
    with pytest.raises(StoreNotFoundError):
        open_store(create=False)


def test_a_function_cannot_wait_for_a_transaction_of_its_own_store(open_store: Open) -> None:
    def function(tx: Transaction) -> Steps[None]:
        yield from ()
        store.transact(add_one(b"n"))

    with open_store() as store:
        with pytest.raises(RuntimeError, match="wait for itself"):
            store.transact(function)
        assert store.transact(add_one(b"n")) == 1


def test_closing_is_final(open_store: Open) -> None:
    store = open_store()
    store.close()
    store.close()

    with pytest.raises(StoreClosedError):
        store.transact(add_one(b"n"))


def test_use_after_a_fork_is_refused(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store() as store:
        pid = os.getpid()
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: pid + 1)
            with pytest.raises(ForkedError):
                store.read(get(b"n"))
        store.transact(add_one(b"n"))


def test_a_function_sees_rows_that_were_put_before_it_without_waiting(open_store: Open) -> None:
    with open_store(flush_interval_ms=3_600_000) as store:
        store.put(b"n", b"7", await_durable=False)
        assert store.transact(add_one(b"n")) == 8
        store.put(b"n", b"1", await_durable=False)
        store.delete(b"n", await_durable=False)
        assert store.transact(add_one(b"n")) == 1
        assert store.read(get(b"n")) == b"1"


def test_puts_and_functions_in_threads_lose_nothing(open_store: Open) -> None:
    def act(number: int) -> None:
        for count in range(20):
            if number % 2:
                store.transact(add_one(b"n"))
            else:
                store.put(b"%d/%d" % (number, count), b"x", await_durable=count % 2 == 0)

    with open_store(flush_interval_ms=1) as store:
        in_threads(16, act)
        store.flush()

        assert store.read(get(b"n")) == b"160"
        assert len(list(store.scan())) == 161


def test_an_object_store_that_is_unavailable_fails_the_commit(open_store: Open) -> None:
    objects = Unreliable()
    with open_store(objects, reopen=True) as store:
        store.driver._sleep = lambda _: None
        store.transact(add_one(b"n"))
        objects.is_gone = True
        with pytest.raises(StorageUnavailableError):
            store.transact(add_one(b"n"))
        objects.is_gone = False

        assert store.transact(add_one(b"n")) == 2


def test_an_unknown_outcome_is_reported_not_repeated_and_not_the_end(open_store: Open) -> None:
    objects = Unreliable()
    with open_store(objects, reopen=True) as store:
        store.transact(add_one(b"n"))
        objects.loses_replies = True
        with pytest.raises(OutcomeUnknownError):
            store.transact(add_one(b"n"))
        objects.loses_replies = False

        assert store.transact(add_one(b"n")) == 3
