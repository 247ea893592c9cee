"""What every storage provider promises: one suite, all providers that come with Endive, and one made for tests."""

from collections.abc import Callable

import pytest

from endive.errors import UnsupportedOperationError
from endive.rng import RandomSource, Stream
from endive.sim.config.configuration import PROVIDER_PROFILES
from endive.sim.config.profiles import load_profile_set
from endive.sim.storage import Contention, Profile, ProfiledProvider, StorageProvider, StorageResult, create_provider
from endive.timing import Latency
from tests.instruments import ScriptedSource, drain, fixed_provider, waits

Make = Callable[[RandomSource], StorageProvider]


def _from(profiles: dict[str, Profile], name: str) -> Make:
    return lambda rng: create_provider(name, rng, profiles)


def _contended(rng: RandomSource) -> StorageProvider:
    rows = PROVIDER_PROFILES["instant"].latencies
    return ProfiledProvider(Profile("contended", rows, Contention(0.1, 3.0), decision=0.5), rng)


PROVIDERS: dict[str, Make] = {
    **{name: _from(dict(PROVIDER_PROFILES), name) for name in PROVIDER_PROFILES},
    **{f"measured {name}": _from(dict(load_profile_set("measured")), name) for name in load_profile_set("measured")},
    "contended": _contended,
    "recording": lambda rng: fixed_provider().with_rng(rng),
}
OPERATIONS: dict[str, Callable[[StorageProvider], Latency[StorageResult]]] = {
    "read": lambda storage: storage.read("object", 1_000),
    "write": lambda storage: storage.write("object", 1_000),
    "cas": lambda storage: storage.cas("object", 0, 1_000),
    "append": lambda storage: storage.append("object", 0, 1_000),
    "tail_append": lambda storage: storage.tail_append("object", 1_000),
}


@pytest.fixture(params=PROVIDERS)
def make(request: pytest.FixtureRequest) -> Make:
    return PROVIDERS[request.param]


def supported(storage: StorageProvider) -> list[str]:
    return [operation for operation in OPERATIONS if storage.supports(operation)]


def test_reading_writing_and_cas_are_always_there(make: Make) -> None:
    assert supported(make(Stream(1)))[:3] == ["read", "write", "cas"]


def test_supported_operations_succeed_and_others_raise(make: Make) -> None:
    for operation, request in OPERATIONS.items():
        storage = make(Stream(1))
        if storage.supports(operation):
            assert drain(request(storage)).success
        else:
            with pytest.raises(UnsupportedOperationError) as caught:
                drain(request(storage))
            assert (caught.value.provider, caught.value.operation) == (storage.name, operation)


def test_the_properties_agree_with_the_operations(make: Make) -> None:
    storage = make(Stream(1))
    properties = (storage.supports_cas, storage.supports_append, storage.supports_tail_append)
    assert properties == tuple(storage.supports(operation) for operation in ("cas", "append", "tail_append"))
    assert storage.name


@pytest.mark.parametrize("u", [0.0, 1e-9, 0.25, 0.5, 0.999999])
def test_no_request_is_faster_than_the_floor_and_all_waits_are_in_the_result(make: Make, u: float) -> None:
    storage = make(ScriptedSource(u))
    for operation in supported(storage):
        yielded, result = waits(OPERATIONS[operation](storage))
        assert sum(yielded) == pytest.approx(result.latency_ms)
        assert result.latency_ms >= storage.min_latency_ms > 0.0
        assert result.data_size_bytes == 1_000


def test_a_larger_number_never_gives_a_shorter_latency(make: Make) -> None:
    for operation in supported(make(Stream(1))):
        latencies = [drain(OPERATIONS[operation](make(ScriptedSource(n / 200)))).latency_ms for n in range(200)]
        assert latencies == sorted(latencies)


def test_a_larger_object_never_takes_less_time(make: Make) -> None:
    for size_bytes in (0, 10**6, 10**8):
        storage, larger = make(ScriptedSource(0.4)), make(ScriptedSource(0.4))
        taken_ms = drain(storage.write("object", size_bytes)).latency_ms
        assert drain(larger.write("object", size_bytes + 10**6)).latency_ms >= taken_ms


def test_the_same_stream_gives_the_same_latencies(make: Make) -> None:
    def latencies(key: int) -> list[float]:
        storage = make(Stream(key))
        return [drain(storage.read("object", 10)).latency_ms for _ in range(20)]

    assert latencies(1) == latencies(1)


def test_every_request_draws_exactly_one_number(make: Make) -> None:
    source = ScriptedSource(0.3)
    storage = make(source)
    for count, operation in enumerate(supported(storage), start=1):
        drain(OPERATIONS[operation](storage))
        assert source.drawn == count


def test_of_two_conditional_writes_at_the_same_version_one_succeeds(make: Make) -> None:
    storage = make(Stream(1))
    both = [storage.cas("object", 0, 10), storage.cas("object", 0, 10)]
    for request in both:
        next(request)
    assert sorted(drain(request).success for request in both) == [False, True]
    assert drain(storage.cas("object", 1, 10)).success


def test_an_append_lands_at_its_offset_only_and_always_reports_the_length(make: Make) -> None:
    storage = make(Stream(1))
    if not storage.supports_append:
        return
    results = [drain(storage.append("object", offset, 10)) for offset in (0, 0, 10, 30, 20)]
    assert [result.success for result in results] == [True, False, True, False, True]
    assert [result.offset for result in results] == [10, 10, 20, 20, 30]


def test_views_share_the_objects_and_the_original_keeps_its_source(make: Make) -> None:
    storage = make(ScriptedSource(0.1))
    before = drain(storage.read("object", 0)).latency_ms
    view = storage.with_rng(ScriptedSource(0.9))
    assert view.objects is storage.objects
    assert drain(view.cas("object", 0, 1)).success
    assert not drain(storage.cas("object", 0, 1)).success
    assert drain(storage.read("object", 0)).latency_ms == before


def test_a_sealed_object_takes_no_append_until_it_is_renewed_once(make: Make) -> None:
    storage = make(Stream(1))
    storage.objects.lengths["object"] = 70
    storage.objects.sealed.add("object")
    assert drain(storage.read("object", 0)).sealed
    first, second = drain(storage.renew("object", 10, 20)), drain(storage.renew("object", 10, 20))
    assert (first.success, first.offset, second.success) == (True, 20, False)
