"""An exclusive writer that reopens: one request for a commit, and how it shares the store when others write."""

import threading
from dataclasses import replace
from time import sleep

import pytest

from endive.errors import OutcomeUnknownError, StoreNotFoundError
from endive.kv import Store
from endive.kv.log.state import refreshed
from endive.objects import MemoryStore
from endive.protocol.requests import ObjectInfo
from tests.store.functions import REOPENING, Paused, Unreliable, add_one, get, in_threads, put, reopening, shared

AT_ONCE = replace(REOPENING, retake_ms=0)
"""Takes the store back with the next commit but one."""


def requests(store: Store) -> dict[str, int]:
    return {name: count for name, count in store.stats().items() if name.startswith("requests_")}


def requests_of_a_commit(store: Store) -> dict[str, int]:
    before = requests(store)
    store.transact(add_one(b"n"))
    after = requests(store)
    return {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}


def test_a_commit_is_one_request() -> None:
    with reopening(MemoryStore()) as store:
        store.transact(add_one(b"n"))

        assert requests_of_a_commit(store) == {"requests_PutIfAbsent": 1}


def test_a_store_that_does_not_exist_is_not_created_unless_asked() -> None:
    with pytest.raises(StoreNotFoundError):
        reopening(MemoryStore(), create=False)


def test_a_shared_writer_that_only_reads_leaves_the_store_to_its_owner() -> None:
    objects = MemoryStore()
    with reopening(objects) as owner, shared(objects) as other:
        owner.transact(put(b"a", b"1"))
        epoch = owner.stats()["epoch"]

        assert other.read(get(b"a")) == b"1"
        owner.transact(put(b"a", b"2"))
        assert other.read(get(b"a")) == b"2"
        assert owner.stats()["epoch"] == epoch


def test_the_store_is_shared_while_another_process_writes() -> None:
    objects = MemoryStore()
    with reopening(objects) as owner, shared(objects) as other:
        assert owner.transact(add_one(b"n")) == 1
        assert other.transact(add_one(b"n")) == 2
        assert owner.transact(add_one(b"n")) == 3
        assert requests_of_a_commit(owner) == {"requests_PutIfAbsent": 1, "requests_List": 1}
        assert other.transact(add_one(b"n")) == 5
        epoch = other.stats()["epoch"]
        owner._writer._options = AT_ONCE
        owner.transact(add_one(b"n"))  # others have written since its last commit
        assert owner.stats()["epoch"] == epoch
        owner.transact(add_one(b"n"))  # and now they have not
        assert owner.stats()["epoch"] == epoch + 1
        assert requests_of_a_commit(owner) == {"requests_PutIfAbsent": 1}
        assert other.read(get(b"n")) == b"8"


def test_a_shared_writer_that_stays_open_takes_the_store_again_when_it_writes() -> None:
    objects = MemoryStore()
    with shared(objects) as other, reopening(objects, AT_ONCE) as owner:
        other.driver._sleep = owner.driver._sleep = lambda _: None
        for count in range(0, 12, 4):
            assert other.transact(add_one(b"n")) == count + 1
            assert owner.transact(add_one(b"n")) == count + 2
            assert owner.transact(add_one(b"n")) == count + 3
            assert requests_of_a_commit(owner) == {"requests_PutIfAbsent": 1}


def test_a_fenced_exclusive_writer_that_only_reads_does_not_take_the_store_back_at_once() -> None:
    objects = MemoryStore()
    with reopening(objects, replace(REOPENING, retake_ms=3_600_000)) as owner, shared(objects) as other:
        owner.transact(add_one(b"n"))
        other.transact(add_one(b"n"))
        assert owner.transact(get(b"n")) == b"2"
        epoch = other.stats()["epoch"]
        owner.transact(add_one(b"n"))

        assert owner.stats()["epoch"] == epoch


def test_an_exclusive_writer_that_only_reads_fences_no_other_writer() -> None:
    objects = MemoryStore()
    with reopening(objects) as owner, reopening(objects) as copy:
        owner.transact(add_one(b"n"))
        epoch = owner.stats()["epoch"]
        assert copy.read(get(b"n")) == b"1"

        assert requests_of_a_commit(owner) == {"requests_PutIfAbsent": 1}
        assert owner.stats()["epoch"] == epoch


def test_a_shared_writer_gets_its_turn_however_busy_the_owner_is() -> None:
    objects = MemoryStore()
    with reopening(objects) as owner, shared(objects) as other:
        is_over = threading.Event()

        def keep_busy() -> None:
            while not is_over.is_set():
                owner.transact(add_one(b"owner"))

        busy = threading.Thread(target=keep_busy)
        busy.start()
        try:
            for number in range(20):
                assert other.transact(add_one(b"other")) == number + 1
        finally:
            is_over.set()
            busy.join()
        assert owner.read(get(b"other")) == b"20"


def test_a_fenced_exclusive_writer_behind_a_compaction_takes_the_store_back() -> None:
    objects = MemoryStore()
    with reopening(objects, AT_ONCE) as owner, shared(objects) as other:
        owner.transact(add_one(b"n"))
        for _ in range(3):
            other.transact(add_one(b"n"))
        other.compact()
        assert owner.read(get(b"n")) == b"4"
        owner.transact(add_one(b"n"))
        owner.transact(add_one(b"n"))

        assert requests_of_a_commit(owner) == {"requests_PutIfAbsent": 1}


