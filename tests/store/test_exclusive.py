"""A process that keeps the store's epoch to itself: one request for a commit, and what happens when others write."""

import threading
from dataclasses import replace
from time import sleep

import pytest

from endive.errors import OutcomeUnknownError, StoreNotFoundError
from endive.kv import SharedStore, Store
from endive.kv.log.shared_epoch import catch_up
from endive.objects import MemoryStore
from endive.protocol.requests import ObjectInfo
from tests.store.test_shared import QUIET, Gone, add_one, get, in_threads, put

OWN = replace(QUIET, exclusive=True, retake_ms=3_600_000)
AT_ONCE = replace(OWN, retake_ms=0)
"""Takes the store back with the next commit but one."""


def requests(store: SharedStore) -> dict[str, int]:
    return {name: count for name, count in store.stats().items() if name.startswith("requests_")}


def requests_of_a_commit(store: SharedStore) -> dict[str, int]:
    before = requests(store)
    store.transact(add_one(b"n"))
    after = requests(store)
    return {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name, 0)}


def test_a_commit_is_one_request() -> None:
    with SharedStore(MemoryStore(), OWN) as store:
        store.transact(add_one(b"n"))

        assert requests_of_a_commit(store) == {"requests_PutIfAbsent": 1}


def test_there_must_be_a_store_unless_one_is_to_be_made() -> None:
    with pytest.raises(StoreNotFoundError):
        SharedStore(MemoryStore(), OWN, create=False)


def test_who_only_reads_leaves_the_store_to_its_owner() -> None:
    objects = MemoryStore()
    with SharedStore(objects, OWN) as owner, SharedStore(objects, QUIET) as member:
        owner.transact(put(b"a", b"1"))
        epoch = owner.stats()["epoch"]

        assert member.read(get(b"a")) == b"1"
        owner.transact(put(b"a", b"2"))
        assert member.read(get(b"a")) == b"2"
        assert owner.stats()["epoch"] == epoch


def test_a_member_that_writes_has_the_store_shared_until_it_is_quiet_again() -> None:
    objects = MemoryStore()
    with SharedStore(objects, OWN) as owner, SharedStore(objects, QUIET) as member:
        assert owner.transact(add_one(b"n")) == 1
        assert member.transact(add_one(b"n")) == 2
        assert owner.transact(add_one(b"n")) == 3
        assert requests_of_a_commit(owner) == {"requests_PutIfAbsent": 1, "requests_List": 1}
        assert member.transact(add_one(b"n")) == 5
        shared = member.stats()["epoch"]
        owner.options = AT_ONCE
        owner.transact(add_one(b"n"))  # others have written since its last commit
        assert owner.stats()["epoch"] == shared
        owner.transact(add_one(b"n"))  # and now they have not
        assert owner.stats()["epoch"] == shared + 1
        assert requests_of_a_commit(owner) == {"requests_PutIfAbsent": 1}
        assert member.read(get(b"n")) == b"8"


def test_a_member_that_stays_open_takes_the_store_again_when_it_writes() -> None:
    objects = MemoryStore()
    with SharedStore(objects, QUIET) as member, SharedStore(objects, AT_ONCE) as owner:
        member.driver._sleep = owner.driver._sleep = lambda _: None
        for count in range(0, 12, 4):
            assert member.transact(add_one(b"n")) == count + 1
            assert owner.transact(add_one(b"n")) == count + 2
            assert owner.transact(add_one(b"n")) == count + 3
            assert requests_of_a_commit(owner) == {"requests_PutIfAbsent": 1}


def test_a_fenced_owner_that_only_reads_does_not_take_the_store_back_at_once() -> None:
    objects = MemoryStore()
    with SharedStore(objects, replace(OWN, retake_ms=3_600_000)) as owner, SharedStore(objects, QUIET) as member:
        owner.transact(add_one(b"n"))
        member.transact(add_one(b"n"))
        assert owner.transact(get(b"n")) == b"2"
        shared = member.stats()["epoch"]
        owner.transact(add_one(b"n"))

        assert owner.stats()["epoch"] == shared


def test_who_opens_to_write_alone_and_only_reads_disturbs_nobody() -> None:
    objects = MemoryStore()
    with SharedStore(objects, OWN) as owner, SharedStore(objects, OWN) as copy:
        owner.transact(add_one(b"n"))
        epoch = owner.stats()["epoch"]
        assert copy.read(get(b"n")) == b"1"

        assert requests_of_a_commit(owner) == {"requests_PutIfAbsent": 1}
        assert owner.stats()["epoch"] == epoch


def test_a_member_gets_its_turn_however_busy_the_owner_is() -> None:
    objects = MemoryStore()
    with SharedStore(objects, OWN) as owner, SharedStore(objects, QUIET) as member:
        is_over = threading.Event()

        def keep_busy() -> None:
            while not is_over.is_set():
                owner.transact(add_one(b"owner"))

        busy = threading.Thread(target=keep_busy)
        busy.start()
        try:
            for number in range(20):
                assert member.transact(add_one(b"member")) == number + 1
        finally:
            is_over.set()
            busy.join()
        assert owner.read(get(b"member")) == b"20"


