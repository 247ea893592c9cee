"""Reference of the configuration keys, generated from the schema: type, default and meaning of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from endive.errors import ConfigurationError
from endive.sim.config.distributions import DistributionSection
from endive.sim.config.schema import Configuration
from endive.wording import suggestion

DISTRIBUTION = "distribution"
"""Prefix that lists the parameters of distributions."""


@dataclass(frozen=True)
class Key:
    """One key of the configuration file."""

    name: str
    takes: str
    default: str
    """Empty if another key decides, or if there is none."""
    meaning: str


def keys(prefix: str = "") -> list[Key]:
    """Return the keys below `prefix`: all of them, a section's, or the one of that name."""
    if prefix == DISTRIBUTION:
        return [_key(DISTRIBUTION, name, info, None) for name, info in DistributionSection.model_fields.items()]
    known = list(_walk(Configuration(), ""))
    chosen = [key for key in known if not prefix or key.name == prefix or key.name.startswith(f"{prefix.rstrip('.')}.")]
    if not chosen:
        names = {key.name for key in known} | {key.name.rpartition(".")[0] for key in known}
        same = [name for name in sorted(names) if name.rpartition(".")[2] == prefix]
        hint = f"; did you mean {same[0]!r}?" if same else suggestion(prefix, sorted(names))
        raise ConfigurationError(
            "endive config keys", [f"no key {prefix!r}{hint or '; without a name, all are listed'}"]
        )
    return chosen


def _walk(section: BaseModel, prefix: str) -> Iterator[Key]:
    for name, info in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Mapping):
            yield Key(f"{name}.NAME", "table with the keys of `transaction`", "", info.description or "")
        elif isinstance(value, BaseModel) and not isinstance(value, DistributionSection):
            yield from _walk(value, f"{prefix}{name}.")
        else:
            yield _key(prefix.rstrip("."), name, info, value)


def _key(section: str, name: str, info: FieldInfo, value: object) -> Key:
    return Key(f"{section}.{name}", _takes(info.annotation, list(info.metadata)), _toml(value), info.description or "")


def _takes(annotation: Any, limits: list[Any]) -> str:  # noqa: ANN401 - whatever a schema may say
    """Return the type of a key: the words to choose from, or the type and its range."""
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        nested = [limit for note in notes for limit in getattr(note, "metadata", [note])]
        return _takes(inner, [*nested, *limits])
    if get_origin(annotation) in (Union, UnionType):
        return _takes(next(kind for kind in get_args(annotation) if kind is not NoneType), limits)
    if get_origin(annotation) is Literal:
        return " | ".join(map(str, get_args(annotation)))
    if get_origin(annotation) is tuple:
        inner = get_args(annotation)[0]
        return "list of pairs" if get_origin(inner) is tuple else f"list of {_takes(inner, [])}"
    return f"{_TYPES.get(annotation, 'table')}{_range(limits)}"


_TYPES: dict[Any, str] = {
    bool: "true | false",
    int: "whole number",
    float: "number",
    str: "text",
    DistributionSection: DISTRIBUTION,
}


def _range(limits: list[Any]) -> str:
    """Return the range in words, without upper limits that only catch typing errors."""
    low = [f"above {limit.gt}" for limit in limits if getattr(limit, "gt", None) is not None]
    low += [f"at least {limit.ge}" for limit in limits if getattr(limit, "ge", 0)]
    high = [f"at most {limit.le}" for limit in limits if getattr(limit, "le", 1e9) <= 20]
    return "".join(f", {words}" for words in [*low[-1:], *high[-1:]])


def _toml(value: object) -> str:
    """Return a default as it would be written in the file."""
    if value is None or value == "":
        return ""
    if isinstance(value, DistributionSection):
        given = value.model_dump(exclude_none=True)
        return "{ " + ", ".join(f"{name} = {_toml(part)}" for name, part in given.items()) + " }"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.15g}" if isinstance(value, float) else str(value)
