"""The caller of a request."""

from dataclasses import dataclass
from functools import cached_property
from uuid import NAMESPACE_OID, uuid5

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

    def creation_id(self, key: str) -> str:
        """Return the id of a creation under an idempotency key of this caller.

        It becomes the uuid of a table. A caller must not be able to choose it: with another table's uuid it would be
        answered with that table, as the retry of its creation.
        """
        return key if self.is_owner else str(uuid5(NAMESPACE_OID, f"{self.name}\x1f{key}"))


OWNER = Principal("owner", is_owner=True)
ANYBODY = Principal("anybody", is_owner=True)
"""The caller of a server without authentication."""