def test_an_owner_that_was_left_behind_by_a_compaction_becomes_the_owner_again() -> None:
    objects = MemoryStore()
    with SharedStore(objects, AT_ONCE) as owner, SharedStore(objects, QUIET) as member:
        owner.transact(add_one(b"n"))
        for _ in range(3):
            member.transact(add_one(b"n"))
        member.compact()
        assert owner.read(get(b"n")) == b"4"
        owner.transact(add_one(b"n"))
        owner.transact(add_one(b"n"))

        assert requests_of_a_commit(owner) == {"requests_PutIfAbsent": 1}


def test_an_owner_and_an_exclusive_writer_take_the_store_from_each_other() -> None:
    objects = MemoryStore()
    with SharedStore(objects, OWN) as owner:
        owner.driver._sleep = lambda _: None
        owner.transact(put(b"n", b"1"))
        with Store(objects) as alone:
            assert alone.get(b"n") == b"1"
            alone.put(b"n", b"10")
        assert owner.transact(add_one(b"n")) == 11


def test_owners_in_threads_lose_no_increment() -> None:
    objects = MemoryStore()
    stores = [SharedStore(objects, OWN) for _ in range(2)]
    for store in stores:
        store.driver._sleep = lambda _: None

    def count(number: int) -> None:
        for _ in range(10):
            stores[number % 2].transact(add_one(b"n"))

    in_threads(4, count)
    assert stores[0].read(get(b"n")) == b"40"
    for store in stores:
        store.close()


def test_a_slot_that_was_filled_unnoticed_and_collected_is_not_filled_again() -> None:
    objects = Gone()
    with SharedStore(objects, OWN) as owner, SharedStore(objects, QUIET) as member:
        owner.transact(add_one(b"n"))
        objects.loses_replies = True
        with pytest.raises(OutcomeUnknownError):  # it has happened
            owner.transact(add_one(b"n"))
        objects.loses_replies = False
        assert member.transact(add_one(b"n")) == 3
        member.compact()
        member.collect()

        assert owner.transact(add_one(b"n")) == 4
        assert member.read(get(b"n")) == b"4"


def test_a_look_that_ends_after_a_commit_has_its_news_kept() -> None:
    objects = MemoryStore()
    with SharedStore(objects, OWN) as store, SharedStore(objects, QUIET) as other:
        for number in range(5):
            store.transact(put(b"%d" % number, b"x"))
        before = store._state
        other.compact()
        looked = store.driver.run(catch_up(before))
        store.transact(put(b"last", b"x"))
        with store._changed:
            store._learn(looked)

        assert store.stats()["manifest_id"] == looked.manifest.number
        assert store.stats()["uncompacted_slots"] == 1


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


def test_a_member_gets_its_turn_though_the_owner_fills_slots_quicker_than_it_can_fence() -> None:
    objects, looking = Remote(), replace(OWN, poll_interval_ms=50)
    with SharedStore(objects, looking) as owner, SharedStore(objects, QUIET) as member:
        is_over, waits = threading.Event(), threading.Thread(target=member.transact, args=(add_one(b"member"),))
        busy = threading.Thread(target=lambda: [owner.transact(add_one(b"n")) for _ in iter(is_over.is_set, True)])
        busy.start()
        waits.start()
        waits.join(30)
        got_in = not waits.is_alive()
        is_over.set()
        busy.join()
        waits.join()

    assert got_in


def test_what_was_compacted_is_let_go_though_commits_bring_no_news() -> None:
    objects = MemoryStore()
    with SharedStore(objects, replace(OWN, compact_slots=5)) as store, SharedStore(objects, QUIET) as other:
        for number in range(20):
            store.transact(put(b"%d" % number, b"x" * 100))
        other.compact()
        store.transact(put(b"last", b"x"))
        assert store.stats()["uncompacted_slots"] > 5
        store.look_around()

        assert store.stats()["uncompacted_slots"] <= 1
        assert store.read_cached(get(b"7")) == b"x" * 100


class Paused(MemoryStore):
    """A store whose next create of a slot waits until it may go on."""

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


def test_a_commit_that_began_before_a_compaction_does_not_undo_the_news_of_it() -> None:
    objects = Paused()
    with SharedStore(objects, OWN) as store:
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
        assert store.stats()["uncompacted_slots"] == 1


def test_a_look_that_began_before_an_epoch_was_claimed_does_not_cost_a_claim() -> None:
    objects = MemoryStore()
    with SharedStore(objects, AT_ONCE) as owner, SharedStore(objects, QUIET) as member:
        owner.transact(add_one(b"n"))
        stale = owner._state
        member.transact(add_one(b"n"))
        owner.transact(add_one(b"n"))
        owner.transact(add_one(b"n"))
        epoch = owner.stats()["epoch"]
        with owner._changed:
            owner._learn(replace(owner._state, own_epoch=stale.own_epoch))
        owner.transact(add_one(b"n"))

        assert owner.stats()["epoch"] == epoch
