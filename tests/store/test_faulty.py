"""The store, with real threads, on an object store in trouble."""

import threading

import pytest

from endive.errors import EndiveError
from endive.kv import Store, StoreOptions
from endive.kv.check import check_store
from endive.objects import FaultyStore, MemoryStore, Troubles

BAD = Troubles(throttled=0.05, fails=0.03, loses_reply=0.05, stalls=0.01, stall_ms=5)


@pytest.mark.parametrize("seed", range(5))
def test_what_was_acknowledged_is_there_whatever_the_object_store_does(seed: int) -> None:
    objects = MemoryStore()
    acknowledged: list[bytes] = []
    for life in range(3):
        troubled = FaultyStore(objects, seed * 10 + life, BAD, sleep=lambda _: None)
        options = StoreOptions(max_parallel_writes=2, poll_interval_ms=5, compact_bytes=1, retention_ms=0)
        try:
            with Store(troubled, options) as store:
                store.driver._sleep = lambda _: None

                def work(name: int, store: Store = store, life: int = life) -> None:
                    for number in range(30):
                        key = b"%d/%d/%d" % (life, name, number)
                        try:
                            store.put(key, key)
                        except EndiveError:
                            return
                        acknowledged.append(key)

                threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        except EndiveError:
            continue  # it could not open, or not close in good order: the next life sees what was acknowledged

    with Store(objects, StoreOptions(compact_here=False)) as store:
        assert [key for key in acknowledged if store.get(key) != key] == []
        assert store.driver.run(check_store()).faults == ()
    assert len(acknowledged) > 30


def test_troubles_come_from_the_seed() -> None:
    def outcomes(seed: int) -> list[str]:
        objects = FaultyStore(MemoryStore(), seed, Troubles(throttled=0.3, loses_reply=0.3), sleep=lambda _: None)
        found = []
        for number in range(50):
            try:
                found.append(str(objects.put_if_absent(f"{number}", b"")))
            except EndiveError as error:
                found.append(type(error).__name__)
        return found

    assert outcomes(1) == outcomes(1)
    assert outcomes(1) != outcomes(2)
    assert {"True", "StorageUnavailableError", "OutcomeUnknownError"} == set(outcomes(1))


def test_a_delay_is_the_profiles() -> None:
    waited: list[float] = []
    delays = {"read": 30.0, "cas": 60.0}
    objects = FaultyStore(MemoryStore(), 1, Troubles(), lambda operation, *_: delays[operation], sleep=waited.append)
    objects.put_if_absent("a", b"")
    objects.get("a")

    assert waited == [0.06, 0.03]
