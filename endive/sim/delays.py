"""A provider's latencies as a plain function, for code that does not use the simulator.

`endive.testing.FaultInjectingStore` and `endive.testing.virtual_time` take such a function, so real stores and
protocols can be tried with the latencies of S3 without either side knowing the other:

    FaultInjectingStore(objects, seed, FaultProbabilities(), delay=delay_of(load_profile_set("measured")["s3"]))
"""

from collections.abc import Callable
from functools import lru_cache

from endive.errors import UnsupportedOperationError
from endive.rng import RandomSource
from endive.sim.latency import QuantileFunction
from endive.sim.storage import Profile
from endive.timing import to_ms

ROWS = {"list": "read", "delete": "write"}
"""Operations without a latency of their own: a listing takes as long as a read, a delete as a write."""


def delay_of(profile: Profile) -> Callable[[str, int, RandomSource], float]:
    """Return a function of operation, size in bytes and random source that draws a latency in milliseconds.

    Operations are `read`, `write`, `cas`, `list` and `delete`. One that the provider does not have raises
    `UnsupportedOperationError`. One number is drawn for each request, whatever the operation.
    """

    @lru_cache(maxsize=4096)
    def quantile_of(operation: str, size_bytes: int) -> QuantileFunction:
        row = profile.latencies.get(ROWS.get(operation, operation))
        if row is None:
            raise UnsupportedOperationError(profile.name, operation)
        return row.with_size(size_bytes).quantile

    def delay_ms(operation: str, size_bytes: int, rng: RandomSource) -> float:
        return to_ms(quantile_of(operation, size_bytes).ticks_at(rng.random()))

    return delay_ms
