"""The commit loop: work a change out, write what it needs, commit, and begin anew if the table had moved on.

**What can race.** Anybody may commit to, rename or drop a table at any moment. The work in `commit` sees that, since it
runs on the newest state: it commits on exactly the version that a change was worked out on, or not at all. Then the
change is worked out anew, an append on top of what won (`rebase`); anything else only if its requirements still hold.

**What may be deleted.** Files that were written for an attempt that certainly failed: the work returned `Stale` or
raised an error of its own. After anything else, an interrupt included, a record may name the files, so they stay. A
commit whose outcome is unknown is repeated once, under its id; a repeat that fails proves nothing, since the first
request may still arrive. And the list that a client wrote goes only if the record names the one that replaced it: a
job that was restarted may find that its first life has committed the very same snapshot.

**Locks.** Commits of one process to one table queue. They are not needed for correctness: of commits that race, all
but one would have worked in vain. Commits that are worked out inside the transaction do not race, and do not queue.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from uuid import UUID
from weakref import WeakValueDictionary

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AddSnapshotUpdate, RemovePropertiesUpdate, SetPropertiesUpdate

from endive.catalog.commit.changes import (
    Staged,
    TableChange,
    added_snapshots,
    check_requirements,
    failed_requirements,
    stage,
    structure_after,
    view_for,
    whole_metadata,
)
from endive.catalog.commit.manifests import changed_files, read_list
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.rebase import is_append, must_rebase, rebase
from endive.catalog.commit.transaction import Stale, commit_changes, known_answers
from endive.catalog.model.keys import snapshot_key
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.records import CommitRecord, SnapshotRecord
from endive.catalog.model.transaction import Transaction, TransactionalStore, TransactionFunction
from endive.catalog.operations import tables
from endive.catalog.operations.tables import TableView
from endive.errors import (
    AlreadyInCatalogError,
    CommitConflictError,
    CommitRetriesExhaustedError,
    NotInCatalogError,
    OutcomeUnknownError,
)
from endive.protocol.requests import Steps

ATTEMPTS = "endive.commit.attempts"
"""Table property: how often a commit that loses races is worked out anew before it fails."""
ATTEMPTS_DEFAULT = 100

Answers = tuple[CommitRecord, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change as it is about to be committed."""

    change: TableChange
    view: TableView | None
    """The table as the change was worked out on; None: it is to be created."""
    staged: Staged | None = None
    """None: to be worked out inside the transaction."""
    whole: TableMetadata | None = None
    """The metadata afterwards, which the metadata file shows; None without `staged`."""
    written: tuple[str, ...] = ()
    """Files that nobody needs if the commit fails."""


@dataclass(frozen=True, slots=True)
class Committed:
    """What became of a change."""

    answer: CommitRecord
    whole: TableMetadata | None
    """The table's metadata as the commit left it; None if it is not at hand."""


class _TableLock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = Lock()


