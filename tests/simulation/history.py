"""Histories of single keys, and whether they are linearizable.

Every write of a key has a value of its own. An operation takes effect at one moment between its call and its answer;
one whose outcome is unknown takes effect at some moment after its call, or never. A history is linearizable if
moments can be chosen so that every read returns the last write before it.
"""

from dataclasses import dataclass, field
from functools import cache
from math import inf

NOTHING = ""
"""What a key holds that was never written, or deleted."""


@dataclass
class Operation:
    """One read or write of one key."""

    key: str
    called_ms: float
    value: str | None = None
    """What was written; for a read, what it returned, None as long as it has not."""
    is_read: bool = False
    answered_ms: float = inf
    """Infinite: no answer, or an answer that says that the outcome is unknown."""
    is_void: bool = False
    """It is certain that it had no effect."""


@dataclass
class History:
    """All operations of a run."""

    operations: list[Operation] = field(default_factory=list)

    def call(self, key: str, now_ms: float, value: str | None = None) -> Operation:
        """Begin a write of `value`, or a read if there is none."""
        operation = Operation(key, now_ms, value, is_read=value is None)
        self.operations.append(operation)
        return operation

    def faults(self) -> list[str]:
        """Return the keys whose history is not linearizable, each with its operations."""
        found = []
        for key in sorted({operation.key for operation in self.operations}):
            relevant = [one for one in self.operations if one.key == key and not one.is_void]
            relevant = [one for one in relevant if not one.is_read or one.answered_ms < inf]
            if not is_linearizable(relevant):
                lines = (f"  {one}" for one in sorted(relevant, key=lambda one: one.called_ms))
                found.append("\n".join((f"key {key!r} is not linearizable:", *lines)))
        return found


def is_linearizable(operations: list[Operation]) -> bool:
    """Whether moments can be chosen. Searches orders, and remembers which sets of done operations lead nowhere."""
    ordered = sorted(operations, key=lambda one: one.called_ms)
    everything = (1 << len(ordered)) - 1
    optional = sum(1 << place for place, one in enumerate(ordered) if one.answered_ms == inf)

    @cache
    def works(done: int, held: str) -> bool:
        if done | optional == everything:
            return True
        # Whatever comes next must have been called before the first answer among those that are not done.
        first_answer = min(one.answered_ms for place, one in enumerate(ordered) if not done >> place & 1)
        for place, one in enumerate(ordered):
            if done >> place & 1 or one.called_ms > first_answer:
                continue
            if one.is_read and one.value != held:
                continue
            if works(done | 1 << place, held if one.is_read else one.value or NOTHING):
                return True
        return False

    return works(0, NOTHING)
