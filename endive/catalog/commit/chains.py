"""Chains: changes of one table, each on top of the one before, with the files of all of them.

A chain begins with a state of the table. Each change is decided on the state that the change before it leaves: it fits,
is rebased, or is a conflict, which is the error of this change alone. The rows of the changes are computed one on top
of the other. Then the manifest lists of rebased appends and one metadata file, of the last state, are written at the
same time; that file shows all changes. A chain without manifest lists can leave its metadata file to be written beside
its transaction.

A single commit is a chain of one change. A chain is committed by one transaction
(`endive.catalog.commit.commit_loop`), or not at all. Its files are deleted if that has certainly failed, and those of
changes with an error in any case.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata

from endive.catalog.commit.apply import GroupMember
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.decision import Decision, decide
from endive.catalog.commit.groups import CommittedState, GroupResult, Waiting
from endive.catalog.commit.known_tables import KnownTables
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.old_metadata import ENABLED, delete_dropped_files, dropped_files
from endive.catalog.commit.prepared import ChangedRows, advanced, compute_rows, whole_metadata
from endive.catalog.commit.rebase import KnownLists, NewList, rebase, write_lists
from endive.catalog.commit.stored_results import Results
from endive.catalog.model.catalog_records import CommitRecord
from endive.catalog.model.names import Identifier
from endive.catalog.model.transaction import TransactionalStore
from endive.catalog.operations.table_rows import TableView, load_table, whole_view

WRITERS_MAX = 16
"""Files that are written at the same time."""


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
    """Changes of one table, one on top of the other."""

    identifier: Identifier
    base: TableView | None
    """None: the table does not exist."""
    links: list[Link]
    file_first: bool = False
    """Whether the metadata file is written before the transaction."""
    last: ChangedRows | None = None
    """The rows of the last member that fits, with the metadata file; None if none fits."""
    metadata: TableMetadata | None = None
    """The table after the chain, with its whole past; None if its metadata file is written in the background."""
    written: list[str] = field(default_factory=list)
    beside: Callable[[], None] | None = None
    """Writes the metadata file, at the same time as the transaction; None: it is written before."""

    @property
    def fitting(self) -> list[Link]:
        """The members without an error."""
        return [one for one in self.links if one.error is None]

    @property
    def files(self) -> list[str]:
        """All files that were written for the chain."""
        return self.written + [path for one in self.links for path in one.written]


class Chains:
    """Builds chains and writes their files. Safe to use from many threads, one for each table at a time."""

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
        self._new_id = new_id
        self._tables = tables
        self._writers = ThreadPoolExecutor(WRITERS_MAX, thread_name_prefix="endive-files")

    def close(self) -> None:
        """Stop the threads."""
        self._writers.shutdown()

    def build(
        self, identifier: Identifier, view: TableView | None, pending: Sequence[Waiting], lost: int, known: KnownLists
    ) -> Chain:
        """Decide about each change on top of those before it, and compute the rows of those that fit."""
        chain = Chain(identifier, view, [Link(one) for one in pending])
        state = view
        for link in chain.links:
            try:
                state = self._add(chain, link, state, lost, known)
            except Exception as error:  # noqa: BLE001 - whatever is wrong with one change is not the others' error
                link.error = error
        return chain

    def _add(self, chain: Chain, link: Link, state: TableView | None, lost: int, known: KnownLists) -> TableView:
        change = link.waiting.change
        written_first = link.waiting.writes_file_first or self.files.written_first
        decision = decide(change, state, written_first)
        if decision is Decision.REBASE and state is not None:
            commit_uuid, now_ms = UUID(self._new_id()), self._clock()
            change, link.lists = rebase(
                change, state.metadata, self._io(state), commit_uuid, lost + 1, now_ms, link.written, known
            )
            decision = decide(change, state, written_first)
        rows = compute_rows(change, state, self._clock())
        state = advanced(state, rows)
        link.change, link.rows = change, rows
        chain.file_first = chain.file_first or decision is Decision.PREPARE
        chain.last = rows
        return state

    def _io(self, view: TableView) -> FileIO:
        metadata = view.record.metadata
        return self.files.io(metadata.location, metadata.properties)

    def drop_failed(self, chain: Chain) -> None:
        """Delete the files of members that failed."""
        for link in chain.links:
            if link.error is not None:
                self.discard(link.written)
                link.written.clear()

    def write(self, chain: Chain, may_be_beside: bool = False) -> None:
        """Write the files of a chain, at the same time; delete all of them if one cannot be written.

        `may_be_beside`: the metadata file may be left to `chain.beside`. Manifest lists may not: no rows have them.
        """
        base, last = chain.base, chain.last
        if last is None or not chain.fitting:
            return
        lists = [link.lists for link in chain.fitting if link.lists]
        tasks: list[Callable[[], None]] = []
        if base is not None:
            tasks += [partial(write_lists, self._io(base), each) for each in lists]
        try:
            if chain.file_first and (base is None or last.record.version != base.record.version):
                write = self._named(chain, last, may_be_beside and not tasks)
                if chain.beside is None:
                    tasks.append(write)
            self._at_once(tasks)
        except BaseException:
            self.discard(chain.files)
            raise

    def _named(self, chain: Chain, last: ChangedRows, may_be_beside: bool) -> Callable[[], None]:
        """Name the metadata file of a chain; return the function that writes it, `chain.beside` if it may be."""
        previous, previous_ms, before = "", 0, ""
        if chain.base is not None:
            record = chain.base.record
            load = partial(load_table, identifier=record.identifier)
            previous = self.files.existing(record, lambda: self.store.read_cached(load))
            previous_ms, before = record.metadata.last_updated_ms, record.metadata_location
        location = self.files.new_location(last.after, before)
        is_beside = may_be_beside and self.files.may_be_beside(location, last.after.properties)
        chain.last = last = last.named(location, previous, previous_ms, is_beside)
        chain.metadata = self._whole_metadata(chain, last)
        chain.written.append(location)
        write = partial(self.files.write, chain.metadata, location)
        chain.beside = write if is_beside else None
        return write

    def _whole_metadata(self, chain: Chain, last: ChangedRows) -> TableMetadata:
        """Return the metadata after a chain, with the table's whole past, which is loaded if it is not known.

        If it is newer than the record, so is the table: the chain is stale.
        """
        changes = [link.rows for link in chain.fitting if link.rows is not None and not link.rows.is_empty]
        past = None
        if chain.base is not None and not changes[0].is_whole:
            record = chain.base.record
            past = self._tables.at(record) or self.store.read_cached(partial(whole_view, record=record)).metadata
        return whole_metadata(past, changes, last.after)

    def _at_once(self, tasks: Sequence[Callable[[], None]]) -> None:
        if len(tasks) <= 1:
            return tasks[0]() if tasks else None
        futures = [self._writers.submit(copy_context().run, task) for task in tasks]
        wait(futures)  # all of them, so that no file is written after it was deleted
        for future in futures:
            future.result()
        return None

    def committed(self, chain: Chain, results: Results) -> None:
        """Answer the members of a chain that fit, whose rows are durable, and delete old metadata files."""
        last, state = chain.last, None
        for link, record in zip(chain.fitting, results, strict=True):
            state = None
            if last is not None and chain.metadata is not None and _is_own(link, record, last):
                state = CommittedState(last.record.version, chain.metadata, last.record.metadata_location)
            change = link.change if link.change is not None else link.waiting.change
            link.waiting.committed = GroupResult(record, change, state)
        if state is not None:
            self._tables.keep(state.version, state.metadata)
        with suppress(Exception):  # the commit has happened: files that stay are orphans, for maintenance
            self._clean_old_metadata(chain)

    def _clean_old_metadata(self, chain: Chain) -> None:
        """Delete old metadata files; unless the table asks for it, without letting the leader wait."""
        base, last = chain.base, chain.last
        if base is None or last is None or not chain.written or not dropped_files(base.record, last.record):
            return
        delete = partial(delete_dropped_files, self.store, self.files, base.record, last.record)
        if ENABLED in last.record.metadata.properties:
            delete()  # a table with this property has no old files when the commit returns
        else:
            self._writers.submit(delete)

    def discard(self, paths: Iterable[str]) -> None:
        """Delete files that nothing refers to."""
        for path in paths:
            self.files.delete(path)


def members_of(chain: Chain) -> tuple[list[GroupMember], ChangedRows]:
    """Return the changes of a chain that fit, for its transaction, and the rows of the last one."""
    members = [
        GroupMember(link.waiting.commit_id, link.change or link.waiting.change, link.rows)
        for link in chain.fitting
        if link.rows is not None
    ]
    if chain.last is None or len(members) < len(chain.fitting):
        raise AssertionError("a chain without rows")
    return members, chain.last


def _is_own(link: Link, record: CommitRecord, last: ChangedRows) -> bool:
    """Whether a result is of this attempt, and not of an earlier one that had succeeded unnoticed."""
    version = link.rows.record.version if link.rows is not None else None
    return (version, last.record.metadata_location) == (record.version, record.metadata_location)
