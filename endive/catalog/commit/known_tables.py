"""Tables that this process commits to: a commit adds to what is known of them, and nothing is loaded again.

PyIceberg wants a table's whole metadata after each commit. A commit that is applied in its transaction has only the
rows that it changed. With the past of the version before it, they give the metadata of the version after it.
"""

from collections import OrderedDict
from threading import Lock
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from endive.catalog.commit.prepared import ChangedRows
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.operations.tables_in_store import LoadedTable, TablesInStore
from endive.errors import EndiveError, OutcomeUnknownError

TABLES_KEPT = 64
"""Tables that are kept: lists of references to snapshots, which other caches hold as well."""


class KnownTables:
    """Whole metadata of tables at their newest known versions. Safe to use from many threads."""

    def __init__(self) -> None:
        self._held: OrderedDict[UUID, tuple[int, TableMetadata]] = OrderedDict()
        self._lock = Lock()

    def keep(self, version: int, metadata: TableMetadata) -> None:
        """Keep a table's metadata at a version; a newer one that is known stays."""
        uuid = metadata.table_uuid
        with self._lock:
            known = self._held.pop(uuid, None)
            self._held[uuid] = (version, metadata) if known is None or known[0] <= version else known
            if len(self._held) > TABLES_KEPT:
                self._held.popitem(last=False)

    def after(self, rows: ChangedRows) -> TableMetadata | None:
        """Return and keep a table's metadata after a change; None if the table before it is not known.

        The change must not have needed the whole past: then the rows have no more than what it added.
        """
        known = self._held.get(rows.base_uuid) if rows.base_uuid is not None else None
        if known is None or known[0] != rows.base_version or known[1].last_updated_ms != rows.base_updated_ms:
            return None
        if rows.removes_snapshots or not known[1].refs:
            return None
        before = {one.snapshot.snapshot_id for one in rows.snapshots_before}
        past = {
            "snapshots": [*known[1].snapshots, *(one for one in rows.after.snapshots if one.snapshot_id not in before)],
            "snapshot_log": [*known[1].snapshot_log, *rows.after.snapshot_log],
        }
        metadata = rows.record.metadata.model_copy(update=past)
        self.keep(rows.record.version, metadata)
        return metadata

    def load(self, tables: TablesInStore, name: Identifier, rows: ChangedRows | None) -> LoadedTable:
        """Return a table after a commit: what was known of it before with the commit's rows, or loaded.

        An error must not look like a failed commit: its files would be deleted.
        """
        metadata = self.after(rows) if rows is not None else None
        if rows is not None and metadata is not None:
            own = metadata.model_copy(update={"properties": dict(metadata.properties)})  # the caller may change it
            return LoadedTable(name, rows.record.version, own, rows.record.metadata_location)
        try:
            loaded = tables.load_cached(name)
        except EndiveError as error:
            raise OutcomeUnknownError(f"{text_of(name)}, committed but not to be loaded") from error
        self.keep(loaded.version, loaded.metadata)
        return loaded
