"""Latency distributions: opaque objects that draw milliseconds.

All are sampled the same way: one uniform number looks up a table of the quantile function, the value found is
scaled, rounded to a whole nanosecond and raised to the floor. So every sample takes exactly one number, a larger
number never gives a shorter latency (so common random numbers work), and the compiled engine, which has the same
table, draws the same latencies bit for bit.
"""

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

from endive.rng import RandomSource
from endive.timing import TICKS_PER_MS, to_ms, to_ticks

BYTES_PER_MIB = 1024 * 1024
TICKS_MAX = 2.0**53
"""No draw is longer: 104 days. Up to there, milliseconds as `float` are exact to the tick."""

TailQuantile = Callable[[float, bool], float]
"""Value at a tail probability of at most one half; the flag says whether it is the upper tail."""


class QuantileTable:
    """A quantile function as straight pieces: 64 to each octave of tail probability, 40 octaves to each side.

    A piece spans at most 1/64 of its distance from the end of the distribution, so the tails are as exact as the
    middle: mean and standard deviation of the distributions below differ from the true ones by less than 1e-4 (tested).
    """

    PIECES = 64
    OCTAVES = 40
    TAIL_MIN = 2.0**-OCTAVES

    def __init__(self, lower: Sequence[float], upper: Sequence[float]) -> None:
        """Join the values of the lower and of the upper tail, each at the probabilities `TAILS`."""
        self.starts = array("d")
        self.rises = array("d")
        for side in (lower, upper):
            self._add_side([_rounded(value) for value in side])

    @classmethod
    def of(cls, quantile: TailQuantile) -> "QuantileTable":
        """Tabulate a quantile function."""
        return cls(*([quantile(tail, upper) for tail in TAILS] for upper in (False, True)))

    def _add_side(self, values: list[float]) -> None:
        """Append one tail, from the median outwards. Octave 0 is the median itself and nothing else."""
        self.starts.extend([values[-1]] * self.PIECES)
        self.rises.extend([0.0] * self.PIECES)
        for octave in range(1, self.OCTAVES):
            begin = (self.OCTAVES - 1 - octave) * self.PIECES
            pieces = values[begin : begin + self.PIECES + 1]
            self.starts.extend(pieces[:-1])
            self.rises.extend(after - before for before, after in pairwise(pieces))

    def values(self, upper: bool) -> list[float]:
        """Return the values of one tail at the probabilities `TAILS`."""
        first = (self.OCTAVES if upper else 0) * self.PIECES
        octaves = (first + octave * self.PIECES for octave in range(self.OCTAVES - 1, 0, -1))
        return [*(value for row in octaves for value in self.starts[row : row + self.PIECES]), self.starts[first]]

    def at(self, u: float) -> float:
        """Return the value at probability `u`, at least 0 and less than 1."""
        upper = u >= 0.5
        tail = 1.0 - u if upper else u
        mantissa, exponent = math.frexp(max(tail, self.TAIL_MIN))
        place = (mantissa - 0.5) * (2 * self.PIECES)
        piece = int(place)
        row = ((self.OCTAVES if upper else 0) - exponent) * self.PIECES + piece
        return self.starts[row] + self.rises[row] * (place - piece)


TAILS = [
    2.0 ** -(octave + 1) * (1 + piece / QuantileTable.PIECES)
    for octave in range(QuantileTable.OCTAVES - 1, 0, -1)
    for piece in range(QuantileTable.PIECES)
]
TAILS.append(0.5)
"""Tail probabilities at which the pieces of a table meet, ascending."""


def _rounded(value: float) -> float:
    """Keep nine significant digits: the last ones differ between versions of the C library."""
    return float(f"{value:.9g}")


class QuantileFunction(NamedTuple):
    """A distribution as `max(floor, scale * table(u))`. This is all that the compiled engine needs."""

    table: QuantileTable
    scale_ticks: float = float(TICKS_PER_MS)
    floor_ticks: int = 0

    def ticks_at(self, u: float) -> int:
        """Return the latency at probability `u` in whole nanoseconds."""
        drawn = min(self.table.at(u) * self.scale_ticks + 0.5, TICKS_MAX)
        return max(math.floor(drawn), self.floor_ticks)

    @property
    def is_constant(self) -> bool:
        """Whether every draw gives the same latency."""
        return self.ticks_at(0.0) == self.ticks_at(1.0)

    @property
    def mean_ticks(self) -> float:
        """The mean, exactly as the pieces of the table have it; the floor is part of it."""
        return _mean_ticks(self)

    def limited(self, value: float) -> float:
        """Return a value of the table in ticks, limited to the floor and to `TICKS_MAX`."""
        return max(min(value * self.scale_ticks, TICKS_MAX), self.floor_ticks)


