"""The catalog: namespaces and Iceberg tables in a store that several processes share.

`KVCatalog` is the interface to its parts: namespaces and tables (`operations`), commits (`commit`), maintenance and
checks (`maintenance`). Every operation is one transaction on the store, or one read of it. I/O on files, the clock and
new ids are used around the transactions; transaction functions use none of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self
from uuid import UUID

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from endive.catalog.checkpoints import Checkpoints
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.committer import CommittedTable, TableCommitter
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.prepared import NO_VERSION
from endive.catalog.commit.publisher import Publisher
from endive.catalog.connection import MEMORY, open_at, open_store, place_of, release_store, require_catalog, url_of
from endive.catalog.maintenance import check as checks
from endive.catalog.maintenance import expiry
from endive.catalog.maintenance.clean_up import reparent_many
from endive.catalog.maintenance.expiry import ExpiredSnapshots
from endive.catalog.maintenance.maintain import MaintenanceOptions, MaintenanceReport, maintain
from endive.catalog.maintenance.purge import clear_if_dropped
from endive.catalog.model.catalog_records import CommitRecord
from endive.catalog.model.grants import Grantee
from endive.catalog.model.names import Identifier, table_of, text_of
from endive.catalog.model.transaction import TransactionalStore
from endive.catalog.operations.grants import Grants
from endive.catalog.operations.namespaces import Namespaces, PropertiesChange
from endive.catalog.operations.tables_in_store import LoadedTable, TablesInStore, checked_location
from endive.catalog.operations.views import LoadedView, Views
from endive.catalog.planner import plan_files
from endive.catalog.scan_plan import ScanPlan, ScanRequest, plan_scan
from endive.catalog.settings import AT, require_known
from endive.catalog.through_time import CatalogThroughTime
from endive.closing import Closing
from endive.drivers.blocking import random_id, unix_ms
from endive.errors import ConfigurationError

Name = str | Identifier


class KVCatalog(CatalogThroughTime, Closing):
    """Iceberg tables on a shared store. Safe to use from many threads.

    `KVCatalog.open(url)` opens one by its URL; `KVCatalog(store, …)` makes one on a store that is already open.

    Args:
        store: the store of the records; it is not closed with the catalog.
        warehouse: location of tables that are created without one, as a URL; empty: the warehouse that the catalog was
            created with.
        properties: for reading and writing files (PyIceberg's `s3.…` and so on), and defaults such as
            `endive.metadata-json`.
        url: the catalog's name in messages.
        create: create the catalog if the store has none; otherwise raise `CatalogNotFoundError`.

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
        self.url = url or "the store"
        self.properties = dict(properties or {})
        self.files = MetadataFiles(self.properties)
        self.files.read_only_at = self.properties.get(AT, "")
        self._publisher = Publisher(store, self.files)
        self.tables = TablesInStore(store, self.files, self._publisher, clock, new_id)
        self._checkpoints = Checkpoints(store, self._publisher, clock, new_id)
        self.now_ms = clock
        self._new_id = new_id
        self._namespaces = Namespaces(store, clock, new_id)
        self._committer = TableCommitter(store, self.files, clock, new_id)
        self._views = Views(store, self.files, self.tables.location_for, clock, new_id)
        self.grants = Grants(store)
        """The grants of users and groups, which a server checks."""
        self._release: Callable[[], None] = lambda: None
        self.warehouse = require_catalog(store, self.url, warehouse.rstrip("/"), create, clock())

    @property
    def warehouse(self) -> str:
        """Location of tables that are created without one."""
        return self.tables.warehouse

    @warehouse.setter
    def warehouse(self, location: str) -> None:
        """Set the location of tables that are created without one."""
        self.tables.warehouse = location

    @classmethod
    def open(
        cls,
        url: str,
        warehouse: str | None = None,
        properties: Mapping[str, str] | None = None,
        create: bool = False,
    ) -> Self:
        """Open the catalog at a URL or in a directory; `create`: create it if there is none.

        Tables go to `warehouse`, else to the one that the catalog was created with, else beside it. Catalogs of one
        process with the same URL share one store; only a bare `memory://` is a new one each time, and `catalog.url` is
        its name.
        """
        require_known(properties or {}, "catalog", url)  # before anything is created
        place = place_of(url)
        at = (properties or {}).get(AT, "")
        if at:
            return cls._open_at(place, url_of(warehouse) if warehouse else "", properties or {}, at)
        store = open_store(place, properties or {}, create)
        try:
            catalog = cls(store, url_of(warehouse) if warehouse else "", properties, create, url=place)
        except BaseException:
            release_store(place)
            raise
        if not place.startswith(MEMORY):  # no reader of Parquet files would find them in memory
            catalog.warehouse = catalog.warehouse or place
        catalog._release = lambda: release_store(place)
        return catalog

    @classmethod
    def _open_at(cls, place: str, warehouse: str, properties: Mapping[str, str], at: str) -> Self:
        """Open the catalog as it was at a checkpoint."""
        store = open_at(place, properties, at, unix_ms())
        try:
            catalog = cls(store, warehouse, properties, url=place)
        except BaseException:
            store.close()
            raise
        catalog.warehouse = catalog.warehouse or place
        catalog._release = store.close
        return catalog

    @property
    def at(self) -> str:
        """The checkpoint that the catalog is open at, read-only; empty: it is open as it is now."""
        return self.properties.get(AT, "")

    @classmethod
    def create(cls, url: str, warehouse: str | None = None, properties: Mapping[str, str] | None = None) -> Self:
        """Open the catalog at a URL or in a directory, and create it if there is none."""
        return cls.open(url, warehouse, properties, create=True)

    def close(self) -> None:
        """Write the metadata files that are behind, and release the store. Idempotent."""
        self._committer.close()
        self._publisher.close()
        release, self._release = self._release, lambda: None
        release()

    # Namespaces.

    def create_namespace(
        self,
        namespace: Name,
        properties: Mapping[str, str] | None = None,
        creation_id: str | None = None,
        owner: Grantee | None = None,
    ) -> None:
        """Create a namespace, and with it the namespaces around it.

        `creation_id`: an idempotency key; a retry with it finds its own namespace, and is no error.
        `owner`: here and below gets `manage` on what is created, in the same transaction.
        """
        self._namespaces.create(namespace, properties, creation_id, owner)

    def drop_namespace(self, namespace: Name, request_id: str | None = None) -> None:
        """Drop an empty namespace.

        `request_id`: here and below an idempotency key; a retry with it within half an hour returns the first result.
        """
        self._namespaces.drop(namespace, request_id)

    def namespace_exists(self, namespace: Name) -> bool:
        """Whether there is such a namespace, by itself or because of a table or namespace in it."""
        return self._namespaces.exists(namespace)

    def list_namespaces(self, namespace: Name = ()) -> list[Identifier]:
        """Return the namespaces directly inside one; without argument, the outermost."""
        return list(self._namespaces.list(namespace))

    def namespace_properties(self, namespace: Name) -> dict[str, str]:
        """Return a namespace's properties."""
        return self._namespaces.properties(namespace)

    def update_namespace_properties(
        self,
        namespace: Name,
        removals: set[str] | None = None,
        updates: Mapping[str, str] | None = None,
        request_id: str | None = None,
    ) -> PropertiesChange:
        """Remove and set properties of a namespace, at once."""
        return self._namespaces.update_properties(namespace, removals, updates, request_id)

    # Tables.

    def create_table(
        self,
        identifier: Name,
        schema: Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
        uuid: UUID | None = None,
        owner: Grantee | None = None,
    ) -> LoadedTable:
        """Create an empty table. New field ids are assigned, as Iceberg requires.

        `uuid`: the table's uuid, drawn by the caller as an idempotency key: a retry with it returns the table.
        """
        name = table_of(identifier)
        return self.tables.create(name, schema, location, partition_spec, sort_order, properties or {}, uuid, owner)

    def register_table(
        self, identifier: Name, metadata_location: str, overwrite: bool = False, request_id: str | None = None
    ) -> LoadedTable:
        """Add a table by its metadata file, with all its snapshots, refs and history.

        The file stays as it is, and the table's next commit writes another beside it. No other catalog may commit to
        the table from then on: it would not see the commits of this one. `overwrite`: replace a table of this name.
        """
        return self.tables.register(table_of(identifier), metadata_location, overwrite, request_id)

    def unregister_table(self, identifier: Name, request_id: str | None = None) -> LoadedTable:
        """Remove a table from the catalog; return it with a metadata file of its newest state. No file is deleted.

        The opposite of `register_table`: with the file the table can be registered in another catalog.
        """
        return self.tables.unregister(table_of(identifier), request_id)

    def imported_from(self, identifier: Name) -> str | None:
        """Return the metadata file that a table was registered by: another catalog may refer to its files, too.

        None: it was created here.
        """
        return self.tables.imported_from(table_of(identifier))

    def load_table(self, identifier: Name) -> LoadedTable:
        """Return a table as it is now."""
        return self.tables.load(table_of(identifier))

    def table_exists(self, identifier: Name) -> bool:
        """Whether there is such a table."""
        return self.tables.exists(table_of(identifier))

    def list_tables(self, namespace: Name) -> list[Identifier]:
        """Return the tables directly in a namespace."""
        return list(self.tables.list(namespace))

    def rename_table(self, source: Name, target: Name) -> LoadedTable:
        """Give a table another name, in its namespace or another. Its files stay where they are."""
        self.tables.rename(table_of(source), table_of(target))
        return self.load_table(target)

    def drop_table(
        self,
        identifier: Name,
        purge: bool = False,
        expected: LoadedTable | None = None,
        request_id: str | None = None,
        is_confined: bool = False,
    ) -> None:
        """Remove a table from the catalog; with `purge`, then delete its files too.

        A purge that was interrupted, or whose outcome was unknown, is finished by calling it again (`finish_purge`).
        `expected`: only if the table has not changed since it was loaded so; else `CommitConflictError`.
        `is_confined`: files outside the table's location stay. Files below another table's location always stay.
        """
        self.tables.drop(table_of(identifier), purge, expected, request_id, is_confined)

    def finish_purge(self, identifier: Name) -> bool:
        """Delete what is left of a table that was dropped with `purge` under this name; False if nothing is."""
        return self.tables.finish_purge(table_of(identifier))

    def clear_dropped(self) -> int:
        """Finish interrupted drops, files first; return how many. Expiry and the removal of orphans do it, too."""
        return self.tables.clear_dropped()

    def update_properties(
        self, identifier: Name, updates: Mapping[str, str] | None = None, removals: Sequence[str] = ()
    ) -> LoadedTable:
        """Set and remove properties of a table."""
        changes: list[TableUpdate] = []
        if removals:
            changes.append(RemovePropertiesUpdate(removals=list(removals)))
        if updates:
            changes.append(SetPropertiesUpdate(updates=dict(updates)))
        return self.commit_and_load([TableChange(table_of(identifier), (), tuple(changes))])[0]

    # Views.

    def create_view(
        self,
        identifier: Name,
        schema: Mapping[str, Any],
        version: Mapping[str, Any],
        location: str | None = None,
        properties: Mapping[str, str] | None = None,
        uuid: str | None = None,
        owner: Grantee | None = None,
    ) -> LoadedView:
        """Create a view from the JSON of its schema and its first version, as Iceberg's view specification has them.

        `uuid`: the view's uuid, drawn by the caller as an idempotency key.
        """
        name = table_of(identifier)
        return self._views.create(name, dict(schema), dict(version), location, properties or {}, uuid, owner)

    def register_view(self, identifier: Name, metadata_location: str, request_id: str | None = None) -> LoadedView:
        """Add a view by its metadata file."""
        return self._views.register(table_of(identifier), metadata_location, request_id)

    def load_view(self, identifier: Name) -> LoadedView:
        """Return a view as it is now."""
        return self._views.load(table_of(identifier))

    def view_exists(self, identifier: Name) -> bool:
        """Whether there is such a view."""
        return self._views.exists(table_of(identifier))

    def list_views(self, namespace: Name) -> list[Identifier]:
        """Return the views directly in a namespace."""
        return list(self._views.list(namespace))

    def drop_view(self, identifier: Name, request_id: str | None = None) -> None:
        """Remove a view."""
        self._views.drop(table_of(identifier), request_id)

    def rename_view(self, source: Name, target: Name, request_id: str | None = None) -> None:
        """Give a view another name, in its namespace or another."""
        self._views.rename(table_of(source), table_of(target), request_id)

    def commit_view(
        self,
        identifier: Name,
        requirements: Sequence[Mapping[str, Any]],
        updates: Sequence[Mapping[str, Any]],
        commit_id: str | None = None,
    ) -> LoadedView:
        """Commit the JSON of Iceberg's updates to a view if its requirements hold. `commit_id`: as in `commit`."""
        name = table_of(identifier)
        return self._views.commit(name, [dict(one) for one in requirements], [dict(one) for one in updates], commit_id)

    # Commits.

    def commit(
        self,
        identifier: Name,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
        commit_id: str | None = None,
    ) -> CommitRecord:
        """Commit Iceberg's updates to a table if its requirements hold; return when the commit is durable.

        `commit_id`: an idempotency key; a retry with it returns the original result. Without one, a new id is drawn. An
        append that lost its race is rebased (`endive.catalog.commit.rebase`); a real conflict raises
        `CommitConflictError`, which names both sides.
        """
        return self.commit_many([TableChange(table_of(identifier), tuple(requirements), tuple(updates))], commit_id)[0]

    def commit_many(self, changes: Sequence[TableChange], commit_id: str | None = None) -> tuple[CommitRecord, ...]:
        """Commit changes of several tables, all or none; one result for each."""
        return tuple(one.record for one in self._commit(changes, commit_id))

    def commit_and_load(self, changes: Sequence[TableChange], commit_id: str | None = None) -> list[LoadedTable]:
        """Commit as `commit_many` does, and return the tables as the commit left them, or newer.

        A retry leaves out the tables that were dropped or renamed since the commit.
        """
        return [
            LoadedTable(change.identifier, one.version, one.metadata, one.metadata_location)
            if one.metadata is not None
            else self._committer.known.load(self.tables, change.identifier, one.rows)
            for change, one in zip(changes, self._commit(changes, commit_id), strict=True)
            if one.record.version != NO_VERSION
        ]

    def _commit(self, changes: Sequence[TableChange], commit_id: str | None) -> list[CommittedTable]:
        """Check changes, commit them, and leave the rest to maintenance and to the publisher of metadata files."""
        if not changes or (len(changes) > 1 and len({change.identifier for change in changes}) != len(changes)):
            raise ConfigurationError("a commit", ["it needs at least one table, and every table only once"])
        for change in changes:
            self._prepare(change)
        committed = self._committer.commit(changes, commit_id)
        for change, one in zip(changes, committed, strict=True):
            if change.removed_snapshots:
                expiry.clean_up(self.store, change.identifier)
            if one.metadata is None:
                self._publisher.remind(change.identifier, is_helped=one.rows is None)
        return committed

    def _prepare(self, change: TableChange) -> None:
        """Check the properties and location that a change sets; copy many file rows in transactions of their own."""
        for update in change.updates:
            if isinstance(update, SetPropertiesUpdate):
                require_known(update.updates, "table", text_of(change.identifier))
            elif isinstance(update, AssignUUIDUpdate) and change.creates:
                clear_if_dropped(self.store, update.uuid)
            elif isinstance(update, SetLocationUpdate):
                checked_location(change.identifier, update.location)
        reparent_many(self.store, change)

    # Files and maintenance.

    def plan_files(
        self,
        identifier: Name,
        row_filter: str | BooleanExpression = AlwaysTrue(),  # noqa: B008 - a constant
        snapshot_id: int | None = None,
        case_sensitive: bool = True,
    ) -> list[FileScanTask]:
        """Return the files of a snapshot that may have matching rows, from the records and without reading Avro.

        The result of `table.scan(row_filter, snapshot_id=…).plan_files()`. Where the records do not have all files of
        the snapshot (a registered table before `index_files`), the manifests are read.
        """
        return plan_files(self.store, self.files, table_of(identifier), row_filter, snapshot_id, case_sensitive)

    def plan_scan(self, identifier: Name, request: ScanRequest) -> ScanPlan:
        """Return the files of a scan with their delete files, equality deletes among them, and the filter's residuals.

        As `plan_files`, for engines that read delete files of every kind.
        """
        return plan_scan(self.store, self.files, table_of(identifier), request)

    def index_files(self, identifier: Name) -> int:
        """Fill `__files` for the current snapshot of a registered table; return the number of its files.

        Reads all manifests. Later commits keep the index up to date; earlier snapshots stay without one.
        """
        return expiry.index_files(self.tables, table_of(identifier))

    def expire_snapshots(
        self, identifier: Name, older_than_unix_ms: int | None = None, keep_last: int | None = None
    ) -> ExpiredSnapshots:
        """Remove branches and tags past their age, then old snapshots, and then the files that no other one needs.

        Snapshots that other branches and tags point to stay, and the last `keep_last` snapshots of every branch. A
        branch's own retention overrides the arguments; where they are None, the table's properties decide
        (`endive.catalog.maintenance.retention`).
        """
        name = table_of(identifier)
        return expiry.expire(self.tables, self.commit_many, name, self.now_ms(), older_than_unix_ms, keep_last)

    def remove_orphan_files(self, identifier: Name, older_than_unix_ms: int, dry_run: bool = False) -> list[str]:
        """Delete files below a table's location that no snapshot and no metadata file needs; return them.

        Only files written before `older_than_unix_ms`: younger ones may belong to a commit in progress. `dry_run`:
        delete nothing, return the files that would be deleted.
        """
        name = table_of(identifier)
        return list(expiry.remove_orphans(self.tables, name, older_than_unix_ms, dry_run, self.now_ms()))

    def maintain(
        self,
        options: MaintenanceOptions = MaintenanceOptions(),  # noqa: B008 - frozen
        tell: Callable[[str], None] = lambda _: None,
    ) -> MaintenanceReport:
        """Expire snapshots by each table's policy, delete old files and orphans, rewrite manifests, compact the store.

        Safe beside writers and other maintenance, and to be interrupted at any moment. `tell` gets what is done next.
        """
        if not options.dry_run:
            self._checkpoints.clean_up()
        return maintain(self.tables, self.commit_many, self.now_ms, self._new_id, options, tell)

    def export_metadata(self, identifier: Name) -> str:
        """Write the metadata file of a table's newest state, if it does not exist yet; return its location."""
        return self._publisher.publish(table_of(identifier))

    def check(self, identifier: Name | None = None) -> list[str]:
        """Return the check findings in a table's records and files, or in all tables'; empty if there are none."""
        return [str(finding) for finding in checks.check(self.store, self.files, identifier).findings]
