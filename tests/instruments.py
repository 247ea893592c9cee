"""Test doubles: drive a generator by hand, script random numbers, record requests, stop before a commit."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from endive.rng import RandomSource, Stream
from endive.sim.catalog import Catalog, CatalogSnapshot, CommitResult, IntentionRecord
from endive.sim.latency import FixedLatency
from endive.sim.storage import Contention, Profile, ProfiledProvider, StorageResult
from endive.timing import Latency

T = TypeVar("T")
OPERATIONS = ("read", "write", "cas", "append", "tail_append")


def drain(steps: Latency[T]) -> T:
    """Run to the end; return the result."""
    return waits(steps)[1]


def waits(steps: Latency[T]) -> tuple[list[float], T]:
    """Run to the end; return every wait in milliseconds, and the result."""
    yielded: list[float] = []
    while True:
        try:
            yielded.append(next(steps))
        except StopIteration as stop:
            return yielded, stop.value


class ScriptedSource:
    """A random source that gives these numbers, over and over."""

    def __init__(self, *numbers: float) -> None:
        self._numbers = numbers
        self.drawn = 0

    def random(self) -> float:
        self.drawn += 1
        return self._numbers[(self.drawn - 1) % len(self._numbers)]


class RecordingProvider(ProfiledProvider):
    """A provider that records each request, such as `"write manifest_list"`, when it is sent."""

    def __init__(self, profile: Profile, rng: RandomSource | None = None) -> None:
        super().__init__(profile, rng or Stream(0))
        self.log: list[str] = []
        self.sizes: list[int] = []

    def _note(self, operation: str, key: str, size_bytes: int) -> None:
        self.log.append(f"{operation} {key}")
        self.sizes.append(size_bytes)

    def read(self, key: str, expected_size_bytes: int) -> Latency[StorageResult]:
        self._note("read", key, expected_size_bytes)
        return super().read(key, expected_size_bytes)

    def write(self, key: str, size_bytes: int) -> Latency[StorageResult]:
        self._note("write", key, size_bytes)
        return super().write(key, size_bytes)

    def repeat(
        self, operation: str, key: str, size_bytes: int, count: int, batch: int, varies: bool = False
    ) -> Latency[StorageResult]:
        for _ in range(count if count > 1 else 0):
            self._note(operation, key, size_bytes)
        return super().repeat(operation, key, size_bytes, count, batch, varies)

    def conditional(
        self, operation: str, key: str, size_bytes: int, decide: Callable[[], bool | None]
    ) -> Latency[StorageResult]:
        self._note(operation, key, size_bytes)
        return super().conditional(operation, key, size_bytes, decide)


def fixed_provider(
    latency_ms: float = 1.0, *, decision: float = 1.0, contention: Contention | None = None, **rows_ms: float
) -> RecordingProvider:
    """Return a provider with one latency for all operations, except for those given: `manifest_list_read=30`."""
    latencies = {name: FixedLatency(latency_ms) for name in OPERATIONS}
    latencies |= {name: FixedLatency(ms) for name, ms in rows_ms.items()}
    return RecordingProvider(Profile("fixed", latencies, contention or Contention(), decision))


def session(catalog: Catalog) -> Catalog:
    """Return the catalog as another client sees it."""
    return catalog.session(Stream(0))


class WatchedCatalog(Catalog):
    """A catalog that records requests, pauses before each commit, and lets a concurrent transaction commit there."""

    def __init__(
        self, inner: Catalog, rivals: Iterable[Callable[[], object]] = (), log: list[str] | None = None
    ) -> None:
        self._inner = session(inner)
        self._rivals: Iterator[Callable[[], object]] = iter(rivals)
        self.log = [] if log is None else log
        self.at_commit = False

    def read(self, timestamp_ms: float = 0.0) -> Latency[CatalogSnapshot]:
        self.log.append("catalog_read")
        return self._inner.read(timestamp_ms)

    def commit(
        self, expected_seq: int, writes: Any, timestamp_ms: float = 0.0, intention: IntentionRecord | None = None
    ) -> Latency[CommitResult]:
        next(self._rivals, lambda: None)()
        self.at_commit = True
        yield 0.0
        self.at_commit = False
        self.log.append("cas")
        return (yield from self._inner.commit(expected_seq, writes, timestamp_ms, intention))

    @property
    def seq(self) -> int:
        return self._inner.seq

    @property
    def counters(self) -> Any:
        return self._inner.counters
