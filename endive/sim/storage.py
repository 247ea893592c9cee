"""Simulated object storage: the latency of each request, and the outcome of conditional ones.

A provider is a row of latency distributions; an operation that the row lacks *is* the missing capability. Objects have
no content, only what conditional requests test: a version and a length.

A conditional request travels, is decided, and travels back. `decision` says where in the round trip the store decides:
0.5 is half-way, 1.0 at the end. Success and failure may have different latencies; both are read off the same random
number, and the request is decided at `decision` times the shorter of the two, because the store cannot know the outcome
earlier than it answers. Where the store limits the updates of an object, a request beyond the limit is not decided: it
is throttled, and the client sends it again (`endive.sim.limits`).
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, Self

from endive.errors import UnsupportedOperationError
from endive.rng import RandomSource
from endive.sim.latency import (
    EmpiricalLatency,
    ExponentialLatency,
    FixedLatency,
    LatencyDistribution,
    LognormalLatency,
    NormalLatency,
    QuantileFunction,
    SizeBasedLatency,
    UniformLatency,
)
from endive.sim.limits import TICKS_PER_S, ClientRetries, Contention, PrefixLimit, RateLimit
from endive.sim.station import SERVER_ROWS, Batches, Queue, Station
from endive.sim.sums import terms_ticks, total_ticks
from endive.timing import Latency, to_ms, to_ticks, together

__all__ = [
    "Contention",
    "EmpiricalLatency",
    "ExponentialLatency",
    "FixedLatency",
    "LatencyDistribution",
    "LognormalLatency",
    "NormalLatency",
    "ObjectTable",
    "Profile",
    "ProfiledProvider",
    "SizeBasedLatency",
    "StorageProvider",
    "StorageResult",
    "UniformLatency",
    "create_provider",
]


Trust = Literal["checked", "partly", "unchecked"]
"""Whether something was compared with measurements of the real thing."""

APPENDS = ("append", "tail_append")
"""Appends at an offset, and wherever the object ends."""


@dataclass(frozen=True)
class StorageResult:
    """Outcome of one request."""

    success: bool
    latency_ms: float
    data_size_bytes: int
    offset: int = 0
    """The object's length, as the store saw it; an append reports it whether it landed or not."""
    sealed: bool = False
    """The object takes no more appends."""


ACCOUNT = "account"
"""Key of the token bucket of a service: it limits all its commits together, when they arrive."""


