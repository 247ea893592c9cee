"""Tables "Concrete Providers" and "Provider Latency Profiles" of the section "Storage Provider"."""

import pytest

from endive.rng import Stream
from endive.sim.config.configuration import PROVIDER_PROFILES
from endive.sim.latency import BYTES_PER_MIB
from endive.sim.storage import create_provider
from tests.instruments import ScriptedSource

CAPABILITIES = {
    "s3": (True, False, False, 43.0),
    "s3x": (True, True, False, 10.0),
    "azure": (True, True, False, 51.0),
    "azurex": (True, True, False, 40.0),
    "gcp": (True, False, False, 118.0),
    "instant": (True, True, True, 1.0),
}
"""cas, append, tail_append, least latency."""

LATENCIES = {
    "s3": (61.0, 0.14, None, None, 30.0, 20.0),
    "s3x": (22.0, 0.22, 21.0, 23.0, 10.0, 10.0),
    "azure": (93.0, 0.82, 87.0, 2072.0, 50.0, 25.0),
    "azurex": (64.0, 0.73, 70.0, 2534.0, 30.0, 15.0),
    "gcp": (170.0, 0.91, None, None, 40.0, 17.0),
    "instant": (1.0, 0.1, 1.0, 1.0, 0.5, 0.1),
}
"""CAS median and sigma, append median, append failure median, PUT base and PUT per MiB."""

NORMAL_P99 = 2.3263479


def quantile(name: str, operation: str, u: float, size_bytes: int = 0) -> float:
    return PROVIDER_PROFILES[name].latencies[operation].with_size(size_bytes).sample(ScriptedSource(u))


def test_the_six_providers() -> None:
    assert set(PROVIDER_PROFILES) == set(CAPABILITIES)


@pytest.mark.parametrize("name", CAPABILITIES)
def test_capabilities_and_least_latency(name: str) -> None:
    provider = create_provider(name, Stream(0), PROVIDER_PROFILES)
    supported = (provider.supports_cas, provider.supports_append, provider.supports_tail_append)
    assert (*supported, provider.min_latency_ms) == CAPABILITIES[name]
    assert provider.name == name


@pytest.mark.parametrize("name", LATENCIES)
def test_cas_median_and_sigma(name: str) -> None:
    median_ms, sigma, *_ = LATENCIES[name]
    assert quantile(name, "cas", 0.5) == pytest.approx(median_ms, rel=1e-6)
    assert quantile(name, "cas", 0.99) == pytest.approx(median_ms * 2.718281828 ** (sigma * NORMAL_P99), rel=1e-3)


@pytest.mark.parametrize("name", LATENCIES)
def test_append_medians(name: str) -> None:
    _, _, success_ms, failure_ms, *_ = LATENCIES[name]
    for operation, median_ms in (("append", success_ms), ("append_failure", failure_ms)):
        if median_ms is None:
            assert operation not in PROVIDER_PROFILES[name].latencies
        else:
            assert quantile(name, operation, 0.5) == pytest.approx(median_ms, rel=1e-6)


@pytest.mark.parametrize("name", LATENCIES)
@pytest.mark.parametrize("mib", [1, 100])
def test_put_model_is_base_plus_rate_times_size_above_the_floor(name: str, mib: int) -> None:
    *_, base_ms, per_mib_ms = LATENCIES[name]
    expected_ms = max(base_ms + per_mib_ms * mib, CAPABILITIES[name][3])
    assert quantile(name, "write", 0.5, mib * BYTES_PER_MIB) == pytest.approx(expected_ms, rel=1e-6)


@pytest.mark.parametrize("name", CAPABILITIES)
def test_no_row_goes_below_the_providers_floor(name: str) -> None:
    profile = PROVIDER_PROFILES[name]
    assert min(quantile(name, operation, 0.0) for operation in profile.latencies) == CAPABILITIES[name][3]


@pytest.mark.parametrize("name", CAPABILITIES)
def test_every_value_names_its_source(name: str) -> None:
    profile = PROVIDER_PROFILES[name]
    assert set(profile.sources) >= set(profile.latencies)
    assert all(profile.sources[operation] for operation in profile.latencies)
