"""Which figures of a report rest on a part of the model that was not checked."""

from collections.abc import Mapping
from typing import Any

from endive.report.groups import ReportGroup
from endive.sim.results.labels import MARK, doubts, explained

KEYS = {"provider": "storage.provider", "catalog": "catalog.preset", "cost model": "transaction.cost_model"}
"""Kinds of parts, and the key that chooses one."""


def notes_of(group: ReportGroup) -> list[str]:
    """Return a line for each part of a group's model that was not checked or is contradicted."""
    return explained([group.about.trust])


def mark_of_group(group: ReportGroup) -> str:
    """Return what follows a statement about a whole group: the mark if any of its parts was not checked."""
    return f" {MARK}" if doubts(group.about.trust) else ""


def mark_of_row(group: ReportGroup, row: Mapping[Any, Any]) -> str:
    """Return what follows the figures of one series: the mark if a part that it uses was not checked."""
    fields = {parameter.key: parameter.field for parameter in group.parameters}
    for part in doubts(group.about.trust):
        kind, name = next((kind, part.removeprefix(f"{kind} ")) for kind in KEYS if part.startswith(f"{kind} "))
        field = fields.get(KEYS[kind])
        if field is None or str(row[field]) == name:
            return f" {MARK}"
    return ""
