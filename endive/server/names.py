"""Names and ids between JSON and the catalog."""

from uuid import UUID

from endive.catalog.model.names import Identifier
from endive.server.errors import bad_request


def name_json(identifier: Identifier) -> dict[str, object]:
    """Return the JSON of a table's or view's name."""
    return {"namespace": identifier[:-1], "name": identifier[-1]}


def uuid_of(text: str | None) -> UUID | None:
    """Return the uuid of a table to be created: a client's own, or its idempotency key; None without one."""
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError as error:
        raise bad_request(f"{text!r}, an Idempotency-Key or a table's uuid, is not a UUID") from error
