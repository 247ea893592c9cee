"""Closed loop: n writers that do nothing but conditional writes on one object, simulated and measured.

Everything but the conditional write costs nothing, so the simulated rate and failure rate can be held against the
measurements in `data/conditional_writes.json`. The `measured` profiles were fitted to 1, 2, 4, 8 and 16 writers; the
other numbers of writers are a prediction, and this is its test.

`python -m benchmarks.closed_loop` writes `results/closed_loop.json`; the results are deterministic.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from heapq import heapreplace
from typing import Any

from benchmarks.report import HERE, save
from endive.rng import stream
from endive.sim.config.configuration import parse_configuration
from endive.sim.config.profiles import load_profile_set
from endive.sim.engines import simulate as run
from endive.sim.storage import create_provider
from endive.timing import TICKS_PER_MS, Latency, to_ticks

WRITERS = tuple(range(1, 17))
FITTED = (1, 2, 4, 8, 16)
"""Numbers of writers that the profiles were fitted to."""
SEED = 1
VIRTUAL_SECONDS = {"s3": 900, "s3x": 200, "azure": 3600, "azurex": 3600, "gcp": 14400}
"""Long enough for some thousand successes, and for GCS's latencies of half a minute."""

CONFIGURATION = """
[simulation]
duration_ms = {seconds}e3
[storage]
provider = "{provider}"
profiles = "measured"
[storage.latency]
read = {{ value = 0 }}
write = {{ value = 0 }}
[catalog]
type = "cas"
[transaction]
arrivals = "closed"
writers = {writers}
runtime = {{ value = 0 }}
retry = 1_000_000
operation_types = {{ fast_append = 1.0 }}
"""
NOTES = {
    "implied_throughput": "Rate of writers without think time, from the published latencies and failure rates "
    "alone. It agrees with the published throughput within 9 % for s3, s3x and gcp.",
    "azure": "The published throughput (0.06/s, appends 0.23/s) contradicts the published latencies: a writer that "
    "goes on at once after about 100 ms does about ten a second. The rate compared here is the one that the "
    "latencies imply.",
    "azurex": "As for azure: published are 0.1/s at 60 ms. The rate compared here is the one that the latencies imply.",
    "gcp": "The store limits one object to about one update a second: a token bucket, with a client that waits and "
    "sends a throttled request again.",
}


@dataclass(frozen=True)
class Rates:
    """Rates of n writers together."""

    throughput: float
    """Successful writes a second."""
    failure_rate: float


@dataclass(frozen=True)
class Measured:
    """A row of the measurements."""

    writers: int
    failure_rate: float
    throughput: float
    success_p50_ms: float
    failure_p50_ms: float | None
    success_mean_ms: float
    failure_mean_ms: float | None

    @property
    def implied_throughput(self) -> float:
        """Rate of writers that go on at once, each request taking its mean."""
        attempt_ms = (1 - self.failure_rate) * self.success_mean_ms + self.failure_rate * (self.failure_mean_ms or 0.0)
        return self.writers * (1 - self.failure_rate) * 1000 / attempt_ms


def simulate(provider: str, operation: str, writers: int, seconds: float, seed: int = SEED) -> Rates:
    """Run the closed loop for so many virtual seconds."""
    if operation == "append":
        return simulate_appends(provider, writers, seconds, seed)
    text = CONFIGURATION.format(provider=provider, writers=writers, seconds=seconds)
    counters = run(parse_configuration(text), seed).counters
    success, failure = counters["cas_success"], counters["cas_failure"]
    return Rates(success / seconds, failure / (success + failure))


def simulate_appends(provider: str, writers: int, seconds: float, seed: int = SEED) -> Rates:
    """Run writers that look up the object's length, in no time, and append there.

    An append catalog does not do so: its writers go on at the offset that a refused append reports, which is as old as
    the answer's way back. So the store is driven here without a catalog.
    """
    store = create_provider(provider, stream(seed, "appends"), load_profile_set("measured"))
    outcomes: Counter[bool] = Counter()

    def writer(number: int) -> Latency[None]:
        own = store.with_rng(stream(seed, "appends").child(number))
        while True:
            result = yield from own.append("log", own.objects.lengths["log"], 1)
            outcomes[result.success] += 1

    steps = [writer(number) for number in range(writers)]
    due = [(0, number) for number in range(writers)]
    while due[0][0] < seconds * 1000 * TICKS_PER_MS:
        now, number = due[0]
        heapreplace(due, (now + to_ticks(next(steps[number])), number))
    return Rates(outcomes[True] / seconds, outcomes[False] / outcomes.total())


def measurements() -> Mapping[str, Mapping[str, Mapping[int, Measured]]]:
    """Return the measurements by provider, operation and number of writers."""
    document = json.loads((HERE / "data" / "conditional_writes.json").read_text(encoding="utf-8"))
    return {
        provider: {name: {row["writers"]: Measured(**row) for row in rows} for name, rows in operations.items()}
        for provider, operations in document["providers"].items()
    }


def row(provider: str, operation: str, measured: Measured) -> dict[str, Any]:
    """Return measured and simulated rates side by side, with the errors."""
    simulated = simulate(provider, operation, measured.writers, VIRTUAL_SECONDS[provider])
    implied = provider.startswith("azure")
    reference = measured.implied_throughput if implied else measured.throughput
    return {
        "provider": provider,
        "operation": operation,
        **asdict(measured),
        "fitted": measured.writers in FITTED,
        "implied_throughput": round(measured.implied_throughput, 3),
        "compared_with": "implied_throughput" if implied else "throughput",
        "simulated_throughput": round(simulated.throughput, 3),
        "simulated_failure_rate": round(simulated.failure_rate, 4),
        "throughput_error_percent": round(100 * (simulated.throughput / reference - 1), 1),
        "failure_rate_error_points": round(100 * (simulated.failure_rate - measured.failure_rate), 1),
    }


def rows() -> Iterator[dict[str, Any]]:
    """Run every provider, operation and number of writers."""
    for provider, operations in measurements().items():
        for operation, by_writers in operations.items():
            for writers in WRITERS:
                found = row(provider, operation, by_writers[writers])
                print(
                    f"{provider:7} {operation:6} {writers:3} writers  "
                    f"{found[found['compared_with']]:8.2f}/s {100 * found['failure_rate']:5.1f} %   simulated "
                    f"{found['simulated_throughput']:8.2f}/s {100 * found['simulated_failure_rate']:5.1f} %   error "
                    f"{found['throughput_error_percent']:+6.1f} % {found['failure_rate_error_points']:+6.1f} points",
                    flush=True,
                )
                yield found


def main() -> None:
    parameters = {"profiles": "measured", "seed": SEED, "writers": WRITERS, "virtual_seconds": VIRTUAL_SECONDS}
    units = {"throughput": "successful writes per second", "failure_rate": "refused among all requests"}
    print(save("closed_loop", {"parameters": parameters, "unit": units, "notes": NOTES, "rows": list(rows())}))


if __name__ == "__main__":
    main()
