"""The plug-in: PyIceberg's Catalog on a KVCatalog.

    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake", **{
        "py-catalog-impl": "endive.catalog.pyiceberg.EndiveCatalog",
        "uri": "s3://bucket/path",
    })

Properties: `uri` (location of the catalog; a bare `memory://` is a new one each time), `warehouse` (location of tables;
by default the one that the catalog was created with, or the uri), those of `endive.catalog.settings` such as
`endive.create` (create the catalog if it does not exist: `true` by default), and PyIceberg's own for files
(`s3.endpoint`, …).

Names and errors are PyIceberg's, with its wording where its tests look at it. An unknown outcome is
`CommitStateUnknownException`, after which PyIceberg deletes nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError
from pyiceberg.catalog import PropertiesUpdateSummary
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
    ViewAlreadyExistsError,
)
from pyiceberg.exceptions import NamespaceNotEmptyError as IcebergNamespaceNotEmptyError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, StagedTable, Table, TableProperties, Transaction
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID, TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.view import View
from pyiceberg.view.metadata import ViewMetadata, ViewVersion

from endive.catalog.catalog import KVCatalog
from endive.catalog.commit.change import TableChange
from endive.catalog.connection import MEMORY
from endive.catalog.iceberg import CatalogWithStagedTables, base_table_of, iceberg_schema, updates_of
from endive.catalog.model.names import identifier_of
from endive.catalog.operations.tables_in_store import LoadedTable
from endive.catalog.operations.views import LoadedView
from endive.catalog.pyiceberg.table import EndiveTable, requirements_of
from endive.catalog.settings import COMMIT_ID, CREATE, require_known
from endive.errors import (
    AlreadyInCatalogError,
    AtCheckpointError,
    CommitConflictError,
    ConfigurationError,
    NamespaceNotEmptyError,
    NotInCatalogError,
    OutcomeUnknownError,
)

if TYPE_CHECKING:
    import pyarrow as pa


MISSING: Mapping[str, type[Exception]] = {"Namespace": NoSuchNamespaceError, "View": NoSuchViewError}
TAKEN: Mapping[str, type[Exception]] = {
    "Namespace": NamespaceAlreadyExistsError,
    "View": ViewAlreadyExistsError,
    "View with same name": ViewAlreadyExistsError,
}
"""PyIceberg's errors by the kind of the name; those of tables for all others."""


@contextmanager
def _as_pyiceberg(missing: Callable[[NotInCatalogError], str] = str) -> Iterator[None]:
    """Raise PyIceberg's errors instead of ours. `missing`: how it says here that something does not exist."""
    try:
        yield
    except NotInCatalogError as error:
        raise MISSING.get(error.kind, NoSuchTableError)(missing(error)) from error
    except AlreadyInCatalogError as error:
        taken = TAKEN.get(error.kind, TableAlreadyExistsError)
        raise taken(f"{error.kind} {error.name} already exists") from error
    except NamespaceNotEmptyError as error:
        raise IcebergNamespaceNotEmptyError(str(error)) from error
    except CommitConflictError as error:
        raise CommitFailedException(str(error)) from error
    except OutcomeUnknownError as error:
        raise CommitStateUnknownException(str(error)) from error
    except AtCheckpointError as error:
        raise ValueError(str(error)) from error
    except ConfigurationError as error:
        if isinstance(error.__cause__, ValidationError):  # of PyIceberg's own models, as from its other catalogs
            raise error.__cause__ from error
        raise ValueError(str(error)) from error


def _has_no_properties(error: NotInCatalogError) -> str:
    return f"Namespace {error.name} does not exists"


