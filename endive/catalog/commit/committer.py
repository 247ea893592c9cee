"""Commits of changes: by the rows alone, or by the commit loop.

A change of a table whose metadata file is written in the background needs no file before its transaction: it is decided
and applied inside of the transaction function (`endive.catalog.commit.apply`), on the newest state. Every other change
is committed by the commit loop (`endive.catalog.commit.commit_loop`), and so is one that does not fit any more.

The manifest list that a client wrote is deleted only if the record refers to the one that replaced it: a restarted job
may find that its first run has committed the same snapshot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from endive.catalog.commit.apply import Stale
from endive.catalog.commit.base import base_of, load_base
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.commit_loop import CommitLoop, transact_twice
from endive.catalog.commit.decision import Decision, decide
from endive.catalog.commit.groups import GroupResult, Waiting
from endive.catalog.commit.known_tables import KnownTables
from endive.catalog.commit.manifests import changed_files, own_list
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.portable import ApplyCommit
from endive.catalog.commit.prepared import ChangedRows, PreparedCommit
from endive.catalog.commit.stored_results import Results, require_same_request, stored_results
from endive.catalog.commit.updates import structure_after
from endive.catalog.model.catalog_records import CommitRecord, SnapshotRecord, TableRecord
from endive.catalog.model.keys import snapshot_key
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.table_rows import TableView, find_table, load_table
from endive.errors import CommitConflictError, NotInCatalogError, OutcomeUnknownError
from endive.protocol.requests import Steps


@dataclass(frozen=True, slots=True)
class CommittedTable:
    """The result of a change."""

    record: CommitRecord
    metadata: TableMetadata | None
    """The table's metadata after the commit, or after later ones; None if it has to be loaded."""
    version: int = 0
    """The version that `metadata` shows."""
    metadata_location: str = ""
    """The metadata file that shows `metadata`."""
    rows: ChangedRows | None = None
    """The rows of a change that was applied in the transaction; None if it was not, or had been before."""


