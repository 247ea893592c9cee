"""Distributions of sums and maxima of independent latencies, so that a convoy of requests takes few draws.

The sum of two, four, eight, … draws of one distribution is a distribution like any other, tabulated from the one before
it. A sum of `n` draws then takes one draw for each binary digit of `n`: 12 draws for 4,000 requests. The longest of
`k` parallel requests is at most `x` exactly if all `k` are, so its quantile at `u` is the single one's at `u**(1 / k)`.

**How a sum is tabulated.** Let X and Y have the same distribution. X + Y exceeds `s` if both exceed `s / 2`, or if one
is at most `s / 2` and the other exceeds the rest:

    P(X + Y > s) = P(X > s/2)**2 + 2 * integral of P(Y > s - x) dF(x) over x up to s/2

and likewise for the lower tail. All terms are positive, and `s - x` never leaves the tail that is integrated, so small
probabilities are as exact as large ones. The integral is taken over the probability of `x`, by Gauss-Legendre
quadrature in panels that halve towards the ends, as the pieces of the table do. The points (probability, `s`) are
joined by a monotone cubic, and the result is scaled to the exact mean.

Tables are kept for as long as they are used; both engines read the same ones.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from endive.rng import RandomSource
from endive.sim.latency import TAILS, TICKS_MAX, QuantileFunction, QuantileTable

Floats = npt.NDArray[np.float64]

DOUBLINGS = 12
"""The largest tabulated sum has `2**DOUBLINGS` terms; longer ones are made of several of these."""

POINTS = 16
"""Points of a sum's distribution to each octave of the table that it is made from."""
PANELS = 2
"""Panels of the quadrature to each octave of probability."""
OTHER_OCTAVES = 20
"""Octaves of the opposite tail; what lies beyond weighs less than 2**-20 of the result."""
TAIL = np.array(TAILS)
_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(4)[0] + 1) / 2, np.polynomial.legendre.leggauss(4)[1] / 2
_EDGES = np.array(
    [2.0**-octave * (1 + panel / PANELS) for octave in range(QuantileTable.OCTAVES, 1, -1) for panel in range(PANELS)]
    + [0.5]
)


def total_ticks(quantile: QuantileFunction, count: int, batch: int, rng: RandomSource) -> int:
    """Draw the total latency of `count` requests, made `batch` at a time: the sum of the longest of each batch.

    One draw for each binary digit of the number of full batches, the lowest first; then one for each request of an
    incomplete batch.
    """
    full, rest = divmod(count, batch)
    longest = longest_of(quantile, batch)
    ticks = sum(sum_of(longest, doublings).ticks_at(rng.random()) for doublings in digits(full))
    return ticks + max((quantile.ticks_at(rng.random()) for _ in range(rest)), default=0)


def terms_ticks(quantile: QuantileFunction, count: int, batch: int, rng: RandomSource) -> int:
    """Draw the same total request by request, for a distribution that is not worth tabulating."""
    batches = (range(first, min(first + batch, count)) for first in range(0, count, batch))
    return sum(max(quantile.ticks_at(rng.random()) for _ in requests) for requests in batches)


def digits(count: int) -> Iterator[int]:
    """Yield the powers of two, as exponents, that add up to `count`. The largest one may repeat."""
    yield from (power for power in range(DOUBLINGS) if count >> power & 1)
    yield from (DOUBLINGS for _ in range(count >> DOUBLINGS))


@lru_cache(maxsize=256)
def longest_of(quantile: QuantileFunction, count: int) -> QuantileFunction:
    """Return the distribution of the longest of `count` independent latencies."""
    if count == 1:
        return quantile
    below = np.exp(np.log(TAIL) / count)  # of a single one, where all of them have a lower tail of TAIL
    above = -np.expm1(np.log1p(-TAIL) / count)
    lower, upper = (np.array(quantile.table.values(side)) for side in (False, True))
    low = np.where(below <= 0.5, np.interp(below, TAIL, lower), np.interp(1.0 - below, TAIL, upper))
    return quantile._replace(table=QuantileTable(low.tolist(), np.interp(above, TAIL, upper).tolist()))


@lru_cache(maxsize=1024)
def sum_of(quantile: QuantileFunction, doublings: int) -> QuantileFunction:
    """Return the distribution of the sum of `2**doublings` independent latencies."""
    if doublings == 0:
        return quantile
    half = sum_of(quantile, doublings - 1)
    if half.is_constant:
        return half._replace(scale_ticks=2 * half.scale_ticks, floor_ticks=2 * half.floor_ticks)
    sides = [np.array(half.table.values(upper)) for upper in (False, True)]
    limits = (half.floor_ticks / half.scale_ticks, TICKS_MAX / half.scale_ticks)
    lower, upper = _sum_of_two(*(np.clip(side, *limits) for side in sides))
    return half._replace(table=QuantileTable(lower.tolist(), upper.tolist()), floor_ticks=2 * half.floor_ticks)


