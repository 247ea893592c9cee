"""The catalog: namespaces and Iceberg tables in a store that several processes share.

Every operation is one transaction on the store, or one read of it. What needs the outside (metadata files, manifests,
a clock, new ids) happens around the transactions; the works in `namespaces`, `tables` and `commit` do none of it.
"""

from collections.abc import Callable
from typing import cast

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import DataScan, FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from endive.catalog.commit.changes import TableChange
from endive.catalog.maintenance import check as checking
from endive.catalog.maintenance import expiry as upkeep
from endive.catalog.maintenance.expiry import ExpiredSnapshots
from endive.catalog.model.file_rows import FileEntry, live_files
from endive.catalog.model.names import Identifier, table_of
from endive.catalog.model.transaction import Transaction
from endive.catalog.operations import refs, tables
from endive.catalog.operations.tables import TableView
from endive.catalog.planner import RecordPlanner
from endive.catalog.table_catalog import LoadedTable, TableCatalog
from endive.errors import ConfigurationError
from endive.protocol.requests import Steps


class KVCatalog(TableCatalog):
    """Iceberg tables on a shared store, with their past and their upkeep. Safe to use from many threads.

    `KVCatalog.open(url)` opens one by its URL; `KVCatalog(store, …)` makes one on a store that is open already.
    """

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
        self, identifier: str | Identifier, older_than_unix_ms: int | None = None, keep_last: int | None = None
    ) -> ExpiredSnapshots:
        """Remove branches and tags past their age, then old snapshots, and then the files that no other one needs.

        What other branches and tags point to stays, and the last `keep_last` snapshots of every branch. A branch's own
        retention comes before the arguments; where they are None, the table's properties decide (`retention`).
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
        return [str(fault) for fault in checking.check(self, identifier).findings]
