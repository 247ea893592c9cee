"""Stages of an operation: when each began and ended, recorded only while a caller wants to know.

A server that traces its requests opens a recording around each (`recording`). Code of the layers below reports the
stages that it passes, without knowing what becomes of them. Without a recording a report is one look at a context
variable. Times are of `time.monotonic`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import monotonic

from endive.logs import Fact


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of an operation."""

    name: str
    began_s: float
    ended_s: float
    facts: Mapping[str, Fact] = field(default_factory=dict)


_recorded: ContextVar[list[Stage] | None] = ContextVar("endive_stages", default=None)


def recorded_stages() -> list[Stage] | None:
    """Return the recording of this thread's operation, to which stages are added; None: nobody wants to know."""
    return _recorded.get()


@contextmanager
def recording() -> Iterator[list[Stage]]:
    """Record the stages of what this thread does, in a new list."""
    into: list[Stage] = []
    token = _recorded.set(into)
    try:
        yield into
    finally:
        _recorded.reset(token)


@contextmanager
def stage(name: str) -> Iterator[dict[str, Fact]]:
    """Report a stage, also one that fails; yields its facts, to which the caller may add."""
    facts: dict[str, Fact] = {}
    into = _recorded.get()
    if into is None:
        yield facts
        return
    began_s = monotonic()
    try:
        yield facts
    finally:
        into.append(Stage(name, began_s, monotonic(), facts))
