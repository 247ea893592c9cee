"""The commit loop: load the base, decide, write the files, run the transaction, and start over if a table had moved.

**Groups.** Changes of one table that wait for one another are a group, and are committed by one file and one
transaction. A change that finds no other is a group of one. A commit to several tables has a group of one for each of
its tables, all or none, in one transaction.

**The chain.** The leader loads the table, and decides about each change on the state that the change before it leaves:
it fits, is rebased, or is a conflict. The members' rows are computed one on top of the other. Then the manifest lists
of rebased appends and one metadata file, of the last state, are written at the same time; that file shows the changes
of all members. Then one transaction puts all rows if the table is still at the version that the chain begins with, and
otherwise none: the chain is computed again (`endive.catalog.commit.chains`), up to `endive.commit.attempts` times. A
change that creates the table or needs its whole past is a chain of its own.

**Other processes.** A group that meets commits of other processes to its table, or intentions of theirs, is announced,
and one process commits the groups of all of them as one chain (`endive.catalog.commit.announced`).

**Errors.** A conflict may be with a member before it in the chain, so it is raised only once the group is durable; if
no member fits, on a state that was read after the members came. A member's error is its own. If the transaction's
outcome is unknown, it is unknown for all members that were in it.

**The metadata file beside the transaction.** A chain that writes no manifest list writes its metadata file while its
transaction is under way, and its members are answered when both are durable: one round trip less. Its record says so
(`TableRecord.is_written_beside`), and a process that finds no file writes it (`endive.catalog.commit.metadata_files`).

**Files** that were written for an attempt are deleted if the attempt certainly failed: the transaction function
returned `Stale` or raised an error of its own. After anything else, an interrupt included, a record may refer to the
files, so they stay. A commit with an unknown outcome is retried once under its id; a retry that fails proves nothing,
since the first request may still arrive.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from endive.catalog.commit.announced import AnnouncedCommits
from endive.catalog.commit.apply import AlreadyCommitted, GroupOutcome, Stale, apply_commit, apply_group
from endive.catalog.commit.base import is_alone, load_base
from endive.catalog.commit.chains import Chain, Chains, members_of
from endive.catalog.commit.groups import GroupResult, TableQueue, TableQueues, Waiting
from endive.catalog.commit.known_tables import KnownTables
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.prepared import PreparedCommit
from endive.catalog.commit.stored_results import Results
from endive.catalog.commit.table_locks import TableLocks
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import HelpingStore, StoreTransaction, TransactionalStore, TransactionFunction
from endive.catalog.operations.table_rows import TableView
from endive.catalog.settings import ATTEMPTS, ATTEMPTS_DEFAULT
from endive.errors import (
    AlreadyInCatalogError,
    CommitConflictError,
    CommitRetriesExhaustedError,
    EndiveError,
    NotInCatalogError,
    OutcomeUnknownError,
    copy_of,
)
from endive.protocol.requests import Steps

T = TypeVar("T")


class CommitLoop:
    """Commits groups. Safe to use from many threads, one for each table at a time."""

    def __init__(
        self,
        store: TransactionalStore,
        files: MetadataFiles,
        clock: Callable[[], int],
        new_id: Callable[[], str],
        tables: KnownTables,
    ) -> None:
        self.store = store
        self.files = files
        self._clock = clock
        self.queues = TableQueues()
        self._locks = TableLocks()
        self._chains = Chains(store, files, clock, new_id, tables)
        self._announced: AnnouncedCommits | None = None
        if isinstance(store, HelpingStore):
            self._announced = AnnouncedCommits(store, store.exchange, self._chains, files)

    def close(self) -> None:
        """Stop the threads."""
        if self._announced is not None:
            self._announced.close()
        self._chains.close()

    def has_company(self, identifier: Identifier) -> bool:
        """Whether other processes commit to a table, or have announced commits to it; costs no request."""
        is_announced = self._announced is not None and self._announced.has_company(identifier)
        return is_announced or self.queues.of(identifier).has_company

    def commit(self, members: Sequence[Waiting]) -> list[GroupResult]:
        """Commit changes of different tables, all or none; that of one table with those of other threads."""
        if len(members) == 1:
            self.queues.of(members[0].change.identifier).commit(members[0], self.lead)
        else:
            with self._locks.held(one.change.identifier for one in members):
                self._commit(members, [])
        for one in members:
            if one.error is not None:
                raise one.error
        results = [one.committed for one in members if one.committed is not None]
        if len(results) < len(members):
            raise AssertionError("a commit without an answer")
        return results

    def lead(self, queue: TableQueue, group: list[Waiting]) -> None:
        """Commit a group, and answer its members; unless interrupted, all of them."""
        identifier = group[0].change.identifier
        submitted: list[Waiting] = []
        try:
            with self._locks.held([identifier]):
                self._commit(group, submitted, queue)
        except Exception as error:  # noqa: BLE001 - every member raises it
            for one in group:
                if not one.is_answered:
                    one.error = copy_of(error) if isinstance(error, EndiveError) else error
        except BaseException:
            for one in submitted:
                if not one.is_answered:
                    one.error = OutcomeUnknownError(f"{text_of(identifier)}: interrupted during the commit")
            raise

    def _commit(self, group: Sequence[Waiting], submitted: list[Waiting], queue: TableQueue | None = None) -> None:
        """Run the commit loop. `queue`: that of the one table of a group; without it, each change has its own table."""
        queues = {one.change.identifier: queue or self.queues.of(one.change.identifier) for one in group}
        lost, is_fresh = 0, any(one.is_contended for one in queues.values())
        while pending := [one for one in group if not one.is_answered]:
            if queue is not None and self._announce(queue, pending, submitted):
                return
            chains = self._build(pending, lost, queues, is_fresh)
            errors = [link.error for chain in chains for link in chain.links if link.error is not None]
            if errors and not is_fresh:
                self._discard(chains)
                is_fresh = True  # what looks like a conflict may be one with an old state
                continue
            if errors and queue is None:
                self._discard(chains)
                raise errors[0]
            for chain in chains:
                self._chains.drop_failed(chain)
            if chains[0].fitting:
                self._write(chains)
                submitted[:] = [link.waiting for chain in chains for link in chain.fitting]
                try:
                    outcome = self._transact(chains)
                except (AlreadyInCatalogError, CommitConflictError, NotInCatalogError) as error:
                    if queue is None or len(chains[0].fitting) > 1:
                        raise
                    chains[0].fitting[0].waiting.error, is_fresh = error, True  # of a chain of one: its own
                    continue
                if isinstance(outcome, Stale):
                    queues[outcome.identifier].met_company()
                    lost, is_fresh, queues[outcome.identifier].is_contended = lost + 1, True, True
                    _require_attempts(chains, lost, outcome.identifier)
                    continue
                if isinstance(outcome, AlreadyCommitted):
                    self._answer_repeats(chains, outcome)
                    continue
                for one in queues.values():
                    one.is_contended = lost > 0
                self._committed(chains, outcome)
            for link in (link for chain in chains for link in chain.links):
                link.waiting.error = link.error

    def _announce(self, queue: TableQueue, pending: Sequence[Waiting], submitted: list[Waiting]) -> bool:
        """Commit a group with those of other processes; False: none commits to its table, or it cannot be announced."""
        identifier = pending[0].change.identifier
        if self._announced is None or not self.has_company(identifier):
            return False
        submitted[:] = pending
        is_answered = self._announced.commit(identifier, queue, pending)
        if not is_answered:
            submitted.clear()
        return is_answered

    def _build(
        self, pending: Sequence[Waiting], lost: int, queues: dict[Identifier, TableQueue], is_fresh: bool
    ) -> list[Chain]:
        """Load each table once, and build its chain: of the changes that can be committed together."""
        read = self.store.read if is_fresh else self.store.read_cached
        of_tables = {name: [one for one in pending if one.change.identifier == name] for name in queues}
        views = read(partial(_load_bases, of_tables=of_tables))
        chains = []
        for (name, members), view in zip(of_tables.items(), views, strict=True):
            known = queues[name].known
            chains.append(self._chains.build(name, view, _chained(view, members), lost, known))
        return chains

    def _write(self, chains: Sequence[Chain]) -> None:
        """Write the files of chains. That of one table that exists may be left, to be written beside its rows."""
        try:
            for chain in chains:
                removes = any(link.waiting.change.removed_snapshots for link in chain.links)
                self._chains.write(chain, len(chains) == 1 and chain.base is not None and not removes)
        except BaseException:  # no transaction has begun
            self._discard(chains)
            raise

    def _discard(self, chains: Sequence[Chain]) -> None:
        for chain in chains:
            self._chains.discard(chain.files)

    def _transact(self, chains: Sequence[Chain]) -> GroupOutcome:
        """Run the transaction, with the metadata file beside it; delete the files if it certainly failed."""
        beside = next((chain for chain in chains if chain.beside is not None), None)
        problems: list[Exception] = [OSError("not written yet")]

        def meanwhile() -> None:
            problems[:] = _written_beside(beside)  # in this thread: a transaction waits for others anyway

        try:
            outcome = transact_twice(self.store, self._function(chains), meanwhile)
        except (AlreadyInCatalogError, CommitConflictError, NotInCatalogError):
            self._discard(chains)
            raise
        if not isinstance(outcome, tuple):
            self._discard(chains)
        elif beside is not None and beside.last is not None:
            location = beside.last.record.metadata_location
            if outcome[-1].metadata_location == location:
                self._require_file(beside, location, problems)
        return outcome

    def _function(self, chains: Sequence[Chain]) -> TransactionFunction[GroupOutcome]:
        """Return the transaction function: of one chain of several changes, or of chains with one change each."""
        first, last = members_of(chains[0])
        if len(first) > 1:
            return partial(apply_group, identifier=chains[0].identifier, members=first, last=last)
        prepared: list[PreparedCommit] = []
        for chain in chains:
            members, rows = members_of(chain)
            prepared.append(PreparedCommit(members[0].change, rows))
        return partial(
            apply_commit,
            commits=prepared,
            commit_id=first[0].commit_id,
            now_ms=self._clock(),
            writes_file_first=self.files.written_first,
        )

    def _require_file(self, chain: Chain, location: str, problems: Sequence[Exception]) -> None:
        """Acknowledge a metadata file that was written beside its transaction, which has happened.

        If the file cannot be written, the members must not be told that their commit failed.
        """
        problems = _written_beside(chain) if problems else ()
        for problem in problems:
            name = text_of(chain.identifier)
            text = f"{name}: committed, but its metadata file {location} cannot be written: {problem}"
            raise OutcomeUnknownError(text) from problem
        self.files.wrote_beside(location)

    def _committed(self, chains: Sequence[Chain], results: Results) -> None:
        """Answer the members of chains, whose rows are durable."""
        left = list(results)
        for chain in chains:
            count = len(chain.fitting)
            self._chains.committed(chain, tuple(left[:count]))
            del left[:count]

    def _answer_repeats(self, chains: Sequence[Chain], outcome: AlreadyCommitted) -> None:
        """Answer the members that had been committed before by their stored results."""
        for link in (link for chain in chains for link in chain.links):
            stored = outcome.results.get(link.waiting.commit_id)
            if stored is not None:
                link.waiting.committed = GroupResult(stored, link.waiting.change, None)


def transact_twice(
    store: TransactionalStore, function: TransactionFunction[T], meanwhile: Callable[[], None] = lambda: None
) -> T:
    """Run the transaction of a commit, and something else meanwhile; a second time if its outcome is unknown.

    The second time, only results tell anything.
    """
    try:
        submitted = store.submit(function)
        meanwhile()
        return submitted.wait()
    except OutcomeUnknownError as unknown:
        try:
            outcome = store.transact(function)
        except Exception as error:
            raise unknown from error
        if not isinstance(outcome, tuple):
            raise
        return outcome


def _load_bases(tx: StoreTransaction, of_tables: dict[Identifier, list[Waiting]]) -> Steps[list[TableView | None]]:
    bases = []
    for name, members in of_tables.items():
        base = yield from load_base(tx, name, [one.change for one in members])
        bases.append(base)
    return bases


def _chained(view: TableView | None, members: Sequence[Waiting]) -> Sequence[Waiting]:
    """Return the first changes of a group that can be in one chain; a change that must be alone is one by itself."""
    record = view.record if view is not None else None
    count = next((number for number, one in enumerate(members) if is_alone(record, one.change)), len(members))
    return members[: max(count, 1)]


def _written_beside(chain: Chain | None) -> list[Exception]:
    """Write the metadata file of a chain, if that was left until now; return what went wrong."""
    try:
        if chain is not None and chain.beside is not None:
            chain.beside()
    except Exception as error:  # noqa: BLE001 - the transaction is under way: first its outcome
        return [error]
    return []


def _require_attempts(chains: Sequence[Chain], lost: int, loser: Identifier) -> None:
    """Raise if a commit has lost as many races as its tables allow."""
    texts = [chain.base.record.metadata.properties.get(ATTEMPTS, "") for chain in chains if chain.base is not None]
    limits = [int(text) if text.isdigit() else ATTEMPTS_DEFAULT for text in texts]
    attempts_max = max(1, min(limits, default=ATTEMPTS_DEFAULT))
    if lost >= attempts_max:
        raise CommitRetriesExhaustedError(text_of(loser), f"lost {lost} races in a row", attempts_max, ATTEMPTS)
