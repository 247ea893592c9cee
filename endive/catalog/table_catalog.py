"""Tables of the catalog: create, load, rename, drop, and commit to them.

**A commit, and its metadata file.** By default the file is written first, at a name that nobody knows, then the
transaction names it: whoever reads the record finds the file. A crash between leaves a file that nothing names, and
`remove_orphan_files` finds it. A file is deleted again only if its commit certainly did not happen. With
`endive.metadata-json=background` the records are committed at once, and a thread writes the newest state of the tables
that changed; `metadata_location` goes on naming the last file that was written.

**An unknown outcome.** A commit is repeated once under the same id, which tells whether the first one happened. If that
fails too, `OutcomeUnknownError` goes to the caller, and nothing is deleted.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, TableRequirement, TableUpdate

from endive.catalog.commit.changes import TableChange
from endive.catalog.commit.committer import Committed
from endive.catalog.maintenance import expiry as upkeep
from endive.catalog.model.keys import history_key, imported_key, snapshot_key, table_key
from endive.catalog.model.names import Identifier, namespace_of, table_of, text_of
from endive.catalog.model.records import (
    CommitRecord,
    SnapshotRecord,
    TableRecord,
    encoded_history,
)
from endive.catalog.model.transaction import Transaction
from endive.catalog.namespace_catalog import NamespaceCatalog
from endive.catalog.operations import namespaces, tables
from endive.catalog.operations.dropped_tables import dropped_tables
from endive.catalog.operations.tables import TableView
from endive.catalog.settings import require_known, require_known_in
from endive.errors import (
    AlreadyInCatalogError,
    ConfigurationError,
    EndiveError,
    NotInCatalogError,
    OutcomeUnknownError,
)
from endive.protocol.requests import Steps


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


class TableCatalog(NamespaceCatalog):
    """Tables in namespaces."""

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
        require_known(properties or {}, "table", text_of(name))
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

    def imported_from(self, identifier: str | Identifier) -> str | None:
        """Return the metadata file that a table was registered by: another catalog may name its files, too.

        None: it was created here.
        """
        name = table_of(identifier)

        def look(tx: Transaction) -> Steps[str | None]:
            record = yield from tables.require_table(tx, name)
            found = yield from tables.imported_from(tx, record.uuid)
            return found

        return self.store.read(look)

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
            metadata=metadata.model_copy(
                update={"snapshots": [], "snapshot_log": [], "properties": dict(metadata.properties)}
            ),
            snapshots_made=len(metadata.snapshots),
            history_length=len(metadata.snapshot_log),
        )
        rows.append((table_key(record.identifier), record.encoded()))

        if not has_new_uuid:
            rows.append((imported_key(record.uuid), record.metadata_location.encode()))
            upkeep.clear_if_dropped(self, record.uuid)

        def install(is_repeat: bool) -> None:
            self.store.transact(lambda tx: tables.create_table(tx, tuple(rows), record, has_new_uuid, is_repeat))

        self._repeating(lambda: install(False), lambda: install(True))

    def load_table(self, identifier: str | Identifier) -> LoadedTable:
        """Return a table as it is now."""
        name = table_of(identifier)
        view = self.store.read(lambda tx: tables.load_table(tx, name))
        if view.record.is_dirty and not self.store.is_exclusive_elsewhere:  # who has taken it writes the file, too
            self._publisher.remind(name)
        return _loaded(view)

    def _load_known(self, name: Identifier) -> LoadedTable:
        """Return a table at least as new as this process's last commit to it, without a request."""
        return _loaded(self.store.read_cached(lambda tx: tables.load_table(tx, name)))

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

        A purge that was interrupted, or whose outcome was unknown, is finished by a repeat (`finish_purge`).
        `expected`: only if nobody has written to it since it was loaded so; else `CommitConflictError`.
        """
        name = table_of(identifier)
        try:
            found = self.store.read(lambda tx: tables.require_table(tx, name)) if expected is None else expected
        except NotInCatalogError:
            if purge and self.finish_purge(name):
                return
            raise
        version = None if expected is None else expected.version
        if purge:
            upkeep.require_collectable(name, found.metadata)
        # By its uuid: if the answer is lost, somebody may have created another one before the second try.
        self._dropping(lambda: self.store.transact(lambda tx: tables.drop_table(tx, name, found.uuid, version, purge)))
        upkeep.finish_drop(self, found.uuid)

    def finish_purge(self, identifier: str | Identifier) -> bool:
        """Delete what is left of a table that was dropped with `purge` under this name; False if there is nothing."""
        name = table_of(identifier)
        left = [one for one in self.store.read(dropped_tables) if one.table.identifier == name and one.purge]
        for one in left:
            upkeep.finish_drop(self, one.uuid)
        return bool(left)

    def clear_dropped(self) -> int:
        """Finish the drops that were interrupted: delete files that were to be purged, then rows; return how many.

        Expiry and the removal of orphans do it, too.
        """
        return upkeep.clear_dropped(self)

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
        drawn. An append that lost its race is put on top of what won (`endive.catalog.commit.rebase`); a real conflict
        raises `CommitConflictError`, which names both sides.
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
        require_known_in(changes)
        for change in changes:
            upkeep.prepare(self, change)
        committed = self._committer.commit(changes, commit_id)
        for change in changes:
            upkeep.tidy_up_after(self, change)
        for change, one in zip(changes, committed, strict=True):
            if one.whole is None:
                self._publisher.remind(change.identifier)
        return committed

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


def _loaded(view: TableView) -> LoadedTable:
    """Return a view for a caller, who may change the properties, while records are shared."""
    metadata = view.metadata.model_copy(update={"properties": dict(view.metadata.properties)})
    return LoadedTable(view.record.identifier, view.record.version, metadata, view.record.metadata_location)


def _folder(level: str) -> str:
    """Return a name that every tool takes as it is in a path; what makes it unique is the uuid beside it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", level)
