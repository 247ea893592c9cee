"""Several processes write one store."""

from collections.abc import Callable

import pytest

from endive.drivers.blocking import BlockingDriver
from endive.errors import ExclusiveWriterError, FencedError
from endive.kv import Reader, Store, StoreOptions
from endive.kv.log.epochs import open_exclusive
from endive.kv.maintenance.check import check_store
from endive.kv.transaction import Transaction
from endive.objects import MemoryStore
from endive.protocol.requests import Steps
from tests.store.functions import add_one, get, in_threads, put, shared


def test_an_error_is_about_the_newest_state() -> None:
    def require(tx: Transaction) -> Steps[None]:
        held = yield from tx.get(b"table")
        if held is None:
            raise KeyError("no such table")

    objects = MemoryStore()
    with shared(objects) as store, shared(objects) as other:
        with pytest.raises(KeyError):
            store.transact(require)
        other.transact(put(b"table", b"1"))

        store.transact(require)


# Shared writers.


def test_joining_writes_nothing() -> None:
    objects = MemoryStore()
    with shared(objects) as first:
        first.transact(add_one(b"n"))
        before = {info.path for info in objects.list("")}
        with shared(objects) as second:
            assert {info.path for info in objects.list("")} == before
            assert second.transact(add_one(b"n")) == 2
        assert first.read_cached(get(b"n")) == b"1"
        assert first.read(get(b"n")) == b"2"
        assert first.transact(add_one(b"n")) == 3


def test_shared_writers_in_threads_lose_no_increment() -> None:
    objects = MemoryStore()
    options = StoreOptions(compact_entries=5, poll_interval_ms=5, collect_interval_ms=10, retention_ms=0)
    stores = [shared(objects, options) for _ in range(4)]
    try:
        in_threads(16, lambda number: [stores[number % 4].transact(add_one(b"n")) for _ in range(20)])

        assert [store.read(get(b"n")) for store in stores] == [b"320"] * 4
        assert stores[0].driver.run(check_store()).findings == ()
    finally:
        for store in stores:
            store.close()


def test_a_reader_sees_commits_of_shared_writers() -> None:
    objects = MemoryStore()
    with shared(objects) as store:
        store.transact(put(b"a", b"1"))
        with Reader(objects) as reader:
            assert reader.get(b"a") == b"1"


def test_shared_writers_go_on_after_compaction_and_collection_by_others() -> None:
    objects = MemoryStore()
    with shared(objects) as idle, shared(objects) as busy:
        idle.transact(add_one(b"n"))
        for _ in range(5):
            busy.transact(add_one(b"n"))
        busy.compact()
        busy.collect()

        assert idle.transact(add_one(b"n")) == 7
        assert busy.read(get(b"n")) == b"7"


# Shared and exclusive writers.


def test_an_exclusive_writer_opens_what_shared_writers_wrote() -> None:
    objects = MemoryStore()
    with shared(objects) as store:
        store.transact(put(b"a", b"1"))
    with Store(objects) as alone:
        assert alone.get(b"a") == b"1"
        alone.put(b"b", b"2")
    with shared(objects) as store:
        assert store.read(get(b"b")) == b"2"


def test_a_shared_writer_waits_for_an_exclusive_writer_then_takes_the_store() -> None:
    objects, pauses = MemoryStore(), list[float]()
    with shared(objects) as store:
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
    """A store of which a rival claims the next epoch whenever another process has claimed one."""

    rival: Callable[[], object] | None = None

    def put_if_absent(self, path: str, body: bytes) -> bool:
        done = super().put_if_absent(path, body)
        rival = self.rival
        if done and rival is not None and path.startswith("manifest/"):
            self.rival = None
            rival()
            self.rival = rival
        return done


def test_a_shared_writer_that_never_gets_the_store_reports_it_and_goes_on_when_it_can() -> None:
    objects = Taken()
    with shared(objects) as store:
        store.driver._sleep = lambda _: None
        store.transact(add_one(b"n"))
        BlockingDriver(objects).run(open_exclusive())
        objects.rival = lambda: BlockingDriver(objects).run(open_exclusive())  # and crashes
        with pytest.raises(ExclusiveWriterError, match="is the exclusive writer"):
            store.transact(add_one(b"n"))
        objects.rival = None

        assert store.transact(add_one(b"n")) == 2
