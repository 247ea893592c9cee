"""The driver for production: an object store, called from the thread that runs the protocol.

The driver repeats requests where that is safe. A read, a listing, a delete and a put that was refused before it had any
effect are repeated after a pause; a create whose reply was lost raises an error in the protocol, which handles it.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from endive.errors import ConfigurationError, OutcomeUnknownError, StorageUnavailableError
from endive.logs import log_error
from endive.objects.api import HasSiblings, ObjectStore, execute_request, unix_ms
from endive.protocol.requests import (
    Elsewhere,
    Get,
    GetAll,
    GetRange,
    NewId,
    Now,
    PutIfAbsent,
    Request,
    Sleep,
    Steps,
    Together,
    drive,
)

__all__ = ["BlockingDriver", "RequestCounter", "random_id", "unix_ms"]

T = TypeVar("T")
OnCreate = Callable[[str, float, float], None]
"""Called after a request to create an object, with its path and the beginning and end of the request in seconds."""
log = logging.getLogger(__name__)

PAUSES_MS = (50.0, 100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0)
"""Before each repeat. Six seconds in all: the caller handles longer outages."""
IDS_AT_ONCE = 64
PARALLEL_REQUESTS = 64
"""Requests that a protocol makes together: as many as WAL entries are read on opening, so that they take one round
trip. Threads are started as they are needed."""

_LOCAL = (Now, NewId, Sleep)
"""Requests that do not go to the object store."""

_ids: deque[str] = deque()
os.register_at_fork(after_in_child=_ids.clear)  # or parent and child would use the same ids


def random_id() -> str:
    """Return 128 random bits in hexadecimal.

    The system is asked for many at once: it is a call that lets go of the interpreter, and with many threads at work
    getting it back takes longer than a whole commit.
    """
    while True:
        try:
            return _ids.pop()
        except IndexError:
            bits = os.urandom(16 * IDS_AT_ONCE).hex()
            _ids.extend(bits[start : start + 32] for start in range(0, len(bits), 32))


@dataclass
class RequestCounter:
    """Requests sent to the object store, by kind."""

    by_kind: dict[str, int] = field(default_factory=dict)
    sequential: int = 0
    """Round trips: requests that a protocol makes together count as one."""
    _lock: Lock = field(default_factory=Lock)

    @property
    def total(self) -> int:
        """Return the number of requests of all kinds."""
        return sum(self.by_kind.values())

    def add(self, kind: str) -> None:
        """Count one request."""
        with self._lock:
            self.by_kind[kind] = self.by_kind.get(kind, 0) + 1

    def add_round_trip(self) -> None:
        """Count one round trip."""
        with self._lock:
            self.sequential += 1


class BlockingDriver:
    """Runs protocols against an object store. Several threads may run protocols at the same time."""

    def __init__(
        self,
        objects: ObjectStore,
        clock: Callable[[], int] = unix_ms,
        new_id: Callable[[], str] = random_id,
        sleep: Callable[[float], None] = time.sleep,
        parallel_requests: int = PARALLEL_REQUESTS,
    ) -> None:
        self.objects = objects
        self.requests = RequestCounter()
        self._clock = clock
        self._new_id = new_id
        self._sleep = sleep
        self._lock = Lock()
        self._siblings: dict[str, BlockingDriver] = {}
        self._pool = ThreadPoolExecutor(parallel_requests, thread_name_prefix="endive-request")

    def close(self) -> None:
        """Release resources. Idempotent."""
        for sibling in self._siblings.values():
            sibling.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run(self, steps: Steps[T], on_create: OnCreate | None = None) -> T:
        """Answer a protocol until it returns or raises; `on_create` is called after each creation."""
        if on_create is None:
            return drive(steps, self._answer_in_turn)
        return drive(steps, partial(self._answer_timed, on_create))

    def _answer_timed(self, on_create: OnCreate, request: Request[Any]) -> Any:  # noqa: ANN401 - as above
        if not isinstance(request, PutIfAbsent):
            return self._answer_in_turn(request)
        began_s = time.monotonic()
        try:
            return self._answer_in_turn(request)
        finally:
            on_create(request.path, began_s, time.monotonic())

    def _answer_in_turn(self, request: Request[Any]) -> Any:  # noqa: ANN401 - the reply's type is the request's
        if not isinstance(request, _LOCAL):
            self.requests.add_round_trip()
        return self.answer(request)

    def answer(self, request: Request[Any]) -> Any:  # noqa: ANN401 - the reply's type is the request's
        """Return the reply to one request, after repeats if they are safe."""
        for pause_ms in PAUSES_MS:
            try:
                return self._answer_once(request)
            except (StorageUnavailableError, OutcomeUnknownError) as error:
                if isinstance(error, OutcomeUnknownError) and isinstance(request, PutIfAbsent):
                    raise
                log_error(log, "request_repeated", error, request=type(request).__name__, pause_ms=pause_ms)
                self._sleep(pause_ms / 1000)
        return self._answer_once(request)

    def _answer_once(self, request: Request[Any]) -> Any:  # noqa: ANN401, PLR0911 - one line for each kind of request
        match request:
            case Now():
                return self._clock()
            case NewId():
                return self._new_id()
            case Sleep(ms):
                return self._sleep(ms / 1000)
            case GetAll(paths):
                return self._side_by_side([Get(path) for path in paths])
            case Together(requests):
                return self._side_by_side(requests)
            case Elsewhere(url, inner):
                return self._sibling(url).answer(inner)
        self.requests.add(type(request).__name__)
        return execute_request(self.objects, request)

    def _sibling(self, url: str) -> "BlockingDriver":
        """Return a driver for another object store, which counts with this one."""
        with self._lock:
            driver = self._siblings.get(url)
            if driver is None:
                if not isinstance(self.objects, HasSiblings):
                    raise ConfigurationError(self.objects.url, [f"it cannot reach the store at {url}"])
                objects = self.objects.sibling(url)
                driver = BlockingDriver(objects, self._clock, self._new_id, self._sleep)
                driver.requests = self.requests
                self._siblings[url] = driver
            return driver

    def _side_by_side(self, requests: Sequence[Request[Any]]) -> tuple[Any, ...]:
        """Answer requests on threads of the pool, unless that would be a detour."""
        at_once = self.objects.capabilities.reads_at_once and all(isinstance(one, Get | GetRange) for one in requests)
        if len(requests) < 2 or at_once:
            return tuple(map(self.answer, requests))
        return tuple(self._pool.map(self.answer, requests))