@lru_cache(maxsize=1024)
def _mean_ticks(quantile: QuantileFunction) -> float:
    """Return the mean. Cached: it takes milliseconds, and thousands of configurations share a few distributions."""
    table, total = quantile.table, 0.0
    for side in (0, table.OCTAVES):
        for octave in range(1, table.OCTAVES):
            width = 2.0 ** -(octave + 1) / table.PIECES
            rows = range((side + octave) * table.PIECES, (side + octave + 1) * table.PIECES)
            total += width * sum(quantile.limited(table.starts[row] + table.rises[row] / 2) for row in rows)
        total += table.TAIL_MIN * quantile.limited(table.starts[(side + table.OCTAVES - 1) * table.PIECES])
    return total


SAMPLES = 100_001
"""Draws from which a distribution that only has `sample` is tabulated."""


class LatencyDistribution(ABC):
    """A distribution of latencies, in milliseconds. Draw with `sample`; compare and share freely: it has no state.

    A subclass defines `sample`. Its table is then made from draws with a fixed seed.
    """

    @abstractmethod
    def sample(self, rng: RandomSource) -> float:
        """Draw a latency in milliseconds."""

    @cached_property
    def quantile(self) -> QuantileFunction:
        """The distribution as table, scale and floor."""
        from numpy.random import RandomState  # noqa: PLC0415 - only distributions of a user's own need it

        rng = RandomState(0)
        drawn = sorted(self.sample(rng) for _ in range(SAMPLES))
        return QuantileFunction(
            QuantileTable.of(lambda tail, upper: drawn[round((1.0 - tail if upper else tail) * (SAMPLES - 1))])
        )

    def describe(self) -> str:
        """Return the distribution in words, times in milliseconds."""
        return repr(self)

    def with_size(self, size_bytes: int) -> "LatencyDistribution":  # noqa: ARG002 - most distributions ignore the size
        """Return the distribution for an object of that size. Only size-based ones differ."""
        return self


class TabulatedLatency(LatencyDistribution):
    """A distribution that gives its quantile function: all that come with Endive."""

    @abstractmethod
    def _quantile(self) -> QuantileFunction: ...

    @cached_property
    def quantile(self) -> QuantileFunction:
        """The distribution as table, scale and floor."""
        return self._quantile()

    def sample(self, rng: RandomSource) -> float:
        return to_ms(self.quantile.ticks_at(rng.random()))


@dataclass(frozen=True)
class LognormalLatency(TabulatedLatency):
    """Lognormal with a floor: `exp(mu)` is the median in milliseconds, `sigma` the heaviness of the tail."""

    mu: float
    sigma: float
    min_latency_ms: float = 1.0

    @classmethod
    def from_median(cls, median_ms: float, sigma: float, min_latency_ms: float = 1.0) -> "LognormalLatency":
        """Return the distribution with that median (before the floor)."""
        return cls(math.log(median_ms), sigma, min_latency_ms)

    @classmethod
    def from_mean(cls, mean_ms: float, sigma: float, min_latency_ms: float = 1.0) -> "LognormalLatency":
        """Return the distribution with that mean (before the floor): its median is lower by `exp(sigma**2 / 2)`."""
        return cls(math.log(mean_ms) - sigma**2 / 2, sigma, min_latency_ms)

    def describe(self) -> str:
        return f"lognormal, median {math.exp(self.mu):.5g}, sigma {self.sigma:g}{_at_least(self.min_latency_ms)}"

    def _quantile(self) -> QuantileFunction:
        median_ms = _rounded(math.exp(self.mu))
        return QuantileFunction(_lognormal_table(self.sigma), median_ms * TICKS_PER_MS, to_ticks(self.min_latency_ms))


@dataclass(frozen=True)
class SizeBasedLatency(TabulatedLatency):
    """Lognormal whose median grows with the object: `base + per MiB * size`.

    After Durner et al., "Exploiting Cloud Object Storage for High-Performance Analytics", VLDB 2023.
    """

    base_latency_ms: float
    latency_per_mib_ms: float
    sigma: float
    min_latency_ms: float = 1.0
    size_bytes: int = 0

    def with_size(self, size_bytes: int) -> "SizeBasedLatency":
        return replace(self, size_bytes=size_bytes)

    def describe(self) -> str:
        median = f"{self.base_latency_ms:g} + {self.latency_per_mib_ms:g}/MiB"
        return f"lognormal, median {median}, sigma {self.sigma:g}{_at_least(self.min_latency_ms)}"

    def _quantile(self) -> QuantileFunction:
        median_ms = self.base_latency_ms + self.latency_per_mib_ms * (self.size_bytes / BYTES_PER_MIB)
        return QuantileFunction(_lognormal_table(self.sigma), median_ms * TICKS_PER_MS, to_ticks(self.min_latency_ms))


