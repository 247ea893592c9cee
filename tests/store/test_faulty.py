"""The store, with real threads, on an object store with injected faults."""

import threading
from dataclasses import replace
from statistics import median

import pytest

from endive.errors import EndiveError, UnsupportedOperationError
from endive.kv import Store, StoreOptions
from endive.kv.log.opening import open_writer
from endive.kv.maintenance.check import check_store
from endive.objects import MemoryStore
from endive.rng import stream
from endive.sim.config.profiles import load_profile_set
from endive.sim.delays import delay_of
from endive.testing import FaultInjectingStore, FaultProbabilities
from endive.testing.virtual_time import SimulatedCluster, latency_from

BAD = FaultProbabilities(refusal=0.05, failure=0.03, lost_reply=0.05, stall=0.01, stall_ms=5)


@pytest.mark.parametrize("seed", range(5))
def test_no_acknowledged_write_is_lost_under_injected_faults(seed: int) -> None:
    objects = MemoryStore()
    acknowledged: list[bytes] = []
    for life in range(3):
        faulty = FaultInjectingStore(objects, seed * 10 + life, BAD, sleep=lambda _: None)
        options = StoreOptions(max_parallel_writes=2, poll_interval_ms=5, compact_bytes=1, retention_ms=0)
        try:
            with Store(faulty, options=options) as store:
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
            continue  # could not open or close; the next life sees the acknowledged writes

    with Store(objects, options=StoreOptions(compact_here=False)) as store:
        assert [key for key in acknowledged if store.get(key) != key] == []
        assert store.driver.run(check_store()).findings == ()
    assert len(acknowledged) > 30


def test_faults_are_determined_by_the_seed() -> None:
    def outcomes(seed: int) -> list[str]:
        objects = FaultInjectingStore(
            MemoryStore(), seed, FaultProbabilities(refusal=0.3, lost_reply=0.3), sleep=lambda _: None
        )
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


# Delays.


def test_delays_depend_on_operation_and_size() -> None:
    waited: list[float] = []
    objects = FaultInjectingStore(
        MemoryStore(),
        1,
        FaultProbabilities(),
        lambda operation, size, _: len(operation) + 100 * size,
        sleep=waited.append,
    )
    objects.put_if_absent("a", b"123")
    objects.get("a")
    objects.get_range("a", 1, 10)
    objects.list("")
    objects.delete("a")

    assert waited == [0.303, 0.304, 0.204, 0.004, 0.006]


@pytest.mark.parametrize("provider", ["s3", "s3x", "azure", "gcp"])
def test_a_store_can_have_the_latencies_of_a_provider(provider: str) -> None:
    profile = load_profile_set("measured")[provider]
    waited: list[float] = []
    objects = FaultInjectingStore(MemoryStore(), 1, FaultProbabilities(), delay_of(profile), sleep=waited.append)
    for number in range(1001):
        objects.put_if_absent(f"{number}", b"")

    expected_ms = profile.latencies["cas"].quantile.ticks_at(0.5) / 1e6
    assert median(waited) * 1000 == pytest.approx(expected_ms, rel=0.05)
    assert min(waited) * 1000 >= profile.latencies["cas"].quantile.floor_ticks / 1e6


def test_larger_objects_take_longer_and_delays_are_determined_by_the_seed() -> None:
    delay = delay_of(load_profile_set("measured")["s3"])

    assert delay("write", 10 << 20, stream(1, "x")) > 2 * delay("write", 0, stream(1, "x"))
    assert delay("list", 0, stream(1, "x")) == delay("read", 0, stream(1, "x"))
    assert delay("delete", 0, stream(1, "x")) == delay("write", 0, stream(1, "x"))


def test_an_operation_that_a_provider_lacks_is_unsupported() -> None:
    profile = load_profile_set("measured")["s3"]
    without = replace(profile, latencies={name: row for name, row in profile.latencies.items() if name != "cas"})
    objects = FaultInjectingStore(MemoryStore(), 1, FaultProbabilities(), delay_of(without), sleep=lambda _: None)
    objects.put("a", b"")

    with pytest.raises(UnsupportedOperationError, match="'s3' does not support 'cas'"):
        objects.put_if_absent("b", b"")


def test_protocols_in_virtual_time_can_have_the_latencies_of_a_provider() -> None:
    def once(provider: str) -> float:
        cluster = SimulatedCluster(1, latency=latency_from(delay_of(load_profile_set("measured")[provider])))
        process = cluster.start(cluster.machine("writer"), open_writer())
        cluster.run(60_000)
        assert process.error is None
        assert process.ended_ms is not None
        return process.ended_ms

    assert 0 < once("s3x") < once("s3") < 60_000
