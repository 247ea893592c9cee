"""Processes that a test moves step by step, and stops where the race is."""

from typing import Any, Generic, TypeVar

from endive.drivers.blocking import BlockingDriver
from endive.objects.memory import MemoryStore
from endive.protocol.requests import Delete, PutIfAbsent, Request, Steps

T = TypeVar("T")


class Process(Generic[T]):
    """One protocol on a shared store, at the request it is about to make."""

    def __init__(self, steps: Steps[T], driver: BlockingDriver) -> None:
        self._steps = steps
        self._driver = driver
        self.request: Request[Any] | None = next(steps)
        self.result: T | None = None

    def step(self) -> None:
        """Let the next request be carried out and answered."""
        assert self.request is not None
        try:
            self.request = self._steps.send(self._driver.answer(self.request))
        except StopIteration as stop:
            self.request, self.result = None, stop.value

    def fail(self, error: Exception) -> None:
        """Answer the next request with an error, without carrying it out."""
        try:
            self.request = self._steps.throw(error)
        except StopIteration as stop:
            self.request, self.result = None, stop.value

    def to(self, kind: type[Request[Any]], path: str = "") -> "Process[T]":
        """Go on until the next request is of a kind, on a path that begins so."""
        while self.request is not None and not (
            isinstance(self.request, kind) and getattr(self.request, "path", "").startswith(path)
        ):
            self.step()
        assert self.request is not None, f"ended before {kind.__name__} {path}"
        return self

    def to_put(self, path: str = "") -> "Process[T]":
        return self.to(PutIfAbsent, path)

    def to_delete(self, path: str = "") -> "Process[T]":
        return self.to(Delete, path)

    def finish(self) -> T:
        """Go on to the end."""
        while self.request is not None:
            self.step()
        return self.result  # type: ignore[return-value]


def driver_of(objects: MemoryStore | None = None, clock_ms: int = 0) -> BlockingDriver:
    """Return a driver on a store in memory, with ids that are counted and a clock that stands."""
    numbers = iter(range(1, 1_000_000))
    objects = MemoryStore(lambda: clock_ms) if objects is None else objects
    return BlockingDriver(objects, lambda: clock_ms, lambda: f"{next(numbers):032x}", lambda _: None)
