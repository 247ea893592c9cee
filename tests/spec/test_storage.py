"""Section "Storage Provider": results, distributions, capabilities, conditions."""

import math
from dataclasses import FrozenInstanceError, fields
from statistics import NormalDist

import numpy as np
import pytest

from endive.errors import UnsupportedOperationError
from endive.rng import Stream
from endive.sim.latency import BYTES_PER_MIB
from endive.sim.storage import (
    Contention,
    EmpiricalLatency,
    ExponentialLatency,
    FixedLatency,
    LatencyDistribution,
    LognormalLatency,
    NormalLatency,
    Profile,
    ProfiledProvider,
    SizeBasedLatency,
    StorageResult,
    UniformLatency,
    create_provider,
)
from tests.instruments import ScriptedSource, drain, fixed_provider, waits


def value_at(distribution: LatencyDistribution, u: float) -> float:
    return distribution.sample(ScriptedSource(u))


def mean_of(distribution: LatencyDistribution, pieces: int = 200_000) -> float:
    return math.fsum(distribution.sample(ScriptedSource((step + 0.5) / pieces)) for step in range(pieces)) / pieces


# Results.


def test_a_storage_result_has_the_specified_fields_and_cannot_be_changed() -> None:
    assert [field.name for field in fields(StorageResult)][:3] == ["success", "latency_ms", "data_size_bytes"]
    with pytest.raises(FrozenInstanceError):
        StorageResult(True, 1.0, 2).success = False  # type: ignore[misc]


# Distributions.


def test_a_median_is_a_median_and_a_mean_is_a_mean() -> None:
    by_median = LognormalLatency.from_median(61.0, 0.5)
    by_mean = LognormalLatency.from_mean(61.0, 0.5)
    assert value_at(by_median, 0.5) == pytest.approx(61.0, rel=1e-6)
    assert mean_of(by_mean) == pytest.approx(61.0, rel=1e-3)
    assert value_at(by_mean, 0.5) == pytest.approx(61.0 / math.exp(0.125), rel=1e-6)


def test_mu_is_the_logarithm_of_the_median_and_sigma_the_heaviness_of_the_tail() -> None:
    distribution = LognormalLatency(math.log(20.0), 0.7)
    assert value_at(distribution, 0.5) == pytest.approx(20.0, rel=1e-6)
    for p in (0.01, 0.9, 0.99, 0.9999):
        expected = 20.0 * math.exp(0.7 * NormalDist().inv_cdf(p))
        assert value_at(distribution, p) == pytest.approx(max(expected, 1.0), rel=1e-3)


def test_a_lognormal_is_never_below_its_floor_of_one_millisecond_by_default() -> None:
    assert value_at(LognormalLatency.from_median(2.0, 2.0), 0.001) == 1.0
    assert value_at(LognormalLatency.from_median(50.0, 0.5, min_latency_ms=43.0), 0.3) == 43.0


