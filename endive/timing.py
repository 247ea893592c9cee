"""Virtual time as generators of milliseconds, and accounting by purpose.

An operation that takes time is a `Latency[T]`: a generator that yields milliseconds and returns a `T`. Its driver
turns milliseconds into time; the simulation's driver turns them into virtual time.

Milliseconds are for people; sums are in *ticks* (whole nanoseconds). Integer addition is associative, so a sum does not
depend on how a wait was split. Every latency is a whole number of ticks: a `float` of
milliseconds goes to ticks and back without loss.
"""

from collections.abc import Generator, Sequence
from typing import TypeVar

T = TypeVar("T")

Latency = Generator[float, None, T]
"""Yields milliseconds, returns a result."""

TICKS_PER_MS = 1_000_000


def to_ticks(ms: float) -> int:
    """Return milliseconds as whole nanoseconds, the nearest."""
    return round(ms * TICKS_PER_MS)


def to_ms(ticks: int) -> float:
    """Return whole nanoseconds as milliseconds."""
    return ticks / TICKS_PER_MS


class Spent:
    """Ticks by purpose. A wait is counted when it is over, so an interrupted one is not half counted."""

    __slots__ = ("ticks",)

    def __init__(self, *purposes: str) -> None:
        self.ticks = dict.fromkeys(purposes, 0)

    def ms(self, purpose: str) -> float:
        """Return the milliseconds spent on `purpose` so far."""
        return to_ms(self.ticks[purpose])

    @property
    def total_ticks(self) -> int:
        """All ticks spent so far, for any purpose."""
        return sum(self.ticks.values())


def timed(steps: Latency[T], spent: Spent, purpose: str) -> Latency[T]:
    """Run `steps`, adding each of its waits to `spent` under `purpose`."""
    try:
        delay_ms = next(steps)
        while True:
            yield delay_ms
            spent.ticks[purpose] += to_ticks(delay_ms)
            delay_ms = next(steps)
    except StopIteration as stop:
        result: T = stop.value
        return result


def together(steps: Sequence[Latency[T]]) -> Latency[list[T]]:
    """Run several operations side by side: the wait is the longest one's.

    Only for operations that touch nothing shared, since each is run to its end before the wait begins.
    """
    longest_ticks = 0
    results: list[T] = []
    for step in steps:
        ticks, result = _drained(step)
        longest_ticks = max(longest_ticks, ticks)
        results.append(result)
    yield to_ms(longest_ticks)
    return results


def _drained(step: Latency[T]) -> tuple[int, T]:
    ticks = 0
    while True:
        try:
            ticks += to_ticks(next(step))
        except StopIteration as stop:
            return ticks, stop.value
