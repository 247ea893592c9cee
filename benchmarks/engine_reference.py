"""The readable engine: events per second, against bare SimPy in the same run, and where the time goes.

python -m benchmarks.engine_reference        writes results/engine_reference.json
"""

import cProfile
import pstats
import time
from collections.abc import Generator
from pathlib import Path
from statistics import median
from typing import Any

import simpy

from benchmarks.report import HERE, save, spread
from endive.sim.config.configuration import Settings, parse_configuration
from endive.sim.simulation import Simulation

SAMPLES = 5
BARE_EVENTS = 200_000
SEED = 42

MIXED = """
[simulation]
duration_ms = 1_200_000
[storage]
provider = "s3x"
profiles = "measured"
[catalog]
num_tables = 20
[transaction]
cost_model = "iceberg"
inter_arrival = { scale = 100 }
runtime = { median = 10_000, sigma = 1.0 }
operation_types = { fast_append = 0.7, merge_append = 0.2, validated_overwrite = 0.1 }
tables = { selector = "zipf" }
"""


def configurations() -> dict[str, Settings]:
    """Return the configurations: fast appends, a closed loop of swaps, and a mix of everything."""
    fast, closed = (
        Path(HERE.parent / "configs" / name).read_text(encoding="utf-8")
        for name in ("fast_append_s3.toml", "closed_loop_s3.toml")
    )
    return {
        "fast_append_s3": parse_configuration(fast, overrides=["simulation.duration_ms=900_000"]),
        "closed_loop_s3": parse_configuration(closed, overrides=["simulation.duration_ms=120_000"]),
        "iceberg_mix_20_tables": parse_configuration(MIXED),
    }


def events_per_second(settings: Settings) -> tuple[float, int]:
    """Run once; return events per second of CPU time, and the number of events."""
    simulation = Simulation(settings.build(SEED))
    started = time.process_time()
    simulation.run()
    elapsed = time.process_time() - started
    events = next(simulation._env._eid)  # SimPy numbers its events
    return events / elapsed, events


def bare_events_per_second() -> float:
    """Return the same for SimPy alone: a hundred processes that do nothing but wait."""
    env = simpy.Environment()
    for number in range(100):
        env.process(_waiting(env, number + 1))
    started = time.process_time()
    for _ in range(BARE_EVENTS):
        env.step()
    return BARE_EVENTS / (time.process_time() - started)


def _waiting(env: simpy.Environment, delay: int) -> Generator[simpy.Event, None, None]:
    while True:
        yield env.timeout(delay)


def profile(settings: Settings, top: int = 12) -> list[dict[str, Any]]:
    """Return the functions with the largest share of the time, their own only."""
    profiler = cProfile.Profile()
    profiler.enable()
    Simulation(settings.build(SEED)).run()
    profiler.disable()
    stats: dict[tuple[str, int, str], tuple[int, int, float, float, Any]] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    total = sum(row[2] for row in stats.values())
    rows = sorted(stats.items(), key=lambda item: -item[1][2])[:top]
    return [
        {"function": _name(*place), "calls": row[1], "share_percent": round(100 * row[2] / total, 1)}
        for place, row in rows
    ]


def _name(file: str, _line: int, function: str) -> str:
    return function if file == "~" else f"{Path(file).parent.name}/{Path(file).name}:{function}"


def measure(settings: Settings) -> dict[str, Any]:
    """Return rate, ratio to bare SimPy and profile of one configuration."""
    runs, bare = [], []
    for _ in range(SAMPLES):
        bare.append(bare_events_per_second())
        runs.append(events_per_second(settings))
    rates = [rate for rate, _ in runs]
    return {
        "duration_ms": settings.values.simulation.duration_ms,
        "events": runs[0][1],
        **spread(rates),
        "bare_simpy": spread(bare),
        "ratio_to_bare_simpy": round(median(rates) / median(bare), 3),
        "profile": profile(settings),
    }


def main() -> None:
    cases = {}
    for name, settings in configurations().items():
        cases[name] = measure(settings)
        print(f"{name}: {cases[name]['median']:,.0f} events/s, {cases[name]['ratio_to_bare_simpy']} of bare SimPy")
    parameters = {"seed": SEED, "samples": SAMPLES, "bare_events": BARE_EVENTS}
    unit = "SimPy events per second of CPU time"
    print(save("engine_reference", {"parameters": parameters, "unit": unit, "cases": cases}))


if __name__ == "__main__":
    main()
