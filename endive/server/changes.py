"""From the JSON of a commit to the catalog's change: unknown updates, requirements and fields are refused by name.

The catalog keeps what PyIceberg's models can hold. A field that they would drop without a word, such as the key of an
encrypted snapshot, is refused here: a client must find again what it has sent.
"""

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pyiceberg.table.update import RemovePropertiesUpdate, TableRequirement, TableUpdate

from endive.catalog.commit.change import RemovePropertiesIfPresent, TableChange
from endive.catalog.model.names import Identifier
from endive.server.errors import bad_request, not_acceptable
from endive.server.messages import CommitTable, Json

_updates: TypeAdapter[tuple[TableUpdate, ...]] = TypeAdapter(tuple[TableUpdate, ...])
_requirements: TypeAdapter[tuple[TableRequirement, ...]] = TypeAdapter(tuple[TableRequirement, ...])

NOT_SUPPORTED = {
    "add-encryption-key": "table encryption",
    "remove-encryption-key": "table encryption",
}
"""Updates of the specification that the catalog does not have."""

SNAPSHOT_FIELDS = frozenset(
    (
        "snapshot-id",
        "parent-snapshot-id",
        "sequence-number",
        "timestamp-ms",
        "manifest-list",
        "summary",
        "schema-id",
        "first-row-id",
        "added-rows",
    )
)

WITH_PATHS = ("snapshot", "statistics", "partition-statistics")
"""Parts of updates that name files."""

STRUCTURES = {"add-schema": "schema", "add-spec": "spec", "add-sort-order": "sort-order"}
"""Updates with an object that may have fields of later versions of the format."""


def change_of(identifier: Identifier, asked: CommitTable) -> TableChange:
    """Return the change that a commit asks for."""
    _check_identifier(identifier, asked)
    for update in asked.updates:
        _check_update(update)
    try:
        requirements = _requirements.validate_python(asked.requirements)
        updates = _updates.validate_python(asked.updates)
    except (ValidationError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise bad_request(_first_line(error)) from error
    for sent, model in zip(asked.updates, updates, strict=True):
        _check_structure(sent, model)
    lenient = tuple(
        RemovePropertiesIfPresent(removals=one.removals) if isinstance(one, RemovePropertiesUpdate) else one
        for one in updates
    )
    return TableChange(identifier, requirements, lenient)


def _check_identifier(identifier: Identifier, asked: CommitTable) -> None:
    """Refuse a body that names another table than the path."""
    if asked.identifier is not None and (*asked.identifier.namespace, asked.identifier.name) != identifier:
        raise bad_request(f"The path names the table {'.'.join(identifier)}, and the body another one")


def _check_update(update: Json) -> None:
    action = update.get("action")
    if not isinstance(action, str):
        raise bad_request(f"An update has no action: {action!r}")
    if action in NOT_SUPPORTED:
        raise not_acceptable(f"{NOT_SUPPORTED[action]}: update {action!r}")
    _check_names(update)
    if action == "add-snapshot" and isinstance(update.get("snapshot"), dict):
        unknown = sorted(update["snapshot"].keys() - SNAPSHOT_FIELDS)
        if unknown:
            raise not_acceptable(f"the field {unknown[0]!r} of a snapshot")


def _check_names(update: Json) -> None:
    """Refuse Python's spelling of a field (`statistics_path`), which PyIceberg's models take and other checks miss."""
    for part in (update, *(update.get(name) for name in WITH_PATHS)):
        python_name = next((name for name in part if "_" in name), None) if isinstance(part, dict) else None
        if python_name is not None:
            raise bad_request(f"Unknown field of the update {update['action']!r}: {python_name!r}")


def _check_structure(sent: Json, model: Any) -> None:  # noqa: ANN401 - PyIceberg's union of updates
    """Refuse a schema, spec or sort order with a field that the catalog would lose."""
    name = STRUCTURES.get(sent["action"])
    if name is not None:
        kept = BaseModel.model_dump(model, mode="json", by_alias=True)[name]
        lost = lost_field(sent[name], kept)
        if lost is not None:
            raise not_acceptable(f"the field {lost!r} in a {name}")


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


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        one = error.errors(include_url=False)[0]
        return f"Cannot parse {'.'.join(map(str, one['loc']))}: {one['msg']}"
    return f"Cannot parse the commit: {error}"
