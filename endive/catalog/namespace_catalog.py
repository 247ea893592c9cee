"""What every part of the catalog stands on: the store, and namespaces in it.

An operation whose outcome is unknown is done once more. Works recognise what an earlier try of theirs has done: by the
id of who created a namespace, by a table's uuid, by a commit's id.
"""

from collections.abc import Callable, Mapping
from typing import Self, TypeVar

from endive.catalog.commit.committer import Committer
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.publisher import Publisher
from endive.catalog.connection import MEMORY, open_store, place_of, release_store, url_of
from endive.catalog.model.keys import CATALOG
from endive.catalog.model.names import Identifier, namespace_of, text_of
from endive.catalog.model.records import (
    FORMAT_VERSION,
    CatalogRecord,
)
from endive.catalog.model.transaction import Transaction, TransactionalStore, TransactionFunction
from endive.catalog.operations import namespaces
from endive.catalog.operations.namespaces import PropertiesChange
from endive.catalog.settings import require_known
from endive.closing import Closing
from endive.drivers.blocking import random_id, unix_ms
from endive.errors import CatalogNotFoundError, ConfigurationError, NotInCatalogError, OutcomeUnknownError
from endive.protocol.requests import Steps

T = TypeVar("T")


class NamespaceCatalog(Closing):
    """Namespaces on a shared store, and how it is opened.

    Args:
        store: where the records are; it is not closed with the catalog. `KVCatalog.open` takes a URL instead.
        warehouse: where tables go that are created without a location, as a URL; empty: where the catalog says, which
            keeps the warehouse of who created it.
        properties: for reading and writing files (PyIceberg's `s3.…` and so on), and defaults such as
            `endive.metadata-json`.
        url: the catalog's name in messages.
        create: make a catalog of the store if it is none yet; otherwise `CatalogNotFoundError`.

    Safe to use from many threads.

    """

    def __init__(
        self,
        store: TransactionalStore,
        warehouse: str = "",
        properties: Mapping[str, str] | None = None,
        create: bool = False,
        url: str = "",
        clock: Callable[[], int] = unix_ms,
        new_id: Callable[[], str] = random_id,
    ) -> None:
        require_known(properties or {}, "catalog", url or "the catalog's properties")
        self.store = store
        self.warehouse = warehouse.rstrip("/")
        self.properties = dict(properties or {})
        self.url = url or "the store"
        self._release: Callable[[], None] = lambda: None
        self._clock = clock
        self._new_id = new_id
        self.files = MetadataFiles(self.properties)
        self._committer = Committer(store, self.files, clock, new_id)
        self._publisher = Publisher(store, self.files)
        self._require_catalog(create)

    # The catalog itself.

    @classmethod
    def open(
        cls,
        url: str,
        warehouse: str | None = None,
        properties: Mapping[str, str] | None = None,
        create: bool = False,
    ) -> Self:
        """Open the catalog at a URL or in a directory; `create`: make one if there is none.

        Tables go to `warehouse`, else to the one that the catalog was created with, else beside it. Catalogs of one
        process with the same URL share one store; only a bare `memory://` is a new one each time, and `catalog.url` is
        the name that it got.
        """
        require_known(properties or {}, "catalog", url)  # before anything is made
        place = place_of(url)
        store = open_store(place, properties or {}, create)
        try:
            catalog = cls(store, url_of(warehouse) if warehouse else "", properties, create, url=place)
        except BaseException:
            release_store(place)
            raise
        catalog.warehouse = catalog.warehouse or _beside(place)
        catalog._release = lambda: release_store(place)
        return catalog

    @classmethod
    def create(cls, url: str, warehouse: str | None = None, properties: Mapping[str, str] | None = None) -> Self:
        """Open the catalog at a URL or in a directory, and make one if there is none."""
        return cls.open(url, warehouse, properties, create=True)

    def _require_catalog(self, create: bool) -> None:
        def look(tx: Transaction) -> Steps[bytes | None]:
            body = yield from tx.get(CATALOG)
            return body

        def make(tx: Transaction) -> Steps[bytes]:
            body = yield from tx.get(CATALOG)
            if body is None:
                body = CatalogRecord(FORMAT_VERSION, now_ms, self.warehouse).encoded()
                tx.put(CATALOG, body)
            return body

        now_ms = self._clock()
        body = self.store.read(look)
        if body is None and create:
            body = self._repeating(lambda: self.store.transact(make))
        if body is None:
            raise CatalogNotFoundError(self.url)
        record = CatalogRecord.decoded(body)
        if record.format_version > FORMAT_VERSION:
            fault = (
                f"the catalog has format {record.format_version}; this Endive knows up to {FORMAT_VERSION}: update it"
            )
            raise ConfigurationError(self.url, [fault])
        self.warehouse = self.warehouse or record.warehouse

    def now_ms(self) -> int:
        """Return the time by the catalog's clock."""
        return self._clock()

    def close(self) -> None:
        """Write what is to be written in the background, and let go of the store."""
        self._publisher.close()
        release, self._release = self._release, lambda: None
        release()

    # Namespaces.

    def create_namespace(self, namespace: str | Identifier, properties: Mapping[str, str] | None = None) -> None:
        """Create a namespace; those around it come into being with it."""
        name, creation_id = namespace_of(namespace), self._new_id()
        checked = _checked_properties(text_of(name), properties or {})
        self._transact(lambda tx: namespaces.create_namespace(tx, name, checked, creation_id))

    def drop_namespace(self, namespace: str | Identifier) -> None:
        """Drop a namespace that holds nothing."""
        name = namespace_of(namespace)
        self._dropping(lambda: self.store.transact(lambda tx: namespaces.drop_namespace(tx, name)))

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        """Whether there is such a namespace, by itself or because something is inside."""
        name = namespace_of(namespace)
        return self.store.read(lambda tx: namespaces.namespace_exists(tx, name))

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        """Return the namespaces directly inside one; without argument, the outermost."""
        name = namespace_of(namespace) if namespace else ()
        return list(self.store.read(lambda tx: namespaces.list_namespaces(tx, name)))

    def namespace_properties(self, namespace: str | Identifier) -> dict[str, str]:
        """Return a namespace's properties."""
        name = namespace_of(namespace)
        return self.store.read(lambda tx: namespaces.namespace_properties(tx, name))

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Mapping[str, str] | None = None
    ) -> PropertiesChange:
        """Remove and set properties of a namespace, at once."""
        name, gone, creation_id = namespace_of(namespace), frozenset(removals or ()), self._new_id()
        checked = _checked_properties(text_of(name), updates or {})
        if gone & checked.keys():
            raise ConfigurationError(text_of(name), [f"both removed and set: {sorted(gone & checked.keys())}"])
        return self._transact(lambda tx: namespaces.update_namespace_properties(tx, name, gone, checked, creation_id))

    # Running works.

    def _transact(self, work: TransactionFunction[T]) -> T:
        return self._repeating(lambda: self.store.transact(work))

    def _repeating(self, first: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Do it; if its outcome is unknown, once more. Works recognise what an earlier try of theirs has done."""
        try:
            return first()
        except OutcomeUnknownError:
            return (again or first)()

    def _dropping(self, drop: Callable[[], T]) -> T | None:
        """Drop something; if the outcome is unknown and it is gone at the second try, it is dropped."""
        try:
            return drop()
        except OutcomeUnknownError:
            try:
                return drop()
            except NotInCatalogError:
                return None


def _beside(place: str) -> str:
    """Return where tables go; nowhere if they would go to memory, where no reader of Parquet files would find them."""
    return "" if place.startswith(MEMORY) else place


def _checked_properties(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    faults = [
        f"property {key!r}: {value!r}: neither may be missing"
        for key, value in properties.items()
        if key is None or value is None
    ]
    if faults:
        raise ConfigurationError(f"properties of {name}", faults)
    return {str(key): str(value) for key, value in properties.items()}
