"""Namespaces: transaction functions, and the operations of a catalog.

A namespace exists if it has a record, or if a namespace, a table or a view inside it does: `create` of `a.b` makes `a`
exist, as in PyIceberg's SQL catalog. It can be dropped when it holds neither tables nor views nor namespaces.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from endive.catalog.model.catalog_records import NamespaceRecord
from endive.catalog.model.grants import Grantee, Place
from endive.catalog.model.keys import (
    namespace_from,
    namespace_key,
    namespaces_below,
    table_from,
    tables_below,
    tables_in,
    view_from,
    views_below,
    views_in,
)
from endive.catalog.model.names import Identifier, namespace_of, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.grant_rows import forget_place, own
from endive.catalog.operations.requests import digest_of, keyed, once, recorded
from endive.catalog.operations.retries import dropping, retrying
from endive.errors import AlreadyInCatalogError, ConfigurationError, NamespaceNotEmptyError, NotInCatalogError
from endive.protocol.requests import Steps


@dataclass(frozen=True, slots=True)
class PropertiesChange:
    """Which keys a change of properties removed, set, and did not find to remove."""

    removed: tuple[str, ...]
    updated: tuple[str, ...]
    missing: tuple[str, ...]


def namespace_exists(tx: StoreTransaction, namespace: Identifier) -> Steps[bool]:
    """Whether there is such a namespace."""
    if (yield from tx.get(namespace_key(namespace))) is not None:
        return True
    inside = (namespaces_below, tables_in, tables_below, views_in, views_below)
    for prefix in (of(namespace) for of in inside):
        rows = yield from tx.scan(prefix)
        if rows:
            return True
    return False


def require_namespace(tx: StoreTransaction, namespace: Identifier) -> Steps[None]:
    """Raise if there is no such namespace."""
    exists = yield from namespace_exists(tx, namespace)
    if not exists:
        raise NotInCatalogError("Namespace", text_of(namespace))


def create_namespace(
    tx: StoreTransaction,
    namespace: Identifier,
    properties: Mapping[str, str],
    creation_id: str,
    owner: Grantee | None = None,
) -> Steps[None]:
    """Create a namespace. `owner`: will manage it.

    Grants on a namespace that vanished with the last thing inside it, or with a restore, are not those of this one.
    """
    body = yield from tx.get(namespace_key(namespace))
    if body is not None and NamespaceRecord.decoded(body).creation_id == creation_id:
        return  # created by an earlier try of this call, whose outcome was unknown
    exists = yield from namespace_exists(tx, namespace)
    if exists:
        raise AlreadyInCatalogError("Namespace", text_of(namespace))
    outermost = 1
    while outermost < len(namespace) and (yield from namespace_exists(tx, namespace[:outermost])):
        outermost += 1
    new = (Place("namespace", namespace[:depth]) for depth in range(outermost, len(namespace) + 1))
    yield from forget_place(tx, *new)
    yield from own(tx, owner, Place("namespace", namespace))
    tx.put(namespace_key(namespace), NamespaceRecord(namespace, dict(properties), creation_id).encoded())


def drop_namespace(tx: StoreTransaction, namespace: Identifier) -> Steps[None]:
    """Drop an empty namespace."""
    yield from require_namespace(tx, namespace)
    tables = yield from tx.scan(tables_in(namespace))
    views = yield from tx.scan(views_in(namespace))
    inner = yield from namespaces_in(tx, namespace)
    if tables or views or inner:
        raise NamespaceNotEmptyError(text_of(namespace), len(tables), len(inner), len(views))
    tx.delete(namespace_key(namespace))
    yield from forget_place(tx, Place("namespace", namespace))


def namespaces_in(tx: StoreTransaction, namespace: Identifier) -> Steps[tuple[Identifier, ...]]:
    """Return the namespaces directly inside one, or the outermost for `()`."""
    depth = len(namespace) + 1
    records = yield from tx.scan(namespaces_below(namespace))
    tables = yield from tx.scan(tables_below(namespace))
    found = {namespace_from(key)[:depth] for key, _ in records}
    views = yield from tx.scan(views_below(namespace))
    found |= {table_from(key)[:-1][:depth] for key, _ in tables} | {view_from(key)[:-1][:depth] for key, _ in views}
    return tuple(sorted(found))


def list_namespaces(tx: StoreTransaction, namespace: Identifier) -> Steps[tuple[Identifier, ...]]:
    """Return the namespaces directly inside one that exists, or the outermost for `()`."""
    if namespace:
        yield from require_namespace(tx, namespace)
    found = yield from namespaces_in(tx, namespace)
    return found


def namespace_properties(tx: StoreTransaction, namespace: Identifier) -> Steps[dict[str, str]]:
    """Return a namespace's properties; none for one that exists only because something is inside."""
    body = yield from tx.get(namespace_key(namespace))
    if body is not None:
        return dict(NamespaceRecord.decoded(body).properties)
    yield from require_namespace(tx, namespace)
    return {}


