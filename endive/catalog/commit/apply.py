"""The transaction of a commit: prepared changes of one or several tables, all or nothing.

The transaction function runs on the newest state. Changes that were not prepared are decided and computed here. Rows
that were prepared are put only if the table is still at the version that they were computed on. Otherwise the function
returns `Stale` and puts nothing, and the caller decides again (`endive.catalog.commit.committer`).

Every commit has an id, its idempotency key. Its result is stored under the id in the same transaction, and a retry
returns the stored result. Every table keeps its last `RESULTS_STORED` results.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from endive.catalog.commit.base import base_of
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.decision import Decision, WritesFileFirst, decide
from endive.catalog.commit.prepared import NO_VERSION, ChangedRows, PreparedCommit, compute_rows
from endive.catalog.model.catalog_records import CommitRecord, SnapshotRecord, TableRecord
from endive.catalog.model.file_rows import reparent
from endive.catalog.model.keys import commit_key, commit_version_key, snapshot_key
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.dropped_tables import require_cleared
from endive.catalog.operations.namespaces import require_namespace
from endive.catalog.operations.stored_tables import put_record
from endive.catalog.operations.table_rows import find_table, require_no_view
from endive.catalog.operations.uuid_index import put_uuid, require_unused_uuid
from endive.errors import CommitConflictError, NotInCatalogError
from endive.protocol.requests import Steps

RESULTS_STORED = 1000
"""Stored results of every table. A retry comes within seconds; that of a restarted stream within hours."""


@dataclass(frozen=True, slots=True)
class Stale:
    """Nothing was committed: the table is no longer in the state that a change was decided on."""

    identifier: Identifier


Results = tuple[CommitRecord, ...]


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
        base = yield from base_of(tx, record, one.change)
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


def apply_group(
    tx: StoreTransaction,
    identifier: Identifier,
    members: Sequence[GroupMember],
    last: ChangedRows,
    writes_file_first: WritesFileFirst,
) -> Steps[Results | Stale | AlreadyCommitted]:
    """Commit prepared changes of one table, all or none. `last`: the rows of the last one, with the metadata file.

    A single change that contradicts the table raises its conflict here. In a larger group that is the error of one
    member, and the caller finds it when it computes the group again.
    """
    record = yield from find_table(tx, identifier)
    stored: dict[str, CommitRecord] = {}
    for member in members:
        result = (yield from _stored_result(tx, record, member.commit_id)) if record is not None else None
        if result is not None:
            stored[member.commit_id] = result
    if len(stored) == len(members):
        return tuple(stored[member.commit_id] for member in members)
    if stored:
        return AlreadyCommitted(stored)
    if not members[0].rows.fits(record):
        if len(members) == 1:
            base = yield from base_of(tx, record, members[0].change)
            decide(members[0].change, base, writes_file_first)
        return Stale(identifier)
    results: list[CommitRecord] = []
    for member in members:
        result = yield from _install(tx, member.rows, member.commit_id, (), last.record.metadata_location)
        results.append(result)
    if any(not member.rows.is_empty for member in members):
        yield from _put_table(tx, last)
    return tuple(results)


def stored_results(
    tx: StoreTransaction, identifiers: Sequence[Identifier], commit_id: str, records: list[TableRecord | None]
) -> Steps[Results | None]:
    """Return the stored results of a commit to these tables; None if there are none. Fills `records`.

    The stored result of one table decides for all tables of the commit. Another table may have deleted its result, or
    stored none because the change had no effect; its result describes the table as it is now. A table that was dropped
    or renamed since has the version `NO_VERSION`: the commit has happened, and is not repeated.
    """
    results: list[CommitRecord | None] = []
    for identifier in identifiers:
        record = yield from find_table(tx, identifier)
        result = (yield from _stored_result(tx, record, commit_id)) if record is not None else None
        records.append(record)
        results.append(result)
    stored = next((result for result in results if result is not None), None)
    if stored is None:
        return None
    _require_own_id(identifiers, records, results)
    return tuple(
        result if result is not None else _result_now(record, stored)
        for record, result in zip(records, results, strict=True)
    )


def _stored_result(tx: StoreTransaction, record: TableRecord, commit_id: str) -> Steps[CommitRecord | None]:
    body = yield from tx.get(commit_key(record.uuid, commit_id))
    return None if body is None else CommitRecord.decoded(body)


def _require_own_id(
    identifiers: Sequence[Identifier], records: Sequence[TableRecord | None], results: Sequence[CommitRecord | None]
) -> None:
    """Raise if a table without a stored result was not part of the commit that the others have stored."""
    stored = next(result for result in results if result is not None)
    for identifier, record, result in zip(identifiers, records, results, strict=True):
        if record is not None and result is None and str(record.uuid) not in stored.together:
            problem = (
                f"the commit id {stored.commit_id!r} was already used for a commit that this table was not part of"
            )
            raise CommitConflictError(text_of(identifier), problem)
    there = {str(record.uuid) for record in records if record is not None}
    gone = [text_of(identifier) for identifier, record in zip(identifiers, records, strict=True) if record is None]
    if len(gone) > len(set(stored.together) - there):  # more tables than the commit had
        raise NotInCatalogError("Table", gone[0], "it may have been dropped or renamed since")


def _result_now(record: TableRecord | None, stored: CommitRecord) -> CommitRecord:
    """Return the result of a table that has not stored its own; of one that was dropped or renamed, without a state."""
    if record is None:
        return replace(stored, version=NO_VERSION, snapshot_id=None, metadata_location="")
    return replace(
        stored,
        version=record.version,
        snapshot_id=record.metadata.current_snapshot_id,
        metadata_location=record.metadata_location,
    )


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
    result = CommitRecord(commit_id, record.version, rows.snapshot_id, shown_by, together)
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
    tx.put(commit_key(record.uuid, commit_id), result.encoded())
    tx.put(commit_version_key(record.uuid, record.version), commit_id.encode())
    if record.version >= RESULTS_STORED:
        yield from _delete_result(tx, record)
    return result


def _delete_result(tx: StoreTransaction, record: TableRecord) -> Steps[None]:
    """Delete the stored result of the commit `RESULTS_STORED` versions ago."""
    key = commit_version_key(record.uuid, record.version - RESULTS_STORED)
    commit_id = yield from tx.get(key)
    if commit_id is not None:
        tx.delete(commit_key(record.uuid, commit_id.decode()))
        tx.delete(key)


def _reparent_files(tx: StoreTransaction, rows: ChangedRows) -> Steps[dict[bytes, str]]:
    """Copy the file rows of removed snapshots to their children; return the children's new kinds of rows, by key."""
    remaining = {one.snapshot_id for one in rows.after.snapshots}
    gone = frozenset(one.snapshot.snapshot_id for one in rows.snapshots_before) - remaining
    kinds = yield from reparent(tx, rows.snapshots_before, gone)
    return {snapshot_key(rows.record.uuid, snapshot_id): kind for snapshot_id, kind in kinds.items()}
