"""The catalog: namespaces and Iceberg tables in a store that several processes share.

Every operation is one transaction on the store, or one read of it. What needs the outside (metadata files, manifests,
a clock, new ids) happens here, around the transactions; the works in `namespaces`, `tables` and `commit` do none of it.

**A commit, and its metadata file.** By default the file is written first, at a name that nobody knows, then the
transaction names it: whoever reads the record finds the file. A crash between leaves a file that nothing names, and
`remove_orphan_files` finds it. A file is deleted again only if its commit certainly did not happen. With
`endive.metadata-json=background` the records are committed at once, and a thread writes the newest state of the tables
that changed; `metadata_location` goes on naming the last file that was written.

**An unknown outcome.** A commit is repeated once under the same id, which tells whether the first one happened. If that
fails too, `OutcomeUnknownError` goes to the caller, and nothing is deleted.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypeVar, cast
from uuid import UUID

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableRequirement, TableUpdate

from endive.catalog import checking, namespaces, refs, tables, upkeep
from endive.catalog.commit import TableChange
from endive.catalog.committer import Committed, Committer
from endive.catalog.files import FileEntry, live_files
from endive.catalog.keys import CATALOG, history_key, snapshot_key, table_key
from endive.catalog.metadata_files import MetadataFiles
from endive.catalog.names import Identifier, namespace_of, table_of, text_of
from endive.catalog.namespaces import PropertiesChange
from endive.catalog.opening import open_store, release_store, url_of
from endive.catalog.planning import RecordPlanner
from endive.catalog.publisher import Publisher
from endive.catalog.records import (
    FORMAT_VERSION,
    CatalogRecord,
    CommitRecord,
    SnapshotRecord,
    TableRecord,
    encoded_history,
)
from endive.catalog.tables import TableView
from endive.catalog.upkeep import ExpiredSnapshots
from endive.catalog.works import Transaction, TransactionalStore, Work
from endive.drivers.blocking import random_id, unix_ms
from endive.errors import (
    AlreadyInCatalogError,
    CatalogNotFoundError,
    ConfigurationError,
    EndiveError,
    NotInCatalogError,
    OutcomeUnknownError,
)
from endive.protocol.requests import Steps

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """A table as it was when it was loaded."""

    identifier: Identifier
    version: int
    metadata: TableMetadata
    metadata_location: str
    """A metadata file that is there. It may be behind `metadata` if the table writes it in the background."""

    @property
    def uuid(self) -> UUID:
        """Which stays the same when the table is renamed."""
        return self.metadata.table_uuid


class KVCatalog:
    """Iceberg tables on a shared store.

    Args:
        store: where the records are; it is not closed with the catalog. `KVCatalog.open` takes a URL instead.
        warehouse: where tables go that are created without a location, as a URL.
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

        Tables go to `warehouse`, or beside the catalog. Catalogs of one process with the same URL share one store.
        """
        place = url_of(url)
        store = open_store(place, properties or {}, create)
        try:
            catalog = cls(store, url_of(warehouse) if warehouse else place, properties, create, url=place)
        except BaseException:
            release_store(place)
            raise
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
                body = CatalogRecord(FORMAT_VERSION, now_ms).encoded()
                tx.put(CATALOG, body)
            return body

        now_ms = self._clock()
        body = self.store.read(look)
        if body is None and create:
            body = self._repeating(lambda: self.store.transact(make))
        if body is None:
            raise CatalogNotFoundError(self.url)
        found = CatalogRecord.decoded(body).format_version
        if found > FORMAT_VERSION:
            raise ConfigurationError(
                self.url, [f"the catalog has format {found}; this Endive knows up to {FORMAT_VERSION}: update it"]
            )

    def close(self) -> None:
        """Write what is to be written in the background, and let go of the store."""
        self._publisher.close()
        release, self._release = self._release, lambda: None
        release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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

    # Tables.

    def create_table(
        self,
        identifier: str | Identifier,
        schema: Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Mapping[str, str] | None = None,
    ) -> LoadedTable:
        """Create an empty table. Field ids are assigned anew, as Iceberg demands."""
        name, uuid = table_of(identifier), UUID(self._new_id())
        self.store.read(lambda tx: namespaces.require_namespace(tx, name[:-1]))
        metadata = new_table_metadata(
            schema=schema,
            partition_spec=partition_spec,
            sort_order=sort_order,
            location=self.location_for(name, uuid, location),
            properties=dict(properties or {}),
            table_uuid=uuid,
        )
        return self._create(name, metadata)

    def _create(self, name: Identifier, metadata: TableMetadata) -> LoadedTable:
        location = self.files.new_location(metadata, "")
        self.files.write(metadata, location)
        try:
            self._install_new(TableRecord(name, 0, metadata, location, 0, metadata.last_updated_ms), metadata)
        except (AlreadyInCatalogError, NotInCatalogError):
            self.files.delete(location)  # in a place of its own, where nobody would look for orphans
            raise
        return LoadedTable(name, 0, metadata, location)

    def register_table(self, identifier: str | Identifier, metadata_location: str) -> LoadedTable:
        """Take over a table by its metadata file, with all its snapshots, refs and history.

        The file stays as it is, and the table's next commit writes another beside it. Nobody else may commit to the
        table from then on: they would not know of this catalog's commits.
        """
        name = table_of(identifier)
        metadata = self.files.read(metadata_location)
        record = TableRecord(name, 0, metadata, metadata_location, 0, metadata.last_updated_ms)
        self._install_new(record, metadata, has_new_uuid=False)
        return LoadedTable(name, 0, metadata, metadata_location)

    def _install_new(self, record: TableRecord, metadata: TableMetadata, has_new_uuid: bool = True) -> None:
        rows = [
            (snapshot_key(record.uuid, one.snapshot_id), SnapshotRecord(record.uuid, number, one, "none").encoded())
            for number, one in enumerate(metadata.snapshots)
        ]
        rows += [
            (history_key(record.uuid, number), encoded_history(entry))
            for number, entry in enumerate(metadata.snapshot_log)
        ]
        record = replace(
            record,
            metadata=metadata.model_copy(update={"snapshots": [], "snapshot_log": []}),
            snapshots_made=len(metadata.snapshots),
            history_length=len(metadata.snapshot_log),
        )
        rows.append((table_key(record.identifier), record.encoded()))

        def install(is_repeat: bool) -> None:
            self.store.transact(lambda tx: tables.create_table(tx, tuple(rows), record, has_new_uuid, is_repeat))

        self._repeating(lambda: install(False), lambda: install(True))

    def load_table(self, identifier: str | Identifier) -> LoadedTable:
        """Return a table as it is now."""
        name = table_of(identifier)
        view = self.store.read(lambda tx: tables.load_table(tx, name))
        if view.record.is_dirty:
            self._publisher.remind(name)
        return _loaded(view)

    def _load_known(self, name: Identifier) -> LoadedTable:
        """Return a table at least as new as this process's last commit to it, without a request."""
        return _loaded(self.store.read_known(lambda tx: tables.load_table(tx, name)))

    def table_exists(self, identifier: str | Identifier) -> bool:
        """Whether there is such a table."""
        name = table_of(identifier)
        return self.store.read(lambda tx: tables.table_exists(tx, name))

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        """Return the tables directly in a namespace."""
        name = namespace_of(namespace)
        return list(self.store.read(lambda tx: tables.list_tables(tx, name)))

    def rename_table(self, source: str | Identifier, target: str | Identifier) -> LoadedTable:
        """Give a table another name, in its namespace or another. Its files stay where they are."""
        old, new = table_of(source), table_of(target)
        uuid = self.store.read(lambda tx: tables.find_table(tx, old))
        expected = uuid.uuid if uuid is not None else None
        self._repeating(
            lambda: self.store.transact(lambda tx: tables.rename_table(tx, old, new, None)),
            lambda: self.store.transact(lambda tx: tables.rename_table(tx, old, new, expected)),
        )
        return self.load_table(new)

    def drop_table(
        self, identifier: str | Identifier, purge: bool = False, expected: LoadedTable | None = None
    ) -> None:
        """Remove a table from the catalog; with `purge`, then delete its files too.

        `expected`: only if nobody has written to it since it was loaded so; else `CommitConflictError`.
        """
        name = table_of(identifier)
        found = self.store.read(lambda tx: tables.require_table(tx, name)) if expected is None else expected
        version = None if expected is None else expected.version
        if purge:
            upkeep.require_collectable(name, found.metadata)
        # By its uuid: if the answer is lost, somebody may have created another one before the second try.
        view = self._dropping(lambda: self.store.transact(lambda tx: tables.drop_table(tx, name, found.uuid, version)))
        if purge and view is not None:
            upkeep.purge(self, _loaded(view))

    def update_properties(
        self, identifier: str | Identifier, updates: Mapping[str, str] | None = None, removals: Sequence[str] = ()
    ) -> LoadedTable:
        """Set and remove properties of a table."""
        changes: list[TableUpdate] = []
        if removals:
            changes.append(RemovePropertiesUpdate(removals=list(removals)))
        if updates:
            changes.append(SetPropertiesUpdate(updates=dict(updates)))
        self.commit(identifier, (), tuple(changes))
        return self.load_table(identifier)

    # Commits.

    def commit(
        self,
        identifier: str | Identifier,
        requirements: Sequence[TableRequirement],
        updates: Sequence[TableUpdate],
        commit_id: str | None = None,
    ) -> CommitRecord:
        """Commit Iceberg's updates to a table if its requirements hold; return when it is durable.

        `commit_id`: repeat a commit under its id, and it is answered as the first time. Without one, a new id is
        drawn. An append that lost its race is put on top of what won (`endive.catalog.rebase`); a real conflict raises
        `CommitConflictError`, which names both sides.
        """
        return self.commit_many([TableChange(table_of(identifier), tuple(requirements), tuple(updates))], commit_id)[0]

    def commit_many(self, changes: Sequence[TableChange], commit_id: str | None = None) -> tuple[CommitRecord, ...]:
        """Commit changes of several tables, all or none; one answer for each."""
        return tuple(one.answer for one in self._commit(changes, commit_id))

    def commit_and_load(self, changes: Sequence[TableChange], commit_id: str | None = None) -> list[LoadedTable]:
        """Commit as `commit_many` does, and return the tables as the commit left them, or newer."""
        return [
            LoadedTable(change.identifier, one.answer.version, one.whole, one.answer.metadata_location)
            if one.whole is not None
            else self._load_committed(change.identifier)
            for change, one in zip(changes, self._commit(changes, commit_id), strict=True)
        ]

    def _load_committed(self, identifier: Identifier) -> LoadedTable:
        """Load a table after a commit. An error must not look like one of the commit: its files would be deleted."""
        try:
            return self._load_known(identifier)
        except EndiveError as error:
            raise OutcomeUnknownError(f"{text_of(identifier)}, committed but not to be loaded") from error

    def _commit(self, changes: Sequence[TableChange], commit_id: str | None) -> list[Committed]:
        if len({change.identifier for change in changes}) != len(changes) or not changes:
            raise ConfigurationError("a commit", ["it needs at least one table, and every table only once"])
        committed = self._committer.commit(changes, commit_id)
        for change, one in zip(changes, committed, strict=True):
            if one.whole is None:
                self._publisher.remind(change.identifier)
        return committed

    # The past, branches and tags.

    def history(self, identifier: str | Identifier) -> list[SnapshotLogEntry]:
        """Return when which snapshot became current, oldest first."""
        return list(self.load_table(identifier).metadata.snapshot_log)

    def snapshots(self, identifier: str | Identifier) -> list[Snapshot]:
        """Return a table's snapshots, oldest first."""
        return list(self.load_table(identifier).metadata.snapshots)

    def snapshot_at(self, identifier: str | Identifier, unix_ms: int) -> Snapshot:
        """Return the snapshot that was current at a moment."""
        return refs.snapshot_at(self.load_table(identifier).metadata, unix_ms)

    def roll_back(
        self, identifier: str | Identifier, snapshot_id: int | None = None, unix_ms: int | None = None
    ) -> LoadedTable:
        """Make an earlier state of `main` current again, by snapshot id or by time."""
        if (snapshot_id is None) == (unix_ms is None):
            raise ConfigurationError("roll_back", ["either a snapshot id or a time, not both"])

        def change(metadata: TableMetadata) -> refs.RequirementsAndUpdates:
            target = snapshot_id if unix_ms is None else refs.snapshot_at(metadata, unix_ms).snapshot_id
            return refs.roll_back(metadata, cast("int", target))

        return self._change(identifier, change)

    def set_current_snapshot(self, identifier: str | Identifier, snapshot_id: int) -> LoadedTable:
        """Make any snapshot of the table current, whether `main` ever was there or not."""

        def change(metadata: TableMetadata) -> refs.RequirementsAndUpdates:
            refs.snapshot_by_id(metadata, snapshot_id)
            return refs.set_ref(metadata, MAIN_BRANCH, snapshot_id, SnapshotRefType.BRANCH)

        return self._change(identifier, change)

    def create_branch(
        self, identifier: str | Identifier, name: str, snapshot_id: int | None = None, max_ref_age_ms: int | None = None
    ) -> LoadedTable:
        """Create a branch at a snapshot, or at the current one."""
        kind = SnapshotRefType.BRANCH
        return self._change(identifier, lambda now: refs.create_ref(now, name, snapshot_id, kind, max_ref_age_ms))

    def create_tag(
        self, identifier: str | Identifier, name: str, snapshot_id: int | None = None, max_ref_age_ms: int | None = None
    ) -> LoadedTable:
        """Create a tag at a snapshot, or at the current one."""
        kind = SnapshotRefType.TAG
        return self._change(identifier, lambda now: refs.create_ref(now, name, snapshot_id, kind, max_ref_age_ms))

    def remove_ref(self, identifier: str | Identifier, name: str) -> LoadedTable:
        """Remove a branch or a tag; the snapshots stay until they expire."""
        return self._change(identifier, lambda now: refs.remove_ref(now, name))

    def _change(
        self, identifier: str | Identifier, change: Callable[[TableMetadata], refs.RequirementsAndUpdates]
    ) -> LoadedTable:
        name = table_of(identifier)
        requirements, updates = change(self.load_table(name).metadata)
        return self.commit_and_load([TableChange(name, requirements, updates)])[0]

    # Files and maintenance.

    def plan_files(
        self,
        identifier: str | Identifier,
        row_filter: str | BooleanExpression = AlwaysTrue(),  # noqa: B008 - a constant
        snapshot_id: int | None = None,
        case_sensitive: bool = True,
    ) -> list[FileScanTask]:
        """Return the files of a snapshot that may have matching rows, from the records and without reading Avro.

        What `table.scan(row_filter, snapshot_id=…).plan_files()` returns. Where the records do not have all files of
        the snapshot (a registered table before `index_files`), the manifests are read.
        """
        name = table_of(identifier)

        def look(tx: Transaction) -> Steps[tuple[TableView, int | None, tuple[FileEntry, ...] | None]]:
            view = yield from tables.load_table(tx, name)
            target = snapshot_id if snapshot_id is not None else view.record.metadata.current_snapshot_id
            found = (yield from live_files(tx, view.snapshots, target)) if target is not None else ()
            return view, target, found

        view, target, found = self.store.read(look)
        metadata = view.metadata
        io = self.files.io(metadata.location, metadata.properties)
        if target is not None:
            refs.snapshot_by_id(metadata, target)
        if found is not None:
            return RecordPlanner(found, metadata, io, row_filter, case_sensitive).plan()
        scan = DataScan(metadata, io, row_filter, case_sensitive=case_sensitive, snapshot_id=target)
        return list(scan.plan_files())

    def index_files(self, identifier: str | Identifier) -> int:
        """Fill `__files` for the current snapshot of a table that was registered; return how many files it has.

        Reads all manifests. Later commits keep the index up to date; earlier snapshots stay without one.
        """
        return upkeep.index_files(self, identifier)

    def expire_snapshots(
        self, identifier: str | Identifier, older_than_unix_ms: int, keep_last: int = 1
    ) -> ExpiredSnapshots:
        """Remove old snapshots, and then the files that no other snapshot needs.

        What a branch or tag points to stays, and the last `keep_last` of every branch.
        """
        return upkeep.expire(self, identifier, older_than_unix_ms, keep_last)

    def remove_orphan_files(
        self, identifier: str | Identifier, older_than_unix_ms: int, dry_run: bool = False
    ) -> list[str]:
        """Delete files below a table's location that no snapshot and no metadata file needs; return them.

        Only what was written before `older_than_unix_ms`: younger ones may belong to a commit under way. `dry_run`:
        delete nothing, return what would be deleted.
        """
        return list(upkeep.remove_orphans(self, identifier, older_than_unix_ms, dry_run))

    def export_metadata(self, identifier: str | Identifier) -> str:
        """Write the metadata file of a table's newest state, if it is not there yet; return where it is."""
        return self._publisher.publish(table_of(identifier))

    def check(self, identifier: str | Identifier | None = None) -> list[str]:
        """Return what is wrong with a table's records and files, or with all tables'; nothing if all is well."""
        return [str(fault) for fault in checking.check(self, identifier).faults]

    # Places.

    def location_for(self, name: Identifier, uuid: UUID, location: str | None) -> str:
        """Return where a table goes: where it was told to, or a place of its own that no other table ever has."""
        if location:
            return location.rstrip("/")
        base = self.store.read(lambda tx: namespaces.namespace_properties(tx, name[:-1])).get("location")
        if base is None and not self.warehouse:
            raise ConfigurationError(
                text_of(name),
                ["no location: give the table one, or the catalog a warehouse, or the namespace a location"],
            )
        folder = base.rstrip("/") if base else "/".join((self.warehouse, *map(_folder, name[:-1])))
        return f"{folder}/{_folder(name[-1])}-{uuid.hex[:8]}"

    # Running works.

    def _transact(self, work: Work[T]) -> T:
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


def _loaded(view: TableView) -> LoadedTable:
    return LoadedTable(view.record.identifier, view.record.version, view.metadata, view.record.metadata_location)


def _folder(level: str) -> str:
    """Return a name that every tool takes as it is in a path; what makes it unique is the uuid beside it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", level)


def _checked_properties(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    faults = [
        f"property {key!r}: {value!r}: neither may be missing"
        for key, value in properties.items()
        if key is None or value is None
    ]
    if faults:
        raise ConfigurationError(f"properties of {name}", faults)
    return {str(key): str(value) for key, value in properties.items()}
