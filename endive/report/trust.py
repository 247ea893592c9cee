"""Marks of metrics in a report that depend on a part of the model that was not checked."""

from collections.abc import Mapping
from typing import Any

from endive.report.formatting import is_missing
from endive.report.groups import ReportGroup
from endive.sim.results.labels import MARK, TRUST, doubts, explained, mark_for


def notes_of(group: ReportGroup) -> list[str]:
    """Return a line for each part of a group's model that was not checked or is contradicted."""
    return explained([group.about.trust])


def mark_of_group(group: ReportGroup) -> str:
    """Return what follows a statement about a whole group: the mark if any of its parts was not checked."""
    return f" {MARK}" if doubts(group.about.trust) else ""


def mark_of_row(group: ReportGroup, row: Mapping[Any, Any]) -> str:
    """Return the suffix of the metrics of one series: the mark if a part that it uses was not checked.

    Of series that have no label, because an older version wrote the plan, all are marked or none.
    """
    label = row.get(TRUST)
    return mark_of_group(group) if is_missing(label) else mark_for(label)
