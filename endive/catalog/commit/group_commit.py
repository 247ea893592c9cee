"""The commit of a group: changes of one table, each on top of the one before, by one file and one transaction.

**The chain.** The leader loads the table, and decides about each change on the state that the change before it leaves:
it fits, is rebased, or is a conflict. The members' rows are computed one on top of the other. Then the manifest lists
of rebased appends and one metadata file, of the last state, are written at the same time; that file shows the changes
of all members. Then one transaction puts all rows if the table is still at the version that the chain begins with, and
otherwise none: the chain is computed again.

**Errors.** A conflict may be with a member before it in the chain, so it is raised only once the group is durable; if
no member fits, on a state that was read after the members came. A member's error is its own. If the transaction's
outcome is unknown, it is unknown for all members that were in it.

**Files** are treated as by a single commit (`endive.catalog.commit.committer`): the files of an attempt are deleted if
it certainly failed, and those of members that failed in any case.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from endive.catalog.commit.apply import AlreadyCommitted, GroupMember, Results, Stale, apply_group
from endive.catalog.commit.base import named_snapshots
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.decision import Decision, decide
from endive.catalog.commit.groups import CommittedState, GroupResult, Past, TableQueue, Waiting
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.old_metadata import ENABLED, delete_dropped_files, dropped_files
from endive.catalog.commit.prepared import ChangedRows, advanced, compute_rows
from endive.catalog.commit.rebase import KnownLists, NewList, rebase, write_lists
from endive.catalog.commit.turns import Turns
from endive.catalog.model.catalog_records import CommitRecord, TableRecord
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore, TransactionFunction
from endive.catalog.operations.table_rows import TableView, partial_view, require_table, whole_view
from endive.catalog.settings import ATTEMPTS, ATTEMPTS_DEFAULT
from endive.errors import (
    CommitConflictError,
    CommitRetriesExhaustedError,
    EndiveError,
    NotInCatalogError,
    OutcomeUnknownError,
)
from endive.protocol.requests import Steps

WRITERS_MAX = 16
"""Files that are written at the same time."""

Outcome = Results | Stale | AlreadyCommitted


@dataclass(slots=True)
class Link:
    """A member of the chain."""

    waiting: Waiting
    written: list[str] = field(default_factory=list)
    """Files that were written for this member."""
    change: TableChange | None = None
    """The change on top of the chain so far: perhaps rebased."""
    rows: ChangedRows | None = None
    lists: list[NewList] = field(default_factory=list)
    error: Exception | None = None


@dataclass(slots=True)
class Chain:
    """The members of a group, one on top of the other."""

    base: TableView
    links: list[Link]
    file_first: bool = False
    """Whether the metadata file is written before the transaction."""
    last: ChangedRows | None = None
    """The rows of the last member that fits, with the metadata file; None if none fits."""
    metadata: TableMetadata | None = None
    """The table after the chain, with its whole past; None if its metadata file is written in the background."""
    written: list[str] = field(default_factory=list)

    @property
    def fitting(self) -> list[Link]:
        """The members without an error."""
        return [one for one in self.links if one.error is None]

    @property
    def files(self) -> list[str]:
        """All files that were written for the chain."""
        return self.written + [path for one in self.links for path in one.written]


def can_group(change: TableChange, base: TableView | None) -> bool:
    """Whether a change can be a member of a group: it adds to an existing table, and rewrites no row of its past."""
    if base is None or change.removed_snapshots:
        return False
    return bool(base.record.metadata.refs) or not base.record.snapshots_made


class GroupCommitter:
    """Commits groups. Safe to use from many threads, one for each table at a time."""

    def __init__(
        self,
        store: TransactionalStore,
        files: MetadataFiles,
        clock: Callable[[], int],
        new_id: Callable[[], str],
        turns: Turns,
    ) -> None:
        self.store = store
        self.files = files
        self._clock = clock
        self._new_id = new_id
        self._turns = turns
        self._writers = ThreadPoolExecutor(WRITERS_MAX, thread_name_prefix="endive-files")

    def close(self) -> None:
        """Stop the threads."""
        self._writers.shutdown()

    def lead(self, queue: TableQueue, group: list[Waiting]) -> None:
        """Commit a group, and answer its members; unless interrupted, all of them."""
        identifier = group[0].change.identifier
        submitted: list[Waiting] = []
        try:
            with self._turns.of([identifier]) as turn:
                turn.take()
                self._commit(identifier, queue, group, submitted)
        except Exception as error:  # noqa: BLE001 - every member raises it
            for one in group:
                if not one.is_answered:
                    one.error = _copy_of(error)
        except BaseException:
            for one in submitted:
                if not one.is_answered:
                    one.error = OutcomeUnknownError(f"{text_of(identifier)}: interrupted during the commit")
            raise

    def _commit(
        self, identifier: Identifier, queue: TableQueue, group: list[Waiting], submitted: list[Waiting]
    ) -> None:
        lost, is_fresh = 0, queue.is_contended
        while pending := [one for one in group if not one.is_answered]:
            read = self.store.read if is_fresh else self.store.read_cached
            view = read(partial(_load, identifier=identifier, changes=[one.change for one in pending]))
            chain = self._chain(view, pending, lost, queue.known)
            if not is_fresh and len(chain.fitting) < len(pending):
                self._discard(chain.files)
                is_fresh = True  # what looks like a conflict may be one with an old state
                continue
            for link in chain.links:
                if link.error is not None:
                    self._discard(link.written)
                    link.written.clear()
            if chain.fitting:
                self._prepare(chain, queue)
                submitted[:] = [link.waiting for link in chain.fitting]
                outcome = self._transact(identifier, chain)
                if isinstance(outcome, Stale):
                    lost, is_fresh, queue.is_contended = lost + 1, True, True
                    _require_attempts(view, lost, identifier)
                    continue
                if isinstance(outcome, AlreadyCommitted):
                    self._answer_repeats(chain, outcome)
                    continue
                queue.is_contended = lost > 0
                queue.past = _past_after(chain)
                self._answer(chain, outcome)
                self._clean_old_metadata(chain)
            for link in chain.links:
                link.waiting.error = link.error

    def _chain(self, view: TableView, pending: Sequence[Waiting], lost: int, known: KnownLists) -> Chain:
        """Decide about each change on top of those before it, and compute the rows of those that fit."""
        chain = Chain(view, [Link(one) for one in pending])
        state = view
        for link in chain.links:
            try:
                state = self._add(chain, link, state, lost, known)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one change is not the others' error
                link.error = error
        return chain

    def _add(self, chain: Chain, link: Link, state: TableView, lost: int, known: KnownLists) -> TableView:
        change = link.waiting.change
        decision = decide(change, state, self.files.written_first)
        if decision is Decision.REBASE:
            commit_uuid, now_ms = UUID(self._new_id()), self._clock()
            change, link.lists = rebase(
                change, state.metadata, self._io(state), commit_uuid, lost + 1, now_ms, link.written, known
            )
            decision = decide(change, state, self.files.written_first)
        rows = compute_rows(change, state, self._clock())
        state = advanced(state, rows)
        link.change, link.rows = change, rows
        chain.file_first = chain.file_first or decision is Decision.PREPARE
        chain.last = rows
        return state

    def _io(self, view: TableView) -> FileIO:
        metadata = view.record.metadata
        return self.files.io(metadata.location, metadata.properties)

    def _prepare(self, chain: Chain, queue: TableQueue) -> None:
        """Write the files of a chain, at the same time; delete all of them if one cannot be written."""
        last, record = chain.last, chain.base.record
        if last is None:
            return
        io = self._io(chain.base)
        tasks = [partial(write_lists, io, link.lists) for link in chain.fitting if link.lists]
        if chain.file_first and last.record.version != record.version:
            location = self.files.new_location(last.after, record.metadata_location)
            chain.last = last = last.named(location, record.metadata_location, record.metadata.last_updated_ms)
            chain.metadata = _whole_metadata(chain, last, self._past(record, queue))
            chain.written.append(location)
            tasks.append(partial(self.files.write, chain.metadata, location))
        try:
            self._at_once(tasks)
        except BaseException:
            self._discard(chain.files)
            raise

    def _past(self, record: TableRecord, queue: TableQueue) -> Past:
        """Return the whole past of a table. If it is newer than the record, so is the table: the group is stale."""
        past = queue.past
        if past is not None and (past.uuid, past.version) == (record.uuid, record.version):
            return past
        view = self.store.read_cached(partial(whole_view, record=record))
        snapshots = [one.snapshot for one in view.snapshots]
        return Past(record.uuid, record.version, snapshots, [entry for _, entry in view.history])

    def _at_once(self, tasks: Sequence[Callable[[], None]]) -> None:
        if len(tasks) == 1:
            return tasks[0]()
        futures = [self._writers.submit(task) for task in tasks]
        wait(futures)  # all of them, so that no file is written after it was deleted
        for future in futures:
            future.result()
        return None

    def _transact(self, identifier: Identifier, chain: Chain) -> Outcome:
        """Run the transaction; delete the files if it certainly failed. An unknown outcome is tried once more."""
        members = [
            GroupMember(link.waiting.commit_id, link.change or link.waiting.change, link.rows)
            for link in chain.fitting
            if link.rows is not None
        ]
        last = chain.last
        if last is None or len(members) < len(chain.fitting):
            raise AssertionError("a chain without rows")
        function: TransactionFunction[Outcome] = partial(
            apply_group,
            identifier=identifier,
            members=members,
            last=last,
            writes_file_first=self.files.written_first,
        )
        try:
            outcome = self.store.transact(function)
        except OutcomeUnknownError as unknown:
            return self._retry(function, unknown)
        except (CommitConflictError, NotInCatalogError):
            self._discard(chain.files)
            raise
        if not isinstance(outcome, tuple):
            self._discard(chain.files)
        return outcome

    def _retry(self, function: TransactionFunction[Outcome], unknown: OutcomeUnknownError) -> Outcome:
        """Run a transaction of unknown outcome again: only results tell anything."""
        try:
            outcome = self.store.transact(function)
        except Exception as error:
            raise unknown from error
        if not isinstance(outcome, tuple):
            raise unknown
        return outcome

    def _answer(self, chain: Chain, results: Results) -> None:
        last = chain.last
        for link, record in zip(chain.fitting, results, strict=True):
            state = None
            if last is not None and chain.metadata is not None and _is_own(link, record, last):
                state = CommittedState(last.record.version, chain.metadata, last.record.metadata_location)
            change = link.change if link.change is not None else link.waiting.change
            link.waiting.committed = GroupResult(record, change, state)

    def _clean_old_metadata(self, chain: Chain) -> None:
        """Delete old metadata files; unless the table asks for it, without letting the leader wait."""
        before, last = chain.base.record, chain.last
        if last is None or not chain.written or not dropped_files(before, last.record):
            return
        delete = partial(delete_dropped_files, self.store, self.files, before, last.record)
        if ENABLED in last.record.metadata.properties:
            delete()  # a table with this property has no old files when the commit returns
        else:
            self._writers.submit(delete)

    def _answer_repeats(self, chain: Chain, outcome: AlreadyCommitted) -> None:
        """Answer the members that had been committed before by their stored results."""
        for link in chain.links:
            stored = outcome.results.get(link.waiting.commit_id)
            if stored is not None:
                link.waiting.committed = GroupResult(stored, link.waiting.change, None)

    def _discard(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.files.delete(path)


def _load(tx: StoreTransaction, identifier: Identifier, changes: Sequence[TableChange]) -> Steps[TableView]:
    """Return the table with as much of its past as the changes need."""
    record = yield from require_table(tx, identifier, "it may have been dropped or renamed since it was loaded")
    view = yield from partial_view(tx, record, {one for change in changes for one in named_snapshots(record, change)})
    return view


def _whole_metadata(chain: Chain, last: ChangedRows, past: Past) -> TableMetadata:
    """Return the metadata after a chain, with the table's whole past."""
    known = {one.snapshot.snapshot_id for one in chain.base.snapshots}
    snapshots, log = list(past.snapshots), list(past.log)
    for rows in (link.rows for link in chain.fitting):
        if rows is not None and not rows.is_empty:
            snapshots += [one for one in rows.after.snapshots if one.snapshot_id not in known]
            known |= {one.snapshot_id for one in rows.after.snapshots}
            log += rows.after.snapshot_log
    return last.after.model_copy(update={"snapshots": snapshots, "snapshot_log": log})


