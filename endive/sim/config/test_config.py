"""A small configuration for tests of code that uses the simulator."""

from endive.sim.config.configuration import Overrides, settings_of
from endive.sim.simulation import SimulationConfig

SMALL = """
[simulation]
duration_ms = 60_000
[storage]
provider = "instant"
[transaction]
inter_arrival = { scale = 500 }
runtime = { value = 1000 }
"""


def create_test_config(overrides: Overrides = (), seed: int = 0) -> SimulationConfig:
    """Return one simulated minute of two transactions per second on one table, with `overrides` applied.

    For example `Simulation(create_test_config({"catalog.num_tables": 2})).run()`.
    """
    return settings_of(SMALL, overrides).build(seed)
