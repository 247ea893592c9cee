"""Commits: requirements checked and updates applied against the newest record, all or nothing.

Two ways lead to a commit, and both end in one work:

* **Worked out inside.** The work reads the table's record, checks the requirements and applies the updates. Commits of
  many threads to one table become one group, each on top of the one before. No file can be written inside, so this is
  the way of tables whose `metadata.json` follows in the background. If the table is not one of them any more, nothing
  is committed.
* **Worked out before.** The caller applies the change to the version it knows, writes the metadata file that shows
  the result, and hands over the rows. The work puts them if the table is still at that version. If not, and
  the requirements still hold, it says so (`Stale`) and changes nothing; the caller works the change out anew. The file
  exists before the record names it, and a file whose commit failed is named by nothing.

Every commit has an id. Its answer is remembered under the id in the same transaction, and a repeat gets that answer.
Of every table the last `COMMITS_REMEMBERED` are kept.

Work inside a transaction is in proportion to the change: of the table's past only the snapshots are read that refs
and updates name. Removing snapshots is the exception, since it changes what the others say of their parents.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from endive.catalog.commit.changes import Staged, TableChange, check_requirements, stage, view_for
from endive.catalog.model.file_rows import take_over
from endive.catalog.model.keys import (
    commit_key,
    commit_version_key,
    snapshot_key,
)
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.records import CommitRecord, SnapshotRecord, TableRecord
from endive.catalog.model.transaction import Transaction
from endive.catalog.operations.dropped_tables import require_cleared
from endive.catalog.operations.namespaces import require_namespace
from endive.catalog.operations.tables import find_table
from endive.errors import CommitConflictError, NotInCatalogError
from endive.protocol.requests import Steps

COMMITS_REMEMBERED = 1000
"""Answers kept for repeats, of every table. A repeat comes within seconds; a restarted stream's within hours."""


@dataclass(frozen=True, slots=True)
class Stale:
    """Nothing was committed: the table had moved on from the version a change was worked out on."""

    identifier: Identifier


def commit_changes(
    tx: Transaction,
    changes: Sequence[tuple[TableChange, Staged | None]],
    commit_id: str,
    now_ms: int,
    needs_file: Callable[[Mapping[str, str]], bool],
) -> Steps[tuple[CommitRecord, ...] | Stale]:
    """Commit changes of several tables, all or none. A change comes with what was worked out, or with None.

    `needs_file`: whether the metadata file of a table with these properties comes first; `Stale` if it did not. Nothing
    is put before all changes are known to fit: what a work has put counts also if it returns `Stale`.
    """
    records: list[TableRecord | None] = []
    known = yield from known_answers(tx, [change.identifier for change, _ in changes], commit_id, records)
    if known is not None:
        return known
    fitting: list[Staged] = []
    for (change, worked_out), record in zip(changes, records, strict=True):
        if worked_out is None:
            view = yield from view_for(tx, record, change)
            staged = stage(change, view, now_ms, None)
            if needs_file(staged.record.metadata.properties):
                return Stale(change.identifier)
            fitting.append(staged)
        elif _still_fits(worked_out, record):
            fitting.append(worked_out)
        else:
            view = yield from view_for(tx, record, change)
            check_requirements(change, view)
            return Stale(change.identifier)
    together = tuple(str(staged.record.uuid) for staged in fitting) if len(fitting) > 1 else ()
    answers: list[CommitRecord] = []
    for staged in fitting:
        if staged.base_uuid is None:
            yield from require_namespace(tx, staged.record.identifier[:-1])
            yield from require_cleared(tx, staged.record.uuid)
        answer = yield from _install(tx, staged, commit_id, together)
        answers.append(answer)
    return tuple(answers)


def known_answers(
    tx: Transaction, identifiers: Sequence[Identifier], commit_id: str, records: list[TableRecord | None]
) -> Steps[tuple[CommitRecord, ...] | None]:
    """Return what a commit to these tables has answered; None if there was none. Fills `records`.

    One table that remembers the commit decides for all that were in it. Another may have forgotten its answer, or had
    none because nothing was changed; it is answered as it is now.
    """
    answers: list[CommitRecord | None] = []
    for identifier in identifiers:
        record = yield from find_table(tx, identifier)
        answer = yield from _answer_of(tx, record, commit_id)
        records.append(record)
        answers.append(answer)
    remembered = next((answer for answer in answers if answer is not None), None)
    if remembered is None:
        return None
    return tuple(
        answer if answer is not None else _answer_now(identifier, record, remembered)
        for identifier, record, answer in zip(identifiers, records, answers, strict=True)
    )


def _answer_now(identifier: Identifier, record: TableRecord | None, remembered: CommitRecord) -> CommitRecord:
    if record is None:
        raise NotInCatalogError("Table", text_of(identifier), "it may have been dropped or renamed since")
    if str(record.uuid) not in remembered.together:
        problem = f"a commit of the id {remembered.commit_id!r} has happened, and this table was not in it"
        raise CommitConflictError(text_of(identifier), problem)
    return replace(
        remembered,
        version=record.version,
        snapshot_id=record.metadata.current_snapshot_id,
        metadata_location=record.metadata_location,
    )


def _answer_of(tx: Transaction, record: TableRecord | None, commit_id: str) -> Steps[CommitRecord | None]:
    if record is None:
        return None
    body = yield from tx.get(commit_key(record.uuid, commit_id))
    return None if body is None else CommitRecord.decoded(body)


def _still_fits(staged: Staged, record: TableRecord | None) -> bool:
    if record is None:
        return staged.base_uuid is None
    return (record.uuid, record.version) == (staged.base_uuid, staged.base_version)


def _install(tx: Transaction, staged: Staged, commit_id: str, together: tuple[str, ...]) -> Steps[CommitRecord]:
    record = staged.record
    answer = CommitRecord(commit_id, record.version, staged.snapshot_id, record.metadata_location, together)
    if staged.changes_nothing:
        return answer
    puts = dict(staged.puts)
    if staged.rewrites_past:
        kinds = yield from _hand_over_files(tx, staged)
        for key in puts.keys() & kinds.keys():
            puts[key] = replace(SnapshotRecord.decoded(puts[key]), files=kinds[key]).encoded()
    for key in staged.deletes:
        tx.delete(key)
    for key, value in puts.items():
        tx.put(key, value)
    tx.put(commit_key(record.uuid, commit_id), answer.encoded())
    tx.put(commit_version_key(record.uuid, record.version), commit_id.encode())
    old = commit_version_key(record.uuid, record.version - COMMITS_REMEMBERED)
    forgotten = (yield from tx.get(old)) if record.version >= COMMITS_REMEMBERED else None
    if forgotten is not None:
        tx.delete(commit_key(record.uuid, forgotten.decode()))
        tx.delete(old)
    return answer


def _hand_over_files(tx: Transaction, staged: Staged) -> Steps[dict[bytes, str]]:
    """Hand over what snapshots that go have; return what the records of others say of their files then, by key."""
    remaining = {one.snapshot_id for one in staged.after.snapshots}
    gone = frozenset(one.snapshot.snapshot_id for one in staged.snapshots_before) - remaining
    uuid = staged.record.uuid
    kinds = yield from take_over(tx, staged.snapshots_before, gone)
    return {snapshot_key(uuid, snapshot_id): kind for snapshot_id, kind in kinds.items()}
