"""Sums and maxima of latencies: the tabulated distributions are those of term-by-term draws."""

import math
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endive.rng import Stream, stream
from endive.sim.latency import (
    TAILS,
    TICKS_MAX,
    EmpiricalLatency,
    ExponentialLatency,
    FixedLatency,
    LatencyDistribution,
    LognormalLatency,
    NormalLatency,
    QuantileFunction,
    UniformLatency,
)
from endive.sim.sums import DOUBLINGS, digits, longest_of, sum_of, terms_ticks, total_ticks
from tests.instruments import ScriptedSource

Floats = npt.NDArray[np.float64]

SMOOTH: dict[str, LatencyDistribution] = {
    "lognormal, narrow": LognormalLatency.from_median(27, 0.3, 10),
    "lognormal, like S3's": LognormalLatency.from_median(27, 0.62, 10),
    "lognormal, heavy tail": LognormalLatency.from_median(27, 1.5, 1),
    "exponential": ExponentialLatency(10),
    "normal": NormalLatency(50, 10),
}
ANGULAR: dict[str, LatencyDistribution] = {
    "lognormal, mostly at its floor": LognormalLatency.from_median(30, 0.3, 43),
    "uniform": UniformLatency(10, 20),
    "measured": EmpiricalLatency.from_quantiles({0.0: 10.0, 0.5: 20.0, 0.99: 80.0, 1.0: 1000.0}),
    "measured, with a gap": EmpiricalLatency(((0.0, 1.0), (0.5, 102.0), (1.0, 203.0))),
}
ALL = SMOOTH | ANGULAR


def sides(quantile: QuantileFunction) -> list[Floats]:
    """Return the ticks at `TAILS` on either side."""
    scaled = (np.array(quantile.table.values(upper)) * quantile.scale_ticks for upper in (False, True))
    return [np.clip(side, quantile.floor_ticks, TICKS_MAX) for side in scaled]


def moments(quantile: QuantileFunction) -> tuple[float, float]:
    """Return mean and standard deviation, exact for straight pieces."""
    first = second = 0.0
    for side in sides(quantile):
        low, high, width = side[:-1], side[1:], np.diff(TAILS)
        first += float((width * (low + high) / 2).sum() + TAILS[0] * side[0])
        second += float((width * (low**2 + low * high + high**2) / 3).sum() + TAILS[0] * side[0] ** 2)
    return first, math.sqrt(second - first**2)


def quantiles_at(quantile: QuantileFunction, u: Floats) -> Floats:
    """Return the ticks at many probabilities, as `ticks_at` does but for rounding."""
    lower, upper = sides(quantile)
    return np.where(u < 0.5, np.interp(u, TAILS, lower), np.interp(1.0 - u, TAILS, upper))


@pytest.mark.parametrize("name", ALL)
def test_mean_and_deviation_of_a_sum_follow_from_those_of_a_term(name: str) -> None:
    quantile = ALL[name].quantile
    mean, deviation = moments(quantile)
    for doublings in (1, 2, 6, DOUBLINGS):
        found = moments(sum_of(quantile, doublings))
        assert found[0] == pytest.approx(mean * 2**doublings, rel=1e-8)
        assert found[1] == pytest.approx(deviation * 2 ** (doublings / 2), rel=1e-4 if name in SMOOTH else 2e-3)


@pytest.mark.parametrize("doublings", [1, 2, 3, 6])
@pytest.mark.parametrize("name", ALL)
def test_sums_have_the_distribution_of_term_by_term_draws(name: str, doublings: int) -> None:
    """Kolmogorov and Smirnov's distance of 20,000 sums of terms from as many draws of the sum."""
    quantile, count = ALL[name].quantile, 20_000
    uniform = np.random.default_rng(doublings).random((2**doublings + 1, count))
    terms = np.sort(np.rint(np.sum([quantiles_at(quantile, row) for row in uniform[1:]], axis=0) / 100))
    drawn = np.sort(np.rint(quantiles_at(sum_of(quantile, doublings), uniform[0]) / 100))
    both = np.concatenate([terms, drawn])
    shares = [np.searchsorted(sample, both, side="right") / count for sample in (terms, drawn)]
    step = float((terms == terms[0]).mean())  # a step of the distribution is spread over one piece of the table
    assert abs(shares[0] - shares[1]).max() < 1.95 * math.sqrt(2 / count) + step / 64  # passes 999 times in 1,000


@pytest.mark.parametrize("name", ["lognormal, like S3's", "uniform"])
@pytest.mark.parametrize(("count", "batch"), [(37, 1), (37, 4), (150, 4), (3, 8)])
def test_a_convoy_has_the_moments_of_term_by_term_draws(name: str, count: int, batch: int) -> None:
    quantile, runs = ALL[name].quantile, 600
    first, second = stream(1, "sums"), stream(1, "terms")
    sums = [total_ticks(quantile, count, batch, first) for _ in range(runs)]
    terms = [terms_ticks(quantile, count, batch, second) for _ in range(runs)]
    deviation = float(np.std(terms))
    assert abs(np.mean(sums) - np.mean(terms)) < 4 * deviation * math.sqrt(2 / runs)
    assert np.std(sums) == pytest.approx(deviation, rel=0.3)


@pytest.mark.parametrize("batch", [2, 3, 4, 16, 1000])
@pytest.mark.parametrize("name", ALL)
def test_the_quantile_of_a_maximum_is_that_of_one_at_the_root(name: str, batch: int) -> None:
    quantile = ALL[name].quantile
    for u in (1e-6, 0.01, 0.3, 0.5, 0.9, 0.999):
        longest = longest_of(quantile, batch).ticks_at(u)
        assert longest == pytest.approx(quantile.ticks_at(u ** (1 / batch)), rel=1e-3)


@given(st.integers(0, 2**21))
def test_a_count_is_the_sum_of_its_digits(count: int) -> None:
    found = list(digits(count))
    assert sum(2**power for power in found) == count
    assert len(set(found)) == len(found) or count >= 2 ** (DOUBLINGS + 1)
    assert found == sorted(found)


@given(st.integers(1, 3_000), st.sampled_from([1, 3]), st.sampled_from([0.0, 15.0, 40.0]), st.sampled_from([0.3, 1.5]))
@settings(max_examples=30, deadline=None)
def test_a_total_is_never_below_the_floor_of_every_batch(count: int, batch: int, floor_ms: float, sigma: float) -> None:
    quantile = LognormalLatency.from_median(20.0, sigma, floor_ms).quantile
    total = total_ticks(quantile, count, batch, Stream(count))
    assert total >= quantile.floor_ticks * math.ceil(count / batch)


@given(st.integers(1, 10_000), st.integers(1, 7))
def test_constant_latencies_add_up_exactly(count: int, batch: int) -> None:
    assert total_ticks(FixedLatency(12.5).quantile, count, batch, Stream(0)) == 12_500_000 * math.ceil(count / batch)


def test_a_sum_takes_one_draw_for_each_binary_digit_and_an_incomplete_batch_one_for_each_request() -> None:
    quantile = ExponentialLatency(10.0).quantile
    for count, batch, draws in ((1, 1, 1), (4_000, 1, 6), (4_095, 1, 12), (4_096 * 5 + 1, 1, 6), (19, 4, 1 + 3)):
        source = ScriptedSource(0.5)
        total_ticks(quantile, count, batch, source)
        assert source.drawn == draws


def test_a_larger_number_never_gives_a_shorter_sum() -> None:
    for distribution in ALL.values():
        sums = [sum_of(distribution.quantile, 5).ticks_at(step / 1_000) for step in range(1_000)]
        assert sums == list(accumulate(sums, max))
