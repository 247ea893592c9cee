"""The grants of a catalog: add, remove, list."""

from collections.abc import Iterable
from dataclasses import dataclass

from endive.catalog.model.grants import WAREHOUSE, Grantee, Place, Privilege
from endive.catalog.model.names import Identifier, namespace_of, table_of, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.grant_rows import add_grant, all_grants, names_by_uuid, remove_grant, uuid_in_store
from endive.catalog.operations.namespaces import namespace_exists
from endive.catalog.operations.retries import retrying
from endive.errors import NotInCatalogError
from endive.protocol.requests import Steps


@dataclass(frozen=True, slots=True)
class NamedGrant:
    """A grant with the current name of its place."""

    grantee: Grantee
    place: Place
    name: str
    """Empty for the warehouse."""
    privileges: tuple[Privilege, ...]


class Grants:
    """The grants of a catalog. They restrict the callers of a server, and no process that has the bucket's keys."""

    def __init__(self, store: TransactionalStore) -> None:
        self._store = store

    def place(
        self,
        namespace: str | Identifier | None = None,
        table: str | Identifier | None = None,
        view: str | Identifier | None = None,
    ) -> Place:
        """Return the place of a namespace, table or view that exists; without argument, the warehouse."""
        if table is not None:
            return self._object("table", table_of(table))
        if view is not None:
            return self._object("view", table_of(view))
        if namespace is None:
            return WAREHOUSE
        levels = namespace_of(namespace)
        if not self._store.read(lambda tx: namespace_exists(tx, levels)):
            raise NotInCatalogError("Namespace", text_of(levels))
        return Place("namespace", levels)

    def _object(self, kind: str, name: Identifier) -> Place:
        uuid = self._store.read(lambda tx: uuid_in_store(tx, kind, name))
        if uuid is None:
            raise NotInCatalogError(kind.title(), text_of(name))
        return Place("table" if kind == "table" else "view", uuid=uuid)

    def grant(self, grantee: Grantee, privileges: Iterable[Privilege], place: Place = WAREHOUSE) -> list[Privilege]:
        """Grant privileges; return those that are new."""
        asked = frozenset(privileges)
        return sorted(retrying(lambda: self._store.transact(lambda tx: add_grant(tx, grantee, place, asked))))

    def revoke(self, grantee: Grantee, privileges: Iterable[Privilege], place: Place = WAREHOUSE) -> list[Privilege]:
        """Revoke privileges at the place where they were granted; return those that were there."""
        asked = frozenset(privileges)
        return sorted(retrying(lambda: self._store.transact(lambda tx: remove_grant(tx, grantee, place, asked))))

    def list(self) -> list[NamedGrant]:
        """Return all grants."""

        def look(tx: StoreTransaction) -> Steps[list[NamedGrant]]:
            records = yield from all_grants(tx)
            names: dict[Place, str] = {}
            for kind in ("table", "view"):
                places = {on.uuid: on for record in records for on in record.grants if on.kind == kind}
                found = yield from names_by_uuid(tx, kind, frozenset(places))
                names |= {places[uuid]: text_of(name) for uuid, name in found.items()}
            return [
                NamedGrant(record.grantee, on, names.get(on) or text_of(on.namespace) or on.uuid, tuple(sorted(held)))
                for record in records
                for on, held in sorted(record.grants.items())
            ]

        return self._store.read(look)
