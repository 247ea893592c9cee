"""Selectors choose the tables and partitions that a transaction reads and writes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from heapq import heapify, heapreplace
from itertools import accumulate

from endive.rng import RandomSource

Selection = tuple[frozenset[int], frozenset[int]]
"""(read, written); everything written is also read."""


class TableSelector(ABC):
    """Chooses the tables of a transaction."""

    @abstractmethod
    def select(self, n_tables: int, total_tables: int, rng: RandomSource) -> Selection:
        """Return (tables read, tables written)."""

    def weights(self, total: int) -> tuple[float, ...]:
        """Return the relative frequency of each of `total` tables; equal unless a selector says otherwise."""
        return (1.0,) * total


class PartitionSelector(ABC):
    """Chooses the partitions of a table that a transaction touches."""

    @abstractmethod
    def select(self, n_partitions: int, total_partitions: int, rng: RandomSource) -> Selection:
        """Return (partitions read, partitions written)."""


class Selector:
    """Chooses `n` different numbers below `total`, by weight: the form that the compiled engine knows.

    Number k, from 1, has the weight `1 / k**alpha`. The first ones chosen are written, the others only read.
    """

    def __init__(self, alpha: float, write_fraction: float) -> None:
        self.alpha = alpha
        self.write_fraction = write_fraction

    def weights(self, total: int) -> tuple[float, ...]:
        """Return the relative frequency of each of `total` numbers."""
        return _zipf_weights(total, self.alpha)

    def select(self, n: int, total: int, rng: RandomSource) -> Selection:
        """Return (read, written). At least one is written."""
        weights, chosen = self.weights(total), list[int]()
        for _ in range(min(n, total)):
            chosen.append(_pick(weights, tuple(chosen), rng.random()))
        written = max(1, round(len(chosen) * self.write_fraction))
        return frozenset(chosen), frozenset(chosen[:written])


class UniformTableSelector(Selector, TableSelector):
    """Every table is equally likely."""

    def __init__(self, write_fraction: float = 1.0) -> None:
        super().__init__(0.0, write_fraction)


class UniformPartitionSelector(Selector, PartitionSelector):
    """Every partition is equally likely."""

    def __init__(self, write_fraction: float = 1.0) -> None:
        super().__init__(0.0, write_fraction)


class ZipfTableSelector(Selector, TableSelector):
    """Table 0 is the most popular: `P(k) = (1 / k**alpha) / sum(1 / i**alpha)` with k from 1."""

    def __init__(self, alpha: float = 1.5, write_fraction: float = 1.0) -> None:
        super().__init__(alpha, write_fraction)


class SharesTableSelector(Selector, TableSelector):
    """Each table has a share of the transactions."""

    def __init__(self, shares: Sequence[float], write_fraction: float = 1.0) -> None:
        super().__init__(0.0, write_fraction)
        self._shares = tuple(map(float, shares))

    def weights(self, total: int) -> tuple[float, ...]:
        if total != len(self._shares):
            raise ValueError(f"{len(self._shares)} shares for {total} tables; give one for each")
        return self._shares


class ZipfPartitionSelector(Selector, PartitionSelector):
    """Partition 0 is the most popular, with the same distribution as `ZipfTableSelector`."""

    def __init__(self, alpha: float = 1.5, write_fraction: float = 1.0) -> None:
        super().__init__(alpha, write_fraction)


TABLE_SELECTORS: dict[str, Callable[..., TableSelector]] = {"uniform": UniformTableSelector, "zipf": ZipfTableSelector}
PARTITION_SELECTORS: dict[str, Callable[..., PartitionSelector]] = {
    "uniform": UniformPartitionSelector,
    "zipf": ZipfPartitionSelector,
}


def apportioned(weights: Sequence[float], count: int) -> list[int]:
    """Distribute `count` writers over tables in proportion to their weights; return the table of each writer.

    Each writer goes to the table that has the fewest for its weight (the method of Webster), so that the first writers
    are spread over the tables as well.
    """
    chosen: list[int] = []
    waiting = [(-weight, table, 0) for table, weight in enumerate(weights)]
    heapify(waiting)
    for _ in range(count):
        _, table, given = waiting[0]
        heapreplace(waiting, (-weights[table] / (2 * given + 3), table, given + 1))
        chosen.append(table)
    return chosen


@lru_cache(maxsize=256)
def _zipf_weights(total: int, alpha: float) -> tuple[float, ...]:
    return tuple(float(f"{rank**-alpha:.9g}") for rank in range(1, total + 1))


@lru_cache(maxsize=256)
def _cumulative(weights: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(accumulate(weights))


def _pick(weights: tuple[float, ...], taken: tuple[int, ...], u: float) -> int:
    """Return the number at probability `u` among those not taken."""
    if taken:
        weights = tuple(0.0 if index in taken else weight for index, weight in enumerate(weights))
        sums = tuple(accumulate(weights))
    else:
        sums = _cumulative(weights)
    target = u * sums[-1]
    # Numbers already taken have no weight, and are skipped.
    for index, total in enumerate(sums):
        if target < total and weights[index] > 0.0:
            return index
    return max(index for index, weight in enumerate(weights) if weight > 0.0)