def _sum_of_two(lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    """Return the quantiles of X + Y at `TAILS` on both sides, from those of X and Y."""
    least = lower[0]
    low, high = lower - least, upper - least
    sums = 2 * np.unique(
        np.concatenate([low[:: QuantileTable.PIECES // POINTS], high[:: QuantileTable.PIECES // POINTS]])
    )
    is_upper = sums >= 2 * low[-1]
    place = np.concatenate(
        [_place(_lower_tail(sums[~is_upper], low, high)), -_place(_upper_tail(sums[is_upper], low, high))]
    )
    place = np.maximum.accumulate(place)
    rises = np.append(True, np.diff(place) > 1e-9)
    found = [_joined(place[rises], sums[rises], side * _place(TAIL)) for side in (1, -1)]
    stretch = 2 * _mean(low, high) / _mean(*found)
    return 2 * least + stretch * found[0], 2 * least + stretch * found[1]


def _place(probability: Floats) -> Floats:
    """Return octaves from the median: negative for a tail of at most one half, positive beyond."""
    tiny = np.finfo(np.float64).tiny
    beyond = -np.log2(np.maximum(2 * (1.0 - probability), tiny))
    return np.where(probability <= 0.5, np.log2(np.maximum(2 * probability, tiny)), beyond)


def _upper_tail(sums: Floats, low: Floats, high: Floats) -> Floats:
    """Return P(X + Y > s) for sums of at least twice the median."""

    def exceeds(x: Floats) -> Floats:
        return np.asarray(np.interp(x, high[::-1], TAIL[::-1], right=0.0))

    kinks = [_share_at_least(low), exceeds(np.zeros(1))[0]]
    total = _within(exceeds, sums, exceeds(sums / 2), high, low, kinks)
    return np.asarray(exceeds(sums / 2) ** 2 + 2 * total)


def _lower_tail(sums: Floats, low: Floats, high: Floats) -> Floats:
    """Return P(X + Y <= s) for sums below twice the median. The floor may have a probability of its own."""
    at_least = _share_at_least(low)

    def reaches(x: Floats) -> Floats:
        return np.asarray(np.interp(x, low, TAIL, left=0.0))

    def above_floor(x: Floats) -> Floats:
        return np.maximum(reaches(x) - at_least, 0.0)

    half = reaches(sums / 2)
    whole = np.where(sums < low[-1], reaches(sums), 1.0 - np.interp(sums, high[::-1], TAIL[::-1], right=0.0))
    total = _within(above_floor, sums, half, low, high, [at_least])
    return np.asarray(half**2 + 2 * total + 2 * at_least * (whole - half))


def _share_at_least(low: Floats) -> float:
    """Return the probability of the least value."""
    return float(TAIL[np.searchsorted(low, 0.0, side="right") - 1])


def _within(
    tail: Callable[[Floats], Floats], sums: Floats, limit: Floats, own: Floats, other: Floats, kinks: list[float]
) -> Floats:
    """Integrate `tail(s - x)` over the whole opposite half of X, and over its own half up to the tail `limit`."""
    values, weights = _nodes(_panels(OTHER_OCTAVES, kinks), other)
    total = tail(sums[:, None] - values.ravel()) @ weights.ravel()
    edges = _panels(QuantileTable.OCTAVES, kinks)
    values, weights = _nodes(edges, own)
    first = np.searchsorted(edges, limit)
    row, panel = np.nonzero(np.arange(len(edges) - 1) >= first[:, None])
    total += np.bincount(row, (tail(sums[row, None] - values[panel]) * weights[panel]).sum(axis=1), len(sums))
    width = edges[first] - limit  # of the panel that the limit cuts
    values = np.interp(limit[:, None] + width[:, None] * _NODES, TAIL, own)
    return np.asarray(total + width * (tail(sums[:, None] - values) @ _WEIGHTS))


def _panels(octaves: int, kinks: list[float]) -> Floats:
    """Return the edges of the panels. The integrand may bend at `kinks`, so they are edges too."""
    return np.unique(np.concatenate([[0.0], _EDGES[np.searchsorted(_EDGES, 2.0**-octaves) :], kinks]))


def _nodes(edges: Floats, side: Floats) -> tuple[Floats, Floats]:
    """Return value and weight of each node of each panel."""
    width = np.diff(edges)[:, None]
    return np.interp(edges[:-1, None] + width * _NODES, TAIL, side), width * _WEIGHTS


def _joined(x: Floats, y: Floats, at: Floats) -> Floats:
    """Interpolate rising points by a cubic that rises too (Fritsch and Carlson), constant beyond the ends."""
    width = np.diff(x)
    slope = np.diff(y) / width
    left, right = 2 * width[1:] + width[:-1], width[1:] + 2 * width[:-1]
    inner = (left + right) / (left / slope[:-1] + right / slope[1:])
    slopes = np.concatenate([slope[:1], inner, slope[-1:]])
    piece = np.clip(np.searchsorted(x, at, side="right") - 1, 0, len(width) - 1)
    t = np.clip((at - x[piece]) / width[piece], 0.0, 1.0)
    ends = y[piece] * (1 + 2 * t) * (1 - t) ** 2 + y[piece + 1] * t**2 * (3 - 2 * t)
    return np.asarray(ends + width[piece] * t * (1 - t) * (slopes[piece] * (1 - t) - slopes[piece + 1] * t))


def _mean(low: Floats, high: Floats) -> float:
    """Return the mean of a distribution given by its quantiles at `TAILS`: its pieces are straight."""
    return float(sum(np.trapezoid(side, TAIL) + TAIL[0] * side[0] for side in (low, high)))
