"""The table of a group's metrics by class of transactions and by table."""

from dataclasses import dataclass
from typing import Any

from endive.report.formatting import NONE, is_missing, label_of, number, share, title_of, with_interval
from endive.report.groups import ReportGroup
from endive.report.reading import Results
from endive.report.trust import mark_of_row

ROWS_MAX = 300
"""Rows of the table at most; `measures/breakdown.parquet` has them all."""

HEADINGS = ("commits/s", "success", "retries", "p50, ms", "p99, ms")


@dataclass(frozen=True)
class Breakdown:
    """Rows of text: the experiment, the class or table, and its metrics."""

    rows: tuple[tuple[str, ...], ...]
    left_out: int = 0
    """Rows beyond `ROWS_MAX`."""
    headings: tuple[str, ...] = ("Experiment", "Class or table", *HEADINGS)


def breakdown_of(results: Results, group: ReportGroup) -> Breakdown:
    """Return the classes and the hottest tables of each experiment of a group; no rows if it has one of either."""
    found = results.breakdown[results.breakdown["family"] == group.about.name]
    rows = [_row(group, row) for row in found.to_dict("records")]
    return Breakdown(tuple(rows[:ROWS_MAX]), max(0, len(rows) - ROWS_MAX))


def _row(group: ReportGroup, row: dict[Any, Any]) -> tuple[str, ...]:
    name = f"table {row['name']}" if row["by"] == "table" else str(row["name"])
    mark = mark_of_row(group, row)
    figures = (
        with_interval(row["committed_per_s"], row["committed_per_s_ci"]),
        share(row["success"]),
        number(row["retries_mean"]),
        number(row["p50_ms"]),
        number(row["p99_ms"]),
    )
    return (_experiment(group, row), name, *(text if text == NONE else text + mark for text in figures))


def _experiment(group: ReportGroup, row: dict[Any, Any]) -> str:
    """Return the values that distinguish an experiment."""
    keys = [key for key in dict.fromkeys(group.about.varied) if not is_missing(row.get(key))]
    return ", ".join(f"{title_of(key)} {label_of(row[key])}" for key in keys)
