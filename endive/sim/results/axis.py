"""The quantity that a search varies: the offered load, or any number of the configuration.

A key is a dotted path. One that begins with the name of a class is that class's: `streams.writers` is
`workload.streams.writers`. A distribution is varied by its mean; its shape stays.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from pydantic import BaseModel

from endive.errors import ConfigurationError
from endive.sim.config.configuration import Settings, inline_toml, settings_of
from endive.sim.config.defaults import mean_ms, value_at
from endive.sim.config.distributions import DistributionSection
from endive.wording import suggestion

OVER = "--over"
Worse = Literal["larger", "smaller"]
"""Which values are worse for a target."""

RANGE = 1024.0
"""A key is varied from today's value to this many times less and more."""

KNOWN: Mapping[str, Worse] = {
    "writers": "larger",
    "runtime": "larger",
    "real_conflict_probability": "larger",
    "interval_ms": "smaller",
    "inter_arrival": "smaller",
    "think": "smaller",
    "retry": "smaller",
    "retry_timeout_ms": "smaller",
}
"""Parts of keys whose direction needs no trial."""


@dataclass(frozen=True)
class Scale:
    """The values that a search may try, in both directions from a start."""

    lowest: float
    highest: float
    worse: Worse = "larger"
    whole: bool = False
    tries_lowest: bool = True
    """Whether the lowest value itself is tried, or only those above it."""

    def harder(self, value: float, factor: float) -> float | None:
        """Return the next value for which a target is harder to meet; None at the end of the scale."""
        return self._up(value, factor) if self.worse == "larger" else self._down(value, factor)

    def easier(self, value: float, factor: float) -> float | None:
        """Return the next value for which a target is easier to meet; None at the end of the scale."""
        return self._down(value, factor) if self.worse == "larger" else self._up(value, factor)

    def between(self, one: float, other: float, tolerance: float) -> float | None:
        """Return a value between two; None if they are close enough."""
        low, high = sorted((one, other))
        if self.whole and high - low <= 1:
            return None
        if low > 0:
            middle = math.sqrt(low * high)
            close = high / low <= 1 + tolerance
        else:
            middle, close = (low + high) / 2, high - low <= tolerance * self._least
        return None if close else self._rounded(middle, low, high)

    @property
    def _least(self) -> float:
        """The first value above 0."""
        return 1.0 if self.whole else self.highest / RANGE

    def _rounded(self, value: float, low: float, high: float) -> float:
        return min(max(round(value), low + 1), high - 1) if self.whole else value

    def _up(self, value: float, factor: float) -> float | None:
        raised = max(value * factor, self._least if value == 0 else 0.0)
        moved = min(max(round(raised), value + 1) if self.whole else raised, self.highest)
        return moved if moved > value else None

    def _down(self, value: float, factor: float) -> float | None:
        lowered = value / factor
        if lowered < self.lowest:
            lowered = self.lowest if self.tries_lowest else value
        moved = max(min(math.floor(lowered), value - 1) if self.whole else lowered, self.lowest)
        return moved if moved < value else None


@dataclass(frozen=True)
class Axis:
    """A number of a configuration, today's value of it, and the configuration with other values."""

    settings: Settings
    key: str
    """The whole dotted path."""
    name: str
    """The path as the user wrote it."""
    today: float
    scale: Scale

    def at(self, value: float) -> Settings:
        """Return the configuration with another value."""
        found = value_at(self.settings.values, self.key)
        if isinstance(found, DistributionSection):
            scaled = shrunk(found, self.today / value)
            return settings_of(self.settings, [f"{self.key}={inline_toml(scaled.model_dump(exclude_none=True))}"])
        number = int(value) if self.scale.whole else value
        return settings_of(self.settings, [f"{self.key}={number}", *_tables_at(self.settings, self.key, int(value))])

    def towards(self, worse: Worse) -> "Axis":
        """Return the axis with its direction."""
        return replace(self, scale=replace(self.scale, worse=worse))

    @property
    def known_direction(self) -> Worse | None:
        """Which values are worse, as far as the key's name says; None: only a trial can tell."""
        return next((KNOWN[part] for part in reversed(self.key.split(".")) if part in KNOWN), None)


def axis_of(settings: Settings, name: str) -> Axis:
    """Find the number that a user names. `ConfigurationError` if there is no such number."""
    key = f"workload.{name}" if name.partition(".")[0] in settings.values.workload else name
    try:
        value = value_at(settings.values, key)
    except (AttributeError, KeyError):
        hint = suggestion(name, numeric_keys(settings)) or f"; such as {', '.join(loads_of(settings))}"
        raise ConfigurationError(OVER, [f"{name}: no such key{hint}"]) from None
    if value is None:
        raise ConfigurationError(OVER, [f"{name}: has no value here{_remedy(settings, key)}"])
    if isinstance(value, DistributionSection):
        today = mean_ms(value)
        if today <= 0:
            raise ConfigurationError(OVER, [f"{name}: has a mean of 0, which cannot be scaled; give it another"])
        return Axis(settings, key, name, today, Scale(today / RANGE, today * RANGE))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigurationError(OVER, [f"{name}: is not a number; compare its values with --vary {name}=A,B"])
    return Axis(settings, key, name, float(value), _scale(settings, key, value))


