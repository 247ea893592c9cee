"""Advice as sentences, as a table and for JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from endive.sim.config.configuration import Settings
from endive.sim.results.display import Displayed, Grid, bars
from endive.sim.results.interventions import Intervention
from endive.sim.results.metrics import METRICS, as_document, bounds, number, with_interval
from endive.sim.results.prices import NAME as DOLLARS
from endive.sim.results.summary import Estimate
from endive.sim.results.trust import footnotes, mark_of, parts_of, trust_of
from endive.wording import counted

if TYPE_CHECKING:
    import altair as alt

Confidence = Literal["high", "medium", "low"]
SENTENCES = 5
"""Improvements that are put into sentences."""
FEW = 30
"""With fewer transactions of the goal's class in the window, its metrics are uncertain."""
SIDE_EFFECTS = {"p99_ms": "p99", "requests_per_commit": "requests per commit", DOLLARS: "dollars per million commits"}
UNITS = {metric.name: metric.unit for metric in METRICS}


@dataclass(frozen=True)
class Advice:
    """One intervention and its effect."""

    intervention: Intervention
    settings: Settings
    """The changed configuration."""
    after: Mapping[str, Estimate]
    """Metrics with the intervention."""
    difference: Mapping[str, Estimate]
    """Mean of the differences seed by seed, by metric."""
    effect: Estimate | None
    """The difference of the goal. None: it has no value with or without the intervention."""
    gain: float | None
    """The effect as an improvement: positive is better."""
    confidence: Confidence
    """`low`: chance may explain the effect; `medium`: it rests on a part that was not checked; `high`: neither."""
    assumed: Mapping[str, Estimate] = field(default_factory=dict)
    """The effect under other assumptions of the model; empty unless asked for, and for what does not help."""

    @property
    def helps(self) -> bool:
        """Whether it clearly improves the goal."""
        return self.confidence != "low" and (self.gain or 0.0) > 0

    @property
    def verdict(self) -> str:
        """Whether it helps, in a word or two."""
        if self.effect is not None and self.effect.mean == 0.0 and not self.effect.half_width:
            return "no effect"
        if self.confidence == "low":
            return "unclear"
        return "helps" if self.helps else "hurts"


