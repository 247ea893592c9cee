"""Limits of helping: what an entry takes, when nobody announces more, what is forgotten, and which Endive reads it."""

import struct
from dataclasses import replace
from unittest.mock import patch

import pytest

from endive.errors import CorruptObjectError
from endive.kv import Store
from endive.kv.log.combining import Contention, Hints, commit_calls
from endive.kv.log.committing import Committed
from endive.kv.log.helping import announce
from endive.kv.log.intentions import PREFIX, Decided, outcome_key
from endive.kv.log.state import newest_state
from endive.kv.manifest_format import MANIFESTS
from endive.kv.procedures import Call
from endive.kv.sst.reading import NoCache
from endive.objects import MemoryStore
from endive.protocol.sequenced import newest
from tests.store.functions import QUIET, put, shared
from tests.store.test_helping import announced, calls, decided, kept, state_of

BUSY = Hints(is_busy=True)


def version_of(store: Store) -> int:
    """Return the format version of the newest manifest."""
    found = store.driver.run(newest(MANIFESTS))
    assert found is not None
    body = store.driver.objects.get(MANIFESTS.path_of(found.number))
    assert body is not None
    version: int = struct.unpack_from(">8sH", body)[1]
    return version


def test_the_first_intention_changes_the_format_of_the_manifest() -> None:
    objects = MemoryStore()
    with shared(objects) as store:
        store.transact(put(b"a", b""))
        assert version_of(store) == 2

        announced(store, b"n")

        assert version_of(store) == 4
        assert store.settle() == ()
        assert store.get(b"n") == b"1"
        store.compact()
        assert version_of(store) == 4
    with (
        patch("endive.kv.manifest_format.VERSIONS_READ", (1, 2, 3)),
        pytest.raises(CorruptObjectError, match="format version 4"),
    ):
        Store(objects, "shared", QUIET)


def test_an_entry_takes_a_number_of_intentions_and_the_next_one_takes_the_rest() -> None:
    with shared(MemoryStore()) as store, patch("endive.kv.log.helping.CARRIED_MAX", 2):
        store.transact(put(b"a", b""))
        gone = [announced(store, b"n") for _ in range(5)]
        store.refresh()
        before = store.wal_end
        assert store.settle() == ()

        assert store.get(b"n") == b"5"
        assert store.wal_end >= before + 3
        assert all(decided(store, one) is not None for one in gone)


def test_an_entry_takes_a_number_of_bytes() -> None:
    with shared(MemoryStore()) as store, patch("endive.kv.log.helping.CARRIED_BYTES_MAX", 150):
        store.transact(put(b"a", b""))
        for number in range(3):
            announced(store, b"n%d" % number + 90 * b"x")
        store.refresh()
        before = store.wal_end
        assert store.settle() == ()

        assert store.wal_end >= before + 3


def test_with_many_pending_intentions_nobody_announces_another_one() -> None:
    objects = MemoryStore()
    with shared(objects) as store, patch("endive.kv.log.combining.PENDING_MAX", 2):
        store.transact(put(b"a", b""))
        for _ in range(2):  # of a newer version: they stay pending
            store.driver.run(announce(state_of(store), (Call("tests.add", 99, b"n"),), "newer"))
        pending = len(objects.list(PREFIX))

        committed = store.driver.run(commit_calls(state_of(store), calls(b"n"), NoCache(), BUSY, "here"))

        assert committed.own is None
        assert committed.entry
        assert len(objects.list(PREFIX)) == pending == 2


def test_a_large_call_is_committed_by_its_own_process() -> None:
    objects = MemoryStore()
    with shared(objects) as store, patch("endive.kv.writer.INTENTION_BYTES_MAX", 10):
        store.transact(put(b"a", b""))
        store._writer.helper._contention._busy_ms = 1e18

        store.call("tests.add", 1, b"n" * 20)

        assert store.get(b"n" * 20) == b"1"
        assert store.stats()["announced_batches"] == 0


def test_a_process_that_ends_forgets_old_results() -> None:
    objects = MemoryStore()
    options = replace(QUIET, compact_here=True, compact_entries=2, closing_ms=60_000)
    with shared(objects) as store:
        store.transact(put(b"a", b""))
        old = announced(store, b"n")
        assert store.settle() == ()
        for number in range(6):
            store.transact(put(b"b%d" % number, b""))
        assert store.get(outcome_key(old.name)) is not None

    with kept(3), Store(objects, "shared", options) as last:
        last.transact(put(b"c", b""))

    with shared(objects) as store:
        assert store.get(outcome_key(old.name)) is None
        assert store.get(b"n") == b"1"
        assert objects.list(PREFIX) == ()
        state = store.driver.run(newest_state())
        assert state is not None


def test_a_writer_that_was_helped_expects_company_the_next_time() -> None:
    with shared(MemoryStore()) as store:
        store.transact(put(b"a", b""))
        own = announced(store, b"n")
        contention = Contention()
        assert not contention.hints(0.0, is_last=False).is_busy

        contention.update(Committed(state_of(store), (), own=own, decided=Decided("another", ())), 0.0, 10.0, 0)

        assert contention.hints(1000.0, is_last=False).is_busy
        assert not contention.hints(10_000.0, is_last=False).is_busy
