"""The commit loop: work a change out, write its metadata file, commit, and begin anew if the table had moved on.

**What can race.** Anybody may commit to, rename or drop a table at any moment. The work in `commit` sees that, since it
runs on the newest state: it commits on exactly the version that a change was worked out on, or not at all.

**What may be deleted.** A metadata file whose commit certainly failed: the work returned `Stale` or raised an error of
its own. After `OutcomeUnknownError` the record may name the file, so it stays, for ever if need be.

**Locks.** Commits of one process to one table queue. They are not needed for correctness: of commits that race, all
but one would have worked in vain.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from weakref import WeakValueDictionary

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate

from endive.catalog import tables
from endive.catalog.commit import (
    Staged,
    Stale,
    TableChange,
    commit_changes,
    failed_requirements,
    stage,
    whole_metadata,
)
from endive.catalog.metadata_files import MetadataFiles
from endive.catalog.names import Identifier, text_of
from endive.catalog.records import CommitRecord
from endive.catalog.tables import TableView
from endive.catalog.works import Transaction, TransactionalStore
from endive.errors import CommitRetriesExhaustedError, NotInCatalogError, OutcomeUnknownError
from endive.protocol.requests import Steps

ATTEMPTS = "endive.commit.attempts"
"""Table property: how often a commit that loses races is worked out anew before it fails."""
ATTEMPTS_DEFAULT = 100

Answers = tuple[CommitRecord, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A change that was worked out, and whose metadata file is written."""

    staged: Staged
    whole: TableMetadata


Proposal = tuple[TableChange, Prepared | None]


class _TableLock:
    """A lock that can be referred to weakly."""

    def __init__(self) -> None:
        self.lock = Lock()


class Committer:
    """Commits changes of tables. Safe to use from many threads."""

    def __init__(self, store: TransactionalStore, files: MetadataFiles, clock: Callable[[], int]) -> None:
        self.store = store
        self.files = files
        self._clock = clock
        self._locks: WeakValueDictionary[Identifier, _TableLock] = WeakValueDictionary()
        self._locks_lock = Lock()

    def commit(self, changes: Sequence[TableChange], commit_id: str) -> tuple[Answers, list[TableMetadata | None]]:
        """Commit changes of different tables, all or none.

        Returns an answer for each, and each table's metadata as the commit left it; None where it is not at hand.
        """
        with self._queued({change.identifier for change in changes}):
            attempts_max = ATTEMPTS_DEFAULT
            stale = Stale(changes[0].identifier)
            for _ in range(attempts_max):
                proposals = self._prepared(changes)
                answer = self._commit_once(proposals, commit_id)
                if not isinstance(answer, Stale):
                    return answer, [
                        staged.whole if staged is not None and staged.staged.record.version == one.version else None
                        for (_, staged), one in zip(proposals, answer, strict=True)
                    ]
                stale = answer
            raise CommitRetriesExhaustedError(text_of(stale.identifier), attempts_max, ATTEMPTS)

    def _commit_once(self, proposals: Sequence[Proposal], commit_id: str) -> Answers | Stale:
        now_ms = self._clock()
        worked_out = [(change, prepared.staged if prepared is not None else None) for change, prepared in proposals]

        def work(tx: Transaction) -> Steps[Answers | Stale]:
            answers = yield from commit_changes(tx, worked_out, commit_id, now_ms)
            return answers

        try:
            try:
                answer = self.store.transact(work)
            except OutcomeUnknownError:
                answer = self.store.transact(work)  # under the same id: if it has happened, it is recognised
        except OutcomeUnknownError:
            raise  # a record may name the files
        except BaseException:
            self._discard(proposals)
            raise
        if isinstance(answer, Stale):
            self._discard(proposals)
        return answer

    # Working a change out.

    def _prepared(self, changes: Sequence[TableChange]) -> list[Proposal]:
        proposals: list[Proposal] = []
        try:
            for change in changes:
                proposals.append((change, self._staged(change)))
        except BaseException:
            self._discard(proposals)
            raise
        return proposals

    def _staged(self, change: TableChange) -> Prepared | None:
        """Work a change out and write its metadata file; None if the file may follow in the background."""
        view = self._view(change)
        if view is not None and not self.files.written_before(_with_properties(view.record.metadata, change)):
            return None
        previous = view.record.metadata_location if view is not None else ""
        staged = stage(change, view, self._clock(), lambda metadata: self.files.new_location(metadata, previous))
        whole = whole_metadata(view, staged)
        if not staged.changes_nothing:
            self.files.write(whole, staged.record.metadata_location)
        return Prepared(staged, whole)

    def _view(self, change: TableChange) -> TableView | None:
        """Return the table as this process knows it; as it is, if it seems not to fit the change."""

        def look(tx: Transaction) -> Steps[TableView | None]:
            record = yield from tables.find_table(tx, change.identifier)
            if record is None:
                return None
            view = yield from tables.whole_view(tx, record)
            return view

        view = self.store.read_known(look)
        metadata = view.metadata if view is not None else None
        if (view is None) != change.creates or failed_requirements(change, metadata):
            view = self.store.read(look)
        if view is None and not change.creates:
            raise NotInCatalogError(
                "Table", text_of(change.identifier), "it may have been dropped or renamed since it was loaded"
            )
        return view

    def _discard(self, proposals: Sequence[Proposal]) -> None:
        """Delete the files of a commit that certainly did not happen."""
        for _, prepared in proposals:
            if prepared is not None and not prepared.staged.changes_nothing:
                self.files.delete(prepared.staged.record.metadata_location, prepared.whole)

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


def _with_properties(metadata: TableMetadata, change: TableChange) -> TableMetadata:
    """Return the metadata with the properties that a change sets: it may change when the file is written."""
    updates: dict[str, str] = {}
    for update in change.updates:
        if isinstance(update, SetPropertiesUpdate):
            updates |= update.updates
    return metadata.model_copy(update={"properties": {**metadata.properties, **updates}}) if updates else metadata
