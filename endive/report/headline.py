"""The sentences at the top of the report: the results of the sweep in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from endive.report.formatting import is_missing, label_of, number, share, with_interval
from endive.report.groups import ReportGroup
from endive.report.trust import mark_of_group, mark_of_row

PROVIDER = "storage.provider"

SeriesRow = Mapping[Any, Any]
"""A series: its parameters and metrics by name."""


@dataclass(frozen=True)
class Headline:
    """One group in words: a sentence, and one more for each provider if there are several."""

    group: str
    sentence: str
    providers: tuple[tuple[str, str], ...] = ()
    """Provider, and the throughput it sustains."""


def headline_of(group: ReportGroup) -> Headline:
    """Return the series of a group that sustain the most and the least."""
    name = group.title
    if not group.has_metrics:
        return Headline(name, "no run finished, so there are no results.")
    if not group.axis.is_load:
        return Headline(name, _without_load(group) + mark_of_group(group))
    rows = group.series.to_dict("records")
    return Headline(name, _sentence(group, rows) + mark_of_group(group), tuple(_by_provider(group, rows)))


def _sentence(group: ReportGroup, rows: Sequence[SeriesRow]) -> str:
    target = f"{100 * group.success_target:g} %"
    sustainable = _sustainable(rows)
    if not sustainable:
        return f"even the lowest offered load misses {target} success."
    if len(rows) == 1:
        return f"{_amount(rows[0])} are sustainable at {target} success{_limit(group, rows[0])}."
    worst, best = sustainable[0], sustainable[-1]
    rest = f"; {len(rows) - len(sustainable)} of {len(rows)} series fail even at the lowest load"
    ends = f"{_amount(worst)} ({worst['series']}) to {_amount(best)} ({best['series']})"
    some = rest if len(sustainable) < len(rows) else ""
    return f"the sustainable throughput at {target} success ranges from {ends}{some}."


def _sustainable(rows: Sequence[SeriesRow]) -> list[SeriesRow]:
    """Return the series that have a sustainable load, the lowest throughput first."""
    sustainable = [row for row in rows if not is_missing(row["usable_load"])]
    return sorted(sustainable, key=lambda row: float(row["usable_committed_per_s"]))


def _by_provider(group: ReportGroup, rows: Sequence[SeriesRow]) -> list[tuple[str, str]]:
    """Return the throughput that each provider sustains, if there are several."""
    field = next((parameter.field for parameter in group.parameters if parameter.key == PROVIDER), None)
    if field is None:
        return []
    providers = dict.fromkeys(str(row[field]) for row in rows)
    of_each = {name: [row for row in rows if row[field] == name] for name in providers}
    return [(name, _range(group, own) + max(mark_of_row(group, row) for row in own)) for name, own in of_each.items()]


def _range(group: ReportGroup, rows: Sequence[SeriesRow]) -> str:
    """Return the lowest and the highest throughput that one provider sustains."""
    sustainable = _sustainable(rows)
    if not sustainable:
        return "no sustainable load"
    low, high = sustainable[0], sustainable[-1]
    none = f"; none for {len(rows) - len(sustainable)} of {len(rows)}" if len(sustainable) < len(rows) else ""
    if low is high:
        return f"{_amount(high)}{_limit(group, high)}{none}"
    return f"{_amount(low)} ({_others(group, low)}) to {_amount(high)} ({_others(group, high)}){none}"


def _others(group: ReportGroup, row: SeriesRow) -> str:
    """Return a series' name without the provider, such as `10 tables`: its parts are in the order of the keys."""
    keys = [key for key in group.about.varied if key != group.about.load_key]
    parts = str(row["series"]).split(" · ")
    if len(parts) != len(keys):
        return str(row["series"])
    return " · ".join(part for key, part in zip(keys, parts, strict=True) if key != PROVIDER)


def _amount(row: SeriesRow) -> str:
    least = "at least " if is_missing(row["fails_from_load"]) else ""
    return f"{least}{with_interval(row['usable_committed_per_s'], row['usable_committed_per_s_ci'])} commits/s"


def _limit(group: ReportGroup, row: SeriesRow) -> str:
    if is_missing(row["fails_from_load"]):
        return ", the highest offered load of the sweep"
    return f", failing from {label_of(row['fails_from_load'])} {group.about.load_unit}"


def _without_load(group: ReportGroup) -> str:
    """Return the ranges of throughput and success if the offered load does not vary."""
    success, committed = group.points["success"].dropna(), group.points["committed_per_s"].dropna()
    commits = f"{number(committed.min())} to {number(committed.max())} commits/s"
    if success.empty:
        return f"the offered load does not vary; {commits}."
    return f"the offered load does not vary; {commits}, success {share(success.min())} to {share(success.max())}."
