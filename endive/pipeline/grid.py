"""From a sweep's grid, zip and list to the members' values, and what can be wrong with them."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from endive.sim.config.schema import Configuration
from endive.sim.config.validation import Fault, all_keys
from endive.wording import suggestion

Row = dict[str, Any]
"""Varied keys and one member's values."""

MEMBERS_MAX = 100_000
"""More experiments than anybody waits for: a slip in a grid should not fill the memory."""

NOT_VARIED = {
    "simulation.seed": "seeds are given by `seeds`",
    "simulation.output_path": "the sweep names its own files",
    "experiment.label": "members are named by what they vary",
}


def rows(grid: Mapping[str, Any], columns: Mapping[str, Any], members: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return every combination of the listed members, the zipped rows and the grid, the last varying fastest."""
    crossed = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    zipped = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    parts = [members or [{}], zipped or [{}], crossed]
    return [{key: value for part in chosen for key, value in part.items()} for chosen in itertools.product(*parts)]


def pairs(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values. A quoted key with a dot in it is complete: its value may be a table."""
    for key, value in table.items():
        if isinstance(value, Mapping) and "." not in key:
            yield from pairs(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def row_faults(
    grid: Mapping[str, Any], columns: Mapping[str, Any], members: Sequence[Mapping[str, Any]]
) -> Iterator[Fault]:
    """Yield what is wrong with a sweep's three parts, before a single configuration is looked at."""
    for part, table in (("grid", grid), ("zip", columns)):
        for key, values in table.items():
            yield from _value_faults(f"{part}.{key}", values)
    yield from _key_faults([("grid", key) for key in grid])
    yield from _key_faults([("zip", key) for key in columns])
    yield from _key_faults([("list", key) for key in dict.fromkeys(key for member in members for key in member)])
    listed = {key for member in members for key in member}
    for key in sorted((grid.keys() & columns.keys()) | ((grid.keys() | columns.keys()) & listed)):
        yield Fault(key, "is varied in two places; leave one of them out")
    lengths = {key: len(values) for key, values in columns.items() if isinstance(values, list)}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        yield Fault("zip", f"columns must be of one length, but {found}")
    size = math.prod(len(values) for values in grid.values() if isinstance(values, list))
    size *= max(lengths.values(), default=1) * max(len(members), 1)
    if size > MEMBERS_MAX:
        yield Fault("grid", f"{size:,} experiments; at most {MEMBERS_MAX:,} are possible")


def _value_faults(place: str, values: object) -> Iterator[Fault]:
    if not isinstance(values, list) or not values:
        yield Fault(place, f"expected a list of values, but found {values!r}")
    elif any(value in values[:number] for number, value in enumerate(values)):
        yield Fault(place, "a value is there twice; it would give the same experiment")


def _key_faults(keys: Sequence[tuple[str, str]]) -> Iterator[Fault]:
    known = all_keys(Configuration)
    for part, key in keys:
        if key in NOT_VARIED:
            yield Fault(f"{part}.{key}", NOT_VARIED[key])
        elif key not in known:
            yield Fault(f"{part}.{key}", f"no such configuration key{suggestion(key, known)}")
