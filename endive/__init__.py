"""Endive: predict how many commits per second Iceberg tables sustain, and a catalog that reaches those rates.

For a notebook: `run` simulates a configuration, `compare` compares two, `capacity` finds the highest load that a
configuration sustains, `advise` ranks changes of it by their effect, `sweep` runs a sweep on Spark. Each takes a
dictionary, a path or TOML text, and returns results that print as tables and convert to Arrow, pandas and Polars:

    import endive

    endive.capacity({"storage": {"provider": "s3"}, "transaction": {"inter_arrival": {"scale": 500}}})

The packages, bottom first; imports go down, never up:

* `wording`, `errors`, `rng`, `timing`, `files`: used by everything else.
* `protocol`, `objects`, `drivers`: protocols as generators of requests, object stores, and the drivers between them.
* `testing`: a model checker, virtual time and fault injection for protocols.
* `kv`: a key-value store on a bucket.
* `catalog`: Iceberg tables on that store, and the plug-in for PyIceberg.
* `server`: Iceberg's REST protocol on that catalog.
* `sim`: the simulator of Iceberg's optimistic concurrency control.
* `spark`, `pipeline`, `report`: the Spark data source, sweeps of simulations, charts and the report.
* `cli`: the `endive` command.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from endive.pipeline.results import SweepResults
    from endive.pipeline.sweep import run_sweep as sweep
    from endive.sim.results.advice import advise
    from endive.sim.results.advice_results import AdviceResults
    from endive.sim.results.capacity_results import CapacityResults, capacity
    from endive.sim.results.comparison import Comparison, compare
    from endive.sim.results.runs import RunResults, run

__version__ = "0.1.0"

__all__ = [
    "AdviceResults",
    "CapacityResults",
    "Comparison",
    "RunResults",
    "SweepResults",
    "__version__",
    "advise",
    "capacity",
    "compare",
    "run",
    "sweep",
]

_PLACES = {
    "AdviceResults": "endive.sim.results.advice_results.AdviceResults",
    "CapacityResults": "endive.sim.results.capacity_results.CapacityResults",
    "Comparison": "endive.sim.results.comparison.Comparison",
    "RunResults": "endive.sim.results.runs.RunResults",
    "SweepResults": "endive.pipeline.results.SweepResults",
    "advise": "endive.sim.results.advice.advise",
    "capacity": "endive.sim.results.capacity_results.capacity",
    "compare": "endive.sim.results.comparison.compare",
    "run": "endive.sim.results.runs.run",
    "sweep": "endive.pipeline.sweep.run_sweep",
}
"""Imported when first used, so that `import endive` stays fast."""

if not TYPE_CHECKING:  # would hide misspelt names from the type checker

    def __getattr__(name: str) -> object:
        if name not in _PLACES:
            raise AttributeError(f"module 'endive' has no attribute {name!r}")
        module, _, attribute = _PLACES[name].rpartition(".")
        with import_module("endive.extras").naming_extra("sweep" if module.startswith("endive.pipeline") else "sim"):
            value = globals()[name] = getattr(import_module(module), attribute)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