@dataclass(frozen=True)
class FixedLatency(TabulatedLatency):
    """A constant, for tests and for catalogs whose latency does not matter."""

    latency_ms: float

    def describe(self) -> str:
        return f"always {self.latency_ms:g}"

    def _quantile(self) -> QuantileFunction:
        return QuantileFunction(_fixed_table(), self.latency_ms * TICKS_PER_MS, to_ticks(self.latency_ms))


@dataclass(frozen=True)
class ExponentialLatency(TabulatedLatency):
    """Memoryless, with that mean (before the floor): the waits of a Poisson process."""

    mean_ms: float
    min_latency_ms: float = 0.0

    def describe(self) -> str:
        return f"exponential, mean {self.mean_ms:g}{_at_least(self.min_latency_ms)}"

    def _quantile(self) -> QuantileFunction:
        return QuantileFunction(_exponential_table(), self.mean_ms * TICKS_PER_MS, to_ticks(self.min_latency_ms))


@dataclass(frozen=True)
class UniformLatency(TabulatedLatency):
    """Equally likely anywhere from `low_ms` to `high_ms`."""

    low_ms: float
    high_ms: float

    def describe(self) -> str:
        return f"uniform, {self.low_ms:g} to {self.high_ms:g}"

    def _quantile(self) -> QuantileFunction:
        return QuantileFunction(_uniform_table(self.low_ms, self.high_ms), floor_ticks=to_ticks(self.low_ms))


@dataclass(frozen=True)
class NormalLatency(TabulatedLatency):
    """Normal with that mean and standard deviation; values below the floor are raised to it."""

    mean_ms: float
    stddev_ms: float
    min_latency_ms: float = 0.0

    def describe(self) -> str:
        return f"normal, mean {self.mean_ms:g}, deviation {self.stddev_ms:g}{_at_least(self.min_latency_ms)}"

    def _quantile(self) -> QuantileFunction:
        return QuantileFunction(_normal_table(self.mean_ms, self.stddev_ms), floor_ticks=to_ticks(self.min_latency_ms))


@dataclass(frozen=True)
class EmpiricalLatency(TabulatedLatency):
    """Measured quantiles, joined by straight lines in the logarithm of the latency.

    `points` are (probability, milliseconds), rising in both; the first is the minimum (probability 0), the last the
    maximum (probability 1).
    """

    points: tuple[tuple[float, float], ...]

    @classmethod
    def from_quantiles(cls, quantiles_ms: Mapping[float, float]) -> "EmpiricalLatency":
        """Return the distribution with these quantiles: probability to milliseconds, 0 and 1 included."""
        return cls(tuple(sorted(quantiles_ms.items())))

    def describe(self) -> str:
        quantiles = ", ".join(f"p{100 * probability:g} {value:g}" for probability, value in self.points)
        return f"measured: {quantiles}"

    def _quantile(self) -> QuantileFunction:
        return QuantileFunction(_empirical_table(self.points), floor_ticks=to_ticks(self.points[0][1]))


def _at_least(floor_ms: float) -> str:
    return f", at least {floor_ms:g}" if floor_ms else ""


def _normal_quantile(tail: float, upper: bool) -> float:
    z = NormalDist().inv_cdf(tail)
    return -z if upper else z


@lru_cache(maxsize=1024)
def _lognormal_table(sigma: float) -> QuantileTable:
    return QuantileTable.of(lambda tail, upper: math.exp(sigma * _normal_quantile(tail, upper)))


@lru_cache(maxsize=1)
def _fixed_table() -> QuantileTable:
    return QuantileTable.of(lambda _tail, _upper: 1.0)


@lru_cache(maxsize=1)
def _exponential_table() -> QuantileTable:
    return QuantileTable.of(lambda tail, upper: -math.log(tail) if upper else -math.log1p(-tail))


@lru_cache(maxsize=256)
def _uniform_table(low: float, high: float) -> QuantileTable:
    return QuantileTable.of(lambda tail, upper: high - tail * (high - low) if upper else low + tail * (high - low))


@lru_cache(maxsize=256)
def _normal_table(mean: float, stddev: float) -> QuantileTable:
    return QuantileTable.of(lambda tail, upper: mean + stddev * _normal_quantile(tail, upper))


@lru_cache(maxsize=256)
def _empirical_table(points: tuple[tuple[float, float], ...]) -> QuantileTable:
    def quantile(tail: float, upper: bool) -> float:
        probability = 1.0 - tail if upper else tail
        for (p0, low), (p1, high) in pairwise(points):
            if probability <= p1:
                return low * math.pow(high / low, (probability - p0) / (p1 - p0))
        return points[-1][1]

    return QuantileTable.of(quantile)
