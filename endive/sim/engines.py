"""The two engines behind one function. They give the same results, bit for bit."""

from typing import Literal

from endive.sim.config.configuration import Settings
from endive.sim.results.statistics import RunResult
from endive.sim.simulation import Progress, Simulation

Engine = Literal["compiled", "reference"]


def simulate(settings: Settings, seed: int, engine: Engine = "compiled", progress: Progress | None = None) -> RunResult:
    """Run a configuration with one seed on the compiled engine, or on the readable one that defines the results."""
    if engine == "reference":
        return Simulation(settings.build(seed)).run(progress).to_result()
    from endive.sim.engine.run import run_compiled  # noqa: PLC0415 - loading Numba takes a second

    return run_compiled(settings, seed, progress)


def is_cold() -> bool:
    """Whether the compiled engine has still to be compiled on this machine, which takes half a minute."""
    from endive.sim.engine.run import is_cold  # noqa: PLC0415

    return is_cold()