@dataclass
class ObjectTable:
    """State of all objects. Shared by all views of one provider."""

    versions: Counter[str] = field(default_factory=Counter)
    lengths: Counter[str] = field(default_factory=Counter)
    sealed: set[str] = field(default_factory=set)
    in_flight: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    """Swaps or appended bytes that a provider with its own `cas` and `append` has accepted."""
    full_at: Counter[str] = field(default_factory=Counter)
    """The tick at which an object's token bucket is full again."""
    prefix_free_at: Counter[tuple[int, int]] = field(default_factory=Counter)
    """The tick at which all requests of a prefix have been admitted: of reads (0) and writes (1)."""
    clock: Callable[[], int] | None = None
    """Returns the present tick; set by the simulation. None: there is no time, and limits do not apply."""
    counters: Counter[str] = field(default_factory=Counter)
    """Throttled requests, commits that gave up waiting for their turn, batches and announced commits."""
    queues: dict[str, Queue] = field(default_factory=dict)
    """Workers of the server, by object; all commits share one unless the server has workers for each table."""
    batches: Batches = field(default_factory=Batches)

    def admits(self, key: str, limit: RateLimit) -> bool:
        """Whether a request that reaches the store now is decided at all. No: it is throttled."""
        if not limit.interval_ticks or self.clock is None or limit.has_token(self.full_at[key], self.clock()):
            return True
        self.full_at[key] = limit.after_throttling(self.full_at[key], self.clock())
        self.counters["throttled_requests"] += 1
        return False

    def charge(self, key: str, limit: RateLimit, landed: bool) -> None:
        """Take the tokens of a request that was decided now."""
        if limit.interval_ticks and self.clock is not None:
            self.full_at[key] = limit.after(self.full_at[key], self.clock(), landed)

    def enter(self, key: str, station: Station, draw: Callable[[str], int]) -> int:
        """Enter the server's station now; return the ticks until the end of the service, or -1: it gives up.

        `draw` returns the ticks of one of `SERVER_ROWS`.
        """
        now = self.clock() if self.clock else 0
        if station.batches:
            ticks = self.batches.enter(station, now, draw)
            self.counters["batches"], self.counters["announced_commits"] = self.batches.written, self.batches.announced
            return ticks
        queue = self.queues.setdefault(key if station.per_table else "", Queue())
        ticks = queue.enter(station, now, lambda: sum(draw(name) for name in SERVER_ROWS))
        self.counters["lock_timeouts"] += ticks < 0
        return ticks

    def queue(self, prefix: int, limit: PrefixLimit, counts: tuple[int, int]) -> int:
        """Let so many reads and writes of one prefix queue up now; return the ticks until all are admitted."""
        if self.clock is None:
            return 0
        now, wait = self.clock(), 0
        for side, (interval, count) in enumerate(zip(limit.intervals_ticks, counts, strict=True)):
            if interval and count:
                free_at = max(self.prefix_free_at[prefix, side], now) + count * interval
                self.prefix_free_at[prefix, side] = free_at
                wait = max(wait, free_at - now - TICKS_PER_S)
        return wait

    def swap(self, key: str, expected_version: int) -> bool:
        """Install a new version if the object is still at the expected one."""
        if self.versions[key] != expected_version:
            return False
        self.versions[key] += 1
        return True

    def state(self, key: str) -> tuple[int, bool]:
        """Return an object's length and whether it is sealed."""
        return self.lengths[key], key in self.sealed

    def extend(self, key: str, offset: int, size_bytes: int) -> bool:
        """Append if the object ends at `offset` and takes appends at all."""
        if key in self.sealed or self.lengths[key] != offset:
            return False
        self.lengths[key] += size_bytes
        return True

    def renew(self, key: str, length: int) -> bool:
        """Put a fresh object in the place of a sealed one; no if another writer already has."""
        if key not in self.sealed:
            return False
        self.sealed.remove(key)
        self.lengths[key] = length
        return True


