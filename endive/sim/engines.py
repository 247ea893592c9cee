"""Both engines behind one function. Their results are identical, bit for bit."""

from typing import Literal

from endive.sim.config.configuration import Settings
from endive.sim.results.statistics import RunResult
from endive.sim.simulation import Progress, Simulation

Engine = Literal["compiled", "reference"]


def simulate(settings: Settings, seed: int, engine: Engine = "compiled", progress: Progress | None = None) -> RunResult:
    """Run a configuration with one seed on the compiled engine, or on the reference engine that defines the results."""
    if engine == "reference":
        return Simulation(settings.build(seed)).run(progress).to_result(settings.classes)
    from endive.sim.engine.run import run_compiled  # noqa: PLC0415 - loading Numba takes a second

    return run_compiled(settings, seed, progress)


def is_cold() -> bool:
    """Whether the compiled engine is not yet compiled on this machine; compiling takes half a minute."""
    from endive.sim.engine.run import is_cold  # noqa: PLC0415

    return is_cold()