def update_namespace_properties(
    tx: StoreTransaction, namespace: Identifier, removals: frozenset[str], updates: Mapping[str, str], creation_id: str
) -> Steps[PropertiesChange]:
    """Remove and set properties of a namespace."""
    old = yield from namespace_properties(tx, namespace)
    body = yield from tx.get(namespace_key(namespace))
    new = {key: value for key, value in old.items() if key not in removals} | dict(updates)
    kept_id = NamespaceRecord.decoded(body).creation_id if body is not None else creation_id
    tx.put(namespace_key(namespace), NamespaceRecord(namespace, new, kept_id).encoded())
    return PropertiesChange(
        removed=tuple(sorted(removals & old.keys())),
        updated=tuple(sorted(updates)),
        missing=tuple(sorted(removals - old.keys())),
    )


class Namespaces:
    """The namespaces of a catalog. An operation with an unknown outcome is retried once."""

    def __init__(self, store: TransactionalStore, clock: Callable[[], int], new_id: Callable[[], str]) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id

    def create(
        self,
        namespace: str | Identifier,
        properties: Mapping[str, str] | None,
        given_id: str | None = None,
        owner: Grantee | None = None,
    ) -> None:
        """Create a namespace. `given_id`: the caller's creation id; None: a new one is drawn."""
        name, creation_id = namespace_of(namespace), given_id or self._new_id()
        checked = _checked_properties(text_of(name), properties or {})
        request = keyed(given_id, f"create namespace {text_of(name)}", self._clock(), digest_of(checked))

        def create(tx: StoreTransaction) -> Steps[None]:
            yield from recorded(tx, request, create_namespace(tx, name, checked, creation_id, owner))

        once(self._store, request, lambda: retrying(lambda: self._store.transact(create)), lambda _: None)

    def drop(self, namespace: str | Identifier, key: str | None = None) -> None:
        """Drop an empty namespace. `key`: an idempotency key."""
        name = namespace_of(namespace)
        request = keyed(key, f"drop namespace {text_of(name)}", self._clock())

        def drop(tx: StoreTransaction) -> Steps[None]:
            yield from recorded(tx, request, drop_namespace(tx, name))

        once(self._store, request, lambda: dropping(lambda: self._store.transact(drop)), lambda _: None)

    def exists(self, namespace: str | Identifier) -> bool:
        """Whether there is such a namespace."""
        name = namespace_of(namespace)
        return self._store.read(lambda tx: namespace_exists(tx, name))

    def list(self, namespace: str | Identifier) -> tuple[Identifier, ...]:
        """Return the namespaces directly inside one, or the outermost."""
        name = namespace_of(namespace) if namespace else ()
        return self._store.read(lambda tx: list_namespaces(tx, name))

    def properties(self, namespace: str | Identifier) -> dict[str, str]:
        """Return a namespace's properties."""
        name = namespace_of(namespace)
        return self._store.read(lambda tx: namespace_properties(tx, name))

    def update_properties(
        self,
        namespace: str | Identifier,
        removals: set[str] | None,
        updates: Mapping[str, str] | None,
        key: str | None = None,
    ) -> PropertiesChange:
        """Remove and set properties of a namespace, at once. `key`: an idempotency key."""
        name, removed, creation_id = namespace_of(namespace), frozenset(removals or ()), self._new_id()
        checked = _checked_properties(text_of(name), updates or {})
        if removed & checked.keys():
            raise ConfigurationError(text_of(name), [f"both removed and set: {sorted(removed & checked.keys())}"])
        digest = digest_of(sorted(removed), checked)
        request = keyed(key, f"update properties of {text_of(name)}", self._clock(), digest)

        def update(tx: StoreTransaction) -> Steps[PropertiesChange]:
            steps = update_namespace_properties(tx, name, removed, checked, creation_id)
            changed = yield from recorded(tx, request, steps, asdict)
            return changed

        return once(
            self._store,
            request,
            lambda: retrying(lambda: self._store.transact(update)),
            lambda found: PropertiesChange(**{each: tuple(names) for each, names in found.items()}),
        )


def _checked_properties(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    errors = [
        f"property {key!r}: {value!r}: neither may be missing"
        for key, value in properties.items()
        if key is None or value is None
    ]
    if errors:
        raise ConfigurationError(f"properties of {name}", errors)
    return {str(key): str(value) for key, value in properties.items()}
