"""A store that behaves as badly as stores do, from a seed: slow, throttled, failing, losing replies, stalling.

For trying real code with real threads. Where virtual time will do, `endive.testing.virtual_time` is faster and repeats
exactly; here the seed fixes what happens to the n-th request, and threads decide which request that is.

A change takes effect when its delay is over, a read when it begins: how long it takes depends on what it finds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from time import sleep as real_sleep
from typing import TypeVar

from endive.errors import OutcomeUnknownError, StorageUnavailableError
from endive.objects.api import ObjectInfo, ObjectStore
from endive.rng import Stream, stream

T = TypeVar("T")


@dataclass(frozen=True)
class FaultProbabilities:
    """How likely what is, for each request."""

    refusal: float = 0.0
    """Refused; nothing was done."""
    failure: float = 0.0
    """The connection breaks before anything was done; the sender cannot know that."""
    lost_reply: float = 0.0
    """Done, and the answer lost."""
    stall: float = 0.0
    stall_ms: float = 1000.0


Delay = Callable[[str, int, Stream], float]
"""Milliseconds of an operation (`read`, `write`, `cas`, `list`, `delete`) on so many bytes.

A provider's profile, from `endive.sim.delays.delay_of`, or something simple.
"""


def no_delay(operation: str, size_bytes: int, rng: Stream) -> float:  # noqa: ARG001
    """Return nothing: as fast as the store itself."""
    return 0.0


class FaultInjectingStore:
    """`objects`, with faults."""

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
        self.capabilities = objects.capabilities

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
            raise StorageUnavailableError(path, "the answer was lost")
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
        """Return a stream of its own for the next request."""
        with self._lock:
            self._requests += 1
            return self._rng.child(self._requests)

    def _wait(self, operation: str, size_bytes: int, rng: Stream) -> None:
        wait_ms = self._delay(operation, size_bytes, rng)
        if rng.random() < self._faults.stall:
            wait_ms += self._faults.stall_ms
        if wait_ms > 0:
            self._sleep(wait_ms / 1000)
