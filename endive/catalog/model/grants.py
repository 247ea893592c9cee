"""Grants: which users and groups may do what, and where.

A grant gives privileges on the warehouse, on a namespace or on one table or view. Privileges on the warehouse hold for
everything in it, those on a namespace for all that is inside it at any depth. Grants only add up; nothing takes a
privilege away from an inner place.

Grants on tables and views are under their uuids: they follow a rename, and a table that gets the name of a dropped one
has none of its grants. What a table has from its namespace follows the table's current name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic_core import from_json, to_json

from endive.catalog.model.encoding import DecodeCache, decodes
from endive.catalog.model.names import Identifier, text_of
from endive.errors import ConfigurationError


class Privilege(StrEnum):
    """A right that a grant gives."""

    READ = "read"
    """Load tables and views, and read their files."""
    WRITE = "write"
    """Commit to tables and views, and all of `read`."""
    CREATE = "create"
    """Create tables, views and namespaces inside. The creator manages what it has created."""
    MANAGE = "manage"
    """Everything: drop, rename, change a namespace's properties, choose locations; on the warehouse, register files."""


IMPLIED_BY = {
    Privilege.READ: frozenset((Privilege.READ, Privilege.WRITE, Privilege.MANAGE)),
    Privilege.WRITE: frozenset((Privilege.WRITE, Privilege.MANAGE)),
    Privilege.CREATE: frozenset((Privilege.CREATE, Privilege.MANAGE)),
    Privilege.MANAGE: frozenset((Privilege.MANAGE,)),
}
"""The privileges that include each one."""

Kind = Literal["warehouse", "namespace", "table", "view"]


@dataclass(frozen=True, slots=True)
class Grantee:
    """A user or a group."""

    kind: Literal["user", "group"]
    name: str

    @staticmethod
    def parsed(text: str) -> "Grantee":
        """Return the grantee of a text: `group:NAME`, or a user's name."""
        is_group = text.startswith("group:")
        name = text.removeprefix("group:") if is_group else text
        if not name.strip():
            raise ConfigurationError("a grantee", ["its name is empty: write NAME, or group:NAME"])
        return Grantee("group" if is_group else "user", name)

    def __str__(self) -> str:
        return f"group:{self.name}" if self.kind == "group" else self.name


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a grant holds."""

    kind: Kind
    namespace: Identifier = ()
    """The levels of a namespace; of nothing else."""
    uuid: str = ""
    """The uuid of a table or view, with its dashes; of nothing else."""

    def __str__(self) -> str:
        return {"warehouse": "the warehouse", "namespace": text_of(self.namespace)}.get(self.kind, self.uuid)


WAREHOUSE = Place("warehouse")


@dataclass(frozen=True, slots=True)
class GrantsRecord:
    """All grants of a user or a group."""

    grantee: Grantee
    grants: dict[Place, frozenset[Privilege]]
    """It is shared: do not change it."""

    def holds(self, privilege: Privilege, place: Place) -> bool:
        """Whether a privilege is granted at a place itself, by its own name or by one that includes it."""
        return not IMPLIED_BY[privilege].isdisjoint(self.grants.get(place, ()))

    def changed(self, place: Place, privileges: Iterable[Privilege]) -> "GrantsRecord":
        """Return the grants with other privileges at a place; none: without the place."""
        grants = {known: held for known, held in self.grants.items() if known != place}
        chosen = frozenset(privileges)
        return GrantsRecord(self.grantee, {**grants, place: chosen} if chosen else grants)

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json(
            {
                "kind": self.grantee.kind,
                "name": self.grantee.name,
                "grants": [
                    {"on": on.kind, "namespace": on.namespace, "uuid": on.uuid, "privileges": sorted(held)}
                    for on, held in sorted(self.grants.items())
                ],
            }
        )

    @staticmethod
    def decoded(body: bytes) -> "GrantsRecord":
        """Return the record of a JSON."""
        return _cache(body)


@decodes("the record of grants")
def _decoded(body: bytes) -> GrantsRecord:
    fields = from_json(body)
    grants = {
        Place(one["on"], tuple(one["namespace"]), one["uuid"]): frozenset(map(Privilege, one["privileges"]))
        for one in fields["grants"]
    }
    return GrantsRecord(Grantee(fields["kind"], fields["name"]), grants)


_cache: DecodeCache[GrantsRecord] = DecodeCache(_decoded, bytes_max=4 * 1024 * 1024)
