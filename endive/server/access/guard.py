"""Decides what a caller may do, by the grants in the catalog.

Grants are read from the state that this process knows, without a request; it is refreshed if it is older than
`REFRESH_S`. So a revoked privilege ends everywhere within that time. A refusal is decided on the newest state: a
privilege that was just granted, through another server or the command line, is there at once.

A table that a caller may not read is answered like one that does not exist.
"""

from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from time import monotonic
from typing import Literal

from endive.catalog.catalog import KVCatalog
from endive.catalog.model.grants import WAREHOUSE, Grantee, GrantsRecord, Place, Privilege
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.grant_rows import find_grants, names_by_uuid, uuid_in_store
from endive.errors import NotInCatalogError
from endive.protocol.requests import Steps
from endive.server.access.principals import Principal
from endive.server.errors import HttpError

REFRESH_S = 1.0
"""Greatest age of the grants that allow something."""

ObjectKind = Literal["table", "view"]


class GrantReader:
    """Reads grants of a catalog: at most one request to the store each `refresh_s`. Safe to use from many threads."""

    def __init__(
        self, catalog: KVCatalog, refresh_s: float = REFRESH_S, clock_s: Callable[[], float] = monotonic
    ) -> None:
        self.catalog = catalog
        self._refresh_s = refresh_s
        self._clock_s = clock_s
        self._fresh_at_s: float | None = None
        self._lock = Lock()

    def read(self, principal: Principal, newest: bool) -> tuple[GrantsRecord, ...]:
        """Return the grants of a caller. `newest`: on a state as new as this call."""

        def look(tx: StoreTransaction) -> Steps[tuple[GrantsRecord, ...]]:
            found = []
            for grantee in principal.grantees:
                record = yield from find_grants(tx, grantee)
                found.append(record)
            return tuple(found)

        now_s = self._clock_s()
        if newest or self._is_old(now_s):
            read = self.catalog.store.read(look)
            with self._lock:
                self._fresh_at_s = max(self._fresh_at_s or now_s, now_s)
            return read
        return self.catalog.store.read_cached(look)

    def _is_old(self, now_s: float) -> bool:
        with self._lock:
            return self._fresh_at_s is None or now_s - self._fresh_at_s > self._refresh_s