class StorageProvider(ABC):
    """Object storage whose requests take time. An operation that it lacks raises `UnsupportedOperationError`.

    A subclass defines the five requests. Everything else has a default: conditional writes are decided when their
    request returns, and every operation is supported.
    """

    def __init__(self, rng: RandomSource) -> None:
        self._rng = rng
        self._objects = ObjectTable()

    @abstractmethod
    def read(self, key: str, expected_size_bytes: int) -> Latency[StorageResult]:
        """Get an object."""

    @abstractmethod
    def write(self, key: str, size_bytes: int) -> Latency[StorageResult]:
        """Put an object, whatever was there."""

    @abstractmethod
    def cas(self, key: str, expected_version: int, size_bytes: int) -> Latency[StorageResult]:
        """Put an object if it is still at `expected_version`."""

    @abstractmethod
    def append(self, key: str, offset: int, size_bytes: int) -> Latency[StorageResult]:
        """Append if the object ends at `offset`. Says only whether the bytes landed, and where the object ends."""

    @abstractmethod
    def tail_append(self, key: str, size_bytes: int) -> Latency[StorageResult]:
        """Append wherever the object ends."""

    def conditional(
        self, operation: str, key: str, size_bytes: int, decide: Callable[[], bool | None]
    ) -> Latency[StorageResult]:
        """Send a conditional request; `decide` runs where the store decides, and returns the outcome.

        A catalog changes its own state in `decide`, at exactly that instant. None is a refusal that a server may turn
        into success by serving the request again. By default the store decides when `cas` or `append` returns; a
        request that the provider itself refuses is not put to `decide`.
        """
        if operation == "tail_append":
            result = yield from self.tail_append(key, size_bytes)
        else:
            send, step = (self.append, size_bytes) if operation == "append" else (self.cas, 1)
            result = yield from send(key, self._objects.accepted[key], size_bytes)
            self._objects.accepted[key] += step * result.success
        landed = result.success and bool(decide())
        return StorageResult(landed, result.latency_ms, size_bytes, *self._objects.state(key))

    def repeat(
        self, operation: str, key: str, size_bytes: int, count: int, batch: int, varies: bool = False
    ) -> Latency[StorageResult]:
        """Read or write `count` objects, `batch` at a time. The result has the total latency.

        `varies` means that other calls for this key have other sizes, so that tables for one size do not pay.
        """
        del varies
        total_ticks = 0
        for done in range(0, count, batch):
            one = self.write if operation == "write" else self.read
            results = yield from together([one(key, size_bytes) for _ in range(min(batch, count - done))])
            total_ticks += max(to_ticks(result.latency_ms) for result in results)
        return StorageResult(True, to_ms(total_ticks), size_bytes, *self._objects.state(key))

    def queue_ticks(self, table: int, counts: tuple[int, int]) -> int:  # noqa: ARG002 - by default, there is no limit
        """Let so many reads and writes of a table's prefix queue up now; return the ticks until all are admitted."""
        return 0

    def delay_ticks(self, left_ticks: int, requests: int) -> int:  # noqa: ARG002 - by default, nothing is throttled
        """Return how long requests are delayed that have been made, and are admitted after `left_ticks` only."""
        return 0

    def renew(self, key: str, size_bytes: int, length: int) -> Latency[StorageResult]:
        """Write a fresh object in the place of a sealed one. No: another writer was first."""
        result = yield from self.write(key, size_bytes)
        renewed = self._objects.renew(key, length)
        return StorageResult(renewed, result.latency_ms, size_bytes, *self._objects.state(key))

    @property
    def objects(self) -> ObjectTable:
        """Versions and lengths of all objects."""
        return self._objects

    def supports(self, operation: str) -> bool:  # noqa: ARG002 - by default, all of them
        """Whether the provider has this operation."""
        return True

    @property
    def supports_cas(self) -> bool:
        """Whether the provider has conditional writes."""
        return self.supports("cas")

    @property
    def supports_append(self) -> bool:
        """Whether the provider has appends at an offset."""
        return self.supports("append")

    @property
    def supports_tail_append(self) -> bool:
        """Whether the provider has appends at the end."""
        return self.supports("tail_append")

    @property
    def name(self) -> str:
        """The provider's name in messages and configurations."""
        return type(self).__name__

    @property
    def min_latency_ms(self) -> float:
        """No request is faster than this."""
        return 0.0

    def floor_ms(self, operation: str, key: str) -> float:  # noqa: ARG002 - one floor for all, unless a provider has more
        """No request of this kind is faster than this."""
        return self.min_latency_ms

    def with_rng(self, rng: RandomSource) -> Self:
        """Return a view of the same objects that draws its latencies from `rng`, such as a transaction's own."""
        view = copy(self)
        view._rng = rng
        return view


