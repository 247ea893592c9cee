"""Schemas, partition specs and sort orders as JSON: what the catalog could not keep is refused by name.

The catalog keeps what PyIceberg's models can hold. They do not know some types and transforms of format 3, and would
drop fields that they do not know: a client must find again what it has sent.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, ValidationError
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import UnknownTransform

from endive.server.errors import bad_request, not_acceptable
from endive.server.messages import Json

PARSE_ERRORS = (
    ValidationError,
    IcebergValidationError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
)
"""Errors of PyIceberg's models for JSON that they cannot parse."""
NAME_CHARACTERS_MAX = 100
"""Characters of a client's name in a message."""


def parsed(kind: Any, value: Json, name: str) -> Any:  # noqa: ANN401 - PyIceberg's models
    """Return a schema, spec or sort order."""
    require_known(value)
    try:
        model = kind.model_validate(value)
    except PARSE_ERRORS as error:
        raise bad_request(f"Cannot parse {name}: {first_problem(error)}") from error
    require_kept(value, model, name)
    return model


def require_known(value: Any) -> None:  # noqa: ANN401 - JSON
    """Refuse types that the catalog does not know, and transforms with several arguments."""
    for text in _types_in(value):
        if not _is_known_type(text):
            raise not_acceptable(f"the type {text[:NAME_CHARACTERS_MAX]!r}")
    fields = value.get("fields") if isinstance(value, dict) else None
    for one in fields if isinstance(fields, list) else ():
        sources = one.get("source-ids") if isinstance(one, dict) else None
        if isinstance(sources, list) and len(sources) > 1:
            transform = str(one.get("transform"))[:NAME_CHARACTERS_MAX]
            raise not_acceptable(f"a transform of several columns: {transform!r} of {len(sources)}")


def require_kept(sent: Json, model: Any, name: str) -> None:  # noqa: ANN401 - PyIceberg's models
    """Refuse an object with a field or a transform that its model does not hold."""
    if isinstance(model, PartitionSpec | SortOrder):
        fields: Sequence[PartitionField | SortField] = model.fields
        for text, field in zip((one.get("transform") for one in sent.get("fields", ())), fields, strict=False):
            if isinstance(field.transform, UnknownTransform):
                raise not_acceptable(f"the transform {str(text)[:NAME_CHARACTERS_MAX]!r}")
    lost = lost_field(sent, BaseModel.model_dump(model, mode="json", by_alias=True))
    if lost is not None:
        raise not_acceptable(f"the field {lost!r} in a {name}")


def _types_in(node: Any) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Return the names of the primitive types in a schema or a type."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict):
        fields = node.get("fields") if node.get("type") == "struct" else None
        for field in fields if isinstance(fields, list) else ():
            yield from _types_in(field.get("type") if isinstance(field, dict) else None)
        for part in ("element", "key", "value"):
            yield from _types_in(node.get(part))


@lru_cache(maxsize=1024)
def _is_known_type(text: str) -> bool:
    try:
        Schema.model_validate(
            {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "type": text, "required": False}]}
        )
    except PARSE_ERRORS:
        return False
    return True


def lost_field(sent: Any, kept: Any) -> str | None:  # noqa: ANN401 - JSON
    """Return the first field of a JSON value that another one does not have; None if it has all."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for name, value in sent.items():
            if name not in kept:
                if value is None or value == []:
                    continue
                return str(name)
            found = lost_field(value, kept[name])
            if found is not None:
                return found
    if isinstance(sent, list) and isinstance(kept, Sequence):
        for one, other in zip(sent, kept, strict=False):
            found = lost_field(one, other)
            if found is not None:
                return found
    return None


def first_problem(error: Exception) -> str:
    """Return the first line that says what is wrong, with its place."""
    if isinstance(error, ValidationError):
        one = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
    return str(error).partition("\n")[0] or type(error).__name__
