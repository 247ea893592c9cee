"""Intentions that stay pending: an exclusive writer tries them once, and they are in the way of no others."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from endive.errors import ConfigurationError, IntentionExpiredError, OutcomeUnknownError, StorageUnavailableError
from endive.kv import CallResult, Store
from endive.kv.log.committing import append_exclusive
from endive.kv.log.helping import announce, collect_intentions
from endive.kv.log.intentions import DONE, PREFIX, Intention
from endive.kv.procedures import Call
from endive.kv.sst.reading import NoCache
from endive.objects import MemoryStore
from endive.protocol.requests import Steps
from tests.store.functions import QUIET, put, shared
from tests.store.test_helping import announced, decided, kept, requests_of, state_of

TOPIC = "t" * 16


@contextmanager
def exclusive(objects: MemoryStore) -> Iterator[Store]:
    """Open a store that polls only when the test does."""
    with Store(objects, options=replace(QUIET, poll_interval_ms=10_000_000)) as store:
        store.put(b"a", b"")
        yield store


def strange(store: Store, topic: str = "", argument: bytes = b"n") -> Intention:
    """Announce a call that no process here can carry out."""
    return store.driver.run(announce(state_of(store), (Call("tests.add", 99, argument),), "newer", topic))


def lists(store: Store) -> int:
    """Return the number of listings of one poll."""
    return requests_of(store, store.poll).get("List", 0)


# An exclusive writer.


@pytest.mark.parametrize("topic", ["", TOPIC])
def test_an_exclusive_writer_tries_an_unknown_procedure_once(topic: str) -> None:
    with exclusive(MemoryStore()) as store:
        idle = lists(store)
        store.exchange.carriers.append(lambda _: None)
        strange(store, topic)

        assert lists(store) <= 4 * idle
        assert [lists(store) for _ in range(3)] == [idle] * 3


def test_an_exclusive_writer_tries_again_when_another_intention_has_come() -> None:
    with exclusive(MemoryStore()) as store:
        left = strange(store)
        store.poll()
        gone = announced(store, b"n")
        store.poll()

        assert decided(store, gone) is not None
        assert decided(store, left) is None
        assert store.get(b"n") == b"1"


def test_an_entry_that_lands_does_not_hide_an_intention_that_has_come_meanwhile() -> None:
    with exclusive(MemoryStore()) as store:
        found: list[Intention] = []

        def append_late(*arguments: Any) -> Steps[None]:
            found.append(announced(store, b"n"))
            store.refresh()
            yield from append_exclusive(*arguments)

        with patch("endive.kv.writer.append_exclusive", append_late):
            store.transact(put(b"b", b""))

        assert store._writer.state.intentions == (found[0].name,)


def test_an_intention_that_an_attempt_did_not_see_is_tried_again() -> None:
    with exclusive(MemoryStore()) as store:
        gone = announced(store, b"n")
        with patch("endive.kv.writer.pending", lambda _: ()), patch("endive.kv.serving.SERVE_S", 0.05):
            store.poll()
        assert decided(store, gone) is None
        store.poll()

        assert decided(store, gone) is not None


def test_an_exclusive_writer_deletes_an_intention_that_is_decided_and_compacted() -> None:
    objects = MemoryStore()
    with exclusive(objects) as store:
        idle = lists(store)
        gone = announced(store, b"n")
        store.poll()
        store.compact()  # the result is not in memory any more
        assert objects.get(gone.path) is not None

        assert lists(store) <= 4 * idle
        store._writer.helper._deleting.submit(lambda: None).result()  # deletions before it have ended
        assert objects.get(gone.path) is None
        assert lists(store) == idle
        assert store.get(b"n") == b"1"


def test_an_exclusive_writer_deletes_closed_intentions_with_its_own_commits() -> None:
    objects = MemoryStore()
    with exclusive(objects) as store:
        gone = announced(store, b"n")
        store.poll()
        store.compact()
        store.refresh()
        store.transact(put(b"b", b""))

        store._writer.helper._deleting.submit(lambda: None).result()
        assert objects.get(gone.path) is None


# Limits.


def test_unknown_procedures_do_not_use_up_the_number_of_an_entry() -> None:
    with shared(MemoryStore()) as store, patch("endive.kv.log.helping.CARRIED_MAX", 2):
        store.transact(put(b"a", b""))
        left = [strange(store) for _ in range(5)]
        store.transact(put(b"b", b""))  # it is behind the others in the order of names
        gone = [announced(store, b"n") for _ in range(3)]

        assert store.settle() == tuple(sorted(one.name for one in left))
        assert all(decided(store, one) is not None for one in gone)
        assert store.get(b"n") == b"3"


def test_unknown_procedures_do_not_use_up_the_bytes_of_an_entry() -> None:
    with shared(MemoryStore()) as store, patch("endive.kv.log.helping.CARRIED_BYTES_MAX", 150):
        store.transact(put(b"a", b""))
        left = strange(store, argument=200 * b"x")
        store.transact(put(b"b", b""))
        gone = announced(store, b"n")

        assert store.settle() == (left.name,)
        assert decided(store, gone) is not None


def test_unknown_procedures_are_read_once() -> None:
    with shared(MemoryStore()) as store:
        store.transact(put(b"a", b""))
        strange(store)
        for _ in range(2):
            store.transact(put(b"b", b""))

        assert requests_of(store, lambda: store.transact(put(b"b", b""))) == {"PutIfAbsent": 1, "List": 1}


def test_an_unknown_procedure_is_no_sign_of_other_writers() -> None:
    with shared(MemoryStore()) as store:
        store.transact(put(b"a", b""))
        strange(store)
        for _ in range(2):
            store.transact(put(b"b", b""))
        store._writer.helper._contention._busy_ms = -1e18
        store.transact(put(b"b", b""))

        assert not store._writer.helper.hints(is_last=False).is_busy


# Expiry.


def test_an_intention_that_no_process_carries_out_expires() -> None:
    objects = MemoryStore()
    with shared(objects) as store, kept(3):
        store.transact(put(b"a", b""))
        left = strange(store)
        for number in range(2):
            store.transact(put(b"b%d" % number, b""))
        store.collect_intentions()
        assert decided(store, left) is None  # it is not old yet
        for number in range(4):
            store.transact(put(b"c%d" % number, b""))

        store.collect_intentions()
        with pytest.raises(IntentionExpiredError):
            decided(store, left)
        assert store.collect_intentions() == (left.name,)
        assert objects.list(PREFIX) == ()


def test_an_intention_expires_at_the_end_of_a_process() -> None:
    objects = MemoryStore()
    options = replace(QUIET, compact_here=True, compact_entries=2, closing_ms=60_000)
    with shared(objects) as store:
        store.transact(put(b"a", b""))
        left = strange(store)
        for number in range(6):
            store.transact(put(b"b%d" % number, b""))
    with kept(3), Store(objects, "shared", options) as last:
        last.transact(put(b"c", b""))

    with shared(objects) as store:
        with pytest.raises(IntentionExpiredError):
            decided(store, left)
        assert store.driver.run(collect_intentions(NoCache())) == (left.name,)


def test_the_horizon_does_not_rise_for_nothing() -> None:
    with shared(MemoryStore()) as store, kept(3):
        store.transact(put(b"a", b""))
        old = announced(store, b"n")
        store.settle()
        for number in range(6):
            store.transact(put(b"b%d" % number, b""))
        assert store.collect_intentions() == (old.name,)  # and its result is forgotten
        for number in range(6):
            store.transact(put(b"c%d" % number, b""))
        strange(store)  # a new one
        store.transact(put(b"d", b""))
        before = store.wal_end

        store.collect_intentions()
        assert store.wal_end == before


# What the log of a process says.


def test_a_process_logs_which_one_has_carried_out_its_calls(caplog: pytest.LogCaptureFixture) -> None:
    objects = MemoryStore()
    with shared(objects) as owner, shared(objects) as other:
        owner.transact(put(b"a", b""))
        owner._writer.helper._contention._busy_ms = 1e18  # it expects others, and announces

        def announced_to_other(*arguments: Any) -> Steps[Intention]:
            own = yield from announce(*arguments)
            other.settle()
            return own

        with (
            patch("endive.kv.log.combining.announce", announced_to_other),
            patch.object(owner._writer, "_own_entry_last", 0),
            caplog.at_level(logging.DEBUG, "endive.kv.helper"),
        ):
            assert owner.call("tests.add", 1, b"n") == b"1"

        events = [record for record in caplog.records if getattr(record, "event", "") == "carried_out"]
        assert [event.facts["by"] for event in events] == [other._writer.helper.name]  # type: ignore[attr-defined]
        assert events[0].facts["calls"] == 1  # type: ignore[attr-defined]
        assert events[0].facts["entry"] == owner.wal_end == other.wal_end  # type: ignore[attr-defined]
        assert owner.stats()["carried_by_others"] == owner.stats()["announced_batches"] == 1
        assert other.stats()["carried_for_others"] == 1


# Results after an unknown outcome.


def test_the_outcome_of_a_call_is_found_by_the_path_of_its_error() -> None:
    with shared(MemoryStore()) as store:
        store.transact(put(b"a", b""))
        store._writer.helper._contention._busy_ms = 1e18
        down = StorageUnavailableError("memory:", "it is down")
        with (
            patch.object(store._writer, "_own_entry_last", 0),
            patch("endive.kv.log.combining.commit_batch", side_effect=down),
            pytest.raises(OutcomeUnknownError) as raised,
        ):
            store.call("tests.add", 1, b"n")

        assert store.outcome(raised.value.path) is None
        assert store.settle() == ()
        assert store.outcome(raised.value.path) == (CallResult(DONE, b"1"),)


def test_only_announced_calls_have_an_outcome() -> None:
    with shared(MemoryStore()) as store, pytest.raises(ConfigurationError, match="only announced calls"):
        store.outcome("wal/00000000000000000007.sst")


def test_the_outcome_of_an_expired_call_is_not_known() -> None:
    with shared(MemoryStore()) as store, kept(1):
        store.transact(put(b"a", b""))
        old = announced(store, b"n")
        store.settle()
        for number in range(3):
            store.transact(put(b"b%d" % number, b""))
        store.collect_intentions()

        with pytest.raises(IntentionExpiredError):
            store.outcome(old.path)
