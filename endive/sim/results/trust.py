"""Marks of figures that rest on a part of the model that was not checked, or that measurements contradict.

A figure of a run rests on all parts of its configuration: the provider's latencies, the catalog's preset and the cost
models. It is as trustworthy as the weakest of them.
"""

from collections.abc import Iterable, Mapping

from endive.sim.config.configuration import Settings

MARK = "†"
"""Follows a figure, or the heading of a column of figures."""
ORDER = ("unchecked", "partly", "checked")


def trust_of(settings: Settings) -> str:
    """Return the label of the weakest part: `unchecked`, `partly` or `checked`."""
    return min((found["trust"] for found in settings.trust.values()), key=ORDER.index)


def mark_of(settings: Settings) -> str:
    """Return what follows each figure of a configuration: a space and the mark, or nothing."""
    return f" {MARK}" if trust_of(settings) == ORDER[0] else ""


def footnotes(all_settings: Iterable[Settings]) -> list[str]:
    """Return a line for each part that was not checked or is contradicted, which explains the mark."""
    doubts = {
        part: found["checked"]
        for settings in all_settings
        for part, found in settings.trust.items()
        if found["trust"] == ORDER[0]
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