@dataclass(frozen=True, repr=False, eq=False)
class AdviceResults(Displayed):
    """The interventions that were tried, the best first."""

    settings: Settings
    seeds: tuple[int, ...]
    goal: str
    today: Mapping[str, Estimate]
    """Metrics of the configuration as it is."""
    advice: tuple[Advice, ...]
    skipped: Mapping[str, str]
    """Interventions that do not apply, and why."""

    @property
    def title(self) -> str:
        today = with_interval(self.today.get(self.goal), unit_of(self.goal))
        parts = f"{self.settings.profile_set} profile, {self.settings.catalog_name}, cost model"
        return (
            f"{self.settings.label}: {self.goal} is {today}{mark_of(self.settings)} today; "
            f"{counted(len(self.advice), 'intervention')} tried with the same {counted(len(self.seeds), 'seed')}; "
            f"{self.settings.values.storage.provider}, {parts} {self.settings.cost_models}"
        )

    @property
    def notes(self) -> list[str]:
        """The parts of the model that were not checked, or that measurements contradict."""
        return footnotes([self.settings, *(one.settings for one in self.advice)])

    @property
    def remarks(self) -> list[str]:
        """Reasons to be careful: a goal of a class with few transactions."""
        of_class, _, _ = self.goal.rpartition(".")
        finished = self.today.get(f"{of_class}.finished" if of_class else "finished")
        if finished is None or finished.mean * len(self.seeds) >= 10 * FEW:
            return []
        whose = f" of {of_class}" if of_class else ""
        return [
            f"only {finished.mean:.0f} transactions{whose} finish in the window of a seed, so effects are uncertain; "
            "run longer (--set simulation.duration_ms=…) or with more seeds"
        ]

    @property
    def helping(self) -> list[Advice]:
        """The interventions that clearly improve the goal, the best first."""
        return [one for one in self.advice if one.helps]

    def sentences(self) -> list[str]:
        """Return the best improvements in words; one sentence if there is none."""
        if not self.helping:
            return [f"Nothing that was tried improves {self.goal} clearly."]
        return [f"{place}. {self.sentence(one)}" for place, one in enumerate(self.helping[:SENTENCES], 1)]

    def sentence(self, one: Advice) -> str:
        """Return one advice with its effect, side effects and confidence."""
        effect, after = one.difference[self.goal], one.after[self.goal]
        moves = "rises" if effect.mean > 0 else "falls"
        change = change_text(replace(effect, mean=abs(effect.mean)), unit_of(self.goal))
        sides = [text for name, label in SIDE_EFFECTS.items() if (text := self._side_effect(one, name, label))]
        others = ", ".join(
            f"{change_text(found, unit_of(self.goal))} (if {name})" for name, found in one.assumed.items()
        )
        assumed = f" Under other assumptions of the model: {others}." if others else ""
        caveat = f" Not counted: {one.intervention.caveat}." if one.intervention.caveat else ""
        return (
            f"{one.intervention.advice}: {self.goal} {moves} by {change} to "
            f"{number(after.mean, unit_of(self.goal))}{mark_of(one.settings)}"
            f"{'; ' if sides else ''}{', '.join(sides)}. Confidence: {one.confidence}.{assumed}{caveat}"
        )

    def _side_effect(self, one: Advice, name: str, label: str) -> str:
        before, difference = self.today.get(name), one.difference.get(name)
        if name == self.goal or before is None or difference is None or not before.mean:
            return ""
        if difference.half_width is None or abs(difference.mean) <= difference.half_width:
            return f"{label} about the same"
        return f"{label} {100 * difference.mean / before.mean:+.3g} %"

    def grids(self) -> Sequence[Grid]:
        headings = ("", "intervention", "kind", self.goal, "change", "p99 ms", "requests", "$/million", "confidence")
        today = self._cells(self.today, mark_of(self.settings))
        rows = [("", "as it is", "", today[0], "", *today[1:], "")]
        for place, one in enumerate(self.advice, 1):
            cells = self._cells(one.after, mark_of(one.settings))
            change = change_text(one.effect, unit_of(self.goal))
            confidence = f"{one.confidence}: {one.verdict}"
            names = (str(place), one.intervention.advice, one.intervention.kind)
            rows.append((*names, cells[0], change, *cells[1:], confidence))
        return (Grid(headings, rows, frozenset({1, 2, 8})),)

    def _cells(self, metrics: Mapping[str, Estimate], mark: str) -> list[str]:
        names = (self.goal, *SIDE_EFFECTS)
        found = [(metrics.get(name), unit_of(name)) for name in names]
        return ["-" if one is None else number(one.mean, unit) + mark for one, unit in found]

    def document(self) -> dict[str, object]:
        """Return everything for JSON."""
        return {
            "label": self.settings.label,
            **parts_of(self.settings),
            "seeds": list(self.seeds),
            "goal": self.goal,
            "today": _documents(self.today, self.settings),
            "sentences": self.sentences(),
            "advice": [self._document(place, one) for place, one in enumerate(self.advice, 1)],
            "skipped": dict(self.skipped),
            "warnings": [*self.settings.warnings, *self.remarks],
        }

    def _document(self, place: int, one: Advice) -> dict[str, object]:
        change = one.intervention
        return {
            "rank": place,
            "kind": change.kind,
            "advice": change.advice,
            "set": {**change.values, **change.numbers},
            "leave_out": list(change.leaves_out),
            "caveat": change.caveat,
            "verdict": one.verdict,
            "confidence": one.confidence,
            "effect": as_document(one.effect) if one.effect else None,
            "uncertainty": {name: as_document(found) for name, found in one.assumed.items()},
            "after": _documents(one.after, one.settings),
            "difference": {name: as_document(found) for name, found in one.difference.items()},
            **parts_of(one.settings),
        }

    def to_arrow(self) -> pa.Table:
        """Return one row for each intervention, the best first."""
        rows = [
            {
                "rank": place,
                "kind": one.intervention.kind,
                "intervention": one.intervention.advice,
                "goal": self.goal,
                "after": found.mean if (found := one.after.get(self.goal)) else None,
                "difference": one.effect.mean if one.effect else None,
                "difference_half_width_95": one.effect.half_width if one.effect else None,
                "confidence": one.confidence,
                "verdict": one.verdict,
                "trust": trust_of(one.settings),
            }
            for place, one in enumerate(self.advice, 1)
        ]
        return pa.Table.from_pylist(rows, schema=SCHEMA)

    def chart(self) -> "alt.LayerChart":
        """Return the effect of each intervention, with its interval. Needs the extra `report`."""
        rows = [
            {"intervention": one.intervention.advice, **bounds(found)}
            for one in self.advice
            if (found := one.effect) is not None
        ]
        return bars(pa.Table.from_pylist(rows), f"change of {self.goal}", "intervention", self.title)


def change_text(effect: Estimate | None, unit: str) -> str:
    """Return a difference with its interval; of shares in points."""
    if effect is None or unit != "%":
        return with_interval(effect, unit)
    half_width = "" if effect.half_width is None else f" ± {100 * effect.half_width:.2g}"
    return f"{100 * effect.mean:.3g}{half_width} points"


def _documents(metrics: Mapping[str, Estimate], settings: Settings) -> dict[str, object]:
    return {name: as_document(found, trust_of(settings)) for name, found in metrics.items()}


SCHEMA = pa.schema(
    [
        pa.field("rank", pa.int64()),
        *(pa.field(name, pa.string()) for name in ("kind", "intervention", "goal")),
        *(pa.field(name, pa.float64()) for name in ("after", "difference", "difference_half_width_95")),
        *(pa.field(name, pa.string()) for name in ("confidence", "verdict", "trust")),
    ]
)


def unit_of(goal: str) -> str:
    """Return the unit of a metric, of whatever class."""
    return next((unit for name, unit in UNITS.items() if goal == name or goal.endswith(f".{name}")), "")
