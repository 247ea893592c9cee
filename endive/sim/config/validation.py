"""Validation errors as users read them: the key, what was expected, the nearest valid name."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from endive.sim.operations import OPERATION_TYPES
from endive.wording import nearest, suggestion

M = TypeVar("M", bound=BaseModel)

MISSING = "required"

CLASS_OF_ITS_OWN = "an operation with values of its own is a class: [workload.NAME] with its keys and operation_types"

RENAMED = {
    "catalog.mode": "catalog.type",
    "transaction.retries": "transaction.retry",
    "transaction.append_retries": "transaction.append_attempts",
    "transaction.T_MIN_RUNTIME": "transaction.runtime_fixed_ms",
    "storage.T_APPEND": "storage.latency.append",
    "storage.T_CAS": "storage.latency.cas",
    "storage.T_COMPACTION": "storage.latency.compaction_cas",
    "storage.T_LOG_ENTRY_READ": "catalog.log_entry_read_ms",
    "storage.T_METADATA_ROOT": "storage.latency.metadata_root_read",
    "storage.T_MANIFEST_FILE": "storage.latency.manifest_file_read",
    "storage.T_MANIFEST_LIST": "storage.latency.manifest_list_read",
    "storage.T_PUT": "storage.latency.write",
    "storage.T_TABLE_METADATA": "storage.latency.table_metadata_read",
}
"""Keys of the source documents, and common mistakes; docs/sources.md has the whole mapping."""
_OF_DOCUMENTS = {key.rpartition(".")[2]: meant for key, meant in RENAMED.items()}


@dataclass(frozen=True)
class InvalidKey:
    """One validation error: the key, the problem, and the key that was probably meant."""

    place: str
    problem: str = ""
    """Empty if `place` is the whole message."""
    meant: str | None = None
    of_section: bool = False
    """The error is of a whole section: an invalid key in the section may be its cause."""

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" if self.problem else self.place

    def explains(self, place: str) -> bool:
        """Whether an error at `place` is only a consequence of this one."""
        return place == self.place or (place.startswith(f"{self.place}.") and not self.of_section)

    def supplies(self, other: "InvalidKey") -> bool:
        """Whether `other` is missing only because this key, which is meant to be it, is misspelt."""
        if self.meant is None or not other.problem.startswith(MISSING):
            return False
        return other.place == self.meant or other.place.startswith(f"{self.meant}.")


def validated(model: type[M], data: object, prefix: str = "") -> tuple[M | None, list[InvalidKey]]:
    """Validate `data`. Return the model, if any part of it can be used, and every error found.

    Invalid keys are left out and the rest is validated again, so that rules between keys can be checked as well.
    """
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    invalid = without_consequences([_invalid_key(model, detail, prefix) for detail in details])
    remaining = data
    for detail in details:
        remaining = _without(remaining, detail["loc"])
    try:
        return model.model_validate(remaining), invalid
    except ValidationError:
        return None, invalid


def without_consequences(invalid: Sequence[InvalidKey]) -> list[InvalidKey]:
    """Leave out errors that follow from another one: a key that is missing because it is misspelt or invalid."""

    def is_consequence(number: int, one: InvalidKey) -> bool:
        others = [other for other in invalid if other.place != one.place]
        repeats = any(other.explains(one.place) for other in (*invalid[:number], *others))
        inside = one.of_section and any(other.place.startswith(f"{one.place}.") for other in others)
        return repeats or inside or any(other.supplies(one) for other in others)

    return [one for number, one in enumerate(invalid) if not is_consequence(number, one)]


def _invalid_key(model: type[BaseModel], detail: ErrorDetails, prefix: str) -> InvalidKey:
    path = [str(part) for part in detail["loc"]]
    place = ".".join([prefix, *path] if prefix else path)
    if detail["type"] == "extra_forbidden":
        hint, meant = _nearest_key(model, path)
        return InvalidKey(place, f"unknown key{hint}", f"{prefix}.{meant}" if prefix and meant else meant)
    return InvalidKey(place, _problem(model, path, detail))


def _problem(model: type[BaseModel], path: Sequence[str], detail: ErrorDetails) -> str:
    match detail["type"]:
        case "missing":
            return f"{MISSING}, but not there"
        case "literal_error":
            expected = detail["ctx"]["expected"]
            words = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
            found = str(detail["input"])
            return f"{found!r} is not one of {expected}{suggestion(found, words)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"expected {_example(model, path)}{_found(detail['input'])}"
        case _:
            message = detail["msg"].removeprefix("Value error, ")
            for stilted, plain in _PLAIN_WORDS.items():
                message = message.replace(stilted, plain)
            return f"{message[0].lower()}{message[1:]}{_found(detail['input'])}{_milliseconds(detail['input'])}"


_PLAIN_WORDS = {
    "Input should be": "expected",
    "a valid integer": "a whole number",
    "a valid number": "a number",
    "a valid string": "text",
    "a valid boolean": "true or false",
    "a valid tuple": "a list",
    "greater than or equal to": "at least",
    "less than or equal to": "at most",
    "greater than": "more than",
}


def _example(model: type[BaseModel], path: Sequence[str]) -> str:
    """Return an example of the expected table."""
    if "sigma" in _fields_at(model, path):
        return "a distribution, such as { median = 27, sigma = 0.62 } or { value = 5 }"
    return f"a table; `endive config keys {'.'.join(path)}` lists its keys"


_DURATION = re.compile(r"([0-9.]+) *(ms|s|min|m|h)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def _milliseconds(value: object) -> str:
    """Return a hint for a time with a unit, such as `"1s"`."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    return f"; times are numbers of milliseconds: {float(match[1]) * _UNITS_MS[match[2]]:g}" if match else ""


