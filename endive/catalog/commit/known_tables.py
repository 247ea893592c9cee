"""Tables that this process commits to: a commit adds to what is known of them, and nothing is loaded again.

PyIceberg wants a table's whole metadata after each commit, and a metadata file has it. A commit has only the rows that
it changes. With the past of the version before it, they give the metadata of the version after it.
"""

from collections import OrderedDict
from threading import Lock
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from endive.catalog.commit.prepared import ChangedRows, whole_metadata
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.operations.tables_in_store import LoadedTable, TablesInStore
from endive.errors import EndiveError, OutcomeUnknownError

TABLES_KEPT = 256
"""Tables that are kept: lists of references to snapshots, which other caches hold as well."""


class KnownTables:
    """Whole metadata of tables at their newest known versions. Safe to use from many threads."""

    def __init__(self) -> None:
        self._held: OrderedDict[UUID, tuple[int, TableMetadata]] = OrderedDict()
        self._lock = Lock()

    def keep(self, version: int, metadata: TableMetadata) -> None:
        """Keep a table's metadata at a version; a newer one that is known stays.

        A table that is registered again has its old uuid and lower versions, but later times.
        """
        uuid = metadata.table_uuid
        with self._lock:
            known = self._held.pop(uuid, None)
            if known is None or (known[1].last_updated_ms, known[0]) <= (metadata.last_updated_ms, version):
                known = version, metadata
            self._held[uuid] = known
            if len(self._held) > TABLES_KEPT:
                self._held.popitem(last=False)

    def at(self, record: TableRecord) -> TableMetadata | None:
        """Return a table's metadata in the state of its record; None if it is not known."""
        return self._at(record.state)

    def _at(self, state: tuple[UUID | None, int, int]) -> TableMetadata | None:
        known = self._held.get(state[0]) if state[0] is not None else None
        if known is None or (known[0], known[1].last_updated_ms) != state[1:]:
            return None
        return known[1]

    def after(self, rows: ChangedRows) -> TableMetadata | None:
        """Return and keep a table's metadata after a change; None if the table before it is not known."""
        past = self._at((rows.base_uuid, rows.base_version, rows.base_updated_ms))
        if past is None and not rows.is_whole:
            return None
        metadata = whole_metadata(past, [rows], rows.after)
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
