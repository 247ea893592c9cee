"""Metadata files in the background: the newest state of tables that changed, written by a thread.

A table with `endive.metadata-json=background` is committed by its records alone. The thread writes its metadata file
soon after, skipping states in between, and then puts the file and its version into the record: with a commit of this
process, if there is one. Until then the record refers to the file before. So a crash leaves a table whose file is
behind its records: the next load, commit or `export_metadata` has it written.

The log of metadata files in a table holds only files that were written.
"""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Condition, Thread
from time import time_ns

from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.old_metadata import delete_dropped_files
from endive.catalog.commit.published import NotePublished, NotePublishedLater
from endive.catalog.iceberg import with_log_entry
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations import table_rows
from endive.errors import NotInCatalogError
from endive.protocol.requests import Steps

PAUSE_S = 0.5
"""Between rounds: a table that changes all the time gets a file so often, not one for each change."""
HELPED_ROUNDS = 4
"""If another process has carried out a commit, that one's file is awaited for so many rounds."""

PARALLEL_MAX = 16
"""Tables whose files are written at the same time: over a remote store each takes three or four requests."""

logger = logging.getLogger(__name__)


class Publisher:
    """Writes metadata files of tables that are behind."""

    def __init__(self, store: TransactionalStore, files: MetadataFiles, pause_s: float = PAUSE_S) -> None:
        self.store = store
        self.files = files
        self._pause_s = pause_s
        self._behind: dict[Identifier, float] = {}
        """Tables whose file is behind, and for how many seconds a file of another process will do."""
        self._changed = Condition()
        self._closed = False
        self._thread: Thread | None = None

    def remind(self, identifier: Identifier, is_helped: bool = False) -> None:
        """Have a table's file written soon; `is_helped`: another process has carried out the commit."""
        awaited_s = self._pause_s * (HELPED_ROUNDS if is_helped else 1)
        with self._changed:
            if not self._behind:  # a thread that has something to do need not be woken by every commit
                self._changed.notify_all()
            self._behind[identifier] = min(awaited_s, self._behind.get(identifier, awaited_s))
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

    def publish(self, identifier: Identifier, is_urgent: bool = True) -> str:
        """Write the metadata file of a table's newest state if it is not there; return where it is.

        Unless it `is_urgent`, the record is changed with the next commit of this process.
        """

        def look(tx: StoreTransaction) -> Steps[table_rows.TableView]:
            view = yield from table_rows.load_table(tx, identifier)
            return view

        # This process has just changed the table, so it knows a state that is new enough.
        view = self.store.read(look) if is_urgent else self.store.read_cached(look)
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
        note = NotePublished if is_urgent else NotePublishedLater
        log, updated_unix_ms = metadata.metadata_log, metadata.last_updated_ms
        noted = self.store.transact(note(identifier, record.uuid, record.version, location, log, updated_unix_ms))
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
            behind, self._behind = self._behind, {}
            is_closed = self._closed
        recent = {} if is_closed else {name: wait_s for name, wait_s in behind.items() if self._is_recent(name, wait_s)}
        with self._changed:
            self._behind = recent | self._behind
        behind = {name: wait_s for name, wait_s in behind.items() if name not in recent}
        if not behind:
            return
        with ThreadPoolExecutor(min(len(behind), PARALLEL_MAX), thread_name_prefix="endive-metadata") as pool:
            list(pool.map(lambda name: self._publish_quietly(name, is_closed), sorted(behind)))

    def _is_recent(self, identifier: Identifier, awaited_s: float) -> bool:
        """Whether a file was written a moment ago, as far as this process knows: perhaps by another one."""

        def look(tx: StoreTransaction) -> Steps[TableRecord | None]:
            record = yield from table_rows.find_table(tx, identifier)
            return record

        record = self.store.read_cached(look)
        if record is None or not record.metadata_unix_ms:
            return False
        return 0 <= time_ns() / 1e9 - record.metadata_unix_ms / 1e3 < awaited_s

    def _publish_quietly(self, identifier: Identifier, is_urgent: bool) -> None:
        """Write a table's file if it can be written now; the records have everything, so it can wait."""
        try:
            self.publish(identifier, is_urgent)
        except NotInCatalogError:
            pass  # dropped or renamed since; under its new name it is found at the next load
        except Exception:  # whatever it is, other tables' files must be written
            logger.warning("the metadata file of %s is behind its records", text_of(identifier), exc_info=True)
