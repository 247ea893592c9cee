"""Metadata files in the background: the newest state of tables that changed, written by a thread.

A table with `endive.metadata-json=background` is committed by its records alone. The thread writes its metadata file
soon after, skipping states in between, and then puts the file and its version into the record. Until then the record
refers to the file before. So a crash leaves a table whose file is behind its records: the next load, commit or
`export_metadata` has it written.

The log of metadata files in a table holds only files that were written.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Condition, Thread
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.old_metadata import delete_dropped_files
from endive.catalog.iceberg import with_log_entry
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations import table_rows
from endive.catalog.operations.stored_tables import put_record
from endive.errors import NotInCatalogError
from endive.protocol.requests import Steps

PAUSE_S = 0.5
"""Between rounds: a table that changes all the time gets a file so often, not one for each change."""

PARALLEL_MAX = 16
"""Tables whose files are written at the same time: over a remote store each takes three or four requests."""

logger = logging.getLogger(__name__)


def note_published(
    tx: StoreTransaction, identifier: Identifier, uuid: UUID, version: int, location: str, published: TableMetadata
) -> Steps[bool]:
    """Put a metadata file into a table's record; False if the record has one as new, or is another table's.

    A version that the record has not reached is of the table before it was registered again.
    """
    record = yield from table_rows.find_table(tx, identifier)
    if record is None or record.uuid != uuid or not record.metadata_version < version <= record.version:
        return False
    metadata = record.metadata.model_copy(update={"metadata_log": published.metadata_log})
    new = replace(
        record,
        metadata=metadata,
        metadata_location=location,
        metadata_version=version,
        metadata_unix_ms=published.last_updated_ms,
        is_written_beside=False,
    )
    yield from put_record(tx, new)
    return True


class Publisher:
    """Writes metadata files of tables that are behind."""

    def __init__(self, store: TransactionalStore, files: MetadataFiles, pause_s: float = PAUSE_S) -> None:
        self.store = store
        self.files = files
        self._pause_s = pause_s
        self._behind: set[Identifier] = set()
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    def remind(self, identifier: Identifier) -> None:
        """Have a table's file written soon."""
        with self._changed:
            if not self._behind:  # a thread that has something to do need not be woken by every commit
                self._changed.notify_all()
            self._behind.add(identifier)
            if self._thread is None and not self._closed:
                self._thread = Thread(target=self._run, name="endive-metadata", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write the files that are behind, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._publish_all()

    def publish(self, identifier: Identifier) -> str:
        """Write the metadata file of a table's newest state if it is not there; return where it is."""

        def look(tx: StoreTransaction) -> Steps[table_rows.TableView]:
            view = yield from table_rows.load_table(tx, identifier)
            return view

        view = self.store.read(look)
        record, metadata = view.record, view.metadata
        previous = self.files.existing(record, lambda: view)
        if not record.is_dirty:
            if not previous:
                self.files.write(metadata, record.metadata_location)  # for its error
            return record.metadata_location
        if previous:
            metadata = with_log_entry(metadata, previous, record.metadata_unix_ms)
        location = self.files.new_location(metadata, record.metadata_location)
        self.files.write(metadata, location)
        noted = self.store.transact(
            lambda tx: note_published(tx, identifier, record.uuid, record.version, location, metadata)
        )
        if not noted:
            self.files.delete(location)
            return self.publish_again(identifier)
        after = record.metadata.model_copy(update={"metadata_log": metadata.metadata_log})
        published = replace(record, metadata=after, metadata_location=location)
        delete_dropped_files(self.store, self.files, record, published)
        return location

    def publish_again(self, identifier: Identifier) -> str:
        """Return the location of the file that another process has written meanwhile."""

        def look(tx: StoreTransaction) -> Steps[str]:
            record = yield from table_rows.require_table(tx, identifier)
            return record.metadata_location

        return self.store.read(look)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._behind)
                if self._closed:
                    return
            self._publish_all()
            with self._changed:
                self._changed.wait_for(lambda: self._closed, timeout=self._pause_s)

    def _publish_all(self) -> None:
        with self._changed:
            behind, self._behind = self._behind, set()
        if not behind:
            return
        with ThreadPoolExecutor(min(len(behind), PARALLEL_MAX), thread_name_prefix="endive-metadata") as pool:
            list(pool.map(self._publish_quietly, sorted(behind)))

    def _publish_quietly(self, identifier: Identifier) -> None:
        """Write a table's file if it can be written now; the records have everything, so it can wait."""
        try:
            self.publish(identifier)
        except NotInCatalogError:
            pass  # dropped or renamed since; under its new name it is found at the next load
        except Exception:  # whatever it is, other tables' files must be written
            logger.warning("the metadata file of %s is behind its records", text_of(identifier), exc_info=True)
