"""Endive: predict how many commits per second Iceberg tables sustain, and a catalog that reaches those rates.

For a notebook: `run` simulates a configuration, `compare` compares two, `capacity` finds the highest load that a
configuration sustains. Each takes a dictionary, a path or TOML text, and returns results that print as
tables and convert to Arrow, pandas and Polars:

    import endive

    endive.capacity({"storage": {"provider": "s3"}, "transaction": {"inter_arrival": {"scale": 500}}})

The packages, bottom first; imports go down, never up:

* `wording`, `errors`, `rng`, `timing`, `files`: used by everything else.
* `protocol`, `objects`, `drivers`: protocols as generators of requests, object stores, and the drivers between them.
* `kv`: a key-value store on a bucket.
* `catalog`: Iceberg tables on that store, and the plug-in for PyIceberg.
* `sim`: the simulator of Iceberg's optimistic concurrency control.
* `spark`, `pipeline`, `report`: the Spark data source, sweeps of simulations, charts and the report.
* `cli`: the `endive` command.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from endive.sim.results.capacity_results import CapacityResults, capacity
    from endive.sim.results.comparison import Comparison, compare
    from endive.sim.results.runs import RunResults, run

__version__ = "0.1.0"

__all__ = ["CapacityResults", "Comparison", "RunResults", "__version__", "capacity", "compare", "run"]

_MODULES = {
    "CapacityResults": "endive.sim.results.capacity_results",
    "Comparison": "endive.sim.results.comparison",
    "RunResults": "endive.sim.results.runs",
    "capacity": "endive.sim.results.capacity_results",
    "compare": "endive.sim.results.comparison",
    "run": "endive.sim.results.runs",
}
"""Imported when first used, so that `import endive` stays fast."""


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'endive' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
