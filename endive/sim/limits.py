"""Limits of a store: contention on one object, updates per second of one object, and how a client repeats a throttled request.

**Contention.** Conditional requests to one object that are in flight together slow each other down, up to a limit.

**Token bucket.** Each object has a bucket of `burst` tokens that fills at `per_s` tokens a second. A conditional request
takes a token when it reaches the store. Without one it is throttled: not decided, but refused, and it still takes
`refusal_cost` tokens, as far as there are any. The bucket is one number, the tick at which it will be full again, so it
is exact and the same in both engines.

**Client.** A throttled request is sent again by the client's SDK, after a wait that grows. The caller sees one request that
took long; when it reaches the store at last, others have committed, so it is often refused.
"""

from dataclasses import dataclass

from endive.timing import TICKS_PER_MS, to_ticks

TICKS_PER_S = 1000 * TICKS_PER_MS


@dataclass(frozen=True)
class Contention:
    """Conditional requests to one object slow each other down: `1 + per_writer * (in flight - free)`, up to a limit."""

    per_writer: float = 0.0
    scale_max: float = 1.0
    free: int = 1
    """So many requests in flight do not slow each other down."""

    def scale(self, in_flight: int) -> float:
        """Return the factor on the latency of a request that makes `in_flight` of them."""
        return max(1.0, min(1.0 + self.per_writer * (in_flight - self.free), self.scale_max))


@dataclass(frozen=True)
class RateLimit:
    """A token bucket. The default has no limit."""

    per_s: float = 0.0
    """Tokens that come back in a second. 0: no limit."""
    burst: float = 1.0
    """Tokens of a full bucket."""
    refusal_cost: float = 0.0
    """Tokens that a throttled request takes."""

    @property
    def interval_ticks(self) -> int:
        """Time in which one token comes back; 0: no limit."""
        return round(TICKS_PER_S / self.per_s) if self.per_s else 0

    @property
    def spare_ticks(self) -> int:
        """A bucket that needs no longer than this to be full has a token."""
        return int((self.burst - 1.0) * self.interval_ticks)

    @property
    def refusal_ticks(self) -> int:
        """How much longer the bucket takes to be full after a throttled request."""
        return int(self.refusal_cost * self.interval_ticks)

    @property
    def empty_ticks(self) -> int:
        """Time in which an empty bucket becomes full."""
        return self.spare_ticks + self.interval_ticks

    def take(self, full_at: int, now: int) -> tuple[bool, int]:
        """Take a token at tick `now` from the bucket that is full at tick `full_at`.

        Return whether there was one, and when the bucket is full after that.
        """
        full_at = max(full_at, now)
        if full_at - now <= self.spare_ticks:
            return True, full_at + self.interval_ticks
        return False, max(full_at, min(full_at + self.refusal_ticks, now + self.empty_ticks))


@dataclass(frozen=True)
class ClientRetries:
    """How a client's SDK repeats a throttled request."""

    attempts: int = 1
    """Requests in all, the first one included."""
    base_ms: float = 0.0
    multiplier: float = 2.0
    max_ms: float = 0.0
    jitter: float = 0.0
    """Random share by which a wait is shorter, at most. 1: any wait from none to the whole."""
    name: str = ""

    def capped_ms(self, retry: int) -> float:
        """Return the wait before retry number `retry`, from 1, without jitter."""
        try:
            return min(self.base_ms * self.multiplier ** (retry - 1), self.max_ms)
        except OverflowError:
            return self.max_ms

    def delay_ticks(self, retry: int, u: float) -> int:
        """Return the wait before retry number `retry`, from 1; `u` places it within the jitter."""
        return to_ticks(self.capped_ms(retry) * (1.0 - self.jitter * u))
