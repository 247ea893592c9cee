"""Marks on metrics of a configuration.

A metric of a run depends on all parts of its configuration: the provider's latencies, the catalog's preset and the cost
models. It is as trustworthy as the weakest of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from endive.sim.config.configuration import Settings
from endive.sim.results.display import Grid
from endive.sim.results.labels import explained, mark, weakest


def trust_of(settings: Settings) -> str:
    """Return the label of the weakest part of a configuration."""
    return weakest(settings.trust)


def mark_of(settings: Settings) -> str:
    """Return the suffix of each metric of a configuration."""
    return mark(settings.trust)


def marked(grid: Grid, text: str) -> Grid:
    """Return a table with the mark behind the headings of its metrics: all columns but the first."""
    first, *others = grid.headings
    return replace(grid, headings=(first, *(heading + text for heading in others)))


def footnotes(all_settings: Iterable[Settings]) -> list[str]:
    """Return a line for each part of the configurations that the mark stands for."""
    return explained(settings.trust for settings in all_settings)


def parts_of(settings: Settings) -> Mapping[str, object]:
    """Return the model of every JSON document: catalog, granularity, profile, cost model and trust."""
    catalog = settings.values.catalog
    return {
        "provider": settings.values.storage.provider,
        "profiles": settings.profile_set,
        "catalog": catalog.preset or catalog.type,
        "granularity": catalog.conflict_granularity,
        "cost_model": settings.cost_models,
        "trust": {"figures": trust_of(settings), **settings.trust},
    }
