"""Faults of a configuration, for people: the place, what was expected, the nearest valid name."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)

RENAMED = {"catalog.mode": "catalog.type", "transaction.retries": "transaction.retry"}
"""Names that other documents and habits use for a key."""


def faults_of(model: type[M], data: object, prefix: str = "") -> tuple[M | None, list[str]]:
    """Validate `data`. Return the model, if any part of it can be used, and every fault found.

    Faulty keys are left out and the rest is validated again, so that rules between keys can be checked as well.
    """
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    faults = [_sentence(model, detail, prefix) for detail in details]
    remaining = data
    for detail in details:
        remaining = _without(remaining, detail["loc"])
    try:
        return model.model_validate(remaining), faults
    except ValidationError:
        return None, faults


def suggestion(word: str, words: Iterable[str]) -> str:
    """Return "; did you mean ...?" if one of `words` is close to `word`, else nothing."""
    close = get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _sentence(model: type[BaseModel], detail: ErrorDetails, prefix: str) -> str:
    path = [str(part) for part in detail["loc"]]
    place = ".".join(([prefix] if prefix else []) + path)
    match detail["type"]:
        case "extra_forbidden":
            return f"{place}: unknown key{_nearest_key(model, path)}"
        case "missing":
            return f"{place}: required, but not there"
        case "literal_error":
            expected = detail["ctx"]["expected"]
            words = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
            found = str(detail["input"])
            return f"{place}: {found!r} is not one of {expected}{suggestion(found, words)}"
        case _:
            message = detail["msg"].removeprefix("Value error, ")
            return f"{place}: {message[0].lower()}{message[1:]}{_found(detail['input'])}"


def _found(value: object) -> str:
    return "" if isinstance(value, Mapping) else f", but found {value!r}"


def _nearest_key(model: type[BaseModel], path: Sequence[str]) -> str:
    place = ".".join(path)
    if place in RENAMED:
        return f"; did you mean {RENAMED[place]!r}?"
    siblings = _fields_at(model, path[:-1])
    near = suggestion(path[-1], siblings)
    if near:
        return near
    elsewhere = [key for key in all_keys(model) if key.rpartition(".")[2] == path[-1]]
    return f"; it belongs at {elsewhere[0]!r}" if elsewhere else f"; known here: {', '.join(siblings)}"


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