@dataclass(frozen=True)
class Profile:
    """Latency distributions of a provider, by operation.

    An operation may also be given for one kind of object (`manifest_list_read` beside `read`) or for failure
    (`cas_failure` beside `cas`); the special row wins over the general one.
    """

    name: str
    latencies: Mapping[str, LatencyDistribution]
    contention: Contention = field(default_factory=Contention)
    decision: float = 1.0
    sources: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    append_contention: Contention | None = None
    """Of appends. None: the same as of other conditional requests."""
    append_decision: float | None = None
    """Of appends. None: the same as of other conditional requests."""
    object_limit: RateLimit = field(default_factory=RateLimit)
    """Conditional requests to one object."""
    prefix_limit: PrefixLimit = field(default_factory=PrefixLimit)
    """Requests to one prefix."""
    client: ClientRetries = field(default_factory=ClientRetries)
    station: Station = field(default_factory=Station)
    """The server that decides conditional requests; its rows are `work`, `work_read` and `work_write`."""
    trust: Trust = "unchecked"
    checked: str = ""
    """How the latencies and limits were checked, and with what error."""

    def find(self, operation: str, kind: str) -> LatencyDistribution | None:
        """Return the row for `operation` on a `kind` of object, or None where the provider cannot do it."""
        return self.latencies.get(f"{kind}_{operation}") or self.latencies.get(operation)

    def failure(self, operation: str, kind: str) -> LatencyDistribution | None:
        """Return the row for a refused request; None where refusal takes as long as success."""
        if f"{kind}_{operation}" in self.latencies:
            return None
        return self.latencies.get(f"{operation}_failure")

    def contention_of(self, operation: str) -> Contention:
        """Return how requests of this kind to one object slow each other down."""
        return self.append_contention or self.contention if operation in APPENDS else self.contention

    def decision_of(self, operation: str) -> float:
        """Return the share of the round trip after which a conditional request is decided."""
        special = self.append_decision if operation in APPENDS else None
        return self.decision if special is None else special

    @property
    def min_latency_ms(self) -> float:
        """The lowest floor of all rows."""
        return to_ms(min((row.quantile.floor_ticks for row in self.latencies.values()), default=0))


