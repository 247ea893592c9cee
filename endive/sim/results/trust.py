"""Marks of figures that rest on a part of the model that was not checked, or that measurements contradict.

A figure of a run rests on all parts of its configuration: the provider's latencies, the catalog's preset and the cost
models. It is as trustworthy as the weakest of them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from endive.sim.config.configuration import Settings
from endive.sim.results.display import Grid

MARK = "†"
"""Follows a figure, or the heading of a column of figures."""
ORDER = ("unchecked", "partly", "checked")


Labels = Mapping[str, Mapping[str, str]]
"""Parts of a model, each with its label `trust` and the words `checked`, as in `Settings.trust`."""


def weakest(labels: Labels) -> str:
    """Return the label of the weakest part: `unchecked`, `partly` or `checked`; without any part, `unchecked`."""
    return min((found["trust"] for found in labels.values()), key=ORDER.index, default=ORDER[0])


def trust_of(settings: Settings) -> str:
    """Return the label of the weakest part of a configuration."""
    return weakest(settings.trust)


def mark(labels: Labels) -> str:
    """Return what follows each figure: a space and the mark, or nothing."""
    return f" {MARK}" if weakest(labels) == ORDER[0] else ""


def mark_of(settings: Settings) -> str:
    """Return what follows each figure of a configuration."""
    return mark(settings.trust)


def marked(grid: Grid, text: str) -> Grid:
    """Return a table with the mark behind the headings of its figures: all columns but the first."""
    first, *others = grid.headings
    return replace(grid, headings=(first, *(heading + text for heading in others)))


def footnotes(all_settings: Iterable[Settings]) -> list[str]:
    """Return a line for each part of the configurations that the mark stands for."""
    return explained(settings.trust for settings in all_settings)


def explained(all_labels: Iterable[Labels]) -> list[str]:
    """Return a line for each part that was not checked or is contradicted, which explains the mark."""
    doubts = {
        part: found["checked"] for labels in all_labels for part, found in labels.items() if found["trust"] == ORDER[0]
    }
    return [f"{MARK} {part}: {_said(checked)}" for part, checked in doubts.items()]


def _said(checked: str) -> str:
    return checked if checked.startswith(("contradicted", "not checked")) else f"unchecked: {checked}"


def parts_of(settings: Settings) -> Mapping[str, object]:
    """Return what every JSON document says of its figures: catalog, granularity, profile, cost model and trust."""
    catalog = settings.values.catalog
    return {
        "provider": settings.values.storage.provider,
        "profiles": settings.profile_set,
        "catalog": catalog.preset or catalog.type,
        "granularity": catalog.conflict_granularity,
        "cost_model": settings.cost_models,
        "trust": {"figures": trust_of(settings), **settings.trust},
    }