def _remedy(settings: Settings, key: str) -> str:
    last = key.rpartition(".")[2]
    if key.startswith("transaction.") and settings.values.workload:
        return f"; name a class, such as {next(iter(settings.values.workload))}.{last}"
    return f"; set today's value first: --set {key}=NUMBER"


def _scale(settings: Settings, key: str, value: float) -> Scale:
    lowest, highest = _limits(settings.values, key)
    whole = isinstance(value, int)
    if value == 0:
        return Scale(max(lowest, 0.0), min(highest, RANGE), whole=whole)
    low, high = (math.floor(value / RANGE), value * RANGE) if whole else (value / RANGE, value * RANGE)
    return Scale(max(lowest, low), min(highest, high), whole=whole)


def _limits(model: BaseModel, key: str) -> tuple[float, float]:
    """Return the lowest and highest valid value of a key, as the schema says."""
    *parents, last = key.split(".")
    section = value_at(model, ".".join(parents)) if parents else model
    info = type(section).model_fields[last]
    notes = list(_notes([*info.metadata, info.annotation]))
    lowest = [float(note.ge) for note in notes if getattr(note, "ge", None) is not None]
    highest = [float(note.le) for note in notes if getattr(note, "le", None) is not None]
    return max(lowest, default=0.0), min(highest, default=math.inf)


def _notes(parts: Sequence[Any]) -> list[Any]:
    """Return the limits in an annotation, however deep."""
    found: list[Any] = []
    for part in parts:
        found += [part, *_notes(getattr(part, "metadata", ()) or ()), *_notes(get_args(part))]
    return found


def numeric_keys(settings: Settings) -> list[str]:
    """Return the keys that have a number in a configuration, as a user writes them."""
    dumped = settings.values.model_dump(exclude_none=True)
    keys = [key for key, value in _leaves(dumped) if isinstance(value, int | float) and not isinstance(value, bool)]
    return [key.removeprefix("workload.") for key in keys]


def _leaves(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = []
    for name, value in values.items():
        pairs += _leaves(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(prefix + name, value)]
    return pairs


def loads_of(settings: Settings) -> list[str]:
    """Return the keys that say how much each class does."""
    prefixes = [f"{name}." for name in settings.values.workload] or ["transaction."]
    classes = settings.values.by_class().values()
    keys = {"open": ["inter_arrival"], "closed": ["writers"], "triggered": ["writers", "interval_ms"]}
    return [
        prefix + key for prefix, one in zip(prefixes, classes, strict=True) for key in keys[one.transaction.arrivals]
    ]


def _tables_at(settings: Settings, key: str, tables: int) -> list[str]:
    """Return what else changes with the number of tables: lists with a number for each of them are spread again."""
    if key != "catalog.num_tables":
        return []
    changes: list[tuple[str, object]] = []
    partitions = settings.values.catalog.partitions.per_table
    if partitions is not None:
        counts = [max(1, round(one)) for one in spread(partitions, tables, mean=True)]
        changes.append(("catalog.partitions.per_table", counts))
    for name, section in settings.values.workload.items() or [("", settings.values.transaction)]:
        place = f"workload.{name}" if name else "transaction"
        if section.tables.shares is not None and section.tables.only is None:
            changes.append((f"{place}.tables.shares", spread(section.tables.shares, tables)))
    if "catalog.table_groups" in settings.given and (settings.values.catalog.table_groups or 1) > 1:
        was = settings.values.catalog
        changes.append(("catalog.table_groups", max(1, round((was.table_groups or 1) * tables / was.num_tables))))
    return [f"{place}={inline_toml(value)}" for place, value in changes]


def spread(shares: Sequence[float], count: int, mean: bool = False) -> list[float]:
    """Divide shares evenly over another number of tables: twice as many tables have half the share each.

    `mean=True` returns the mean of what falls on each table instead of the sum.
    """
    ratio = len(shares) / count
    found = []
    for number in range(count):
        start, end = number * ratio, (number + 1) * ratio
        parts = [
            share * (min(end, place + 1) - max(start, place))
            for place, share in enumerate(shares)
            if place < end and place + 1 > start
        ]
        found.append(sum(parts) / (ratio if mean else 1))
    return found


SCALED = ("mean", "median", "scale", "value", "stddev", "base", "per_mib", "min", "max")


def shrunk(section: DistributionSection, factor: float) -> DistributionSection:
    """Return a distribution with every time divided by `factor`; its shape stays."""
    changes: dict[str, object] = {
        name: value / factor for name in SCALED if (value := getattr(section, name)) is not None
    }
    if section.quantiles is not None:
        changes["quantiles"] = tuple((probability, value / factor) for probability, value in section.quantiles)
    return section.model_copy(update=changes)
