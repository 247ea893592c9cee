"""The commit loop: load the base, decide, write the files, run the transaction, and start over if the table had moved.

**Races.** Any process may commit to, rename or drop a table at any moment. The transaction function (`apply_commit`)
runs on the newest state and commits a change on exactly the version that it was computed on, or not at all. Then the
loop starts over, up to `endive.commit.attempts` times.

**Deletion of files.** Files that were written for an attempt are deleted if the attempt certainly failed: the
transaction function returned `Stale` or raised an error of its own. After anything else, an interrupt included, a
record may refer to the files, so they stay. A commit with an unknown outcome is retried once under its id; a retry that
fails proves nothing, since the first request may still arrive. The manifest list that a client wrote is deleted only if
the record refers to the one that replaced it: a restarted job may find that its first run has committed the same
snapshot.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from endive.catalog.commit.apply import Stale
from endive.catalog.commit.base import load_base
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.decision import Decision, decide
from endive.catalog.commit.group_commit import GroupCommitter, can_group
from endive.catalog.commit.groups import TableQueues, Waiting
from endive.catalog.commit.manifests import changed_files, own_list
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.old_metadata import delete_dropped_files
from endive.catalog.commit.portable import ApplyCommit
from endive.catalog.commit.prepared import ChangedRows, PreparedCommit, compute_rows, whole_metadata
from endive.catalog.commit.rebase import KnownLists, rebase, write_lists
from endive.catalog.commit.stored_results import Results, require_same_request, stored_results
from endive.catalog.commit.turns import Turns
from endive.catalog.commit.updates import structure_after
from endive.catalog.model.catalog_records import CommitRecord, SnapshotRecord
from endive.catalog.model.keys import snapshot_key
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore, TransactionFunction
from endive.catalog.operations.table_rows import TableView, find_table, load_table, whole_view
from endive.catalog.settings import ATTEMPTS, ATTEMPTS_DEFAULT
from endive.errors import (
    AlreadyInCatalogError,
    CommitConflictError,
    CommitRetriesExhaustedError,
    NotInCatalogError,
    OutcomeUnknownError,
)
from endive.protocol.requests import Steps

T = TypeVar("T")
Read = Callable[[TransactionFunction[T]], T]


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


@dataclass(frozen=True, slots=True)
class _Decided:
    """A change, its base, and the way in which it is committed."""

    change: TableChange
    base: TableView | None
    """None: the table does not exist, or the base need not be loaded."""
    decision: Decision


class TableCommitter:
    """Commits changes of tables. Safe to use from many threads."""

    def __init__(
        self, store: TransactionalStore, files: MetadataFiles, clock: Callable[[], int], new_id: Callable[[], str]
    ) -> None:
        self.store = store
        self.files = files
        self._clock = clock
        self._new_id = new_id
        self._turns = Turns()
        self._queues = TableQueues()
        self._groups = GroupCommitter(store, files, clock, new_id, self._turns)
        self._in_background: set[Identifier] = set()
        """Tables whose last commit was applied in the transaction; the next one will be as well, if it has no files."""

    def close(self) -> None:
        """Stop the threads that write files. Idempotent."""
        self._groups.close()

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
        """Run the commit loop. A change of one table that writes files is committed with others of its table."""
        lost, names = 0, {change.identifier for change in changes}
        with self._turns.of(names) as turn:
            while True:
                decided = [self._with_files(one) for one in self._decide(changes, names)]
                changes = [one.change for one in decided]
                applies = all(one.decision is Decision.APPLY for one in decided)
                if self._joins_group(decided, applies):
                    return [self._commit_in_group(decided[0], commit_id)]
                if not applies and not turn.take():
                    continue  # another commit of this process came first
                commits, written = self._prepare(decided, lost)
                applied: list[ChangedRows] = []
                result = self._transact(commits, commit_id, written, applied)
                if not isinstance(result, Stale):
                    self._in_background |= names if applies else set()
                    for one, commit in zip(decided, commits, strict=True):
                        self._delete_replaced_lists(one, commit.change)
                        if one.base is not None and commit.rows is not None:
                            delete_dropped_files(self.store, self.files, one.base.record, commit.rows.record)
                    rows: Sequence[ChangedRows | None] = applied or [None] * len(commits)
                    return list(map(_committed, commits, result, rows))
                self._in_background -= names
                lost += turn.is_taken
                _require_attempts(decided, lost, result.identifier)

    def _joins_group(self, decided: Sequence[_Decided], applies: bool) -> bool:
        """Whether a commit is made in a group: it writes files, or will have to when another process comes first."""
        if len(decided) > 1 or not can_group(decided[0].change, decided[0].base):
            return False
        change = decided[0].change
        queue = self._queues.of(change.identifier)
        return not applies or (change.has_files and self._groups.has_company(change.identifier, queue))

    def _commit_in_group(self, one: _Decided, commit_id: str) -> CommittedTable:
        """Commit a change together with those of other threads that wait for its table."""
        waiting = Waiting(one.change, commit_id)
        self._queues.of(one.change.identifier).commit(waiting, self._groups.lead)
        if waiting.error is not None:
            raise waiting.error
        result = waiting.committed
        if result is None:
            raise AssertionError("a commit without an answer")
        self._delete_replaced_lists(one, result.change)
        if result.state is None:
            self._require_file(one.change.identifier, result.record)
            return CommittedTable(result.record, None)
        metadata, state = result.state.metadata, result.state
        own = metadata.model_copy(update={"properties": dict(metadata.properties)})  # the caller may change it
        return CommittedTable(result.record, own, state.version, state.metadata_location)

    def _decide(self, changes: Sequence[TableChange], names: set[Identifier]) -> list[_Decided]:
        """Load the bases and decide, on the state that this process knows; on the newest state if that does not fit."""
        if names <= self._in_background and not any(change.has_files for change in changes):
            return [_Decided(change, None, Decision.APPLY) for change in changes]
        try:
            decided = self._decide_on(self.store.read_cached, changes)
            if len(decided) == 1 or all(one.decision is not Decision.REBASE for one in decided):
                return decided  # the leader of a group decides whether it needs a newer state
        except (CommitConflictError, NotInCatalogError):
            pass
        return self._decide_on(self.store.read, changes)

    def _decide_on(self, read: Read[list[TableView | None]], changes: Sequence[TableChange]) -> list[_Decided]:
        bases = read(partial(_load_bases, changes=changes))
        return [
            _Decided(change, base, decide(change, base, self.files.written_first))
            for change, base in zip(changes, bases, strict=True)
        ]

    def _with_files(self, one: _Decided) -> _Decided:
        """Add the file changes of the added snapshots, read from the small manifests that the client just wrote."""
        change = one.change
        missing = [snapshot for snapshot in change.added_snapshots if snapshot.snapshot_id not in change.files]
        if not missing:
            return one
        metadata = structure_after(change, one.base.record.metadata if one.base is not None else None)
        io = self.files.io(metadata.location, metadata.properties)
        files = dict(change.files)
        for each in missing:
            files[each.snapshot_id] = changed_files(io, own_list(io, each), each, metadata)
        return replace(one, change=replace(change, files=files))

    def _prepare(self, decided: Sequence[_Decided], lost: int) -> tuple[list[PreparedCommit], list[str]]:
        """Write the files of changes; return the prepared changes and the files, which nothing refers to yet."""
        written: list[str] = []
        try:
            return [self._prepare_one(one, lost, written) for one in decided], written
        except BaseException:  # no transaction has begun
            self._discard(written)
            raise

    def _prepare_one(self, one: _Decided, lost: int, written: list[str]) -> PreparedCommit:
        change, base, decision = one.change, one.base, one.decision
        if decision is Decision.REBASE and base is not None:
            io = self.files.io(base.record.metadata.location, base.record.metadata.properties)
            commit_uuid, now_ms = UUID(self._new_id()), self._clock()
            change, lists = rebase(change, base.metadata, io, commit_uuid, lost + 1, now_ms, written, KnownLists())
            write_lists(io, lists)
            decision = decide(change, base, self.files.written_first)
        if decision is Decision.APPLY:
            return PreparedCommit(change)
        table = self.store.read_cached(partial(whole_view, record=base.record)) if base is not None else None
        previous = ""
        if base is not None:
            previous = self.files.existing(base.record, self._loading(change.identifier))
        rows = compute_rows(change, table, self._clock())
        if not rows.is_empty:
            previous_ms = base.record.metadata.last_updated_ms if base is not None else 0
            before = base.record.metadata_location if base is not None else ""
            rows = rows.named(self.files.new_location(rows.after, before), previous, previous_ms)
        metadata = whole_metadata(rows, table)
        if not rows.is_empty:
            written.append(rows.record.metadata_location)
            self.files.write(metadata, rows.record.metadata_location)
        return PreparedCommit(change, rows, metadata)

    def _transact(
        self, commits: Sequence[PreparedCommit], commit_id: str, written: list[str], applied: list[ChangedRows]
    ) -> Results | Stale:
        """Run the transaction; delete the files if it certainly failed. `applied` gets the rows that it has put."""
        function = ApplyCommit(commits, commit_id, self._clock(), self.files, applied)
        try:
            result = self.store.transact(function)
        except OutcomeUnknownError as unknown:
            return self._retry(function, unknown)
        except (AlreadyInCatalogError, CommitConflictError, NotInCatalogError):
            self._discard(written)
            raise
        if isinstance(result, Stale):
            self._discard(written)
        return result

    def _retry(self, function: TransactionFunction[Results | Stale], unknown: OutcomeUnknownError) -> Results:
        """Run a transaction of unknown outcome again: only a result tells anything."""
        try:
            result = self.store.transact(function)
        except Exception as error:
            raise unknown from error
        if isinstance(result, Stale):
            raise unknown
        return result

    def _stored_results(self, changes: Sequence[TableChange], commit_id: str) -> Results | None:
        """Return the stored results of a commit id; None if there are none."""
        names = [change.identifier for change in changes]
        return self.store.read(lambda tx: stored_results(tx, names, commit_id, []))

    def _discard(self, written: list[str]) -> None:
        """Delete the files of an attempt that certainly failed."""
        for path in written:
            self.files.delete(path)

    def _delete_replaced_lists(self, one: _Decided, committed: TableChange | None) -> None:
        """Delete the manifest lists that a client wrote and that a rebase has replaced.

        `committed`: the change as it was committed; None: by another process.
        """
        if committed is one.change or one.base is None:
            return
        for old in one.change.added_snapshots:
            current = self._current_list(one.base.record.uuid, old.snapshot_id)
            if current is not None and current != old.manifest_list:
                self.files.delete(old.manifest_list)

    def _current_list(self, uuid: UUID, snapshot_id: int) -> str | None:
        """Return the manifest list in the record of a snapshot."""
        body = self.store.read_cached(lambda tx: tx.get(snapshot_key(uuid, snapshot_id)))
        return None if body is None else SnapshotRecord.decoded(body).snapshot.manifest_list


def _load_bases(tx: StoreTransaction, changes: Sequence[TableChange]) -> Steps[list[TableView | None]]:
    bases = []
    for change in changes:
        base = yield from load_base(tx, change)
        bases.append(base)
    return bases


def _committed(commit: PreparedCommit, record: CommitRecord, rows: ChangedRows | None) -> CommittedTable:
    """Return the result of a change; with its metadata unless an earlier attempt had succeeded unnoticed."""
    prepared = commit.rows.record if commit.rows is not None else None
    is_own = prepared is not None and (prepared.version, prepared.metadata_location) == (
        record.version,
        record.metadata_location,
    )
    metadata = commit.metadata if is_own else None
    return CommittedTable(record, metadata, record.version, record.metadata_location, rows if not is_own else None)


def _require_attempts(decided: Sequence[_Decided], lost: int, loser: Identifier) -> None:
    """Raise if a commit has lost as many races as its tables allow."""
    texts = [one.base.record.metadata.properties.get(ATTEMPTS, "") for one in decided if one.base is not None]
    limits = [int(text) if text.isdigit() else ATTEMPTS_DEFAULT for text in texts]
    attempts_max = max(1, min(limits, default=ATTEMPTS_DEFAULT))
    if lost >= attempts_max:
        raise CommitRetriesExhaustedError(text_of(loser), f"lost {lost} races in a row", attempts_max, ATTEMPTS)
