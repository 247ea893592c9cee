"""Calls of procedures: carried out by their own process, or by another one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from endive.cli.app import app
from endive.errors import (
    ConfigurationError,
    IntentionExpiredError,
    OutcomeUnknownError,
    ProcedureFailedError,
    RefusalError,
)
from endive.kv import Reader, Store, procedure
from endive.kv.log.combining import Hints, commit_calls
from endive.kv.log.committing import commit_batch
from endive.kv.log.helping import announce, result_of
from endive.kv.log.intentions import (
    FAILED,
    PREFIX,
    REFUSED,
    Decided,
    Intention,
    decode_decided,
    decode_intention,
    encode_decided,
    encode_intention,
    is_name,
    name_of,
    outcome_key,
)
from endive.kv.log.state import StoreState, newest_state
from endive.kv.procedures import Call
from endive.kv.recorded import Recorded, record_functions
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import RESERVED, Transaction
from endive.objects import MemoryStore, ObjectStore, open_objects
from endive.protocol.requests import Steps
from tests.store.conftest import Open
from tests.store.functions import QUIET, add_one, get, in_threads, put, scan, shared


@procedure("tests.add", 1)
def add(tx: Transaction, argument: bytes) -> Steps[bytes]:
    """Increment a counter: `key`, or `key refuse`, or `key fail`."""
    key, _, wish = argument.partition(b" ")
    held = yield from tx.get(key)
    count = b"%d" % (int(held or b"0") + 1)
    tx.put(key, count)
    if wish == b"refuse":
        raise RefusalError(b"no: " + count)
    if wish == b"fail":
        raise ZeroDivisionError("a defect")
    return count


def calls(*arguments: bytes) -> tuple[Call, ...]:
    return tuple(Call("tests.add", 1, argument) for argument in arguments)


def announced(store: Store, *arguments: bytes) -> Intention:
    """Announce calls as a process would that dies then."""
    state = store.driver.run(newest_state())
    assert state is not None
    return store.driver.run(announce(state, calls(*arguments), "gone"))


def decided(store: Store, intention: Intention) -> Decided | None:
    state = store.driver.run(newest_state())
    assert state is not None
    return store.driver.run(result_of(intention, state, NoCache()))


@contextmanager
def kept(entries: int) -> Iterator[None]:
    with patch("endive.kv.serving.OUTCOMES_KEPT", entries):
        yield


# The contract, for every kind of writer.


def test_a_call_is_durable_on_return(open_store: Open) -> None:
    objects = MemoryStore()
    with open_store(objects) as store:
        assert [store.call("tests.add", 1, b"n") for _ in range(3)] == [b"1", b"2", b"3"]
    with Reader(objects) as reader:
        assert reader.get(b"n") == b"3"


def test_a_refusal_and_a_defect_write_nothing(open_store: Open) -> None:
    with open_store() as store:
        with pytest.raises(RefusalError, match="no: 1"):
            store.call("tests.add", 1, b"n refuse")
        with pytest.raises(ProcedureFailedError, match="ZeroDivisionError: a defect"):
            store.call("tests.add", 1, b"n fail")
        assert store.call("tests.add", 1, b"n") == b"1"


def test_a_procedure_that_is_not_registered_is_an_error(open_store: Open) -> None:
    with open_store() as store, pytest.raises(ConfigurationError, match="no such procedure"):
        store.call("tests.add", 2, b"n")


def test_a_name_belongs_to_one_procedure() -> None:
    with pytest.raises(ConfigurationError, match="another procedure"):
        procedure("tests.add", 1)(partial(add))


def test_keys_of_the_store_are_reserved(open_store: Open) -> None:
    with open_store() as store:
        with pytest.raises(ValueError, match="reserved"):
            store.put(RESERVED + b"x", b"")
        with pytest.raises(ValueError, match="reserved"):
            store.transact(put(RESERVED + b"x", b""))


# An idle log.


def requests_of(store: Store, act: Any) -> dict[str, int]:
    before = dict(store.driver.requests.by_kind)
    act()
    after = store.driver.requests.by_kind
    return {kind: count - before.get(kind, 0) for kind, count in after.items() if count > before.get(kind, 0)}


def test_a_lone_call_makes_the_requests_of_a_lone_function() -> None:
    with shared(MemoryStore()) as store:
        store.transact(add_one(b"n"))

        assert requests_of(store, lambda: store.transact(add_one(b"n"))) == {"PutIfAbsent": 1, "List": 1}
        assert requests_of(store, lambda: store.call("tests.add", 1, b"n")) == {"PutIfAbsent": 1, "List": 1}
        assert store.stats()["announced_batches"] == 0


def test_a_lone_call_of_an_exclusive_writer_is_one_request() -> None:
    with Store(MemoryStore(), options=QUIET) as store:
        store.put(b"a", b"")

        assert requests_of(store, lambda: store.call("tests.add", 1, b"n")) == {"PutIfAbsent": 1}


# Helping.


def test_a_commit_carries_out_what_others_have_announced() -> None:
    objects = MemoryStore()
    with shared(objects) as store:
        store.transact(put(b"a", b""))
        gone = announced(store, b"n", b"n refuse", b"n fail", b"n")
        store.transact(put(b"b", b""))  # its listing shows the intention
        store.transact(put(b"c", b""))

        found = decided(store, gone)
        assert found is not None
        assert [(one.kind, one.body) for one in found.results] == [
            ("done", b"1"),
            (REFUSED, b"no: 2"),
            (FAILED, b"ZeroDivisionError: a defect"),
            ("done", b"2"),
        ]
        assert found.by == store._writer.helper.name
        assert store.get(b"n") == b"2"
        assert store.stats()["carried_for_others"] == 1


def test_an_owner_under_load_gets_the_result_that_was_recorded() -> None:
    objects = MemoryStore()
    with shared(objects) as store:
        store.transact(put(b"a", b""))
        state = store.driver.run(newest_state())
        assert state is not None
        done = store.driver.run(commit_calls(state, calls(b"n", b"n refuse"), NoCache(), Hints(is_busy=True), "me"))

        assert done.own is not None
        assert done.outcomes[0].value == b"1"
        assert isinstance(done.outcomes[1].error, RefusalError)


def test_an_intention_takes_effect_once_however_often_it_is_put() -> None:
    objects = MemoryStore()
    with shared(objects) as store:
        store.transact(put(b"a", b""))
        own = announced(store, b"n")
        for _ in range(3):
            objects.put(own.path, encode_intention(own))
            store.transact(put(b"b", b""))
            store.compact()
        state = store.driver.run(newest_state())
        assert state is not None
        done = store.driver.run(commit_batch(state, (), NoCache(), own=own))

        assert done.decided == decided(store, own)
        assert store.get(b"n") == b"1"


def test_a_poisoned_intention_is_set_aside() -> None:
    objects = MemoryStore()
    with shared(objects) as store:
        store.transact(put(b"a", b""))
        bad = Intention(name_of(store.wal_end, "b" * 32), ())
        objects.put(bad.path, b"not an intention")
        good = announced(store, b"n")
        store.transact(put(b"b", b""))
        store.transact(put(b"c", b""))

        found = decided(store, bad)
        assert found is not None
        assert found.results[0].kind == FAILED
        assert b"cannot be decoded" in found.results[0].body
        assert decided(store, good) is not None
        assert bad.name in store.collect_intentions()


def test_an_unknown_procedure_is_left_to_others_and_blocks_nobody() -> None:
    objects = MemoryStore()
    with shared(objects) as store:
        store.transact(put(b"a", b""))
        state = store.driver.run(newest_state())
        assert state is not None
        strange = store.driver.run(announce(state, (Call("tests.add", 99, b"n"),), "newer"))
        good = announced(store, b"n")
        store.transact(put(b"b", b""))
        store.transact(put(b"c", b""))

        assert decided(store, strange) is None
        assert decided(store, good) is not None
        assert strange.name not in store.collect_intentions()


def test_an_exclusive_writer_takes_intentions_and_is_not_fenced() -> None:
    objects = MemoryStore()
    with Store(objects, options=replace(QUIET, poll_interval_ms=5, max_parallel_writes=4)) as owner:
        owner.put(b"a", b"")
        with shared(objects) as store:
            assert [store.call("tests.add", 1, b"n") for _ in range(3)] == [b"1", b"2", b"3"]
            assert store.stats()["carried_by_others"] == 3
        owner.put(b"b", b"")  # it still owns the store

        assert owner.stats()["carried_for_others"] == 3
        assert owner.get(b"n") == b"3"


def test_an_exclusive_writer_that_takes_none_is_fenced() -> None:
    objects = MemoryStore()
    with Store(objects, options=replace(QUIET, reopen=True)) as owner:
        owner.transact(put(b"a", b""))
        with shared(objects) as store, patch("endive.kv.log.guests.POLLS_MAX", 1):
            assert store.call("tests.add", 1, b"n") == b"1"
        assert owner.transact(get(b"n")) == b"1"


GUEST = replace(QUIET, await_exclusive=True)


def test_functions_of_a_guest_are_carried_out_by_the_exclusive_writer() -> None:
    objects = MemoryStore()
    with Store(objects, options=replace(QUIET, poll_interval_ms=5, max_parallel_writes=4)) as owner:
        owner.put(b"a", b"")
        with shared(objects, GUEST) as store:
            for _ in range(3):
                store.transact(add_one(b"n"))
            assert store.transact(get(b"n")) == b"3"  # a function that only reads claims nothing, either
            with pytest.raises(ZeroDivisionError):
                store.transact(failing)
            assert store.stats()["carried_by_others"] == 3
        owner.put(b"b", b"")  # it still owns the store

        assert owner.get(b"n") == b"3"


def failing(tx: Transaction) -> Steps[None]:
    yield from tx.get(b"n")
    raise ZeroDivisionError


def test_a_guest_that_is_not_served_claims_the_store() -> None:
    objects = MemoryStore()
    with Store(objects, options=replace(QUIET, reopen=True)) as owner:
        owner.transact(put(b"a", b""))
        with shared(objects, GUEST) as store, patch("endive.kv.log.guests.POLLS_MAX", 1):
            store.transact(add_one(b"n"))
        assert owner.transact(get(b"n")) == b"1"


def test_stores_that_call_at_the_same_time_lose_no_increment() -> None:
    objects = MemoryStore()
    options = replace(QUIET, compact_here=True, compact_entries=5, poll_interval_ms=5, collect_interval_ms=10)
    stores = [shared(objects, options) for _ in range(4)]
    try:
        in_threads(16, lambda number: [stores[number % 4].call("tests.add", 1, b"n") for _ in range(20)])

        assert [store.read(get(b"n")) for store in stores] == [b"320"] * 4
        assert sum(store.stats()["announced_batches"] for store in stores) > 0
        assert list(stores[0].scan()) == [(b"n", b"320")]  # rows of the store's own are not shown
    finally:
        for store in stores:
            store.close()


# Transaction functions as data.


def state_of(store: Store) -> StoreState:
    state = store.driver.run(newest_state())
    assert state is not None
    return state


def recorded(store: Store, *functions: Any) -> Recorded | None:
    return store.driver.run(record_functions(functions, state_of(store), NoCache(), {}))


def test_a_function_is_carried_out_as_its_reads_and_rows() -> None:
    def move(tx: Transaction) -> Steps[str]:
        held = yield from tx.get(b"from")
        inside = yield from tx.scan(b"box/")
        tx.delete(b"from")
        tx.put(b"box/%d" % len(inside), held or b"")
        seen = yield from tx.scan(b"box/")
        return f"{len(inside)} {len(seen)}"

    with shared(MemoryStore()) as store:
        store.write([(b"from", b"ball"), (b"box/0", b"x")])
        found = recorded(store, move, add_one(b"n"), add_one(b"n"))
        assert found is not None
        assert found.values == ("1 2", 1, 2)
        done = store.driver.run(commit_calls(state_of(store), found.calls, NoCache(), Hints(is_busy=True), "me"))

        assert [outcome.error for outcome in done.outcomes] == [None, None, None]
        store.refresh()
        assert list(store.scan()) == [(b"box/0", b"x"), (b"box/1", b"ball"), (b"n", b"2")]


@pytest.mark.parametrize("row", [(b"from", b"bat"), (b"from", None), (b"box/9", b"new"), (b"box/0", None)])
def test_a_function_is_refused_if_a_read_would_give_something_else(row: tuple[bytes, bytes | None]) -> None:
    def look(tx: Transaction) -> Steps[None]:
        yield from tx.get(b"from")
        yield from tx.scan(b"box/")
        tx.put(b"seen", b"1")

    with shared(MemoryStore()) as store:
        store.write([(b"from", b"ball"), (b"box/0", b"x")])
        found = recorded(store, look)
        assert found is not None
        store.write([row])
        done = store.driver.run(commit_calls(state_of(store), found.calls, NoCache(), Hints(is_busy=True), "me"))

        assert isinstance(done.outcomes[0].error, RefusalError)
        store.refresh()
        assert store.get(b"seen") is None


def test_errors_and_reads_are_about_the_newest_state() -> None:
    def fail(tx: Transaction) -> Steps[None]:
        yield from tx.get(b"a")
        raise KeyError("a")

    with shared(MemoryStore()) as store:
        store.put(b"a", b"")
        assert recorded(store, put(b"b", b""), fail) is None
        assert recorded(store, get(b"a")) is None


def test_stores_that_run_functions_at_the_same_time_lose_no_increment() -> None:
    objects = MemoryStore()
    stores = [shared(objects) for _ in range(4)]
    try:
        in_threads(16, lambda number: [stores[number % 4].transact(add_one(b"n%d" % number)) for _ in range(20)])
        in_threads(16, lambda number: [stores[number % 4].transact(add_one(b"n")) for _ in range(10)])

        assert dict(stores[0].read(scan(b"n"))) == {b"n": b"160"} | {b"n%d" % number: b"20" for number in range(16)}
        assert sum(store.stats()["announced_batches"] for store in stores) > 0
    finally:
        for store in stores:
            store.close()


# Garbage collection.


def test_results_are_forgotten_and_intentions_expire_by_position() -> None:
    objects = MemoryStore()
    with shared(objects) as store, kept(3):
        store.transact(put(b"a", b""))
        old, late = announced(store, b"n"), announced(store, b"m")
        objects.delete(late.path)  # its put arrives later
        for number in range(6):
            store.transact(put(b"b%d" % number, b""))
        assert store.get(b"n") == b"1"

        assert store.collect_intentions() == (old.name,)
        objects.put(late.path, encode_intention(late))
        store.transact(put(b"c", b""))
        store.transact(put(b"d", b""))
        with pytest.raises(IntentionExpiredError):
            decided(store, late)
        with pytest.raises(OutcomeUnknownError):
            decided(store, old)
        assert store.get(b"m") is None
    assert objects.list(PREFIX) == ()  # a commit that found it closed has deleted it


def test_a_pending_intention_is_not_deleted() -> None:
    objects = MemoryStore()
    with shared(objects) as store:
        store.transact(put(b"a", b""))
        own = announced(store, b"n")

        assert store.collect_intentions() == ()
        assert objects.get(own.path) is not None


def test_settling_carries_out_everything_that_can_be() -> None:
    with shared(MemoryStore()) as store:
        store.transact(put(b"a", b""))
        gone = [announced(store, b"n") for _ in range(3)]
        strange = store.driver.run(announce(state_of(store), (Call("tests.add", 99, b"n"),), "newer"))

        assert store.settle() == (strange.name,)
        assert all(decided(store, one) is not None for one in gone)


# Bytes and names.


def test_intentions_and_results_survive_encoding() -> None:
    own = Intention(name_of(7, "a" * 32), calls(b"x", b"", b"\n\x00"), "host:1")
    assert decode_intention(own.name, encode_intention(own)) == own
    found = Decided("host:2", ())
    assert decode_decided(encode_decided(found)) == found
    assert outcome_key(own.name).startswith(RESERVED)


@pytest.mark.parametrize("cut", [0, 5, 14, 20, -1])
def test_a_damaged_intention_has_a_problem(cut: int) -> None:
    own = Intention(name_of(7, "a" * 32), calls(b"x"), "host:1")
    assert decode_intention(own.name, encode_intention(own)[:cut]).problem


def test_a_newer_format_is_left_to_newer_processes() -> None:
    body = bytearray(encode_intention(Intention(name_of(7, "a" * 32), calls(b"x"), "")))
    body[9] += 1
    found = decode_intention("x", bytes(body))
    assert not found.problem
    assert not found.is_known


@pytest.mark.parametrize(
    "name", ["", "7-a", f"{7:020d}-x", f"{7:020d}-{'/' * 32}", f"{'a' * 20}-{'a' * 32}", f"{7:020d}-{'a' * 32}-x"]
)
def test_foreign_objects_are_no_intentions(name: str) -> None:
    assert not is_name(name)


# The command line.


def test_pending_intentions_are_listed(tmp_path: Any) -> None:
    objects: ObjectStore = open_objects(str(tmp_path))
    with shared(objects) as store:
        store.transact(put(b"a", b""))
        own = announced(store, b"n", b"m")

    shown = CliRunner().invoke(app, ["kv", "intentions", str(tmp_path)])
    assert shown.exit_code == 0
    assert own.name[:20].lstrip("0") in shown.output
    assert "gone" in shown.output
    assert "2 tests.add/1" in shown.output
    assert "pending" in shown.output
