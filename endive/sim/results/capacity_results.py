"""`endive.capacity`: the highest load, or the worst value of any number, at which a target holds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from endive.sim.config.configuration import Overrides, Settings, Source
from endive.sim.config.seeds import Seeds, seeds_of
from endive.sim.results.axis import Worse
from endive.sim.results.capacity import Capacity
from endive.sim.results.capacity_cases import Cases, Vary, cases_of
from endive.sim.results.capacity_search import Spread, directed_axes, on_threads, search
from endive.sim.results.capacity_wording import (
    assumed_values,
    few_transactions,
    is_met_today,
    no_answer,
    sentence,
    shown,
    shown_value,
)
from endive.sim.results.display import Displayed, Grid, bars
from endive.sim.results.metrics import as_document, bounds, number
from endive.sim.results.prices import NAME as DOLLARS
from endive.sim.results.runs import Watcher
from endive.sim.results.summary import Estimate
from endive.sim.results.targets import Condition, Target, parse_conditions
from endive.sim.results.trust import footnotes, mark_of, parts_of, trust_of
from endive.sim.results.uncertainty import assumptions_of

if TYPE_CHECKING:
    import altair as alt

DEFAULT_SUCCESS = 0.95


@dataclass(frozen=True, repr=False, eq=False)
class CapacityResults(Displayed):
    """The capacity of each case. Cases that an interruption left without an answer are missing from `answers`."""

    cases: Cases
    answers: Mapping[str, Capacity]
    target: Target
    over: str | None = None
    """The number that was varied. None: the offered load."""
    assumed: Mapping[str, Mapping[str, Capacity]] = field(default_factory=dict)
    """Capacities under other assumptions of the model, by case and assumption; empty unless asked for."""

    def __getitem__(self, case: str) -> Capacity:
        return self.answers[case]

    @property
    def complete(self) -> bool:
        """Whether every case has an answer."""
        return len(self.answers) == len(self.cases)

    @property
    def warnings(self) -> list[str]:
        """Keys without effect, and `remarks`."""
        settings = dict.fromkeys(message for each in self.cases.values() for message in each.warnings)
        return [*settings, *self.remarks]

    @property
    def remarks(self) -> list[str]:
        """Answers to be careful with: windows that are not stationary, classes with few transactions."""
        drifting = [name for name, answer in self.answers.items() if answer.exists and answer.drifts]
        few = [
            message for name, answer in self.answers.items() for message in few_transactions(self.cases[name], answer)
        ]
        return [*(f"{name}: {NOT_STATIONARY}" for name in drifting), *dict.fromkeys(few)]

    @property
    def notes(self) -> list[str]:
        """The parts of the model that were not checked, or that measurements contradict."""
        return footnotes(self.cases.values())

    @property
    def title(self) -> str:
        models = ", ".join(dict.fromkeys(each.cost_models for each in self.cases.values()))
        profiles = ", ".join(dict.fromkeys(each.profile_set for each in self.cases.values()))
        catalogs = "; ".join(dict.fromkeys(each.catalog_name for each in self.cases.values()))
        found = "highest offered load with" if self.over is None else f"worst {self.over} with"
        return f"{found} {self.target}; cost model {models}; {profiles} profile; {catalogs}"

    def grids(self) -> Sequence[Grid]:
        own = () if self.over is None else ("today", self.over)
        headings = ("case", *own, "commits/s", "offered/s", "p99 ms", "$/million", "limit")
        rows = []
        for name, each in self.answers.items():
            rows.append(_cells(name, self.cases[name], each))
            others = self.assumed.get(name, {})
            rows += [_cells(f"  if {other}", self.cases[name], found) for other, found in others.items()]
        return (Grid(headings, rows, frozenset({0, len(headings) - 1})),)

    def sentence(self, case: str) -> str:
        """Return the answer of a case as a sentence."""
        others = assumed_values(self.assumed.get(case, {}))
        return sentence(self.cases[case], self.answers[case]) + (f"; {others}" if others else "")

    def document(self) -> dict[str, dict[str, object]]:
        """Return the answers for JSON, by case."""
        documents = {name: _document(self.cases[name], answer) for name, answer in self.answers.items()}
        for name, others in self.assumed.items():
            if name in documents:
                by_assumption = {other: _document(self.cases[name], answer) for other, answer in others.items()}
                documents[name]["uncertainty"] = by_assumption
        return documents

    def to_arrow(self) -> pa.Table:
        """Return one row for each case; null where there is no highest load."""
        rows = []
        for name, answer in self.answers.items():
            row: dict[str, object] = {"case": name, "exists": answer.exists, "limit": answer.limit}
            for column, found in _estimates(answer).items():
                row |= {column: found.mean if found else None}
                row |= {f"{column}_half_width_95": found.half_width if found else None}
            rows.append(row)
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def chart(self) -> "alt.LayerChart":
        """Return the commits per second of each case, with their intervals. Needs the extra `report`."""
        rows = [{"case": name, **bounds(answer.committed)} for name, answer in self.answers.items() if answer.exists]
        return bars(pa.Table.from_pylist(rows), "commits per second", "case", self.title)


NOT_STATIONARY = "the window is not stationary at capacity; trim more, or run longer"
METRICS = ("value", "commits_per_s", "offered_per_s", "p99_ms", DOLLARS)
SCHEMA = pa.schema(
    [
        pa.field("case", pa.string()),
        pa.field("exists", pa.bool_()),
        pa.field("limit", pa.string()),
        *(pa.field(f"{name}{part}", pa.float64()) for name in METRICS for part in ("", "_half_width_95")),
    ]
)


def capacity(
    config: Source,
    success: float | None = None,
    p99_ms: float | None = None,
    *,
    over: str | None = None,
    targets: Sequence[str] = (),
    worse: Worse | None = None,
    vary: Vary = (),
    seeds: Seeds = "1..5",
    tolerance: float = 0.01,
    overrides: Overrides = (),
    uncertainty: bool = False,
    watcher: Watcher | None = None,
    spread: "Spread | None" = None,
) -> CapacityResults:
    """Find the highest offered load that meets a target, or the worst value of any number, with its 95 % interval.

    Without `over`, the search starts at the configuration's own load and scales its distribution of arrivals. `over`
    names a number instead: `"streams.writers"`, `"catalog.num_tables"`. `targets` are conditions that must all hold,
    also of one class: `["compaction.success>=0.9", "streams.p99_ms<=5000"]`; without them the target is 95 % success,
    of each class. `worse` says whether `"larger"` or `"smaller"` values are worse, if trying should not decide. `vary`
    searches each value of a key: `{"storage.provider": ["s3", "s3x"]}`. All cores are used, or those of a cluster with
    `spread=endive.pipeline.searching.on_spark(spark)`. `uncertainty=True` searches under other assumptions of the model
    as well. An interruption keeps complete answers.

        endive.capacity("configs/capacity.toml", 0.95, vary={"catalog.num_tables": [1, 10]})
        endive.capacity("configs/fleet.toml", over="streams.writers", targets=["streams.success>=0.95"])
    """
    cases, watcher = cases_of(config, overrides, vary, over), watcher or Watcher()
    target, chosen = target_of(next(iter(cases.values())), success, p99_ms, targets), seeds_of(seeds, 0)
    for settings in cases.values():
        watcher.loaded(settings)
    others = {name: assumptions_of(settings) if uncertainty else {} for name, settings in cases.items()}
    every = dict(cases) | {
        _assumed(name, other): changed for name, found in others.items() for other, changed in found.items()
    }
    axes = None if over is None else directed_axes(every, over, worse, chosen[0], target)
    answers = search(every, chosen, target, tolerance, watcher, spread or on_threads, axes)
    assumed = {
        name: {other: answers[case] for other in found if (case := _assumed(name, other)) in answers}
        for name, found in others.items()
        if found
    }
    return CapacityResults(cases, {name: answers[name] for name in cases if name in answers}, target, over, assumed)


def _assumed(case: str, assumption: str) -> str:
    return f"{case} if {assumption}"


def target_of(settings: Settings, success: float | None, p99_ms: float | None, targets: Sequence[str]) -> Target:
    """Return what must hold; unless conditions are given, success of all transactions, or of each class."""
    conditions = parse_conditions(targets, settings.classes)
    if success is None and not conditions:
        if not settings.values.workload:
            return Target(DEFAULT_SUCCESS, p99_ms)
        conditions = tuple(Condition("success", DEFAULT_SUCCESS, True, name) for name in settings.classes)
    return Target(success, p99_ms, conditions)


def _estimates(answer: Capacity) -> dict[str, Estimate | None]:
    if not answer.exists:
        return dict.fromkeys(METRICS)
    found = (answer.value, answer.committed, answer.offered, answer.p99_ms, answer.dollars)
    return dict(zip(METRICS, found, strict=True))


def _cells(name: str, settings: Settings, answer: Capacity) -> tuple[str, ...]:
    limit = answer.limit if answer.exists else f"none: the target {no_answer(answer)}"
    found, mark = list(_estimates(answer).values()), mark_of(settings) if answer.exists else ""
    own = () if answer.axis is None else (number(answer.axis.today), shown_value(answer) + mark)
    return (name, *own, *(shown(one) + mark * (one is not None) for one in found[1:]), limit)


def _document(settings: Settings, answer: Capacity) -> dict[str, object]:
    trust = trust_of(settings)
    axis = answer.axis
    own = (
        {}
        if axis is None
        else {
            "over": axis.name,
            "today": axis.today,
            "worse": axis.scale.worse,
            "headroom": answer.headroom if answer.exists else None,
            "meets_target_today": is_met_today(answer) if answer.exists else None,
        }
    )
    return {
        **parts_of(settings),
        "target": str(answer.target),
        "exists": answer.exists,
        **own,
        **{name: as_document(found, trust) if found else None for name, found in _estimates(answer).items()},
        "limit": answer.limit,
        "answer": sentence(settings, answer),
        "seeds": len(answer.seeds),
        "stationary": not answer.drifts if answer.exists else None,
    }
