"""Limits of a store: contention and updates per second on one object, and clients that repeat throttled requests.

**Contention.** Conditional requests to one object that are in flight together slow each other down, up to a limit.

**Token bucket.** Each object has a bucket of `burst` tokens that fills at `per_s` tokens a second. A conditional
request that finds no token is throttled: it is not decided, and takes `throttle_cost` tokens as far as there are any.
One that is decided takes a token, or `refusal_cost` tokens if its condition does not hold. The bucket is one number,
the tick at which it will be full again, so it is exact and the same in both engines.

**Client.** A throttled request is sent again by the client's SDK, after a wait that grows. The caller sees one request
that took long; when it is decided at last, others have committed, so it is often refused. After its last attempt the
SDK reports failure.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from endive.timing import TICKS_PER_MS, to_ticks

TICKS_PER_S = 1000 * TICKS_PER_MS


@dataclass(frozen=True)
class Contention:
    """Conditional requests to one object slow each other down.

    The factor grows by `per_writer` for each request in flight beyond `free`, up to `scale_max`. With `half` it
    approaches `scale_max` instead, and is half-way there with so many requests beyond `free`.
    """

    per_writer: float = 0.0
    scale_max: float = 1.0
    free: int = 1
    half: float = 0.0

    def scale(self, in_flight: int) -> float:
        """Return the factor on the latency of a request that makes `in_flight` of them."""
        beyond = max(in_flight - self.free, 0)
        if self.half:
            return 1.0 + (self.scale_max - 1.0) * (beyond / (beyond + self.half))
        return min(1.0 + self.per_writer * beyond, self.scale_max)


@dataclass(frozen=True)
class RateLimit:
    """A token bucket. The default has no limit."""

    per_s: float = 0.0
    """Tokens that come back in a second. 0: no limit."""
    burst: float = 1.0
    """Tokens of a full bucket."""
    refusal_cost: float = 1.0
    """Tokens that a request takes whose condition does not hold."""
    throttle_cost: float = 0.0
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
        """How much longer the bucket takes to be full after a request whose condition did not hold."""
        return int(self.refusal_cost * self.interval_ticks)

    @property
    def throttle_ticks(self) -> int:
        """How much longer the bucket takes to be full after a throttled request."""
        return int(self.throttle_cost * self.interval_ticks)

    def has_token(self, full_at: int, now: int) -> bool:
        """Whether the bucket that is full at tick `full_at` has a token at tick `now`."""
        return full_at - now <= self.spare_ticks

    def after(self, full_at: int, now: int, landed: bool) -> int:
        """Return when the bucket is full after a request was decided at tick `now`."""
        return max(full_at, now) + (self.interval_ticks if landed else self.refusal_ticks)

    def after_throttling(self, full_at: int, now: int) -> int:
        """Return when the bucket is full after a request was throttled at tick `now`: at most empty."""
        return max(full_at, min(full_at + self.throttle_ticks, now + self.spare_ticks + self.interval_ticks))


@dataclass(frozen=True)
class PrefixLimit:
    """Requests per second that one prefix of a bucket takes, reads and writes. The default has no limit.

    The requests of an attempt, or of resolving a conflict, ask together. Up to a second's requests are admitted at
    once, others when it is their turn. Requests that take longer than that are not delayed; the last of others is
    throttled, and passes when the client sends it again after its turn.
    """

    reads_per_s: float = 0.0
    writes_per_s: float = 0.0
    per_table: bool = True
    """Each table has a prefix of its own. False: all share one."""

    @property
    def is_set(self) -> bool:
        """Whether there is a limit at all."""
        return any(self.intervals_ticks)

    @cached_property
    def intervals_ticks(self) -> tuple[int, int]:
        """Time in which a read and a write are admitted; 0: no limit."""
        reads, writes = (round(TICKS_PER_S / rate) if rate else 0 for rate in (self.reads_per_s, self.writes_per_s))
        return reads, writes


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

    def turn_ticks(self, wait_ticks: int) -> int:
        """Return when a request passes that could pass after `wait_ticks`: as soon as it is then sent again.

        Without jitter. A client whose attempts are used up passes at its turn.
        """
        resent = accumulate(to_ticks(self.capped_ms(retry)) for retry in range(1, self.attempts))
        return next((ticks for ticks in resent if ticks >= wait_ticks), wait_ticks)

    def delay_ticks(self, retry: int, u: float) -> int:
        """Return the wait before retry number `retry`, from 1; `u` places it within the jitter."""
        return to_ticks(self.capped_ms(retry) * (1.0 - self.jitter * u))
