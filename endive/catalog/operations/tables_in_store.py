"""The tables of a catalog: create, register, load, list, rename, drop. Commits are in `endive.catalog.commit`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import SortOrder

from endive.catalog.commit.metadata_files import Look, MetadataFiles
from endive.catalog.commit.publisher import Publisher
from endive.catalog.connection import FOLDER
from endive.catalog.iceberg import with_row_ids
from endive.catalog.maintenance.purge import clear_dropped, clear_if_dropped, finish_drop, require_gc_enabled
from endive.catalog.model.catalog_records import SnapshotRecord, TableRecord, encoded_history
from endive.catalog.model.default_values import with_default_values
from endive.catalog.model.grants import Grantee, Place
from endive.catalog.model.keys import history_key, imported_key, snapshot_key
from endive.catalog.model.names import Identifier, namespace_of, text_of
from endive.catalog.model.transaction import KeyValue, StoreTransaction, TransactionalStore
from endive.catalog.operations import table_rows
from endive.catalog.operations.dropped_tables import dropped_tables
from endive.catalog.operations.grant_rows import own
from endive.catalog.operations.namespaces import namespace_properties, require_namespace
from endive.catalog.operations.requests import KeyedRequest, digest_of, keyed, once, recorded
from endive.catalog.operations.retries import dropping, retrying
from endive.catalog.operations.table_rows import TableView
from endive.catalog.settings import ATTEMPTS, ATTEMPTS_DEFAULT, require_known
from endive.errors import (
    AlreadyInCatalogError,
    CommitRetriesExhaustedError,
    ConfigurationError,
    NotInCatalogError,
    OutcomeUnknownError,
)
from endive.protocol.requests import Steps

LIKE_A_TABLES = re.compile(r".*-[0-9a-f]{8}")
"""Folders that end as those of tables do."""


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table as it was when it was loaded."""

    identifier: Identifier
    version: int
    metadata: TableMetadata
    metadata_location: str
    """An existing metadata file. It may be older than `metadata` if the table writes it in the background."""

    @property
    def uuid(self) -> UUID:
        """The table's uuid, which a rename does not change."""
        return self.metadata.table_uuid


