"""Sweeps of simulations on Spark: `run_sweep` plans, runs and measures; `SweepResults` gives tables and the report."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from endive.pipeline.results import SweepResults
    from endive.pipeline.sweep import SweepProgress, run_sweep

__all__ = ["SweepProgress", "SweepResults", "run_sweep"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    """Load a public name when it is used: a Spark worker that imports a module of this package needs none of them."""
    if name in __all__:
        from endive.pipeline import sweep  # noqa: PLC0415

        return getattr(sweep, name)
    raise AttributeError(name)