class Guard:
    """Decides for one request."""

    def __init__(self, reader: GrantReader, principal: Principal) -> None:
        self._reader = reader
        self._catalog = reader.catalog
        self.principal = principal
        self._is_newest = False
        self._grants: tuple[GrantsRecord, ...] | None = None
        self.pinned: dict[Identifier, Place] = {}
        """Tables and views that only grants of their own allow: another one may get the name at any time."""

        self.touched: list[Identifier] = []
        """The namespaces, tables and views that the request names, for the audit log."""

    def _records(self) -> tuple[GrantsRecord, ...]:
        if self._grants is None:
            self._grants = self._reader.read(self.principal, newest=False)
        return self._grants

    def _newest_first(self, decide: Callable[[], bool]) -> bool:
        """Return a decision; a refusal is made on the newest grants."""
        if self.principal.is_owner or decide():
            return True
        if self._is_newest:
            return False
        self._grants, self._is_newest = self._reader.read(self.principal, newest=True), True
        return decide()

    # Decisions.

    def may(self, privilege: Privilege, namespace: Identifier = ()) -> bool:
        """Whether the caller has a privilege on a namespace; without one, on the warehouse."""
        return self._newest_first(lambda: self._holds(privilege, _around(namespace)))

    def _holds(self, privilege: Privilege, places: Iterable[Place]) -> bool:
        records = self._records()
        return any(record.holds(privilege, place) for place in places for record in records)

    def may_on(self, privilege: Privilege, kind: ObjectKind, name: Identifier) -> bool:
        """Whether the caller has a privilege on a table or view, which need not exist."""
        return self.may(privilege, name[:-1]) or self._may_by_uuid(privilege, kind, name)

    def _may_by_uuid(self, privilege: Privilege, kind: ObjectKind, name: Identifier) -> bool:
        uuid = self._uuid(kind, name)
        if uuid is None or not self._holds(privilege, (Place(kind, uuid=uuid),)):
            return False
        self.pinned[name] = Place(kind, uuid=uuid)
        return True

    def _uuid(self, kind: ObjectKind, name: Identifier) -> str | None:
        return self._catalog.store.read_cached(lambda tx: uuid_in_store(tx, kind, name))

    def _sees_any(self, namespace: Identifier) -> bool:
        return any(self._holds(one, _around(namespace)) for one in Privilege)

    def sees(self, namespace: Identifier) -> bool:
        """Whether the caller has any privilege on a namespace, around it, or on something inside it."""
        return self._newest_first(lambda: self._sees_any(namespace) or namespace in self._ways())

    def _ways(self) -> set[Identifier]:
        """Return the namespaces that lead to something the caller has a grant on."""
        places = {place for record in self._records() for place in record.grants}
        inner = {place.namespace for place in places if place.kind == "namespace"}
        kinds: tuple[ObjectKind, ...] = ("table", "view")
        for kind in kinds:
            inner |= self._namespaces_of(kind, frozenset(place.uuid for place in places if place.kind == kind))
        return {namespace[:depth] for namespace in inner for depth in range(1, len(namespace) + 1)}

    def _namespaces_of(self, kind: ObjectKind, uuids: frozenset[str]) -> set[Identifier]:
        if not uuids:
            return set()
        found = self._catalog.store.read_cached(lambda tx: names_by_uuid(tx, kind, uuids))
        return {name[:-1] for name in found.values()}

    def has_some(self) -> bool:
        """Whether the caller has any grant in the warehouse."""
        return self._newest_first(lambda: any(record.grants for record in self._records()))

    # Refusals.

    def require(self, privilege: Privilege, namespace: Identifier = ()) -> None:
        """Refuse unless the caller has a privilege on a namespace, or on the warehouse."""
        self.touch(namespace)
        if not self.may(privilege, namespace):
            raise self.refused(privilege, f"namespace {text_of(namespace)}" if namespace else "the warehouse")

    def require_sight(self, namespace: Identifier) -> None:
        """Refuse unless the caller may know of a namespace."""
        if namespace and not self.sees(namespace):
            raise self.refused(Privilege.READ, f"namespace {text_of(namespace)}")

    def require_on(self, privilege: Privilege, kind: ObjectKind, name: Identifier) -> None:
        """Refuse unless the caller has a privilege on a table or view.

        One that does not exist is a 404 only for a caller who could see it there.
        """
        self.touch(name)
        if self.may_on(privilege, kind, name):
            return
        if not self._exists(kind, name) and (
            self.may(Privilege.READ, name[:-1]) or self.may(Privilege.CREATE, name[:-1])
        ):
            raise NotInCatalogError(kind.title(), text_of(name))
        raise self.refused(privilege, f"{kind} {text_of(name)}")

    def touch(self, name: Identifier) -> None:
        """Note a name for the audit log."""
        if name and name not in self.touched:
            self.touched.append(name)

    def _exists(self, kind: ObjectKind, name: Identifier) -> bool:
        return self._uuid(kind, name) is not None

    def refused(self, privilege: Privilege, what: str) -> HttpError:
        """Return the error of a caller without a privilege."""
        return HttpError(
            403,
            "ForbiddenException",
            f"{self.principal.name} has no privilege {privilege} on {what}, or it does not exist",
        )

    def require_some(self) -> None:
        """Refuse a caller without any grant in the warehouse."""
        if not self.has_some():
            raise self.refused(Privilege.READ, "the warehouse")

    def require_same_tables(self) -> None:
        """Refuse an answer about a table that meanwhile has another one's name, on which there is no grant."""
        for name, place in self.pinned.items():
            if self._uuid("view" if place.kind == "view" else "table", name) not in (place.uuid, None):
                raise self.refused(Privilege.READ, f"{place.kind} {text_of(name)}")

    # Ownership.

    def owner_in(self, namespace: Identifier) -> Grantee | None:
        """Return the grantee that is to manage what the caller creates in a namespace; None if it does anyway."""
        if self.may(Privilege.MANAGE, namespace):
            return None
        self._grants, self._is_newest = None, False  # the creation changes them
        return self.principal.grantees[0]

    def own(self, place: Place, namespace: Identifier) -> None:
        """Let the caller manage what it has created in a namespace by a commit."""
        owner = self.owner_in(namespace)
        if owner is not None:
            self._catalog.grants.grant(owner, (Privilege.MANAGE,), place)

    # Lists.

    def visible_namespaces(self, found: Iterable[Identifier]) -> list[Identifier]:
        """Return the namespaces that the caller may know of."""
        if self.principal.is_owner:
            return list(found)
        self.sees(())  # on the newest grants, unless the caller has one on the warehouse
        ways = self._ways()
        return [one for one in found if one in ways or self._sees_any(one)]

    def visible(self, kind: ObjectKind, namespace: Identifier, found: Iterable[Identifier]) -> list[Identifier]:
        """Return the tables or views of a namespace that the caller may read."""
        if self.may(Privilege.READ, namespace):
            return list(found)
        return list(self._granted(kind, found))

    def _granted(self, kind: ObjectKind, found: Iterable[Identifier]) -> Iterator[Identifier]:
        for name in found:
            uuid = self._uuid(kind, name)
            if uuid is not None and self._holds(Privilege.READ, (Place(kind, uuid=uuid),)):
                yield name


def _around(namespace: Identifier) -> Iterator[Place]:
    """Return the warehouse, the namespaces around one, and the namespace itself."""
    yield WAREHOUSE
    for depth in range(1, len(namespace) + 1):
        yield Place("namespace", namespace[:depth])
