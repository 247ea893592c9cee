"""From the grid, zip and list of a sweep file to one variation per experiment, and the errors they may have."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from endive.sim.config.schema import Configuration
from endive.sim.config.validation import InvalidKey, all_keys
from endive.wording import suggestion

Variation = dict[str, Any]
"""Varied keys and the values of one experiment."""

EXPERIMENTS_MAX = 100_000
"""A guard against a slip in a grid, which would fill the memory."""

NOT_VARIED = {
    "simulation.seed": "seeds are given by `seeds`",
    "simulation.output_path": "a sweep names its own files",
    "experiment.label": "experiments are named by the keys they vary",
}


def combinations(
    grid: Mapping[str, Any], columns: Mapping[str, Any], listed: Sequence[Mapping[str, Any]]
) -> list[Variation]:
    """Return every combination of the listed variations, the zipped rows and the grid, the last varying fastest."""
    crossed = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    zipped = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    parts = [listed or [{}], zipped or [{}], crossed]
    return [{key: value for part in chosen for key, value in part.items()} for chosen in itertools.product(*parts)]


def dotted_pairs(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values. A quoted key with a dot in it is complete: its value may be a table."""
    for key, value in table.items():
        if isinstance(value, Mapping) and "." not in key:
            yield from dotted_pairs(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def variation_errors(
    grid: Mapping[str, Any], columns: Mapping[str, Any], listed: Sequence[Mapping[str, Any]]
) -> Iterator[InvalidKey]:
    """Yield the errors of a sweep file's three parts, before any configuration is checked."""
    for part, table in (("grid", grid), ("zip", columns)):
        for key, values in table.items():
            yield from _value_errors(f"{part}.{key}", values)
    in_list = dict.fromkeys(key for variation in listed for key in variation)
    for part, keys in (("grid", grid), ("zip", columns), ("list", in_list)):
        yield from _key_errors(part, keys)
    for key in sorted((grid.keys() & columns.keys()) | ((grid.keys() | columns.keys()) & in_list.keys())):
        yield InvalidKey(key, "is varied in two places; leave one of them out")
    lengths = {key: len(values) for key, values in columns.items() if isinstance(values, list)}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{key} has {length}" for key, length in lengths.items())
        yield InvalidKey("zip", f"columns must be of one length, but {found}")
    size = math.prod(len(values) for values in grid.values() if isinstance(values, list))
    size *= max(lengths.values(), default=1) * max(len(listed), 1)
    if size > EXPERIMENTS_MAX:
        yield InvalidKey("grid", f"{size:,} experiments; at most {EXPERIMENTS_MAX:,} are possible")


def _value_errors(place: str, values: object) -> Iterator[InvalidKey]:
    if not isinstance(values, list) or not values:
        yield InvalidKey(place, f"expected a list of values, but found {values!r}")
    elif any(value in values[:number] for number, value in enumerate(values)):
        yield InvalidKey(place, "a value is given twice; it would repeat the same experiment")


def _key_errors(part: str, keys: Mapping[str, Any]) -> Iterator[InvalidKey]:
    known = all_keys(Configuration)
    for key in keys:
        if key in NOT_VARIED:
            yield InvalidKey(f"{part}.{key}", NOT_VARIED[key])
        elif _shared(key) not in known:
            near = suggestion(_shared(key), known)
            yield InvalidKey(f"{part}.{key}", f"no such configuration key{near}")


def _shared(key: str) -> str:
    """Return a key of a class, `workload.NAME.…`, as the key of `transaction` that it stands for."""
    section, *inner = key.split(".")
    return ".".join(["transaction", *inner[1:]]) if section == "workload" and len(inner) > 1 else key
