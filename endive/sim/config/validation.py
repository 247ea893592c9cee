"""Faults of a configuration, for people: the place, what was expected, the nearest valid name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from endive.wording import nearest, suggestion

M = TypeVar("M", bound=BaseModel)

MISSING = "required"

RENAMED = {"catalog.mode": "catalog.type", "transaction.retries": "transaction.retry"}
"""Names that other documents and habits use for a key."""


@dataclass(frozen=True)
class Fault:
    """One fault: the key, what is wrong with it, and the key that was probably meant."""

    place: str
    problem: str = ""
    """Empty where `place` says it already."""
    meant: str | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}" if self.problem else self.place

    def explains(self, place: str) -> bool:
        """Whether a fault at `place` is but a consequence of this one."""
        return place == self.place or place.startswith(f"{self.place}.")

    def supplies(self, other: "Fault") -> bool:
        """Whether `other` is missing only because this key, which is meant to be it, is misspelt."""
        if self.meant is None or not other.problem.startswith(MISSING):
            return False
        return other.place == self.meant or other.place.startswith(f"{self.meant}.")


def faults_of(model: type[M], data: object, prefix: str = "") -> tuple[M | None, list[Fault]]:
    """Validate `data`. Return the model, if any part of it can be used, and every fault found.

    Faulty keys are left out and the rest is validated again, so that rules between keys can be checked as well.
    """
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    faults = without_consequences([_fault(model, detail, prefix) for detail in details])
    remaining = data
    for detail in details:
        remaining = _without(remaining, detail["loc"])
    try:
        return model.model_validate(remaining), faults
    except ValidationError:
        return None, faults


def without_consequences(faults: Sequence[Fault]) -> list[Fault]:
    """Leave out what only repeats another fault: a key that is missing because it is misspelt, or because it is bad."""

    def is_consequence(number: int, fault: Fault) -> bool:
        others = [other for other in faults if other.place != fault.place]
        repeats = any(other.explains(fault.place) for other in (*faults[:number], *others))
        return repeats or any(other.supplies(fault) for other in others)

    return [fault for number, fault in enumerate(faults) if not is_consequence(number, fault)]


def _fault(model: type[BaseModel], detail: ErrorDetails, prefix: str) -> Fault:
    path = [str(part) for part in detail["loc"]]
    place = ".".join([prefix, *path] if prefix else path)
    if detail["type"] == "extra_forbidden":
        hint, meant = _nearest_key(model, path)
        return Fault(place, f"unknown key{hint}", f"{prefix}.{meant}" if prefix and meant else meant)
    return Fault(place, _problem(model, path, detail))


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
            return f"{message[0].lower()}{message[1:]}{_found(detail['input'])}"


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
    """Return what a table looks like at that place."""
    if "sigma" in _fields_at(model, path):
        return "a distribution, such as { median = 27, sigma = 0.62 } or { value = 5 }"
    return f"a table; `endive config keys {'.'.join(path)}` lists its keys"


def _found(value: object) -> str:
    return "" if isinstance(value, Mapping) else f", but found {value!r}"


def _nearest_key(model: type[BaseModel], path: Sequence[str]) -> tuple[str, str | None]:
    """Return a hint, and the key that was probably meant."""
    place = ".".join(path)
    if place in RENAMED:
        return f"; did you mean {RENAMED[place]!r}?", RENAMED[place]
    siblings = _fields_at(model, path[:-1])
    elsewhere = [key for key in all_keys(model) if key.rpartition(".")[2] == path[-1] and not _is_parameter(model, key)]
    close = nearest(path[-1], siblings, cutoff=0.8 if elsewhere else 0.6)
    if close is not None:
        return f"; did you mean {close!r}?", ".".join([*path[:-1], close])
    hint = f"it belongs at {elsewhere[0]!r}" if elsewhere else f"known here: {', '.join(siblings)}"
    return f"; {hint}", None


def _is_parameter(model: type[BaseModel], key: str) -> bool:
    """Whether a key is a distribution's: those belong anywhere."""
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
