"""Quantile tables: monotone, and true to the moments of the distributions they stand for."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endive.rng import Stream, stream
from endive.sim.latency import (
    EmpiricalLatency,
    ExponentialLatency,
    FixedLatency,
    LatencyDistribution,
    LognormalLatency,
    NormalLatency,
    QuantileTable,
    SizeBasedLatency,
    UniformLatency,
)
from endive.timing import Latency, Spent, timed, to_ms, to_ticks
from tests.instruments import ScriptedSource, waits

MS = st.floats(0.01, 10_000.0)
SIGMA = st.floats(0.0, 1.5)
UNIT = st.floats(0.0, 1.0, exclude_max=True)
DISTRIBUTIONS: st.SearchStrategy[LatencyDistribution] = st.one_of(
    st.builds(LognormalLatency.from_median, MS, SIGMA, MS),
    st.builds(LognormalLatency.from_mean, MS, SIGMA, MS),
    st.builds(SizeBasedLatency, MS, MS, SIGMA, MS, st.integers(0, 10**9)),
    st.builds(FixedLatency, MS),
    st.builds(ExponentialLatency, MS),
    st.builds(NormalLatency, MS, MS),
    st.tuples(MS, MS).map(lambda ends: UniformLatency(min(ends), max(ends))),
    st.lists(MS, min_size=3, max_size=3, unique=True).map(
        lambda ms: EmpiricalLatency(tuple(zip((0.0, 0.7, 1.0), sorted(ms), strict=True)))
    ),
)


def exact_moments(table: QuantileTable) -> tuple[float, float]:
    """Return mean and standard deviation of the table as it is: pieces are straight, so both are exact sums."""
    first, second = [], []
    for low, high in _edges():
        for a, b in _side_values(table, low, high):
            width = high - low
            first.append(width * (a + b) / 2)
            second.append(width * (a * a + a * b + b * b) / 3)
    mean = math.fsum(first)
    return mean, math.sqrt(max(math.fsum(second) - mean * mean, 0.0))


def _edges() -> list[tuple[float, float]]:
    pieces = QuantileTable.PIECES
    return [
        (2.0**-octave * (1 + piece / pieces) / 2, 2.0**-octave * (1 + (piece + 1) / pieces) / 2)
        for octave in range(1, QuantileTable.OCTAVES)
        for piece in range(pieces)
    ]


def _side_values(table: QuantileTable, low: float, high: float) -> list[tuple[float, float]]:
    """Return the ends of the piece of tail probability from `low` to `high`, on both sides."""
    inside = math.nextafter(high, 0.0)
    lower = (table.at(low), table.at(inside))
    upper = (table.at(1.0 - low), table.at(1.0 - inside))
    return [lower, upper]


@given(DISTRIBUTIONS, UNIT, UNIT)
def test_a_larger_number_never_gives_a_shorter_latency(
    distribution: LatencyDistribution, one: float, two: float
) -> None:
    low, high = sorted((one, two))
    assert distribution.sample(ScriptedSource(low)) <= distribution.sample(ScriptedSource(high))


@given(DISTRIBUTIONS, UNIT)
def test_every_sample_is_a_whole_number_of_ticks_and_not_below_the_floor(
    distribution: LatencyDistribution, u: float
) -> None:
    sampled_ms = distribution.sample(ScriptedSource(u))
    assert to_ms(to_ticks(sampled_ms)) == sampled_ms
    assert to_ticks(sampled_ms) >= distribution.quantile.floor_ticks >= 0


@pytest.mark.parametrize("edge", [2.0**-k for k in range(1, 40)])
def test_the_pieces_of_a_table_meet(edge: float) -> None:
    for distribution in (LognormalLatency(3.0, 1.5, 0.0), ExponentialLatency(10.0), NormalLatency(50.0, 5.0)):
        for u in (edge, 1.0 - edge):
            around = [distribution.quantile.table.at(u + side * edge * 2.0**-20) for side in (-1, 1)]
            assert around[0] == pytest.approx(around[1], rel=1e-4)


@settings(max_examples=15)
@given(st.floats(0.05, 1.5))
def test_moments_of_the_lognormal_are_within_a_thousandth(sigma: float) -> None:
    mean, deviation = exact_moments(LognormalLatency(0.0, sigma).quantile.table)
    true_mean = math.exp(sigma**2 / 2)
    assert mean == pytest.approx(true_mean, rel=1e-3)
    assert deviation == pytest.approx(true_mean * math.sqrt(math.expm1(sigma**2)), rel=1e-3)


@settings(max_examples=10)
@given(st.floats(1.0, 1_000.0), st.floats(1.0, 500.0))
def test_moments_of_the_other_distributions_are_within_a_thousandth(mean_ms: float, spread_ms: float) -> None:
    normal = exact_moments(NormalLatency(mean_ms, spread_ms).quantile.table)
    assert normal == pytest.approx((mean_ms, spread_ms), rel=1e-3)
    assert exact_moments(ExponentialLatency(mean_ms).quantile.table) == pytest.approx((1.0, 1.0), rel=1e-3)
    uniform = exact_moments(UniformLatency(mean_ms, mean_ms + spread_ms).quantile.table)
    assert uniform == pytest.approx((mean_ms + spread_ms / 2, spread_ms / math.sqrt(12)), rel=1e-3)


@given(st.floats(0.1, 1_000.0), st.floats(0.0, 1.5), st.floats(0.0, 5.0))
def test_raising_the_floor_only_raises_latencies_below_it(median_ms: float, sigma: float, floor_ms: float) -> None:
    for u in (0.001, 0.2, 0.5, 0.9):
        free = LognormalLatency.from_median(median_ms, sigma, 0.0).sample(ScriptedSource(u))
        floored = LognormalLatency.from_median(median_ms, sigma, floor_ms).sample(ScriptedSource(u))
        assert floored == pytest.approx(max(free, floor_ms), abs=1e-6)


# The streams and the accounting under them.


@given(st.integers(0, 2**63), st.text(max_size=20))
def test_a_stream_is_uniform_enough_and_depends_on_seed_and_name_only(seed: int, name: str) -> None:
    source = stream(seed, name)
    drawn = [source.random() for _ in range(256)]
    again = stream(seed, name)
    assert [again.random() for _ in range(256)] == drawn
    assert all(0.0 <= u < 1.0 for u in drawn)
    assert 0.35 < sum(drawn) / 256 < 0.65
    assert stream(seed, name + "x").random() != drawn[0]


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.integers(0, 10**6))
def test_children_differ_and_do_not_depend_on_what_their_parent_drew(key: int, one: int, two: int) -> None:
    parent = Stream(key)
    before = parent.child(one).random()
    parent.random()
    assert parent.child(one).random() == before
    assert (parent.child(two).random() == before) is (one == two)


@given(st.lists(st.floats(0.0, 10_000.0), max_size=50))
def test_time_spent_is_the_sum_of_the_waits_however_they_are_split(delays_ms: list[float]) -> None:
    spent = Spent("runtime")
    yielded, _ = waits(timed(iter_steps(delays_ms), spent, "runtime"))
    assert yielded == delays_ms
    assert spent.total_ticks == sum(to_ticks(ms) for ms in delays_ms)


def iter_steps(delays_ms: list[float]) -> Latency[None]:
    yield from delays_ms


@pytest.mark.parametrize("sigma", [0.3, 1.5, 2.0])
def test_the_mean_of_a_table_is_the_mean_of_its_distribution(sigma: float) -> None:
    assert LognormalLatency.from_mean(1_000, sigma, 0).quantile.mean_ticks == pytest.approx(1e9, rel=1e-3)
    assert LognormalLatency.from_median(10, 0.3, 50).quantile.mean_ticks == pytest.approx(50e6, rel=1e-3)
