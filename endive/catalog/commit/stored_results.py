"""Stored results of commits: a commit with the id of an earlier one returns that result and changes nothing.

A result is a row of its table, put in the transaction of its commit. A client's request has a digest, which is stored
with the result: an id that comes back with another request is an error of the client, and must not be answered with
the result of the first.

**Lifetime.** A table keeps its last `RESULTS_STORED` results, and all results that are younger than the lifetime of an
idempotency key (`endive.catalog.operations.requests`). From version `RESULTS_STORED` on, each commit deletes at most
`DELETED_PER_COMMIT` results, from the oldest on, so that its cost does not depend on the number of results. A result's
age is the difference between the clocks of two processes; `endive.catalog.operations.requests` has the allowance.
"""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from endive.catalog.commit.change import TableChange
from endive.catalog.commit.prepared import NO_VERSION
from endive.catalog.model.catalog_records import CommitRecord, TableRecord
from endive.catalog.model.keys import commit_key, commit_version_key, oldest_result_key
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.requests import has_expired
from endive.catalog.operations.table_rows import find_table
from endive.errors import CommitConflictError, KeyReusedError, NotInCatalogError
from endive.protocol.requests import Steps

RESULTS_STORED = 1000
"""Results that every table keeps, whatever their age: the retry of a restarted stream comes within hours."""
DELETED_PER_COMMIT = 2
"""More than the one result that a commit adds, so that a backlog shrinks."""

Results = tuple[CommitRecord, ...]


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
        result = (yield from stored_result(tx, record, commit_id)) if record is not None else None
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


def stored_result(tx: StoreTransaction, record: TableRecord, commit_id: str) -> Steps[CommitRecord | None]:
    """Return the stored result of a commit to a table; None if there is none."""
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


def require_same_request(change: TableChange, result: CommitRecord) -> None:
    """Raise if a commit was answered with the stored result of another request."""
    if change.digest and result.digest and change.digest != result.digest:
        raise KeyReusedError(f"Idempotency-Key of {text_of(change.identifier)}", ["was used for another commit"])


def put_result(tx: StoreTransaction, uuid: UUID, result: CommitRecord) -> Steps[None]:
    """Put the result of a commit, and delete some that have expired."""
    tx.put(commit_key(uuid, result.commit_id), result.encoded())
    tx.put(commit_version_key(uuid, result.version), result.commit_id.encode())
    if result.version >= RESULTS_STORED:
        yield from _delete_expired(tx, uuid, result.version - RESULTS_STORED, result.unix_ms)


def _delete_expired(tx: StoreTransaction, uuid: UUID, last: int, now_ms: int) -> Steps[None]:
    """Delete the oldest results up to version `last`, if they have expired."""
    body = yield from tx.get(oldest_result_key(uuid))
    first = oldest = last if body is None else int(body)
    for _ in range(DELETED_PER_COMMIT):
        if oldest > last or not (yield from _delete_if_expired(tx, uuid, oldest, now_ms)):
            break
        oldest += 1
    if body is None or oldest != first:
        tx.put(oldest_result_key(uuid), str(oldest).encode())


def _delete_if_expired(tx: StoreTransaction, uuid: UUID, version: int, now_ms: int) -> Steps[bool]:
    """Delete the result of a version unless it is too young; whether there is none any more."""
    commit_id = yield from tx.get(commit_version_key(uuid, version))
    if commit_id is None:
        return True
    key = commit_key(uuid, commit_id.decode())
    body = yield from tx.get(key)
    if body is not None and not has_expired(CommitRecord.decoded(body).unix_ms, now_ms):
        return False
    tx.delete(key)
    tx.delete(commit_version_key(uuid, version))
    return True
