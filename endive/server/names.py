"""Names and ids between JSON and the catalog."""

from uuid import UUID

from endive.catalog.model.names import Identifier
from endive.server.errors import bad_request


def name_json(identifier: Identifier) -> dict[str, object]:
    """Return the JSON of a table's or view's name."""
    return {"namespace": identifier[:-1], "name": identifier[-1]}


def uuid_of(commit_id: str | None) -> UUID | None:
    """Return the uuid of a table that is created under an idempotency key: a retry recognises its table by it."""
    if commit_id is None:
        return None
    try:
        return UUID(commit_id)
    except ValueError as error:
        raise bad_request(f"The Idempotency-Key {commit_id!r} is not a UUID") from error