class ProfiledProvider(StorageProvider):
    """A provider whose latencies are rows of a profile."""

    def __init__(self, profile: Profile, rng: RandomSource) -> None:
        super().__init__(rng)
        self._profile = profile
        self._quantile = lru_cache(maxsize=4096)(self._find_quantile)

    def _find_quantile(self, operation: str, key: str, size_bytes: int) -> QuantileFunction:
        row = self._profile.find(operation, _kind(key))
        if row is None:
            raise UnsupportedOperationError(self.name, operation)
        return row.with_size(size_bytes).quantile

    def _depends_on_size(self, operation: str, key: str) -> bool:
        row = self._profile.find(operation, _kind(key))
        return row is not None and row.with_size(0) != row.with_size(1)

    def _find_failure_quantile(self, operation: str, key: str, size_bytes: int) -> QuantileFunction:
        row = self._profile.failure(operation, _kind(key))
        return self._quantile(operation, key, size_bytes) if row is None else row.with_size(size_bytes).quantile

    def _request(self, operation: str, key: str, size_bytes: int) -> Latency[StorageResult]:
        latency_ms = to_ms(self._quantile(operation, key, size_bytes).ticks_at(self._rng.random()))
        yield latency_ms
        return StorageResult(True, latency_ms, size_bytes, *self._objects.state(key))

    def read(self, key: str, expected_size_bytes: int) -> Latency[StorageResult]:
        return self._request("read", key, expected_size_bytes)

    def write(self, key: str, size_bytes: int) -> Latency[StorageResult]:
        return self._request("write", key, size_bytes)

    def repeat(
        self, operation: str, key: str, size_bytes: int, count: int, batch: int, varies: bool = False
    ) -> Latency[StorageResult]:
        """Make all requests in one wait, drawn as a sum unless the distribution changes from call to call."""
        if count == 1:
            return (yield from (self.write if operation == "write" else self.read)(key, size_bytes))
        by_term = varies and self._depends_on_size(operation, key)
        draw = terms_ticks if by_term else total_ticks
        latency_ms = to_ms(draw(self._quantile(operation, key, size_bytes), count, batch, self._rng))
        yield latency_ms
        return StorageResult(True, latency_ms, size_bytes, *self._objects.state(key))

    def cas(self, key: str, expected_version: int, size_bytes: int) -> Latency[StorageResult]:
        return self.conditional("cas", key, size_bytes, lambda: self._objects.swap(key, expected_version))

    def append(self, key: str, offset: int, size_bytes: int) -> Latency[StorageResult]:
        return self.conditional("append", key, size_bytes, lambda: self._objects.extend(key, offset, size_bytes))

    def tail_append(self, key: str, size_bytes: int) -> Latency[StorageResult]:
        result = yield from self._request("tail_append", key, size_bytes)
        landed = self._objects.extend(key, self._objects.lengths[key], size_bytes)
        return StorageResult(landed, result.latency_ms, size_bytes, *self._objects.state(key))

    def conditional(
        self, operation: str, key: str, size_bytes: int, decide: Callable[[], bool | None]
    ) -> Latency[StorageResult]:
        profile, sent_ticks = self._profile, 0
        bucket = ACCOUNT if profile.station.serves else key
        for attempt in range(1, profile.client.attempts + 1):
            ticks, travel_ticks = self._send(operation, key, size_bytes)
            yield to_ms(travel_ticks)
            admitted = self._objects.admits(bucket, profile.object_limit)
            landed = False
            if admitted and profile.station.serves:
                self._objects.charge(bucket, profile.object_limit, landed=True)
                landed, served_ticks = yield from self._serve(key, decide)
                sent_ticks += served_ticks
            elif admitted:
                landed = bool(decide())
                self._objects.charge(bucket, profile.object_limit, landed)
            state = self._objects.state(key)
            self._objects.in_flight[key] -= 1
            if ticks[landed] > travel_ticks:
                yield to_ms(ticks[landed] - travel_ticks)
            sent_ticks += ticks[landed]
            if admitted or attempt == profile.client.attempts:
                break
            wait_ticks = profile.client.delay_ticks(attempt, self._rng.random())
            if wait_ticks:
                yield to_ms(wait_ticks)
            sent_ticks += wait_ticks
        return StorageResult(landed, to_ms(sent_ticks), size_bytes, *state)

    def _serve(self, key: str, decide: Callable[[], bool | None]) -> Latency[tuple[bool, int]]:
        """Pass through the server. Return the outcome and the ticks that it took."""
        station, total_ticks = self._profile.station, 0
        for _ in range(station.retries + 1):
            ticks = self._objects.enter(key, station, self._work_ticks)
            gave_up = ticks < 0
            ticks = station.wait_max_ticks if gave_up else ticks
            yield to_ms(ticks)
            total_ticks += ticks
            outcome = False if gave_up else decide()
            if outcome is not None:
                return outcome, total_ticks
        return False, total_ticks

    def _work_ticks(self, name: str) -> int:
        """Draw one part of the server's work, if it has that part."""
        row = self._profile.latencies.get(name)
        return row.quantile.ticks_at(self._rng.random()) if row else 0

    def _send(self, operation: str, key: str, size_bytes: int) -> tuple[dict[bool, int], int]:
        """Send a conditional request. Return its latency by outcome, and when it is decided."""
        success = self._quantile(operation, key, size_bytes)
        failure = self._find_failure_quantile(operation, key, size_bytes)
        u = self._rng.random()
        in_flight = self._objects.in_flight
        in_flight[key] += 1
        scale = self._profile.contention_of(operation).scale(in_flight[key])
        ticks = {yes: int(quantile.ticks_at(u) * scale) for yes, quantile in ((True, success), (False, failure))}
        return ticks, int(min(ticks.values()) * self._profile.decision_of(operation))

    def queue_ticks(self, table: int, counts: tuple[int, int]) -> int:
        limit = self._profile.prefix_limit
        if not limit.is_set:
            return 0
        return self._objects.queue(table if limit.per_table else 0, limit, counts)

    def delay_ticks(self, left_ticks: int, requests: int) -> int:
        if left_ticks <= 0:
            return 0
        self._objects.counters["delayed_requests"] += requests
        return self._profile.client.turn_ticks(left_ticks)

    def supports(self, operation: str) -> bool:
        return operation in self._profile.latencies

    @property
    def name(self) -> str:
        return self._profile.name

    @property
    def min_latency_ms(self) -> float:
        return self._profile.min_latency_ms

    def floor_ms(self, operation: str, key: str) -> float:
        return to_ms(self._quantile(operation, key, 0).floor_ticks)


def _kind(key: str) -> str:
    return key.partition("/")[0]


def create_provider(name: str, rng: RandomSource, profiles: Mapping[str, Profile]) -> StorageProvider:
    """Return the provider called `name`. `KeyError` if no profile has that name."""
    return ProfiledProvider(profiles[name], rng)
