"""Reading ahead: requests of two protocols in the same round trips, without an effect on either."""

from typing import Any

import pytest

from endive.errors import EndiveError, MissingObjectError, StorageUnavailableError
from endive.kv import Store
from endive.kv.transaction import Transaction
from endive.objects import MemoryStore
from endive.protocol.beside import beside
from endive.protocol.requests import Get, GetAll, List, PutIfAbsent, Request, Sleep, Steps, Together, ask, drive
from tests.store.functions import QUIET

BODIES = {"a": b"1", "b": b"2", "c": b"3"}


class Answering:
    """Answers reads from a dictionary, and remembers what was asked together."""

    def __init__(self, fails: str = "") -> None:
        self.asked: list[Request[Any]] = []
        self._fails = fails

    def __call__(self, request: Request[Any]) -> Any:
        self.asked.append(request)
        return self._reply(request)

    def _reply(self, request: Request[Any]) -> Any:
        match request:
            case Get(path) if path == self._fails:
                raise StorageUnavailableError(path, "down")
            case Get(path):
                return BODIES.get(path)
            case GetAll(paths):
                return tuple(BODIES.get(path) for path in paths)
            case Together(requests):
                return tuple(map(self._reply, requests))
            case PutIfAbsent() | Sleep():
                return True
        return ()


def needed() -> Steps[list[Any]]:
    first = yield from ask(Get("a"))
    yield from ask(PutIfAbsent("x", b""))
    many = yield from ask(GetAll(("a", "b", "nothing")))
    listed = yield from ask(List("p/"))
    return [first, many, listed]


def test_requests_go_together_and_replies_to_their_protocols() -> None:
    seen: list[Any] = []

    def ahead() -> Steps[None]:
        one = yield from ask(Get("c"))
        seen.append(one)
        two = yield from ask(Together((Get("b"), Get("c"))))
        seen.append(two)

    answering = Answering()
    assert drive(beside(needed(), ahead()), answering) == [b"1", (b"1", b"2", None), ()]
    assert seen == [b"3", (b"2", b"3")]
    assert answering.asked == [
        Together((Get("a"), Get("c"))),
        PutIfAbsent("x", b""),  # what writes goes alone
        Together((Get("a"), Get("b"), Get("nothing"), Get("b"), Get("c"))),
        List("p/"),
    ]


def test_the_reader_ahead_is_stopped_with_the_other_and_never_writes() -> None:
    stopped: list[str] = []

    def ahead() -> Steps[None]:
        try:
            for _ in range(100):
                yield from ask(Get("c"))
        finally:
            stopped.append("stopped")

    def writes() -> Steps[None]:
        yield from ask(PutIfAbsent("y", b""))

    assert drive(beside(needed(), ahead()), Answering()) == [b"1", (b"1", b"2", None), ()]
    assert stopped == ["stopped"]
    answering = Answering()
    drive(beside(needed(), writes()), answering)
    assert PutIfAbsent("y", b"") not in answering.asked


@pytest.mark.parametrize("error", [MissingObjectError("c"), StorageUnavailableError("c", "down")])
def test_an_error_of_a_read_ahead_reaches_no_caller(error: EndiveError) -> None:
    def ahead() -> Steps[None]:
        yield from ask(Get("c"))
        raise error

    assert drive(beside(needed(), ahead()), Answering()) == [b"1", (b"1", b"2", None), ()]


@pytest.mark.parametrize(("fails", "result"), [("c", "1"), ("a", "went on")])
def test_a_failed_request_is_raised_in_the_protocol_that_made_it(fails: str, result: str) -> None:
    def brave() -> Steps[str]:
        try:
            body = yield from ask(Get("a"))
        except StorageUnavailableError:
            yield from ask(Get("b"))
            return "went on"
        return body.decode() if body is not None else ""

    def ahead() -> Steps[None]:
        yield from ask(Get("c"))
        yield from ask(Get("c"))

    answering = Answering(fails)
    assert drive(beside(brave(), ahead()), answering) == result
    assert answering.asked[:2] == [Together((Get("a"), Get("c"))), Get("a")]


def test_a_read_that_misses_reads_ahead_while_it_refreshes_and_sees_what_others_wrote() -> None:
    objects = MemoryStore()
    with Store(objects, "shared", QUIET) as store:
        store.write([(b"%04d" % number, bytes(1000)) for number in range(2000)])
        store.compact(everything=True)
    with Store(objects, "shared", QUIET) as store, Store(objects, "shared", QUIET) as other:
        runs: list[bytes | None] = []

        def read(tx: Transaction) -> Steps[bytes | None]:
            value = yield from tx.get(b"0007")
            runs.append(value)
            return value

        other.put(b"0007", b"new")
        assert store.read(read) == b"new"
        runs.clear()
        assert store.read(read) == b"new"
        assert runs == [b"new"]  # everything is in memory: it is not run twice


@pytest.mark.parametrize("key", [b"a", b"m", b"z"])
def test_a_scan_may_begin_at_any_key_of_a_file_the_last_one_too(key: bytes) -> None:
    with Store(MemoryStore(), options=QUIET) as store:
        rows = [(b"a", b"1"), (b"m", b"2"), (b"z", b"3")]
        store.write(rows)
        store.compact(everything=True)
        assert list(store.scan(start=key)) == [row for row in rows if row[0] >= key]

        def scan(tx: Transaction) -> Steps[tuple[tuple[bytes, bytes], ...]]:
            return (yield from tx.scan(key))

        assert store.read(scan) == tuple(row for row in rows if row[0] == key)


def test_a_scan_shows_a_functions_own_rows_over_those_of_functions_before_it() -> None:
    def second(tx: Transaction) -> Steps[tuple[tuple[bytes, bytes], ...]]:
        tx.earlier[b"k"] = b"of the function before"  # as in a batch of two
        tx.put(b"k", b"own")
        return (yield from tx.scan(b"k"))

    with Store(MemoryStore(), options=QUIET) as store:
        assert store.transact(second) == ((b"k", b"own"),)