@pytest.mark.parametrize(("size_bytes", "median_ms"), [(0, 30.0), (BYTES_PER_MIB, 50.0), (BYTES_PER_MIB // 2, 40.0)])
def test_a_size_based_latency_is_base_plus_rate_times_size(size_bytes: int, median_ms: float) -> None:
    distribution = SizeBasedLatency(30.0, 20.0, sigma=0.3)
    assert value_at(distribution.with_size(size_bytes), 0.5) == pytest.approx(median_ms, rel=1e-6)
    assert value_at(distribution.with_size(size_bytes), 0.9) > median_ms


def test_a_size_based_latency_has_a_floor() -> None:
    assert value_at(SizeBasedLatency(2.0, 1.0, sigma=1.0, min_latency_ms=1.5), 0.01) == 1.5


@pytest.mark.parametrize("u", [0.0, 0.3, 0.5, 0.999999])
def test_a_fixed_latency_is_deterministic(u: float) -> None:
    assert value_at(FixedLatency(7.25), u) == 7.25


def test_the_other_distributions_have_the_moments_they_name() -> None:
    assert mean_of(ExponentialLatency(100.0)) == pytest.approx(100.0, rel=1e-3)
    assert mean_of(NormalLatency(50.0, 5.0)) == pytest.approx(50.0, rel=1e-6)
    assert mean_of(UniformLatency(10.0, 30.0)) == pytest.approx(20.0, rel=1e-6)
    assert value_at(NormalLatency(50.0, 5.0), 0.8413447) == pytest.approx(55.0, rel=1e-4)
    assert value_at(NormalLatency(1.0, 5.0, min_latency_ms=0.5), 0.1) == 0.5
    assert value_at(ExponentialLatency(100.0, min_latency_ms=3.0), 0.001) == 3.0
    assert value_at(UniformLatency(10.0, 30.0), 0.0) == 10.0


def test_an_empirical_distribution_goes_through_its_quantiles() -> None:
    distribution = EmpiricalLatency.from_quantiles({0.0: 10.0, 0.5: 20.0, 0.99: 80.0, 1.0: 100.0})
    assert value_at(distribution, 0.0) == pytest.approx(10.0, abs=1e-3)
    assert value_at(distribution, 0.5) == pytest.approx(20.0, rel=1e-6)
    assert value_at(distribution, 0.25) == pytest.approx(math.sqrt(10.0 * 20.0), rel=1e-3)
    assert value_at(distribution, 0.99) == pytest.approx(80.0, rel=1e-2)


def test_a_sample_takes_exactly_one_number_from_any_random_source() -> None:
    source = ScriptedSource(0.5)
    for distribution in (
        LognormalLatency(1.0, 1.0),
        ExponentialLatency(1.0),
        FixedLatency(1.0),
        NormalLatency(1.0, 1.0),
    ):
        before = source.drawn
        distribution.sample(source)
        assert source.drawn == before + 1
    assert LognormalLatency(3.0, 0.1).sample(np.random.RandomState(1)) > 1.0


# Capabilities.


def test_an_operation_that_the_profile_lacks_is_unsupported() -> None:
    fixed = FixedLatency(1.0)
    bare = ProfiledProvider(Profile("bare", {"read": fixed, "write": fixed}), Stream(0))
    assert (bare.supports_cas, bare.supports_append, bare.supports_tail_append) == (False, False, False)
    for request in (bare.cas("a", 0, 1), bare.append("a", 0, 1), bare.tail_append("a", 1)):
        with pytest.raises(UnsupportedOperationError, match="provider 'bare' does not support"):
            next(request)


def test_create_provider_finds_a_profile_by_name() -> None:
    profiles = {"one": Profile("one", {"read": FixedLatency(3.0)})}
    provider = create_provider("one", Stream(0), profiles)
    assert (provider.name, provider.min_latency_ms) == ("one", 3.0)
    with pytest.raises(KeyError):
        create_provider("two", Stream(0), profiles)


def test_min_latency_is_the_lowest_floor_of_all_rows() -> None:
    rows = {"read": LognormalLatency(5.0, 1.0, min_latency_ms=43.0), "cas": LognormalLatency(5.0, 1.0, 51.0)}
    assert ProfiledProvider(Profile("p", rows), Stream(0)).min_latency_ms == 43.0


# Conditions.


def test_cas_succeeds_at_the_expected_version_only() -> None:
    storage = fixed_provider()
    outcomes = [drain(storage.cas("a", version, 10)).success for version in (0, 0, 1, 3, 2)]
    assert outcomes == [True, False, True, False, True]


def test_append_succeeds_at_the_expected_offset_only_and_a_failure_reports_the_new_one() -> None:
    storage = fixed_provider()
    first, stale = drain(storage.append("a", 0, 10)), drain(storage.append("a", 0, 10))
    assert (first.success, first.offset) == (True, 10)
    assert (stale.success, stale.offset) == (False, 10)
    assert drain(storage.append("a", 10, 5)).offset == 15


def test_tail_append_succeeds_wherever_the_object_ends() -> None:
    storage = fixed_provider()
    drain(storage.tail_append("a", 7))
    drain(storage.tail_append("a", 7))
    assert storage.objects.lengths["a"] == 14


def test_a_result_says_how_long_the_request_took_and_how_large_it_was() -> None:
    storage = fixed_provider(write=12.5)
    yielded, result = waits(storage.write("a", 300))
    assert (yielded, result.latency_ms, result.data_size_bytes) == ([12.5], 12.5, 300)


def test_a_special_row_wins_over_the_general_one() -> None:
    storage = fixed_provider(5.0, manifest_list_read=30.0)
    assert drain(storage.read("manifest_list/3", 0)).latency_ms == 30.0
    assert drain(storage.read("manifest_file", 0)).latency_ms == 5.0


def test_views_share_objects_but_not_random_numbers() -> None:
    profile = Profile("p", {"write": ExponentialLatency(10.0), "cas": FixedLatency(1.0)})
    storage = ProfiledProvider(profile, Stream(1))
    view = storage.with_rng(Stream(2))
    assert drain(view.write("a", 1)).latency_ms == ProfiledProvider(profile, Stream(2)).with_rng(Stream(2)).write(
        "a", 1
    ).send(None)
    assert drain(storage.cas("a", 0, 1)).success
    assert not drain(view.cas("a", 0, 1)).success


def test_contention_scales_with_the_requests_in_flight_up_to_a_limit() -> None:
    contention = Contention(per_writer=0.5, scale_max=2.0)
    assert [contention.scale(n) for n in (1, 2, 3, 9)] == [1.0, 1.5, 2.0, 2.0]
