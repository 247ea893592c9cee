"""The sentences at the top of the report: what the sweep found, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from endive.report.families import Family
from endive.report.words import is_missing, number, with_interval

PROVIDER = "storage.provider"

Row = Mapping[Any, Any]
"""A series: its parameters and figures by name."""


@dataclass(frozen=True)
class Headline:
    """One family in words: a sentence, and one more for each provider if there are several."""

    family: str
    sentence: str
    providers: tuple[tuple[str, str], ...] = ()
    """Provider, and what it takes."""


def headline_of(family: Family) -> Headline:
    """Say which series of a family takes the most and which the least."""
    name = family.title
    if not family.has_figures:
        return Headline(name, "no run finished, so there is nothing to show.")
    if not family.axis.is_load:
        return Headline(name, _without_load(family))
    rows = family.series.to_dict("records")
    return Headline(name, _sentence(family, rows), tuple(_by_provider(family, rows)))


def _sentence(family: Family, rows: Sequence[Row]) -> str:
    target = f"{100 * family.success_target:g} %"
    usable = _usable(rows)
    if not usable:
        return f"not even the lowest load reaches {target} success."
    if len(rows) == 1:
        return f"{_amount(rows[0])} at {target} success or more{_limit(family, rows[0])}."
    worst, best = usable[0], usable[-1]
    rest = f"; {len(rows) - len(usable)} of {len(rows)} series fail even at the lowest load"
    return (
        f"with {target} success or more, from {_amount(worst)} ({worst['series']}) to {_amount(best)} "
        f"({best['series']}){rest if len(usable) < len(rows) else ''}."
    )


def _usable(rows: Sequence[Row]) -> list[Row]:
    """Return the series that have a usable load, the worst first."""
    usable = [row for row in rows if not is_missing(row["usable_load"])]
    return sorted(usable, key=lambda row: float(row["usable_committed_per_s"]))


def _by_provider(family: Family, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return what each provider takes, if there are several."""
    field = next((parameter.field for parameter in family.parameters if parameter.key == PROVIDER), None)
    if field is None:
        return []
    providers = dict.fromkeys(str(row[field]) for row in rows)
    return [(name, _range(family, [row for row in rows if row[field] == name])) for name in providers]


def _range(family: Family, rows: Sequence[Row]) -> str:
    """Return the worst and the best that one provider takes."""
    usable = _usable(rows)
    if not usable:
        return "no usable load"
    low, high = usable[0], usable[-1]
    none = f"; none for {len(rows) - len(usable)} of {len(rows)}" if len(usable) < len(rows) else ""
    if low is high:
        return f"{_amount(high)}{_limit(family, high)}{none}"
    return f"{_amount(low)} ({_others(family, low)}) to {_amount(high)} ({_others(family, high)}){none}"


def _others(family: Family, row: Row) -> str:
    """Return a series' name without the provider, such as `10 tables`: its parts are in the order of the keys."""
    keys = [key for key in family.about.varied if key != family.about.load_key]
    parts = str(row["series"]).split(" · ")
    if len(parts) != len(keys):
        return str(row["series"])
    return " · ".join(part for key, part in zip(keys, parts, strict=True) if key != PROVIDER)


def _amount(row: Row) -> str:
    least = "at least " if is_missing(row["fails_from_load"]) else ""
    return f"{least}{with_interval(row['usable_committed_per_s'], row['usable_committed_per_s_ci'])} commits/s"


def _limit(family: Family, row: Row) -> str:
    if is_missing(row["fails_from_load"]):
        return ", the highest load of the sweep"
    return f", failing from {number(row['fails_from_load'])} {family.about.load_unit}"


def _without_load(family: Family) -> str:
    """Return what there is to say where the load does not vary."""
    success, committed = family.points["success"].dropna(), family.points["committed_per_s"].dropna()
    commits = f"{number(committed.min())} to {number(committed.max())} commits/s"
    if success.empty:
        return f"the load does not vary; {commits}."
    return f"the load does not vary; {commits}, success {100 * success.min():.1f} % to {100 * success.max():.1f} %."
