"""Commits to one table that several processes have announced, committed by one of them as one chain.

A process that meets others at a table announces its group: the changes as JSON (`endive.catalog.commit.change_json`),
in an intention on the table's topic (`endive.kv.log.topics`). One of the processes reads all of them, builds one chain
(`endive.catalog.commit.chains`), writes its files at the same time, and puts the rows of all groups and the result of
every change in one WAL entry. The others find their results in that entry.

**Guarantees.** A change takes effect at most once: its intention is decided in the entry that has its rows, and
its commit id is stored as that of any other commit. A conflict is decided, too, in an entry on the state that it was
found in. A chain on a table that has changed since is void: its files are deleted, and the next one is built.

**The leader** is a guess that saves work. A process that finds itself alone leads. If it finds others, it waits for an
entry of theirs. When an entry has left its change out, the process with the first pending intention leads at once, and
the others wait the longer, the more are before them: a leader that has died costs one such wait.

**Abandoned intentions** are carried out by the next process that commits to the table. It sees them in the listing that
ends every shared commit, so a process that is alone makes no request for this.

**Set aside.** A change that cannot be decoded, or that fails by an error of the catalog, gets that as its result. An
error of the leader's own access to files decides nothing about the changes of others, unless the intention is old: then
its owner has had the time to do it, and others need not try for ever. An intention of a newer version is left to
processes that know it.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from time import monotonic

from endive.catalog.commit.announced_results import (
    NAME,
    VERSION,
    is_decisive,
    record_or_error,
    result_of_error,
    result_of_record,
)
from endive.catalog.commit.apply import AlreadyCommitted, GroupMember, GroupOutcome, Stale, apply_group
from endive.catalog.commit.base import is_alone, load_base
from endive.catalog.commit.chains import Chain, Chains, members_of
from endive.catalog.commit.change_json import PortableChange, decoded_change, encoded_change
from endive.catalog.commit.groups import GroupResult, TableQueue, Waiting
from endive.catalog.commit.manifest_lists import own_manifests_of
from endive.catalog.commit.manifests import encoded_list, own_list
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.prepared import ChangedRows
from endive.catalog.commit.stored_results import Results
from endive.catalog.model.catalog_records import CommitRecord, TableRecord
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.table_rows import find_table
from endive.errors import EndiveError, NotInCatalogError, OutcomeUnknownError
from endive.kv.exchange import Exchange
from endive.kv.log.intentions import FAILED, INTENTION_BYTES_MAX, TOPIC_DIGITS, CallResult, Decided, Intention
from endive.kv.log.topics import AlreadyDecided, Verdict
from endive.kv.procedures import Call
from endive.protocol.requests import Steps
from endive.stages import stage

ROUNDS_MAX = 100
LEADS_MAX = 10
"""Chains that a process builds in a row, each void because another was faster."""
LEAD_ENTRIES = 4.0
"""How long it takes to lead, in times of an undisturbed WAL entry, until it was measured."""
OLD_ENTRIES = 1000
"""An intention that has been pending for so many WAL entries is set aside if it cannot be carried out."""
CHANGES_MAX = 256
"""Changes of one chain; their manifest lists are written at the same time."""
WAITS_MAX = 8
"""A process waits for so many others before it leads. If more intentions are before its own, most are abandoned."""


def can_prepare(intention: Intention) -> bool:
    """Whether this version of Endive can decode the changes of an intention, or set it aside as a damaged one."""
    return all((call.procedure, call.version) == (NAME, VERSION) for call in intention.calls)


def topic_of_table(identifier: Identifier) -> str:
    """Return the topic of a table's commits. Two tables may share one; each intention says which table it is about."""
    name = "\0".join(identifier).encode()
    return blake2b(name, digest_size=TOPIC_DIGITS // 2).hexdigest()


@dataclass(slots=True)
class Taken:
    """An intention that a leader has read, and its changes."""

    name: str
    members: list[Waiting | CallResult] = field(default_factory=list)
    """Changes in order; of one that cannot be decoded, its result."""

    @property
    def waiting(self) -> list[Waiting]:
        """The changes that can be committed."""
        return [one for one in self.members if isinstance(one, Waiting)]


def apply_announced(
    tx: StoreTransaction,
    identifier: Identifier,
    base: TableRecord | None,
    members: Sequence[GroupMember],
    last: ChangedRows | None,
    results_of: Callable[[Results], Mapping[str, tuple[CallResult, ...]]],
) -> Steps[Verdict[GroupOutcome]]:
    """Commit a chain, and decide its intentions; or neither, if the table is not the one that the chain begins with."""
    outcome: GroupOutcome = ()
    record = yield from find_table(tx, identifier)
    if (None if record is None else record.state) != (None if base is None else base.state):
        outcome = Stale(identifier)  # conflicts may be with the old state
    if members and last is not None:
        outcome = yield from apply_group(tx, identifier, members, last)
    return Verdict(outcome, results_of(outcome)) if isinstance(outcome, tuple) else Verdict(outcome)


class AnnouncedCommits:
    """Announces groups, and commits those of all processes. Safe to use from many threads, one for each table."""

    def __init__(self, store: TransactionalStore, exchange: Exchange, chains: Chains, files: MetadataFiles) -> None:
        self._store = store
        self._exchange = exchange
        self._chains = chains
        self._files = files
        self._left: dict[str, frozenset[str]] = {}
        """By topic: intentions of others that a commit here has left pending. They wait for others to come."""
        exchange.carriers.append(self.carry_out)

    def close(self) -> None:
        """Carry out nothing more for others."""
        if self.carry_out in self._exchange.carriers:
            self._exchange.carriers.remove(self.carry_out)

    # The owner's part.

    def has_company(self, identifier: Identifier) -> bool:
        """Whether others have announced commits to a table, as far as this process knows; costs no request."""
        topic = topic_of_table(identifier)
        return not self._left.get(topic, frozenset()).issuperset(self._exchange.pending(topic))

    def commit(self, identifier: Identifier, queue: TableQueue, group: Sequence[Waiting]) -> bool:
        """Announce a group, and answer its members when they are decided; False: it cannot be announced.

        `OutcomeUnknownError`: the changes may have been committed, or may still be, once each.
        """
        if not self._exchange.is_shared:
            return False
        if not queue.has_company:
            self._exchange.refresh()  # the listing may be old: an intention made at an old position has expired
            if not self.has_company(identifier):
                return False
        topic = topic_of_table(identifier)
        others = frozenset(self._exchange.pending(topic))
        try:
            return self._commit(topic, identifier, queue, group)
        finally:
            self._left.pop(topic, None)
            left = others.intersection(self._exchange.pending(topic))
            if left:
                self._left[topic] = left

    def _commit(self, topic: str, identifier: Identifier, queue: TableQueue, group: Sequence[Waiting]) -> bool:
        if self._exchange.is_full:
            with suppress(EndiveError):  # the own commit is tried next, and shows what is wrong
                self.carry_out(topic)
            return False
        calls = self._calls(identifier, group)
        if calls is None:
            return False
        own = self._exchange.announce(topic, calls)
        try:
            with stage("commit.announced") as facts:
                taken = Taken(own.name, list(group))
                facts["commit.carried_out_by"] = self._see_through(topic, own, queue, taken, identifier)
        except OutcomeUnknownError:
            raise
        except Exception as error:
            raise OutcomeUnknownError(own.path) from error
        return True

    def _calls(self, identifier: Identifier, group: Sequence[Waiting]) -> tuple[Call, ...] | None:
        """Return the changes of a group as calls; None if they are too large, or one of them must be alone."""
        record = self._store.read_cached(partial(find_table, identifier=identifier))
        if record is None or any(is_alone(record, one.change) for one in group):
            return None
        calls = tuple(Call(NAME, VERSION, encoded_change(self._portable(one, record))) for one in group)
        return calls if sum(len(call.argument) for call in calls) <= INTENTION_BYTES_MAX else None

    def _portable(self, one: Waiting, record: TableRecord) -> PortableChange:
        metadata = record.metadata
        io = self._files.io(metadata.location, metadata.properties)
        lists = {
            snapshot.manifest_list: encoded_list(metadata, snapshot, own_list(io, snapshot))
            for snapshot in one.change.added_snapshots
        }
        return PortableChange(one.change, one.commit_id, self._files.mode, lists)

    def _see_through(self, topic: str, own: Intention, queue: TableQueue, taken: Taken, identifier: Identifier) -> str:
        """Wait until an own intention is decided, and lead if others do not; return which process has led."""
        self._exchange.refresh()
        ahead: tuple[str, ...] | None = None
        due_s, is_guest = 0.0, False
        for _ in range(ROUNDS_MAX):
            decided = self._exchange.result(own)
            if decided is not None:
                self._answer(own, taken.waiting, decided, queue)
                return decided.by
            if self._exchange.is_exclusive_elsewhere and not is_guest:
                is_guest = True  # once: then it is claimed
                self._exchange.await_exclusive(own)
                continue
            names = self._exchange.pending(topic)
            before = tuple(name for name in names if name < own.name)
            if before != ahead:
                is_first_look, ahead = ahead is None, before
                waits = min(len(before), WAITS_MAX) + (is_first_look and len(names) > 1)
                due_s = monotonic() + waits * self._lead_s(queue)
            if monotonic() < due_s and self._exchange.await_entry(due_s - monotonic()):
                continue
            self._lead(topic, identifier, queue, taken)
            if all(one.is_answered for one in taken.waiting):
                self._exchange.forget(own)
                return self._exchange.process
            ahead = None
        raise OutcomeUnknownError(own.path)

    def _lead_s(self, queue: TableQueue) -> float:
        return queue.lead_s or LEAD_ENTRIES * self._exchange.entry_s

    def _answer(self, own: Intention, group: Sequence[Waiting], decided: Decided, queue: TableQueue) -> None:
        """Answer the members of an own group as the log says."""
        queue.met_company()
        for number, one in enumerate(group):
            found = record_or_error(decided.results[min(number, len(decided.results) - 1)])
            if isinstance(found, CommitRecord):
                one.committed = GroupResult(found, None, None)
            else:
                one.error = found
        self._exchange.finished(own, decided)

    # The leader's part.

    def carry_out(self, topic: str) -> None:
        """Carry out what other processes have announced on a topic, if this process can."""
        for identifier in sorted({one.change.identifier for taken in self._read(topic) for one in taken.waiting}):
            if topic_of_table(identifier) == topic:
                self._lead(topic, identifier, TableQueue(), None)

    def _lead(self, topic: str, identifier: Identifier, queue: TableQueue, own: Taken | None) -> None:
        """Commit all that is pending on a table as one chain; answers the own group if that is decided by it."""
        started_s = monotonic()
        stored: dict[str, CommitRecord] = {}
        closed: set[str] = set()
        for lost in range(LEADS_MAX):
            found = [one for one in self._read(topic, own) if one.name not in closed and self._is_of(one, identifier)]
            if own is not None and own.name in closed:
                return
            if not found:
                return
            outcome = self._attempt(identifier, queue, found, stored, lost, own)
            if isinstance(outcome, AlreadyCommitted):
                stored.update(outcome.results)
            elif isinstance(outcome, AlreadyDecided):
                closed.update(outcome.names)
                self._exchange.refresh()
            elif isinstance(outcome, Stale):
                self._exchange.refresh()
                if own is not None and self._exchange.is_decided(own.name):
                    return
            else:
                if len(found) > 1:
                    queue.met_company()
                took_s = monotonic() - started_s
                queue.lead_s = took_s if not queue.lead_s else 0.7 * queue.lead_s + 0.3 * took_s
                return

    def _read(self, topic: str, own: Taken | None = None) -> list[Taken]:
        """Return the pending intentions on a topic, with changes up to a number; the own one in any case."""
        found: list[Taken] = [] if own is None else [own]
        count = 0
        for intention in self._exchange.read(topic, can_prepare):
            if not can_prepare(intention) or (own is not None and intention.name == own.name):
                continue
            count += len(intention.calls)
            if count <= CHANGES_MAX:
                found.append(Taken(intention.name, self._decoded(intention)))
        return sorted(found, key=lambda one: one.name)

    def _decoded(self, intention: Intention) -> list[Waiting | CallResult]:
        if intention.problem:
            return [CallResult(FAILED, intention.problem.encode())]
        return [self._member(call) for call in intention.calls]

    def _member(self, call: Call) -> Waiting | CallResult:
        try:
            one = decoded_change(call.argument)
        except Exception as error:  # noqa: BLE001 - a damaged change must not stop others
            return CallResult(FAILED, f"the change cannot be decoded: {type(error).__name__}: {error}".encode())
        for location, body in one.own_lists.items():
            own_manifests_of.add(location, body)
        return Waiting(one.change, one.commit_id, partial(self._files.written_first, default=one.metadata_mode))

    @staticmethod
    def _is_of(taken: Taken, identifier: Identifier) -> bool:
        """Whether an intention is about a table. One without any change that can be decoded is about every table."""
        return all(one.change.identifier == identifier for one in taken.waiting)

    def _attempt(
        self,
        identifier: Identifier,
        queue: TableQueue,
        found: list[Taken],
        stored: dict[str, CommitRecord],
        lost: int,
        own: Taken | None,
    ) -> GroupOutcome | AlreadyDecided:
        """Build a chain of all changes, write its files, and run its transaction."""
        while True:
            chain, base = self._build(identifier, queue, found, stored, lost)
            errors = {id(link.waiting): link.error for link in chain.links if link.error is not None} if chain else {}
            left = [one for one in found if one is not own and self._is_left(one, errors)]
            if not left:
                break
            if chain is not None:
                self._chains.discard(chain.files)
            found = [one for one in found if one not in left]
            if not found:
                return ()
        missing = NotInCatalogError("Table", text_of(identifier), "it may have been dropped or renamed")
        if chain is not None:
            self._chains.drop_failed(chain)
            self._chains.write(chain)
        members, last = members_of(chain) if chain is not None and chain.fitting else ([], None)

        def results_of(records: Results) -> dict[str, tuple[CallResult, ...]]:
            by_id = stored | {member.commit_id: record for member, record in zip(members, records, strict=True)}
            return {one.name: tuple(_result(each, by_id, errors, missing) for each in one.members) for one in found}

        function = partial(
            apply_announced,
            identifier=identifier,
            base=base,
            members=members,
            last=last,
            results_of=results_of,
        )
        outcome = self._exchange.carry_out([one.name for one in found], function)
        if not isinstance(outcome, tuple):
            if chain is not None:
                self._chains.discard(chain.files)
            return outcome
        self._exchange.carried(len(found) - (own is not None))
        if chain is not None and chain.fitting:
            self._chains.committed(chain, outcome)
        if own is not None:
            _answer_rest(own, stored, errors, missing)
        return outcome

    def _build(
        self,
        identifier: Identifier,
        queue: TableQueue,
        found: Sequence[Taken],
        stored: Mapping[str, CommitRecord],
        lost: int,
    ) -> tuple[Chain | None, TableRecord | None]:
        """Return a chain on the state that this process knows, and that state; None if there is no such table.

        Of changes with the same commit id only the first is in the chain: it is one commit.
        """
        changes = {one.commit_id: one for taken in reversed(found) for one in reversed(taken.waiting)}
        chained = [one for one in reversed(changes.values()) if one.commit_id not in stored]
        changes_of = [one.change for one in chained]
        view = self._store.read_cached(partial(load_base, identifier=identifier, changes=changes_of))
        if view is None:
            return None, None
        return self._chains.build(identifier, view, chained, lost, queue.known), view.record

    def _is_left(self, taken: Taken, errors: Mapping[int, Exception]) -> bool:
        """Whether an intention of another process is left to it: an error here says nothing about its changes."""
        own_errors = [errors[id(one)] for one in taken.waiting if id(one) in errors]
        is_old = self._exchange.entries_since(taken.name) > OLD_ENTRIES
        return not is_old and not all(map(is_decisive, own_errors))


def _result(
    one: Waiting | CallResult, records: Mapping[str, CommitRecord], errors: Mapping[int, Exception], missing: Exception
) -> CallResult:
    """Return the result of a change."""
    if isinstance(one, CallResult):
        return one
    if one.commit_id in records:
        return result_of_record(records[one.commit_id])
    return result_of_error(errors.get(id(one), missing))


def _answer_rest(
    own: Taken, stored: Mapping[str, CommitRecord], errors: Mapping[int, Exception], missing: Exception
) -> None:
    """Answer the members of the own group that are not among those that fit."""
    for one in own.waiting:
        if one.is_answered:
            continue
        if one.commit_id in stored:
            one.committed = GroupResult(stored[one.commit_id], None, None)
        else:
            one.error = errors.get(id(one), missing)