class TablesInStore:
    """The tables of a catalog. `warehouse`: the location of tables that are created without one."""

    def __init__(
        self,
        store: TransactionalStore,
        files: MetadataFiles,
        publisher: Publisher,
        clock: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        self.store = store
        self.now_ms = clock
        self.files = files
        self.warehouse = ""
        self._new_id = new_id
        self._publisher = publisher

    def create(
        self,
        name: Identifier,
        schema: Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Mapping[str, str],
        uuid: UUID | None = None,
        owner: Grantee | None = None,
    ) -> LoadedTable:
        """Create an empty table: its metadata file, then its rows. A table of the given uuid is returned as it is.

        `owner`: will manage the table. A retry gives no grant: it may have been revoked meanwhile.
        """
        structure = (one.model_dump(mode="json") for one in (schema, partition_spec, sort_order))
        request = keyed(
            None if uuid is None else str(uuid),
            f"create table {text_of(name)}",
            self.now_ms(),
            digest_of(*structure, location, dict(properties)),
        )
        return once(
            self.store,
            request,
            lambda: self._create(name, schema, location, partition_spec, sort_order, properties, uuid, owner, request),
            lambda _: self._created(name, uuid),
        )

    def _created(self, name: Identifier, uuid: UUID | None) -> LoadedTable:
        """Return a table that was created under this uuid, for a retry."""
        loaded = self.load(name)
        if loaded.uuid != uuid:
            raise NotInCatalogError("Table", text_of(name), "it was dropped or renamed since it was created")
        return loaded

    def _create(
        self,
        name: Identifier,
        schema: Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Mapping[str, str],
        uuid: UUID | None,
        owner: Grantee | None,
        request: KeyedRequest | None,
    ) -> LoadedTable:
        self.store.read(lambda tx: require_namespace(tx, name[:-1]))
        known = self.store.read(lambda tx: table_rows.find_table(tx, name)) if uuid is not None else None
        if known is not None and known.uuid == uuid:
            return self.load(name)
        metadata = self.new_metadata(name, schema, location, partition_spec, sort_order, properties, uuid)
        metadata_location = self.files.new_location(metadata, "")
        self.files.write(metadata, metadata_location)
        try:
            record = TableRecord(name, 0, metadata, metadata_location, 0, metadata.last_updated_ms)
            self._install(record, metadata, has_new_uuid=uuid is None, owner=owner, request=request)
        except (AlreadyInCatalogError, NotInCatalogError):
            self.files.delete(metadata_location)  # its location belongs to no table, so no search for orphans finds it
            raise
        return LoadedTable(name, 0, metadata, metadata_location)

    def new_metadata(
        self,
        name: Identifier,
        schema: Schema,
        location: str | None,
        partition_spec: PartitionSpec,
        sort_order: SortOrder,
        properties: Mapping[str, str],
        given_uuid: UUID | None = None,
    ) -> TableMetadata:
        """Return the metadata of a table to be created, with new field ids, and a new uuid unless one is given."""
        require_known(properties, "table", text_of(name))
        uuid = given_uuid or UUID(self._new_id(), version=4)
        place = self.location_for(name, uuid.hex, location)
        try:
            new = new_table_metadata(schema, partition_spec, sort_order, place, dict(properties), uuid)
        except (ValueError, TypeError, LookupError) as error:
            raise ConfigurationError(text_of(name), [str(error) or type(error).__name__]) from error
        columns = with_default_values(schema, new.schema())
        if columns is not new.schema():
            new = new.model_copy(update={"schemas": [columns]})
        return with_row_ids(new)

    def register(
        self, name: Identifier, metadata_location: str, overwrite: bool = False, key: str | None = None
    ) -> LoadedTable:
        """Add a table by its metadata file, with all its snapshots, refs and history.

        `overwrite`: a table of this name is replaced, in one transaction; its files stay.
        """
        operation = f"register {text_of(name)} by {metadata_location}"
        request = keyed(key, operation, self.now_ms(), digest_of(overwrite))
        return once(
            self.store,
            request,
            lambda: self._register(name, metadata_location, overwrite, request),
            lambda _: self.load(name),
        )

    def _register(
        self, name: Identifier, metadata_location: str, overwrite: bool, request: KeyedRequest | None
    ) -> LoadedTable:
        metadata = self.files.read_given(metadata_location)
        checked_location(name, metadata.location)
        record = TableRecord(name, 0, metadata, metadata_location, 0, metadata.last_updated_ms)
        installed = self._install(
            record, metadata, has_new_uuid=False, imported=True, overwrite=overwrite, request=request
        )
        return LoadedTable(name, installed, metadata, metadata_location)

    def imported_from(self, name: Identifier) -> str | None:
        """Return the metadata file that a table was registered by; None if it was created here."""

        def look(tx: StoreTransaction) -> Steps[str | None]:
            record = yield from table_rows.require_table(tx, name)
            found = yield from table_rows.imported_from(tx, record.uuid)
            return found

        return self.store.read(look)

    def _install(
        self,
        record: TableRecord,
        metadata: TableMetadata,
        has_new_uuid: bool,
        imported: bool = False,
        overwrite: bool = False,
        request: KeyedRequest | None = None,
        owner: Grantee | None = None,
    ) -> int:
        """Create a table from its metadata; return its version."""
        rows: list[KeyValue] = [
            (snapshot_key(record.uuid, one.snapshot_id), SnapshotRecord(record.uuid, number, one, "none").encoded())
            for number, one in enumerate(metadata.snapshots)
        ]
        rows += [
            (history_key(record.uuid, number), encoded_history(entry))
            for number, entry in enumerate(metadata.snapshot_log)
        ]
        bare = {"snapshots": [], "snapshot_log": [], "properties": dict(metadata.properties)}
        record = replace(
            record,
            metadata=metadata.model_copy(update=bare),
            snapshots_made=len(metadata.snapshots),
            history_length=len(metadata.snapshot_log),
        )
        if imported:
            rows.append((imported_key(record.uuid), record.metadata_location.encode()))
        if not has_new_uuid:
            clear_if_dropped(self.store, record.uuid)

        def install(tx: StoreTransaction, is_retry: bool) -> Steps[int]:
            replaces = table_rows.replace_table if overwrite else table_rows.create_table
            steps = replaces(tx, rows, record, has_new_uuid, is_retry)
            version = yield from recorded(tx, request, steps)
            yield from own(tx, owner, Place("table", uuid=str(record.uuid)))
            return version

        version = retrying(
            lambda: self.store.transact(lambda tx: install(tx, False)),
            lambda: self.store.transact(lambda tx: install(tx, True)),
        )
        if overwrite:
            self.clear_dropped()
        return version

    def load(self, name: Identifier) -> LoadedTable:
        """Return a table as it is now."""
        loaded = self.load_unless(name, lambda _: False, refs_only=False)
        if isinstance(loaded, TableRecord):
            raise AssertionError("a table that is not known was not loaded")
        return loaded

    def load_unless(
        self, name: Identifier, is_known: Callable[[TableRecord], bool], refs_only: bool
    ) -> LoadedTable | TableRecord:
        """Return a table as it is now; if the caller knows this version, only its record: the past is not read.

        `refs_only`: with the snapshots of its branches and tags only.
        """
        looks: list[Look | None] = [None]

        def read(tx: StoreTransaction) -> Steps[TableView | TableRecord]:
            record = yield from table_rows.require_table(tx, name)
            if is_known(record):
                return record
            looks.append(self.files.look(record, looks[-1]))  # while the past is read
            view = yield from (table_rows.named_view if refs_only else table_rows.whole_view)(tx, record)
            return view

        found = self.store.read(read)
        record = found if isinstance(found, TableRecord) else found.record
        if record.is_dirty and not self.store.is_exclusive_elsewhere:  # the exclusive writer writes the file
            self._publisher.remind(name)
        return found if isinstance(found, TableRecord) else self._loaded(found, looks[-1])

    def load_cached(self, name: Identifier) -> LoadedTable:
        """Return a table at least as new as this process's last commit to it, without a request."""
        return self._loaded(self.store.read_cached(lambda tx: table_rows.load_table(tx, name)))

    def _loaded(self, view: TableView, look: Look | None = None) -> LoadedTable:
        """Return a view with its own properties, which the caller may change, and with a metadata file that exists."""
        record = view.record
        load = partial(table_rows.load_table, identifier=record.identifier)  # `view` need not have the whole past
        location = self.files.existing(record, lambda: self.store.read_cached(load), look)
        if not location and view.metadata.metadata_log:
            location = view.metadata.metadata_log[-1].metadata_file  # older, as if it were written in the background
        metadata = view.metadata.model_copy(update={"properties": dict(view.metadata.properties)})
        return LoadedTable(record.identifier, record.version, metadata, location or record.metadata_location)

    def exists(self, name: Identifier) -> bool:
        """Whether there is such a table."""
        return self.store.read(lambda tx: table_rows.table_exists(tx, name))

    def list(self, namespace: str | Identifier) -> tuple[Identifier, ...]:
        """Return the tables directly in a namespace."""
        name = namespace_of(namespace)
        return self.store.read(lambda tx: table_rows.list_tables(tx, name))

    def rename(self, source: Identifier, target: Identifier, key: str | None = None) -> None:
        """Move a table to another name. `key`: an idempotency key."""
        request = keyed(key, f"rename table {text_of(source)} to {text_of(target)}", self.now_ms())

        def rename(tx: StoreTransaction, uuid: UUID | None) -> Steps[None]:
            yield from recorded(tx, request, table_rows.rename_table(tx, source, target, uuid))

        def run() -> None:
            found = self.store.read(lambda tx: table_rows.find_table(tx, source))
            uuid = found.uuid if found is not None else None
            retrying(
                lambda: self.store.transact(lambda tx: rename(tx, None)),
                lambda: self.store.transact(lambda tx: rename(tx, uuid)),
            )

        once(self.store, request, run, lambda _: None)

    def drop(
        self,
        name: Identifier,
        purge: bool,
        expected: LoadedTable | None,
        key: str | None = None,
        is_confined: bool = False,
    ) -> None:
        """Remove a table, then its rows, and with `purge` its files. `key`: an idempotency key."""
        request = keyed(key, f"drop table {text_of(name)}{' with its files' * purge}", self.now_ms())

        def replay(_: object) -> None:
            if purge:
                self.finish_purge(name)

        once(self.store, request, lambda: self._drop(name, purge, expected, request, is_confined), replay)

    def _drop(
        self,
        name: Identifier,
        purge: bool,
        expected: LoadedTable | None,
        request: KeyedRequest | None,
        is_confined: bool,
    ) -> None:
        try:
            found = self.store.read(lambda tx: table_rows.require_table(tx, name)) if expected is None else expected
        except NotInCatalogError:
            if purge and self.finish_purge(name):
                return
            raise
        version = None if expected is None else expected.version
        if purge:
            require_gc_enabled(name, found.metadata)

        def drop(tx: StoreTransaction) -> Steps[None]:
            # By its uuid: if the outcome is unknown, another table may have been created before the second try.
            dropped = table_rows.drop_table(tx, name, found.uuid, version, purge, is_confined)
            yield from recorded(tx, request, dropped)

        dropping(lambda: self.store.transact(drop))
        finish_drop(self.store, self.files, found.uuid, self.now_ms())

    def unregister(self, name: Identifier, key: str | None = None) -> LoadedTable:
        """Remove a table; return it with a metadata file of its newest state. `key`: an idempotency key."""
        request = keyed(key, f"unregister {text_of(name)}", self.now_ms())

        def replay(found: Mapping[str, str]) -> LoadedTable:
            location = found["metadata_location"]
            return LoadedTable(name, 0, self.files.read(location), location)

        return once(self.store, request, lambda: self._unregister(name, request), replay)

    def _unregister(self, name: Identifier, request: KeyedRequest | None) -> LoadedTable:
        for _ in range(ATTEMPTS_DEFAULT):
            self._publisher.publish(name)
            loaded = self.load(name)
            if self._drop_published(loaded, request):
                return loaded
        raise CommitRetriesExhaustedError(text_of(name), "is written all the time", ATTEMPTS_DEFAULT, ATTEMPTS)

    def _drop_published(self, loaded: LoadedTable, request: KeyedRequest | None) -> bool:
        """Remove a table if its metadata file shows its newest state; False if it has changed since it was loaded."""

        def drop(tx: StoreTransaction) -> Steps[bool]:
            record = yield from table_rows.find_table(tx, loaded.identifier)
            if record is None or record.uuid != loaded.uuid:
                raise NotInCatalogError("Table", text_of(loaded.identifier))
            if record.is_dirty or record.version != loaded.version:
                return False
            steps = table_rows.drop_table(tx, loaded.identifier, loaded.uuid)
            yield from recorded(tx, request, steps, lambda _: {"metadata_location": loaded.metadata_location})
            return True

        try:
            dropped = self.store.transact(drop)
        except OutcomeUnknownError:
            try:
                dropped = self.store.transact(drop)
            except NotInCatalogError:
                dropped = True
        if dropped:
            finish_drop(self.store, self.files, loaded.uuid, self.now_ms())
        return dropped

    def finish_purge(self, name: Identifier) -> bool:
        """Delete what is left of a table that was dropped with `purge` under this name; False if nothing is."""
        left = [one for one in self.store.read(dropped_tables) if one.table.identifier == name and one.purge]
        for one in left:
            finish_drop(self.store, self.files, one.uuid, self.now_ms())
        return bool(left)

    def clear_dropped(self) -> int:
        """Finish interrupted drops; return how many."""
        return clear_dropped(self.store, self.files, self.now_ms())

    def location_for(self, name: Identifier, uuid: str, location: str | None) -> str:
        """Return the location of a new table or view: the given one, or one that no other table ever has."""
        if location:
            return checked_location(name, location)
        base = self.store.read(lambda tx: namespace_properties(tx, name[:-1])).get("location")
        if base is None and not self.warehouse:
            raise ConfigurationError(
                text_of(name),
                ["no location: give the table one, or the catalog a warehouse, or the namespace a location"],
            )
        own = f"{base.rstrip('/')}/{_unique(name, uuid)}" if base else default_location(self.warehouse, name, uuid)
        return checked_location(name, own)


def checked_location(name: Identifier, location: str) -> str:
    """Return a table's location without a slash at its end; raise if it is in the catalog's own folder, or has `..`."""
    if {FOLDER, ".."} & set(location.split("/")):
        problem = f"its location {location} is inside the catalog's own folder {FOLDER}/, or contains `..`"
        raise ConfigurationError(text_of(name), [problem])
    return location.rstrip("/")


def default_location(warehouse: str, name: Identifier, uuid: str) -> str:
    """Return the location of a table in a warehouse; no other table ever has it."""
    return "/".join((warehouse, *map(_namespace_folder, name[:-1]), _unique(name, uuid)))


def _unique(name: Identifier, uuid: str) -> str:
    return f"{_folder(name[-1])}-{uuid[:8]}"


def _namespace_folder(level: str) -> str:
    """Return the folder of a namespace: never one that a table may have, so that no table is inside another."""
    folder = _folder(level)
    return f"{folder}_" if LIKE_A_TABLES.fullmatch(folder) else folder


def _folder(level: str) -> str:
    """Return a name that every tool accepts in a path; the uuid beside it makes it unique."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", level)