class Committer:
    """Commits changes of tables. Safe to use from many threads."""

    def __init__(
        self, store: TransactionalStore, files: MetadataFiles, clock: Callable[[], int], new_id: Callable[[], str]
    ) -> None:
        self.store = store
        self.files = files
        self._clock = clock
        self._new_id = new_id
        self._locks: WeakValueDictionary[Identifier, _TableLock] = WeakValueDictionary()
        self._locks_lock = Lock()
        self._followed: set[Identifier] = set()
        """Tables whose file followed the last commit: it will follow the next one, unless the commit says otherwise."""

    def commit(self, changes: Sequence[TableChange], commit_id: str | None) -> list[Committed]:
        """Commit changes of different tables, all or none. Without an id, one is drawn."""
        if commit_id is not None:
            known = self._answered(changes, commit_id)
            if known is not None:
                return known
        try:
            return self._commit(changes, commit_id if commit_id is not None else self._new_id())
        except (CommitConflictError, ValueError):  # with an earlier try of its own, perhaps, that has just arrived
            known = self._answered(changes, commit_id) if commit_id is not None else None
            if known is None:
                raise
            return known

    def _commit(self, changes: Sequence[TableChange], commit_id: str) -> list[Committed]:
        names = {change.identifier for change in changes}
        if names <= self._followed and not any(_brings_files(change) for change in changes):
            answer = self._commit_inside(changes, commit_id)  # nothing to prepare, and nothing to look for
            if answer is not None:
                return answer
            self._followed -= names
        views = [self._view(change, whole=False) for change in changes]
        indexed = [self._with_files(change, view) for change, view in zip(changes, views, strict=True)]
        if all(self._follows_later(change, view) for change, view in zip(changes, views, strict=True)):
            answer = self._commit_inside(indexed, commit_id)
            if answer is not None:
                self._followed |= names
                return answer
        with self._queued({change.identifier for change in indexed}):
            return self._commit_in_turn(indexed, commit_id)

    def _commit_inside(self, changes: Sequence[TableChange], commit_id: str) -> list[Committed] | None:
        """Commit without working anything out before; None if an append has to be put on top of another first."""
        try:
            answer = self._transact([Proposal(change, None) for change in changes], commit_id)
        except CommitConflictError:
            if not any(is_append(change) for change in changes):
                raise
            return None
        return None if isinstance(answer, Stale) else [Committed(one, None) for one in answer]

    def _commit_in_turn(self, changes: Sequence[TableChange], commit_id: str) -> list[Committed]:
        attempts_max = 1
        loser = changes[0].identifier
        attempt = 0
        while attempt < attempts_max:
            proposals = self._prepared(changes, attempt)
            attempts_max = max(self._attempts_max(proposals), 1)
            answer = self._commit_once(proposals, commit_id)
            if not isinstance(answer, Stale):
                self._delete_replaced(changes, proposals)
                return [
                    Committed(one, proposal.whole if _is_of(proposal, one) else None)
                    for proposal, one in zip(proposals, answer, strict=True)
                ]
            loser = answer.identifier
            attempt += 1
        problem = f"lost {attempts_max} races in a row"
        raise CommitRetriesExhaustedError(text_of(loser), problem, attempts_max, ATTEMPTS)

    def _commit_once(self, proposals: Sequence[Proposal], commit_id: str) -> Answers | Stale:
        try:
            answer = self._transact(proposals, commit_id)
        except CommitConflictError:
            self._discard(proposals)
            if not any(is_append(proposal.change) for proposal in proposals):
                raise
            return Stale(proposals[0].change.identifier)  # if it is a real conflict, the next attempt says so
        except (AlreadyInCatalogError, NotInCatalogError):
            self._discard(proposals)
            raise
        if isinstance(answer, Stale):
            self._discard(proposals)
        return answer

    def _transact(self, proposals: Sequence[Proposal], commit_id: str) -> Answers | Stale:
        work: TransactionFunction[Answers | Stale] = partial(
            commit_changes,
            changes=[(proposal.change, proposal.staged) for proposal in proposals],
            commit_id=commit_id,
            now_ms=self._clock(),
            needs_file=self.files.written_before,
        )
        try:
            return self.store.transact(work)
        except OutcomeUnknownError as unknown:
            return self._repeat(work, unknown)

    def _repeat(self, work: TransactionFunction[Answers | Stale], unknown: OutcomeUnknownError) -> Answers:
        try:
            answer = self.store.transact(work)
        except Exception as error:
            raise unknown from error
        if isinstance(answer, Stale):
            raise unknown
        return answer

    # Working a change out.

    def _with_files(self, change: TableChange, view: TableView | None) -> TableChange:
        """Read what the snapshots that are added change: small files, which the caller has just written."""
        missing = [one for one in added_snapshots(change) if one.snapshot_id not in change.files]
        if not missing:
            return change
        if view is None or not must_rebase(change, view.metadata):
            check_requirements(change, view)  # the cheapest way to fail
        metadata = structure_after(change, view.record.metadata if view is not None else None)
        io = self.files.io(metadata.location, metadata.properties)
        found = {one.snapshot_id: changed_files(io, read_list(io, one.manifest_list), one, metadata) for one in missing}
        return replace(change, files={**change.files, **found})

    def _follows_later(self, change: TableChange, view: TableView | None) -> bool:
        """Whether the metadata file of a change is written after it, so that nothing has to be done before."""
        return view is not None and not self.files.written_before(_properties_after(view.record.metadata, change))

    def _prepared(self, changes: Sequence[TableChange], attempt: int) -> list[Proposal]:
        proposals: list[Proposal] = []
        try:
            for change in changes:
                proposals.append(self._proposal(change, attempt))
        except BaseException:
            self._discard(proposals)
            raise
        return proposals

    def _proposal(self, change: TableChange, attempt: int) -> Proposal:
        written: list[str] = []
        try:
            return self._worked_out(change, attempt, written)
        except BaseException:  # nothing can name the files: no transaction has begun
            for path in written:
                self.files.delete(path)
            raise

    def _worked_out(self, change: TableChange, attempt: int, written: list[str]) -> Proposal:
        """Return a change as it is about to be committed; every file is noted before it is written."""
        view = self._view(change, whole=True)
        if view is not None and must_rebase(change, view.metadata):
            io = self.files.io(view.record.metadata.location, view.record.metadata.properties)
            change = rebase(change, view.metadata, io, UUID(self._new_id()), attempt + 1, self._clock(), written)
        if self._follows_later(change, view):
            check_requirements(change, view)  # a real conflict ends it here, instead of losing every race
            return Proposal(change, view, written=tuple(written))
        previous = view.record.metadata_location if view is not None else ""
        staged = stage(change, view, self._clock(), lambda metadata: self.files.new_location(metadata, previous))
        whole = whole_metadata(view, staged)
        if not staged.changes_nothing:
            written.append(staged.record.metadata_location)
            self.files.write(whole, staged.record.metadata_location)
        return Proposal(change, view, staged, whole, tuple(written))

    def _view(self, change: TableChange, whole: bool) -> TableView | None:
        """Return the table as this process knows it; as it is, if it seems not to fit the change."""
        view = self.store.read_cached(lambda tx: _look(tx, change, whole))
        metadata = view.metadata if view is not None else None
        if (view is None) != change.creates or failed_requirements(change, metadata):
            view = self.store.read(lambda tx: _look(tx, change, whole))
        if view is None and not change.creates:
            raise NotInCatalogError(
                "Table", text_of(change.identifier), "it may have been dropped or renamed since it was loaded"
            )
        return view

    def _attempts_max(self, proposals: Sequence[Proposal]) -> int:
        texts = [
            proposal.view.record.metadata.properties.get(ATTEMPTS, "") if proposal.view is not None else ""
            for proposal in proposals
        ]
        return min(int(text) if text.isdigit() else ATTEMPTS_DEFAULT for text in texts)

    def _answered(self, changes: Sequence[TableChange], commit_id: str) -> list[Committed] | None:
        """Return what a commit of this id has answered; None if there was none."""

        def look(tx: Transaction) -> Steps[Answers | None]:
            known = yield from known_answers(tx, [change.identifier for change in changes], commit_id, [])
            return known

        known = self.store.read(look)
        return None if known is None else [Committed(one, None) for one in known]

    # Files.

    def _discard(self, proposals: Sequence[Proposal]) -> None:
        """Delete the files of a commit that certainly did not happen."""
        for proposal in proposals:
            for path in proposal.written:
                self.files.delete(path)

    def _delete_replaced(self, changes: Sequence[TableChange], proposals: Sequence[Proposal]) -> None:
        """Delete the manifest lists that the client wrote, and that a rebased commit has replaced."""
        for change, proposal in zip(changes, proposals, strict=True):
            new = {one.snapshot_id: one.manifest_list for one in added_snapshots(proposal.change)}
            for one in added_snapshots(change):
                replacement = new[one.snapshot_id]
                if replacement != one.manifest_list and self._named_list(proposal, one.snapshot_id) == replacement:
                    self.files.delete(one.manifest_list)

    def _named_list(self, proposal: Proposal, snapshot_id: int) -> str | None:
        """Return the manifest list that the records name for a snapshot."""
        if proposal.view is None:
            return None
        key = snapshot_key(proposal.view.record.uuid, snapshot_id)
        body = self.store.read_cached(lambda tx: tx.get(key))
        return None if body is None else SnapshotRecord.decoded(body).snapshot.manifest_list

    @contextmanager
    def _queued(self, identifiers: set[Identifier]) -> Iterator[None]:
        with self._locks_lock:
            locks = [self._locks.setdefault(one, _TableLock()) for one in sorted(identifiers)]
        for each in locks:
            each.lock.acquire()
        try:
            yield
        finally:
            for each in reversed(locks):
                each.lock.release()