def _found(value: object) -> str:
    return "" if isinstance(value, Mapping) else f", but found {value!r}"


def _nearest_key(model: type[BaseModel], path: Sequence[str]) -> tuple[str, str | None]:
    """Return a hint, and the key that was probably meant."""
    place, last = ".".join(path), path[-1]
    known = RENAMED.get(place) or (_OF_DOCUMENTS.get(last) if last.startswith("T_") else None)
    if known is not None:
        return f"; did you mean {known!r}?", known
    if last in OPERATION_TYPES and "operation_types" not in path:
        return f"; {CLASS_OF_ITS_OWN}", None
    siblings = _fields_at(model, path[:-1])
    elsewhere = [key for key in all_keys(model) if key.rpartition(".")[2] == path[-1] and not _is_parameter(model, key)]
    close = nearest(path[-1], siblings, cutoff=0.8 if elsewhere else 0.6)
    if close is not None:
        return f"; did you mean {close!r}?", ".".join([*path[:-1], close])
    hint = f"it belongs at {elsewhere[0]!r}" if elsewhere else f"known here: {', '.join(siblings)}"
    return f"; {hint}", None


def _is_parameter(model: type[BaseModel], key: str) -> bool:
    """Whether a key is a parameter of a distribution, which may be anywhere."""
    return "sigma" in _fields_at(model, key.split(".")[:-1])


def _fields_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    for part in path:
        inner = inner_model(model, part)
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def inner_model(model: type[BaseModel], field: str) -> type[BaseModel] | None:
    """Return the model of a field that is itself a table, else None."""
    if field not in model.model_fields:
        return None
    annotation = model.model_fields[field].annotation
    if get_origin(annotation) is Mapping:  # tables by name, such as classes
        return None
    candidates = [annotation, *get_args(annotation)]
    return next((kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def all_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Return the dotted names of all keys, tables and values alike."""
    keys: list[str] = []
    for name in model.model_fields:
        inner = inner_model(model, name)
        keys.append(prefix + name)
        if inner:
            keys += all_keys(inner, f"{prefix}{name}.")
    return keys


def _without(data: object, path: Sequence[Any]) -> object:
    """Return `data` without the value at `path`."""
    if not path or not isinstance(data, Mapping) or path[0] not in data:
        return data
    rest = {key: value for key, value in data.items() if key != path[0]}
    return rest if len(path) == 1 else {**rest, path[0]: _without(data[path[0]], path[1:])}