class EndiveCatalog(CatalogWithStagedTables):
    """An Iceberg catalog that needs nothing but a bucket. `kv` is the KVCatalog behind it, which can do more."""

    kv: KVCatalog

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        uri = properties.get("uri")
        if not uri:
            raise NoSuchPropertyException("the property `uri` is missing: a bucket (s3://bucket/path) or a directory")
        with _as_pyiceberg():
            require_known(properties, "catalog", uri)
        create = str(properties.get(CREATE, "true")).lower() == "true"
        self.kv = KVCatalog.open(uri, properties.get("warehouse"), _file_properties(properties), create)
        if uri == MEMORY:
            self.properties["uri"] = self.kv.url  # by which a copy of this catalog finds the same place

    @classmethod
    def on(cls, kv: KVCatalog, name: str = "endive") -> Self:
        """Return the plug-in on a catalog that is open already, on a store of the caller's; such a one has no URL."""
        catalog = cls.__new__(cls)
        CatalogWithStagedTables.__init__(catalog, name, **{"warehouse": kv.warehouse, **kv.properties})
        catalog.kv = kv
        return catalog

    def close(self) -> None:
        self.kv.close()

    def commit_transactions(self, transactions: Sequence[Transaction], commit_id: str | None = None) -> None:
        """Commit PyIceberg's transactions on several tables at once: all or none. They must not be used afterwards.

        Appends that lost a race are rebased; anything else that conflicts fails the whole commit, and
        is not retried. `commit_id`: as in `KVCatalog.commit`.
        """
        changes = [
            TableChange(
                base_table_of(one).name(),
                (*requirements_of(one), AssertTableUUID(uuid=one.table_metadata.table_uuid)),
                updates_of(one),
            )
            for one in transactions
        ]
        with _as_pyiceberg():
            loaded = {table.identifier: table for table in self.kv.commit_and_load(changes, commit_id)}
        for base in map(base_table_of, transactions):
            table = loaded.get(base.name())
            if table is not None:  # None: this is a retry, and the table was dropped or renamed since
                base.metadata, base.metadata_location = table.metadata, table.metadata_location

    def create_tables(self) -> None:
        """Do nothing: the catalog is there once it is open. PyIceberg's SQL catalog has a method of this name."""

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "properties": self.properties}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["name"], **state["properties"])  # type: ignore[misc]

    # Tables.

    def create_table(
        self,
        identifier: str | Identifier,
        schema: "Schema | pa.Schema",
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        name = _table_to_create(identifier)
        converted = iceberg_schema(schema, _format_version(properties))
        with _as_pyiceberg():
            return self._table(
                self.kv.create_table(name, converted, location, partition_spec, sort_order, dict(properties))
            )

    def staged_table(
        self,
        identifier: str | Identifier,
        schema: "Schema | pa.Schema",
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> StagedTable:
        name = _table_to_create(identifier)
        converted = iceberg_schema(schema, _format_version(properties))
        with _as_pyiceberg():
            metadata = self.kv.tables.new_metadata(
                name, converted, location, partition_spec, sort_order, dict(properties)
            )
        metadata_location = self.kv.files.new_location(metadata, "")
        io = self.file_io(metadata.properties, metadata_location)
        return StagedTable(name, metadata, metadata_location, io, self)

    def register_table(self, identifier: str | Identifier, metadata_location: str, overwrite: bool = False) -> Table:
        with _as_pyiceberg():
            return self._table(self.kv.register_table(_table_to_create(identifier), metadata_location, overwrite))

    def load_table(self, identifier: str | Identifier) -> Table:
        with _as_pyiceberg():
            return self._table(self.kv.load_table(_existing_table(identifier)))

    def table_exists(self, identifier: str | Identifier) -> bool:
        name = identifier_of(identifier)
        return _is_table_name(name) and self.kv.table_exists(name)

    def drop_table(self, identifier: str | Identifier) -> None:
        with _as_pyiceberg():
            self.kv.drop_table(_existing_table(identifier))

    def purge_table(self, identifier: str | Identifier) -> None:
        with _as_pyiceberg():
            self.kv.drop_table(_existing_table(identifier), purge=True)

    def rename_table(self, from_identifier: str | Identifier, to_identifier: str | Identifier) -> Table:
        source, target = _existing_table(from_identifier), _table_to_create(to_identifier)
        with _as_pyiceberg(lambda error: str(replace(error, name=source[-1]) if error.kind == "Table" else error)):
            return self._table(self.kv.rename_table(source, target))

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        with _as_pyiceberg():
            return self.kv.list_tables(_namespace(namespace))

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        change = TableChange(table.name(), tuple(requirements), tuple(updates))
        with _as_pyiceberg():
            (committed,) = self.kv.commit_and_load([change], _commit_id(updates))
        return CommitTableResponse(metadata=committed.metadata, metadata_location=committed.metadata_location)

    def _table(self, loaded: LoadedTable) -> Table:
        return EndiveTable(
            identifier=loaded.identifier,
            metadata=loaded.metadata,
            metadata_location=loaded.metadata_location,
            io=self.file_io(loaded.metadata.properties, loaded.metadata_location),
            catalog=self,
        )

    # Namespaces.

    def create_namespace(self, namespace: str | Identifier, properties: Properties = EMPTY_DICT) -> None:
        with _as_pyiceberg():
            self.kv.create_namespace(_namespace(namespace), properties or {"exists": "true"})  # as in its SQL catalog

    def drop_namespace(self, namespace: str | Identifier) -> None:
        with _as_pyiceberg():
            self.kv.drop_namespace(_namespace(namespace))

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        with _as_pyiceberg():
            return self.kv.namespace_exists(_namespace(namespace))

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        with _as_pyiceberg():
            return self.kv.list_namespaces(_namespace(namespace) if namespace else ())

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        with _as_pyiceberg(_has_no_properties):
            return self.kv.namespace_properties(_namespace(namespace))

    def update_namespace_properties(
        self, namespace: str | Identifier, removals: set[str] | None = None, updates: Properties = EMPTY_DICT
    ) -> PropertiesUpdateSummary:
        self.check_for_overlap(removals, updates)
        with _as_pyiceberg(_has_no_properties):
            change = self.kv.update_namespace_properties(_namespace(namespace), removals, updates)
        return PropertiesUpdateSummary(list(change.removed), list(change.updated), list(change.missing))

    # Views.

    def create_view(
        self,
        identifier: str | Identifier,
        schema: "Schema | pa.Schema",
        view_version: ViewVersion,
        location: str | None = None,
        properties: Properties = EMPTY_DICT,
    ) -> View:
        columns = iceberg_schema(schema).model_dump(mode="json")
        version = view_version.model_dump(mode="json")
        name = _table_to_create(identifier)
        with _as_pyiceberg():
            return _view(self.kv.create_view(name, columns, version, location, dict(properties)))

    def list_views(self, namespace: str | Identifier) -> list[Identifier]:
        with _as_pyiceberg():
            return self.kv.list_views(_namespace(namespace))

    def view_exists(self, identifier: str | Identifier) -> bool:
        name = identifier_of(identifier)
        return _is_table_name(name) and self.kv.view_exists(name)

    def load_view(self, identifier: str | Identifier) -> View:
        with _as_pyiceberg():
            return _view(self.kv.load_view(_existing_view(identifier)))

    def register_view(self, identifier: str | Identifier, metadata_location: str) -> View:
        with _as_pyiceberg():
            return _view(self.kv.register_view(_table_to_create(identifier), metadata_location))

    def drop_view(self, identifier: str | Identifier) -> None:
        with _as_pyiceberg():
            self.kv.drop_view(_existing_view(identifier))


def _view(loaded: LoadedView) -> View:
    return View(loaded.identifier, ViewMetadata.model_validate(loaded.metadata))


def _existing_view(identifier: str | Identifier) -> Identifier:
    name = identifier_of(identifier)
    if not _is_table_name(name):
        raise NoSuchViewError(f"View does not exist: {'.'.join(name)}; a name has a namespace and no empty level")
    return name


def _file_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in {"py-catalog-impl", "uri", CREATE}}


def _commit_id(updates: tuple[TableUpdate, ...]) -> str | None:
    """Return the id that the caller gave the commit, if there is one: PyIceberg's interface has no place for it."""
    for update in updates:
        if isinstance(update, AddSnapshotUpdate) and update.snapshot.summary is not None:
            found: str | None = update.snapshot.summary.additional_properties.get(COMMIT_ID)
            return found
    return None


def _format_version(properties: Properties) -> Any:  # noqa: ANN401 - PyIceberg's literal type
    return int(properties.get(TableProperties.FORMAT_VERSION, TableProperties.DEFAULT_FORMAT_VERSION))


def _is_table_name(name: Identifier) -> bool:
    return len(name) > 1 and all(level.strip() for level in name)


def _existing_table(identifier: str | Identifier) -> Identifier:
    name = identifier_of(identifier)
    if len(name) == 1:
        error = NoSuchTableError("Empty namespace identifier")
        error.add_note(f"A table's name has a namespace, as in `namespace.{name[0]}`.")
        raise error
    if not _is_table_name(name):
        raise NoSuchTableError(f"Table does not exist: {'.'.join(name)}; a name has no empty level")
    return name


def _table_to_create(identifier: str | Identifier) -> Identifier:
    name = identifier_of(identifier)
    if not _is_table_name(name):
        raise NoSuchNamespaceError(f"A table's name has a namespace and no empty level: {'.'.join(name)}")
    return name


def _namespace(namespace: str | Identifier) -> Identifier:
    name = identifier_of(namespace)
    if not name or not all(level.strip() for level in name):
        raise NoSuchNamespaceError(f"A namespace has a name and no empty level: {'.'.join(name)!r}")
    return name