def test_two_exclusive_writers_take_the_store_from_each_other() -> None:
    objects = MemoryStore()
    with reopening(objects) as owner:
        owner.driver._sleep = lambda _: None
        owner.transact(put(b"n", b"1"))
        with Store(objects) as alone:
            assert alone.get(b"n") == b"1"
            alone.put(b"n", b"10")
        assert owner.transact(add_one(b"n")) == 11


def test_exclusive_writers_in_threads_lose_no_increment() -> None:
    objects = MemoryStore()
    stores = [reopening(objects) for _ in range(2)]
    for store in stores:
        store.driver._sleep = lambda pause_s: sleep(pause_s / 100)

    def count(number: int) -> None:
        for _ in range(10):
            stores[number % 2].transact(add_one(b"n"))

    in_threads(4, count)
    assert stores[0].read(get(b"n")) == b"40"
    for store in stores:
        store.close()


def test_an_entry_that_was_created_unnoticed_and_deleted_is_not_created_again() -> None:
    objects = Unreliable()
    with reopening(objects) as owner, shared(objects) as other:
        owner.transact(add_one(b"n"))
        objects.loses_replies = True
        with pytest.raises(OutcomeUnknownError):  # it has happened
            owner.transact(add_one(b"n"))
        objects.loses_replies = False
        assert other.transact(add_one(b"n")) == 3
        other.compact()
        other.collect()

        assert owner.transact(add_one(b"n")) == 4
        assert other.read(get(b"n")) == b"4"


def test_a_refresh_that_ends_after_a_commit_keeps_its_manifest() -> None:
    objects = MemoryStore()
    with reopening(objects) as store, shared(objects) as other:
        for number in range(5):
            store.transact(put(b"%d" % number, b"x"))
        before = store._writer.state
        other.compact()
        looked = store.driver.run(refreshed(before))
        store.transact(put(b"last", b"x"))
        with store._group.changed:
            store._writer._combine(looked)

        assert store.stats()["manifest_id"] == looked.manifest.number
        assert store.stats()["uncompacted_entries"] == 1


class Remote(MemoryStore):
    """A store that takes its time, as one far away: two units to create, one to read."""

    UNIT_S = 0.003

    def put_if_absent(self, path: str, body: bytes) -> bool:
        sleep(2 * self.UNIT_S)
        return super().put_if_absent(path, body)

    def get(self, path: str) -> bytes | None:
        sleep(self.UNIT_S)
        return super().get(path)

    def list(self, prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        sleep(self.UNIT_S)
        return super().list(prefix, after)


def test_a_shared_writer_gets_its_turn_though_the_owner_writes_entries_quicker_than_it_can_fence() -> None:
    objects, looking = Remote(), replace(REOPENING, poll_interval_ms=50)
    with reopening(objects, looking) as owner, shared(objects) as other:
        is_over, waits = threading.Event(), threading.Thread(target=other.transact, args=(add_one(b"other"),))
        busy = threading.Thread(target=lambda: [owner.transact(add_one(b"n")) for _ in iter(is_over.is_set, True)])
        busy.start()
        waits.start()
        waits.join(30)
        got_in = not waits.is_alive()
        is_over.set()
        busy.join()
        waits.join()

    assert got_in


def test_compacted_rows_are_released_though_commits_do_not_refresh() -> None:
    objects = MemoryStore()
    with reopening(objects, replace(REOPENING, compact_entries=5)) as store, shared(objects) as other:
        for number in range(20):
            store.transact(put(b"%d" % number, b"x" * 100))
        other.compact()
        store.transact(put(b"last", b"x"))
        assert store.stats()["uncompacted_entries"] > 5
        store.poll()

        assert store.stats()["uncompacted_entries"] <= 1
        assert store.read_cached(get(b"7")) == b"x" * 100


def test_a_commit_that_began_before_a_compaction_keeps_its_manifest() -> None:
    objects = Paused()
    with reopening(objects) as store:
        for number in range(5):
            store.transact(put(b"%d" % number, b"x"))
        objects.pauses = True
        committing = threading.Thread(target=store.transact, args=(put(b"last", b"x"),))
        committing.start()
        assert objects.waits.wait(30)
        store.compact()
        manifest_id = store.stats()["manifest_id"]
        objects.may_go_on.set()
        committing.join()

        assert store.stats()["manifest_id"] == manifest_id
        assert store.stats()["uncompacted_entries"] == 1


def test_a_refresh_that_began_before_an_epoch_was_claimed_does_not_cost_a_claim() -> None:
    objects = MemoryStore()
    with reopening(objects, AT_ONCE) as owner, shared(objects) as other:
        owner.transact(add_one(b"n"))
        stale = owner._writer.state
        other.transact(add_one(b"n"))
        owner.transact(add_one(b"n"))
        owner.transact(add_one(b"n"))
        epoch = owner.stats()["epoch"]
        with owner._group.changed:
            owner._writer._combine(replace(owner._writer.state, own_epoch=stale.own_epoch))
        owner.transact(add_one(b"n"))

        assert owner.stats()["epoch"] == epoch
