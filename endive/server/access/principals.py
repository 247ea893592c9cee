"""The caller of a request."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from uuid import NAMESPACE_OID, UUID, uuid5

from endive.catalog.model.grants import Grantee


@dataclass(frozen=True)
class Principal:
    """A caller: its name, and the groups that it belongs to."""

    name: str
    groups: tuple[str, ...] = ()
    is_owner: bool = False
    """Whether it may do everything without a grant: the process that embeds a server, or anybody on a server without
    authentication."""

    @cached_property
    def grantees(self) -> tuple[Grantee, ...]:
        """The names that its grants are under."""
        return (Grantee("user", self.name), *(Grantee("group", one) for one in self.groups))

    def request_id(self, key: str) -> str:
        """Return the id of a request under an idempotency key of this caller.

        No other caller has it, whatever key it sends. The id of a creation becomes the uuid of a table, and a caller
        must not be able to choose it: with another table's uuid it would be answered with that table, as the retry of
        its creation.
        """
        return key if self.is_owner else str(uuid5(NAMESPACE_OID, f"{self.name}\x1f{key}"))

    def staged_uuid(self, random: UUID) -> UUID:
        """Return a uuid for a table that this caller stages: its last digits bind it to the caller.

        The client sends it back when it creates the table. With the uuid of a dropped table a caller would own that
        table once a checkpoint brings it back.
        """
        start = random.hex[:20]
        return UUID(start + sha256(f"{self.name}\x1f{start}".encode()).hexdigest()[:12])

    def has_staged(self, uuid: UUID) -> bool:
        """Whether a uuid is one that this caller was given."""
        return self.staged_uuid(uuid) == uuid


OWNER = Principal("owner", is_owner=True)
ANYBODY = Principal("anybody", is_owner=True)
"""The caller of a server without authentication."""