def _past_after(chain: Chain) -> Past | None:
    """Return the past of the table after a chain; None if it is not known."""
    if chain.metadata is None or chain.last is None:
        return None
    record = chain.last.record
    return Past(record.uuid, record.version, chain.metadata.snapshots, chain.metadata.snapshot_log)


def _is_own(link: Link, record: CommitRecord, last: ChangedRows) -> bool:
    """Whether a result is of this attempt, and not of an earlier one that had succeeded unnoticed."""
    version = link.rows.record.version if link.rows is not None else None
    return (version, last.record.metadata_location) == (record.version, record.metadata_location)


def _copy_of(error: Exception) -> Exception:
    """Return an equal error: one that is raised in several threads must not share its traceback."""
    if not isinstance(error, EndiveError):
        return error
    copied = type(error)(*error.args)
    copied.__cause__ = error
    return copied


def _require_attempts(view: TableView, lost: int, identifier: Identifier) -> None:
    """Raise if a group has lost as many races as its table allows."""
    text = view.record.metadata.properties.get(ATTEMPTS, "")
    attempts_max = max(1, int(text) if text.isdigit() else ATTEMPTS_DEFAULT)
    if lost >= attempts_max:
        raise CommitRetriesExhaustedError(text_of(identifier), f"lost {lost} races in a row", attempts_max, ATTEMPTS)
