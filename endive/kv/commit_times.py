"""How long commits take, by stage: waiting for a batch, computing it, writing its WAL entry."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import Lock

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the histograms of times."""
BOUNDS_SIZE = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
"""Upper bounds of the histogram of a batch's transactions."""


@dataclass
class Histogram:
    """Counts of values up to each bound, and their sum."""

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class CommitTimes:
    """Histograms of a store's commits since it was opened. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._times = {stage: Histogram(BOUNDS_S) for stage in ("waiting", "work", "put")}
        self._sizes = Histogram(BOUNDS_SIZE)

    def add(self, waited_s: Iterable[float], work_s: float, put_s: float) -> None:
        """Count a batch: the waiting time of each of its transactions, and its own two stages."""
        waits = list(waited_s)
        if not waits:
            return  # rows that no caller waits for
        with self._lock:
            for wait_s in waits:
                self._times["waiting"].add(wait_s)
            self._times["work"].add(work_s)
            self._times["put"].add(put_s)
            self._sizes.add(len(waits))

    def stages(self) -> dict[str, Histogram]:
        """Return the histograms of times by stage, and of sizes as `size`."""
        with self._lock:
            found = {**self._times, "size": self._sizes}
            return {name: Histogram(one.bounds, list(one.counts), one.total) for name, one in found.items()}
