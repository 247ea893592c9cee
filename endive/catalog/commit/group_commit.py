"""The commit of a group: changes of one table, each on top of the one before, by one file and one transaction.

**The chain.** The leader loads the table, and decides about each change on the state that the change before it leaves:
it fits, is rebased, or is a conflict. The members' rows are computed one on top of the other. Then the manifest lists
of rebased appends and one metadata file, of the last state, are written at the same time; that file shows the changes
of all members. Then one transaction puts all rows if the table is still at the version that the chain begins with, and
otherwise none: the chain is computed again (`endive.catalog.commit.chains`).

**Other processes.** A group that meets commits of other processes to its table, or intentions of theirs, is announced,
and one process commits the groups of all of them as one chain (`endive.catalog.commit.announced`).

**Errors.** A conflict may be with a member before it in the chain, so it is raised only once the group is durable; if
no member fits, on a state that was read after the members came. A member's error is its own. If the transaction's
outcome is unknown, it is unknown for all members that were in it.

**The metadata file beside the transaction.** A chain that writes no manifest list writes its metadata file while its
transaction is under way, and its members are answered when both are durable: one round trip less. Its record says so
(`TableRecord.is_written_beside`), and a process that finds no file writes it (`endive.catalog.commit.metadata_files`).

**Files** are treated as by a single commit (`endive.catalog.commit.committer`): the files of an attempt are deleted if
it certainly failed, and those of members that failed in any case.
"""

from collections.abc import Callable
from functools import partial

from endive.catalog.commit.announced import AnnouncedCommits
from endive.catalog.commit.apply import AlreadyCommitted, Stale, apply_group
from endive.catalog.commit.chains import Chain, Chains, answer_members, load_base, members_of, past_after
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.groups import GroupResult, TableQueue, Waiting
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.prepared import ChangedRows
from endive.catalog.commit.stored_results import Results
from endive.catalog.commit.turns import Turns
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import HelpingStore, TransactionalStore, TransactionFunction
from endive.catalog.operations.table_rows import TableView
from endive.catalog.settings import ATTEMPTS, ATTEMPTS_DEFAULT
from endive.errors import (
    CommitConflictError,
    CommitRetriesExhaustedError,
    EndiveError,
    NotInCatalogError,
    OutcomeUnknownError,
)

Outcome = Results | Stale | AlreadyCommitted


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
        self._turns = turns
        self._chains = Chains(store, files, clock, new_id)
        self._announced: AnnouncedCommits | None = None
        if isinstance(store, HelpingStore):
            self._announced = AnnouncedCommits(store, store.exchange, self._chains, files)

    def close(self) -> None:
        """Stop the threads."""
        if self._announced is not None:
            self._announced.close()
        self._chains.close()

    def has_company(self, identifier: Identifier, queue: TableQueue) -> bool:
        """Whether other processes commit to a table, or have announced commits to it; costs no request."""
        return queue.has_company or (self._announced is not None and self._announced.has_company(identifier))

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
            if self._announced is not None and self.has_company(identifier, queue):
                submitted[:] = pending
                if self._announced.commit(identifier, queue, pending):
                    return
                submitted.clear()
            read = self.store.read if is_fresh else self.store.read_cached
            view = read(partial(load_base, identifier=identifier, changes=[one.change for one in pending]))
            chain = self._chains.build(view, pending, lost, queue.known)
            if not is_fresh and len(chain.fitting) < len(pending):
                self._chains.discard(chain.files)
                is_fresh = True  # what looks like a conflict may be one with an old state
                continue
            for link in chain.links:
                if link.error is not None:
                    self._chains.discard(link.written)
                    link.written.clear()
            if chain.fitting:
                self._chains.write(chain, queue, may_be_beside=True)
                submitted[:] = [link.waiting for link in chain.fitting]
                outcome = self._transact(identifier, chain)
                if isinstance(outcome, Stale):
                    queue.met_company()
                    lost, is_fresh, queue.is_contended = lost + 1, True, True
                    _require_attempts(view, lost, identifier)
                    continue
                if isinstance(outcome, AlreadyCommitted):
                    self._answer_repeats(chain, outcome)
                    continue
                queue.is_contended = lost > 0
                queue.past = past_after(chain)
                answer_members(chain, outcome)
                self._chains.clean_old_metadata(chain)
            for link in chain.links:
                link.waiting.error = link.error

    def _transact(self, identifier: Identifier, chain: Chain) -> Outcome:
        """Run the transaction, with the metadata file beside it; delete the files if it certainly failed.

        An unknown outcome is tried once more.
        """
        members, last = members_of(chain)
        function: TransactionFunction[Outcome] = partial(
            apply_group,
            identifier=identifier,
            members=members,
            last=last,
            writes_file_first=self.files.written_first,
        )
        problem: Exception | None = None
        try:
            submitted = self.store.submit(function)
            problem = _written_beside(chain)  # in this thread: a transaction waits for others anyway
            outcome = submitted.wait()
        except OutcomeUnknownError as unknown:
            outcome = self._retry(function, unknown)
        except (CommitConflictError, NotInCatalogError):
            self._chains.discard(chain.files)
            raise
        if not isinstance(outcome, tuple):
            self._chains.discard(chain.files)
        elif chain.beside is not None and outcome[-1].metadata_location == last.record.metadata_location:
            self._require_file(identifier, chain, last, problem)
        return outcome

    def _require_file(self, identifier: Identifier, chain: Chain, last: ChangedRows, problem: Exception | None) -> None:
        """Acknowledge a metadata file that was written beside its transaction, which has happened.

        If the file cannot be written, the members must not be told that their commit failed.
        """
        problem = _written_beside(chain) if problem is not None else None
        if problem is not None:
            location = last.record.metadata_location
            text = f"{text_of(identifier)}: committed, but its metadata file {location} cannot be written: {problem}"
            raise OutcomeUnknownError(text) from problem
        self.files.wrote_beside(last.record.metadata_location)

    def _retry(self, function: TransactionFunction[Outcome], unknown: OutcomeUnknownError) -> Outcome:
        """Run a transaction of unknown outcome again: only results tell anything."""
        try:
            outcome = self.store.transact(function)
        except Exception as error:
            raise unknown from error
        if not isinstance(outcome, tuple):
            raise unknown
        return outcome

    def _answer_repeats(self, chain: Chain, outcome: AlreadyCommitted) -> None:
        """Answer the members that had been committed before by their stored results."""
        for link in chain.links:
            stored = outcome.results.get(link.waiting.commit_id)
            if stored is not None:
                link.waiting.committed = GroupResult(stored, link.waiting.change, None)


def _written_beside(chain: Chain) -> Exception | None:
    """Write the metadata file of a chain, if that was left until now; return what went wrong."""
    try:
        if chain.beside is not None:
            chain.beside()
    except Exception as error:  # noqa: BLE001 - the transaction is under way: first its outcome
        return error
    return None


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