def _look(tx: Transaction, change: TableChange, whole: bool) -> Steps[TableView | None]:
    """Return a table, all of it or what a change needs; None if there is none of that name."""
    record = yield from tables.find_table(tx, change.identifier)
    if record is None:
        return None
    view = yield from tables.whole_view(tx, record) if whole else view_for(tx, record, change)
    return view


def _brings_files(change: TableChange) -> bool:
    """Whether files come with a change: those of a snapshot, or the first metadata file of a table."""
    return AddSnapshotUpdate in change.kinds or change.creates


def _is_of(proposal: Proposal, answer: CommitRecord) -> bool:
    """Whether an answer is that of this proposal, and not of an earlier attempt that had succeeded unnoticed."""
    record = proposal.staged.record if proposal.staged is not None else None
    return record is not None and (record.version, record.metadata_location) == (
        answer.version,
        answer.metadata_location,
    )


def _properties_after(metadata: TableMetadata, change: TableChange) -> Mapping[str, str]:
    """Return a table's properties after a change: it may change when the file is written."""
    properties = metadata.properties
    for update in change.updates:
        if isinstance(update, SetPropertiesUpdate):
            properties = {**properties, **update.updates}
        elif isinstance(update, RemovePropertiesUpdate):
            properties = {name: value for name, value in properties.items() if name not in update.removals}
    return properties
