"""The parameters of experiments as columns, named by their configuration keys."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import BaseModel

from endive.pipeline.sweep_file import Experiment
from endive.sim.config.configuration import Settings
from endive.sim.operations import OPERATION_TYPES

ALWAYS = ("storage.provider", "storage.profiles", "transaction.cost_model", "catalog.num_tables")
"""Columns that every experiment has, varied or not."""


def parameter_columns(experiments: Sequence[Experiment], varied: Sequence[str]) -> dict[str, pa.Array]:
    """Return a column for every key: the experiment's own value, or the value in force where it does not vary."""
    columns: dict[str, pa.Array] = {}
    for key in dict.fromkeys((*ALWAYS, *varied)):
        values = [_value(experiment, key) for experiment in experiments]
        columns[key] = pa.array(values if _alike(values) else [None if v is None else str(v) for v in values])
    return columns


def _value(experiment: Experiment, key: str) -> object:
    given = experiment.parameters
    value = given[key] if key in given else value_in_force(experiment.settings, key)
    return in_words(value) if isinstance(value, Mapping | list | tuple) else value


def value_in_force(settings: Settings, key: str) -> object:
    """Return the value of a dotted key; for a table, a mapping of the keys set in it; None where there is none."""
    value: object = settings.values
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value.model_dump(exclude_none=True, exclude_defaults=True) if isinstance(value, BaseModel) else value


def _alike(values: Sequence[object]) -> bool:
    """Whether the values have one type; integers count as numbers."""
    kinds = {float if isinstance(v, int) and not isinstance(v, bool) else type(v) for v in values if v is not None}
    return len(kinds) <= 1


def in_words(value: Mapping[str, Any] | Sequence[Any]) -> str:
    """Return a table or a list in words, such as `90 % fast append, 10 % validated overwrite`."""
    if not isinstance(value, Mapping):
        return ", ".join(str(part) for part in value)
    total = sum(value.values()) if value and set(value) <= set(OPERATION_TYPES) else 0
    if total:
        shares = ((name, 100 * weight / total) for name, weight in value.items() if weight)
        return ", ".join(f"{share:.4g} % {name.replace('_', ' ')}" for name, share in shares)
    return ", ".join(f"{name} {part}" for name, part in value.items())
