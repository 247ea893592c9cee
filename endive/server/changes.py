"""From the JSON of a commit to the catalog's change: unknown updates, requirements and fields are refused by name.

The catalog keeps what PyIceberg's models can hold. A field that they would drop without a word, such as the key of an
encrypted snapshot, is refused here: a client must find again what it has sent.
"""

from typing import Any

from pydantic import TypeAdapter
from pyiceberg.table.update import RemovePropertiesUpdate, TableRequirement, TableUpdate

from endive.catalog.commit.change import RemovePropertiesIfPresent, TableChange
from endive.catalog.model.names import Identifier
from endive.server.errors import bad_request, not_acceptable
from endive.server.messages import CommitTable, Json
from endive.server.structures import PARSE_ERRORS, first_problem, require_kept, require_known

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

OBJECTS = {
    "add-schema": "schema",
    "add-spec": "spec",
    "add-sort-order": "sort-order",
    "set-statistics": "statistics",
    "set-partition-statistics": "partition-statistics",
}
"""Updates with an object that may have fields of later versions of the format."""


def change_of(identifier: Identifier, asked: CommitTable) -> TableChange:
    """Return the change that a commit asks for."""
    _check_identifier(identifier, asked)
    for update in asked.updates:
        _check_update(update)
    try:
        requirements = _requirements.validate_python(asked.requirements)
        updates = _updates.validate_python(asked.updates)
    except PARSE_ERRORS as error:
        raise bad_request(f"Cannot parse the commit: {first_problem(error)}") from error
    for sent, model in zip(asked.updates, updates, strict=True):
        _check_kept(sent, model)
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
    require_known(update.get(OBJECTS.get(action, "")))
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


def _check_kept(sent: Json, model: Any) -> None:  # noqa: ANN401 - PyIceberg's union of updates
    """Refuse an object with a field that the catalog would lose."""
    name = OBJECTS.get(sent["action"])
    if name is not None:
        attribute = "schema_" if name == "schema" else name.replace("-", "_")
        require_kept(sent[name], getattr(model, attribute), name)
