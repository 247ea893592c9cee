"""The part of a catalog that goes through time: a table's history, branches and tags; checkpoints, restore and clones.

`KVCatalog` (`endive.catalog.catalog`) has these methods.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from endive.catalog.checkpoints import Checkpoints
from endive.catalog.clones import Cloned, clone
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.connection import MEMORY, open_store, place_of, release_store, url_of
from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.model.names import Identifier, table_of
from endive.catalog.operations import refs
from endive.catalog.operations.restore import RestoreReport
from endive.catalog.operations.tables_in_store import LoadedTable
from endive.catalog.settings import AT, RECORDS, WRITER
from endive.errors import ConfigurationError

Name = str | Identifier


class CatalogThroughTime:
    """Methods of `KVCatalog` about the past of tables and of the whole catalog."""

    url: str
    properties: dict[str, str]
    files: MetadataFiles
    now_ms: Callable[[], int]
    _checkpoints: Checkpoints

    @abstractmethod
    def load_table(self, identifier: Name) -> LoadedTable:
        """Return a table as it is now."""

    @abstractmethod
    def commit_and_load(self, changes: Sequence[TableChange], commit_id: str | None = None) -> list[LoadedTable]:
        """Commit changes, and return the tables as the commit left them, or newer."""

    # History, branches and tags.

    def history(self, identifier: Name) -> list[SnapshotLogEntry]:
        """Return when which snapshot became current, oldest first."""
        return list(self.load_table(identifier).metadata.snapshot_log)

    def snapshots(self, identifier: Name) -> list[Snapshot]:
        """Return a table's snapshots, oldest first."""
        return list(self.load_table(identifier).metadata.snapshots)

    def snapshot_at(self, identifier: Name, unix_ms: int) -> Snapshot:
        """Return the snapshot that was current at a moment."""
        return refs.snapshot_at(self.load_table(identifier).metadata, unix_ms)

    def roll_back(self, identifier: Name, snapshot_id: int | None = None, unix_ms: int | None = None) -> LoadedTable:
        """Make an earlier state of `main` current again, by snapshot id or by time."""
        if (snapshot_id is None) == (unix_ms is None):
            raise ConfigurationError("roll_back", ["either a snapshot id or a time, not both"])
        return self._change(identifier, lambda now: refs.roll_back(now, snapshot_id, unix_ms))

    def set_current_snapshot(self, identifier: Name, snapshot_id: int) -> LoadedTable:
        """Make any snapshot of the table current, whether it is an ancestor of `main` or not."""

        def change(metadata: TableMetadata) -> refs.RequirementsAndUpdates:
            refs.snapshot_by_id(metadata, snapshot_id)
            return refs.set_ref(metadata, MAIN_BRANCH, snapshot_id, SnapshotRefType.BRANCH)

        return self._change(identifier, change)

    def create_branch(
        self, identifier: Name, name: str, snapshot_id: int | None = None, max_ref_age_ms: int | None = None
    ) -> LoadedTable:
        """Create a branch at a snapshot, or at the current one."""
        kind = SnapshotRefType.BRANCH
        return self._change(identifier, lambda now: refs.create_ref(now, name, snapshot_id, kind, max_ref_age_ms))

    def create_tag(
        self, identifier: Name, name: str, snapshot_id: int | None = None, max_ref_age_ms: int | None = None
    ) -> LoadedTable:
        """Create a tag at a snapshot, or at the current one."""
        kind = SnapshotRefType.TAG
        return self._change(identifier, lambda now: refs.create_ref(now, name, snapshot_id, kind, max_ref_age_ms))

    def remove_ref(self, identifier: Name, name: str) -> LoadedTable:
        """Remove a branch or a tag; the snapshots stay until they expire."""
        return self._change(identifier, lambda now: refs.remove_ref(now, name))

    def _change(self, identifier: Name, change: Callable[[TableMetadata], refs.RequirementsAndUpdates]) -> LoadedTable:
        name = table_of(identifier)
        requirements, updates = change(self.load_table(name).metadata)
        return self.commit_and_load([TableChange(name, requirements, updates)])[0]

    # The whole catalog through time.

    def create_checkpoint(self, name: str, lifetime_ms: int = 0) -> CheckpointRecord:
        """Create a checkpoint: a consistent, named point of all tables; `lifetime_ms` 0: it never expires.

        `KVCatalog.open(url, properties={"endive.at": name})` opens it. Its files are kept while it exists.
        """
        return self._checkpoints.create(name, lifetime_ms)

    def checkpoints(self) -> list[CheckpointRecord]:
        """Return the checkpoints, oldest first, those of clones among them."""
        return self._checkpoints.list()

    def delete_checkpoint(self, name: str, force: bool = False) -> None:
        """Delete a checkpoint; maintenance then deletes the files that nothing else needs.

        `force`: also one that a clone needs. The clone's tables lose their files then.
        """
        self._checkpoints.delete(name, force)

    def restore(self, name: str, dry_run: bool = False) -> RestoreReport:
        """Make all tables and namespaces as they were at a checkpoint, in one transaction.

        Tables go on from there in a new version; later snapshots stay until they expire, and tables that were created
        since are dropped without deleting files. The state before becomes a checkpoint, `undo` in the result.
        """
        return self._checkpoints.restore(name, dry_run)

    def clone(
        self,
        url: str,
        checkpoint: str | None = None,
        warehouse: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> Cloned:
        """Make a catalog at another URL with all tables as they are now, or were at a checkpoint.

        It shares the files of this catalog, which keeps them as long as the clone's checkpoint exists, and it can be
        written: its new files go to its own warehouse. Call it again after an interruption.
        """
        place = place_of(url)
        if place == self.url:
            raise ConfigurationError(url, ["this is the catalog itself"])
        given = {key: value for key, value in self.properties.items() if key not in {AT, WRITER, RECORDS}}
        store = open_store(place, {**given, **(properties or {})}, create=True)
        try:
            own = url_of(warehouse) if warehouse else ("" if place.startswith(MEMORY) else place)
            return clone(self._checkpoints, self.url, store, place, own, self.files, checkpoint, self.now_ms)
        finally:
            release_store(place)
