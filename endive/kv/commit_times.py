"""How long commits take, by stage: waiting for a batch, computing it, writing its WAL entry."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from threading import Lock

from endive.kv.log.wal import WAL
from endive.logs import Fact
from endive.stages import Stage

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


@dataclass(slots=True)
class BatchTimes:
    """When a batch was taken and its WAL entry written. Complete when its callers are answered."""

    size: int = 0
    """Its transactions."""
    taken_s: float = 0.0
    puts_s: list[tuple[float, float]] = field(default_factory=list)
    """Beginning and end of each PUT of a WAL entry; several if races were lost."""
    carried_out_by: str = ""
    """Name of the process that has committed it; another one if the batch was announced."""

    def created(self, path: str, began_s: float, ended_s: float) -> None:
        """Take note of a PUT that may be that of a WAL entry."""
        if path.startswith(WAL.prefix):
            self.puts_s.append((began_s, ended_s))

    @property
    def put_s(self) -> float:
        """Seconds in which a WAL entry was written."""
        return sum(ended_s - began_s for began_s, ended_s in self.puts_s)

    def stages(self, submitted_s: float, ended_s: float) -> Iterator[Stage]:
        """Return the stages of one transaction of the batch: waiting, work, PUT, and what followed it."""
        yield Stage("commit.waiting", submitted_s, self.taken_s)
        facts: dict[str, Fact] = {"commit.batch.size": self.size, "commit.carried_out_by": self.carried_out_by}
        put_began_s = self.puts_s[0][0] if self.puts_s else ended_s
        yield Stage("commit.work", self.taken_s, put_began_s, facts)
        for began_s, put_ended_s in self.puts_s:
            yield Stage("commit.put", began_s, put_ended_s)
        if self.puts_s:
            yield Stage("commit.settle", self.puts_s[-1][1], ended_s)


class CommitTimes:
    """Histograms of a store's commits since it was opened. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._times = {stage: Histogram(BOUNDS_S) for stage in ("waiting", "work", "put")}
        self._sizes = Histogram(BOUNDS_SIZE)

    def add(self, waited_s: Iterable[float], work_s: float, put_s: float) -> None:
        """Count a batch: the waiting time of each of its transactions, the time of the PUT, and all other time."""
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