class TableCommitter:
    """Commits changes of tables. Safe to use from many threads."""

    def __init__(
        self, store: TransactionalStore, files: MetadataFiles, clock: Callable[[], int], new_id: Callable[[], str]
    ) -> None:
        self.store = store
        self.files = files
        self._clock = clock
        self._new_id = new_id
        self.known = KnownTables()
        self._loop = CommitLoop(store, files, clock, new_id, self.known)
        self._background: set[Identifier] = set()
        """Tables whose last commit was applied in the transaction; the next one will be as well, if it has no files."""

    def close(self) -> None:
        """Stop the threads that write files. Idempotent."""
        self._loop.close()

    def commit(self, changes: Sequence[TableChange], commit_id: str | None = None) -> list[CommittedTable]:
        """Commit changes of different tables, all or none. Without an id, one is drawn."""
        if commit_id is None:
            return self._commit(changes, self._new_id())
        committed = self._commit_once(changes, commit_id)
        for change, one in zip(changes, committed, strict=True):
            require_same_request(change, one.record)
        return committed

    def _commit_once(self, changes: Sequence[TableChange], commit_id: str) -> list[CommittedTable]:
        """Commit changes, or return the stored results of their id."""
        stored = self._stored_results(changes, commit_id)
        if stored is None:
            try:
                return self._commit(changes, commit_id)
            except (CommitConflictError, ValueError):  # perhaps with an earlier try of this commit that just arrived
                stored = self._stored_results(changes, commit_id)
                if stored is None:
                    raise
        for change, one in zip(changes, stored, strict=True):
            self._require_file(change.identifier, one)
        return [CommittedTable(one, None) for one in stored]

    def _loading(self, identifier: Identifier) -> Callable[[], TableView]:
        return lambda: self.store.read_cached(partial(load_table, identifier=identifier))

    def _require_file(self, identifier: Identifier, stored: CommitRecord) -> None:
        """Have the metadata file of a stored result written, if the process died that was to write it."""
        record = self.store.read_cached(partial(find_table, identifier=identifier))
        if record is None or record.metadata_location != stored.metadata_location or self.files.is_certain(record):
            return
        if not self.files.existing(record, self._loading(identifier)):
            raise OutcomeUnknownError(f"{text_of(identifier)}: committed, but {record.metadata_location} is missing")

    def _commit(self, changes: Sequence[TableChange], commit_id: str) -> list[CommittedTable]:
        """Commit changes: by their rows alone if no file has to be written before, else by the commit loop."""
        names = [change.identifier for change in changes]
        if self._background.issuperset(names) and not any(change.has_files for change in changes):
            records: Sequence[TableRecord | None] = [None] * len(changes)
            applies = True
        else:
            records = self._records(names)
            changes = list(map(self._with_files, changes, records))
            applies = self._applies(changes, records)
        if applies:
            applied: list[ChangedRows] = []
            commits = [PreparedCommit(change) for change in changes]
            results = transact_twice(self.store, ApplyCommit(commits, commit_id, self._clock(), self.files, applied))
            if not isinstance(results, Stale):
                self._background.update(names)
                rows: Sequence[ChangedRows | None] = applied or [None] * len(changes)
                return [CommittedTable(one, None, rows=each) for one, each in zip(results, rows, strict=True)]
            self._background.difference_update(names)
        committed = self._loop.commit([Waiting(change, commit_id) for change in changes])
        return [self._answer(*each) for each in zip(changes, records, committed, strict=True)]

    def _records(self, names: Sequence[Identifier]) -> list[TableRecord | None]:
        """Return the records of tables as this process knows them; as they are now, if it does not know all of them."""
        records = self.store.read_cached(partial(_find_tables, names=names))
        return records if None not in records else self.store.read(partial(_find_tables, names=names))

    def _with_files(self, change: TableChange, record: TableRecord | None) -> TableChange:
        """Add the file changes of the added snapshots, read from the small manifests that the client just wrote."""
        missing = [snapshot for snapshot in change.added_snapshots if snapshot.snapshot_id not in change.files]
        if not missing:
            return change
        files = dict(change.files)
        try:
            metadata = structure_after(change, record.metadata if record is not None else None)
            io = self.files.io(metadata.location, metadata.properties)
            for each in missing:
                files[each.snapshot_id] = changed_files(io, own_list(io, each), each, metadata)
        except Exception:  # perhaps the table is gone, or an earlier try of this commit has replaced the manifest list
            load = partial(load_base, identifier=change.identifier, changes=[change])
            decide(change, self.store.read(load), self.files.written_first)
            raise
        return replace(change, files=files)

    def _applies(self, changes: Sequence[TableChange], records: Sequence[TableRecord | None]) -> bool:
        """Whether changes can be applied in the transaction: no file is written before, as far as this process knows.

        A change that would have to be rebased is left to the commit loop. So is one with files if other processes
        commit to its table.
        """
        for change, record in zip(changes, records, strict=True):
            if record is None or self.files.written_first(change.properties_after(record.metadata.properties)):
                return False
        if len(changes) == 1 and changes[0].has_files and self._loop.has_company(changes[0].identifier):
            return False
        bases = self.store.read_cached(partial(_bases_of, changes=changes, records=records))
        try:
            decisions = [decide(*each, self.files.written_first) for each in zip(changes, bases, strict=True)]
        except (CommitConflictError, NotInCatalogError):
            return False  # perhaps with an old state
        return all(one is Decision.APPLY for one in decisions)

    def _answer(self, change: TableChange, record: TableRecord | None, result: GroupResult) -> CommittedTable:
        """Return the result of a change that the commit loop has committed."""
        if record is not None and result.change is not change:
            self._delete_replaced_lists(change, record.uuid)
        if result.state is None:
            self._require_file(change.identifier, result.record)
            return CommittedTable(result.record, None)
        metadata, state = result.state.metadata, result.state
        own = metadata.model_copy(update={"properties": dict(metadata.properties)})  # the caller may change it
        return CommittedTable(result.record, own, state.version, state.metadata_location)

    def _stored_results(self, changes: Sequence[TableChange], commit_id: str) -> Results | None:
        """Return the stored results of a commit id; None if there are none."""
        names = [change.identifier for change in changes]
        return self.store.read(lambda tx: stored_results(tx, names, commit_id, []))

    def _delete_replaced_lists(self, change: TableChange, uuid: UUID) -> None:
        """Delete the manifest lists that a client wrote and that a rebase, perhaps of another process, has replaced."""
        for old in change.added_snapshots:
            current = self._current_list(uuid, old.snapshot_id)
            if current is not None and current != old.manifest_list:
                self.files.delete(old.manifest_list)

    def _current_list(self, uuid: UUID, snapshot_id: int) -> str | None:
        """Return the manifest list in the record of a snapshot."""
        body = self.store.read_cached(lambda tx: tx.get(snapshot_key(uuid, snapshot_id)))
        return None if body is None else SnapshotRecord.decoded(body).snapshot.manifest_list


def _find_tables(tx: StoreTransaction, names: Sequence[Identifier]) -> Steps[list[TableRecord | None]]:
    records = []
    for name in names:
        record = yield from find_table(tx, name)
        records.append(record)
    return records


def _bases_of(
    tx: StoreTransaction, changes: Sequence[TableChange], records: Sequence[TableRecord | None]
) -> Steps[list[TableView | None]]:
    bases = []
    for change, record in zip(changes, records, strict=True):
        base = yield from base_of(tx, record, [change])
        bases.append(base)
    return bases
