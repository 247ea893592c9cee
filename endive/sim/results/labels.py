"""Trust labels: how far the parts of a model were checked, and the mark of metrics that depend on an unchecked one."""

from collections.abc import Iterable, Mapping

MARK = "†"
"""Follows a metric, or the heading of a column of metrics."""
ORDER = ("unchecked", "partly", "checked")
TRUST = "trust"
"""Column of measures: the label of the weakest part that a row's metrics depend on. Null: an older version wrote it."""
Labels = Mapping[str, Mapping[str, str]]
"""Parts of a model, each with its label `trust` and the words `checked`, as in `Settings.trust`."""


def weakest(labels: Labels) -> str:
    """Return the label of the weakest part: `unchecked`, `partly` or `checked`; without any part, `unchecked`."""
    return min((found["trust"] for found in labels.values()), key=ORDER.index, default=ORDER[0])


def mark(labels: Labels) -> str:
    """Return the suffix of each metric: a space and the mark, or nothing."""
    return mark_for(weakest(labels))


def mark_for(label: object) -> str:
    """Return the suffix of each metric that has this label."""
    return f" {MARK}" if label == ORDER[0] else ""


def doubts(labels: Labels) -> dict[str, str]:
    """Return the parts that were not checked or that measurements contradict, with the words of each."""
    return {part: _said(found["checked"]) for part, found in labels.items() if found["trust"] == ORDER[0]}


def explained(all_labels: Iterable[Labels]) -> list[str]:
    """Return a line for each part that the mark stands for."""
    found = {part: words for labels in all_labels for part, words in doubts(labels).items()}
    return [f"{MARK} {part}: {words}" for part, words in found.items()]


def _said(checked: str) -> str:
    return checked if checked.startswith(("contradicted", "not checked")) else f"unchecked: {checked}"
