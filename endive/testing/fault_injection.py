"""Fault injection: an object store that delays, refuses, fails, stalls and loses replies, from a seed.

For tests of real code with real threads. The seed determines the faults of the n-th request; the scheduling of the
threads determines which request that is. For protocols alone, `endive.testing.virtual_time` is faster, and its runs can
be replayed exactly.

A write takes effect at the end of its delay, a read at the beginning, since the delay depends on the bytes found.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from time import sleep as real_sleep
from typing import TypeVar

from endive.errors import OutcomeUnknownError, StorageUnavailableError
from endive.objects.api import ObjectInfo, ObjectStore
from endive.rng import Stream, stream

T = TypeVar("T")


@dataclass(frozen=True)
class FaultProbabilities:
    """Probability of each injected fault, per request."""

    refusal: float = 0.0
    """The request is refused without effect, as by throttling."""
    failure: float = 0.0
    """The connection fails before the request takes effect; the sender cannot know that."""
    lost_reply: float = 0.0
    """The request takes effect, and the reply is lost."""
    stall: float = 0.0
    """The request takes `stall_ms` longer."""
    stall_ms: float = 1000.0


Delay = Callable[[str, int, Stream], float]
"""Milliseconds of an operation (`read`, `write`, `cas`, `list`, `delete`) on a number of bytes.

`endive.sim.delays.delay_of` makes one from the latency profile of a provider.
"""


def no_delay(operation: str, size_bytes: int, rng: Stream) -> float:  # noqa: ARG001
    """Return 0: the latency is that of the wrapped store."""
    return 0.0


class FaultInjectingStore:
    """Wraps `objects` and injects faults into its requests."""

    def __init__(
        self,
        objects: ObjectStore,
        seed: int,
        faults: FaultProbabilities,
        delay: Delay = no_delay,
        sleep: Callable[[float], None] = real_sleep,
    ) -> None:
        self._objects = objects
        self._faults = faults
        self._delay = delay
        self._sleep = sleep
        self._rng = stream(seed, "faulty")
        self._lock = Lock()
        self._requests = 0
        self.url = objects.url
        self.capabilities = replace(objects.capabilities, reads_at_once=False)

    def get(self, path: str) -> bytes | None:
        return self._read("read", path, lambda: self._objects.get(path))

    def get_range(self, path: str, start: int, length: int) -> bytes | None:
        return self._read("read", path, lambda: self._objects.get_range(path, start, length))

    def put_if_absent(self, path: str, body: bytes) -> bool:
        return self._change("cas", path, len(body), lambda: self._objects.put_if_absent(path, body))

    def put(self, path: str, body: bytes) -> None:
        self._change("write", path, len(body), lambda: self._objects.put(path, body))

    def list(self, prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        return self._read("list", prefix, lambda: self._objects.list(prefix, after))

    def delete(self, path: str) -> None:
        self._change("delete", path, 0, lambda: self._objects.delete(path))

    def _read(self, operation: str, path: str, action: Callable[[], T]) -> T:
        rng = self._next_request()
        found = action()
        self._wait(operation, len(found) if isinstance(found, bytes) else 0, rng)
        if rng.random() < self._faults.refusal:
            raise StorageUnavailableError(path, "throttled")
        if rng.random() < self._faults.failure + self._faults.lost_reply:
            raise StorageUnavailableError(path, "the reply was lost")
        return found

    def _change(self, operation: str, path: str, size_bytes: int, action: Callable[[], T]) -> T:
        rng = self._next_request()
        self._wait(operation, size_bytes, rng)
        if rng.random() < self._faults.refusal:
            raise StorageUnavailableError(path, "throttled")
        if rng.random() < self._faults.failure:
            raise OutcomeUnknownError(path)
        result = action()
        if rng.random() < self._faults.lost_reply:
            raise OutcomeUnknownError(path)
        return result

    def _next_request(self) -> Stream:
        """Return the random stream of the next request."""
        with self._lock:
            self._requests += 1
            return self._rng.child(self._requests)

    def _wait(self, operation: str, size_bytes: int, rng: Stream) -> None:
        wait_ms = self._delay(operation, size_bytes, rng)
        if rng.random() < self._faults.stall:
            wait_ms += self._faults.stall_ms
        if wait_ms > 0:
            self._sleep(wait_ms / 1000)
