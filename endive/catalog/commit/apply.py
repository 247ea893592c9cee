"""The transaction of a commit: prepared changes of one or several tables, all or nothing.

The transaction function runs on the newest state. Changes that were not prepared are decided and computed here. Rows
that were prepared are put only if the table is still at the version that they were computed on. Otherwise the function
returns `Stale` and puts nothing, and the caller decides again (`endive.catalog.commit.committer`).

Every commit has an id, its idempotency key. Its result is stored under the id in the same transaction, and a retry
returns the stored result (`endive.catalog.commit.stored_results`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from endive.catalog.commit.base import base_of
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.decision import Decision, WritesFileFirst, decide
from endive.catalog.commit.prepared import ChangedRows, PreparedCommit, compute_rows
from endive.catalog.commit.stored_results import Results, put_result, stored_result, stored_results
from endive.catalog.model.catalog_records import CommitRecord, SnapshotRecord, TableRecord
from endive.catalog.model.file_rows import reparent
from endive.catalog.model.keys import snapshot_key
from endive.catalog.model.names import Identifier
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.dropped_tables import require_cleared
from endive.catalog.operations.namespaces import require_namespace
from endive.catalog.operations.stored_tables import put_record
from endive.catalog.operations.table_rows import find_table, require_no_view
from endive.catalog.operations.uuid_index import put_uuid, require_unused_uuid
from endive.protocol.requests import Steps


@dataclass(frozen=True, slots=True)
class Stale:
    """Nothing was committed: the table is no longer in the state that a change was decided on."""

    identifier: Identifier


def apply_commit(
    tx: StoreTransaction,
    commits: Sequence[PreparedCommit],
    commit_id: str,
    now_ms: int,
    writes_file_first: WritesFileFirst,
    applied: list[ChangedRows] | None = None,
) -> Steps[Results | Stale]:
    """Commit changes of several tables, all or none. `applied` gets the rows of the changes if they are committed now.

    Nothing is put before all changes are known to fit: rows that a transaction function has put are committed also if
    it returns `Stale`.
    """
    applied = [] if applied is None else applied
    applied.clear()  # of a run on an older state
    records: list[TableRecord | None] = []
    stored = yield from stored_results(tx, [one.change.identifier for one in commits], commit_id, records)
    if stored is not None:
        return stored
    fitting: list[ChangedRows] = []
    for one, record in zip(commits, records, strict=True):
        if one.rows is not None and one.rows.fits(record):
            fitting.append(one.rows)
            continue
        base = yield from base_of(tx, record, [one.change])
        decision = decide(one.change, base, writes_file_first)  # a real conflict is raised here
        if one.rows is not None or decision is not Decision.APPLY:
            return Stale(one.change.identifier)
        fitting.append(compute_rows(one.change, base, now_ms))
    together = tuple(str(rows.record.uuid) for rows in fitting) if len(fitting) > 1 else ()
    results: list[CommitRecord] = []
    for rows in fitting:
        if rows.base_uuid is None:
            yield from require_namespace(tx, rows.record.identifier[:-1])
            yield from require_no_view(tx, rows.record.identifier)
            yield from require_unused_uuid(tx, rows.record.uuid)
            yield from require_cleared(tx, rows.record.uuid)
        result = yield from _install(tx, rows, commit_id, together)
        yield from _put_table(tx, rows)
        results.append(result)
    applied += fitting
    return tuple(results)


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A change of a group: its rows are computed on top of those of the member before it."""

    commit_id: str
    change: TableChange
    rows: ChangedRows


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """Nothing was committed now: some members of a group had been committed before."""

    results: Mapping[str, CommitRecord]
    """Their stored results, by commit id."""


GroupOutcome = Results | Stale | AlreadyCommitted


def apply_group(
    tx: StoreTransaction,
    identifier: Identifier,
    members: Sequence[GroupMember],
    last: ChangedRows,
) -> Steps[GroupOutcome]:
    """Commit prepared changes of one table, all or none. `last`: the rows of the last one, with the metadata file.

    A conflict is the error of one member, and the caller finds it when it computes the group again.
    """
    record = yield from find_table(tx, identifier)
    stored: dict[str, CommitRecord] = {}
    for member in members:
        result = (yield from stored_result(tx, record, member.commit_id)) if record is not None else None
        if result is not None:
            stored[member.commit_id] = result
    if len(stored) == len(members):
        return tuple(stored[member.commit_id] for member in members)
    if stored:
        return AlreadyCommitted(stored)
    if not members[0].rows.fits(record):
        return Stale(identifier)
    results: list[CommitRecord] = []
    for member in members:
        result = yield from _install(tx, member.rows, member.commit_id, (), last.record.metadata_location)
        results.append(result)
    if any(not member.rows.is_empty for member in members):
        yield from _put_table(tx, last)
    return tuple(results)


def _put_table(tx: StoreTransaction, rows: ChangedRows) -> Steps[None]:
    """Put the record of a table after a change."""
    if not rows.is_empty:
        yield from put_record(tx, rows.record)
    if rows.base_uuid is None:
        put_uuid(tx, rows.record.uuid, rows.record.identifier)


def _install(
    tx: StoreTransaction, rows: ChangedRows, commit_id: str, together: tuple[str, ...], location: str | None = None
) -> Steps[CommitRecord]:
    """Put the rows of a change but that of its table, and the commit's result under its id.

    `location`: the metadata file that shows the change, if it is not that of its own record.
    """
    record = rows.record
    shown_by = location if location is not None else record.metadata_location
    result = CommitRecord(
        commit_id, record.version, rows.snapshot_id, shown_by, together, rows.digest, rows.computed_unix_ms
    )
    if rows.is_empty:
        return result
    puts = dict(rows.puts)
    if rows.removes_snapshots:
        kinds = yield from _reparent_files(tx, rows)
        for key in puts.keys() & kinds.keys():
            puts[key] = replace(SnapshotRecord.decoded(puts[key]), files=kinds[key]).encoded()
    for key in rows.deletes:
        tx.delete(key)
    for key, value in puts.items():
        tx.put(key, value)
    yield from put_result(tx, record.uuid, result)
    return result


def _reparent_files(tx: StoreTransaction, rows: ChangedRows) -> Steps[dict[bytes, str]]:
    """Copy the file rows of removed snapshots to their children; return the children's new kinds of rows, by key."""
    remaining = {one.snapshot_id for one in rows.after.snapshots}
    gone = frozenset(one.snapshot.snapshot_id for one in rows.snapshots_before) - remaining
    kinds = yield from reparent(tx, rows.snapshots_before, gone)
    return {snapshot_key(rows.record.uuid, snapshot_id): kind for snapshot_id, kind in kinds.items()}
