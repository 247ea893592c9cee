"""Commits that need no files, as a procedure: any process can apply them to the table as it is.

A change of a table whose metadata file is written in the background is decided and computed inside of the transaction
(`endive.catalog.commit.apply`). It depends on its argument and on what it reads, so it is a procedure: commits of many
processes to one table share a WAL entry, each on top of the one before. A process runs its own commits directly; the
argument is encoded only when they are announced.
"""

from collections.abc import Sequence

from pydantic_core import from_json, to_json

from endive.catalog.commit.announced_results import ERRORS, record_or_error
from endive.catalog.commit.apply import Stale, apply_commit
from endive.catalog.commit.change_json import PortableChange, decoded_change, encoded_change
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.commit.prepared import ChangedRows, PreparedCommit
from endive.catalog.commit.stored_results import Results
from endive.catalog.model.catalog_records import CommitRecord
from endive.catalog.model.transaction import StoreTransaction
from endive.errors import RefusalError
from endive.kv.log.intentions import REFUSED, CallResult
from endive.kv.procedures import Call, PortableFunction, procedure
from endive.kv.transaction import Outcome, Transaction
from endive.protocol.requests import Steps

NAME, VERSION = "endive.catalog.apply", 1
STALE = b"stale"


class ApplyCommit(PortableFunction):
    """Applies changes of several tables, all or none: a transaction function, and a call of the procedure."""

    def __init__(
        self,
        commits: Sequence[PreparedCommit],
        commit_id: str,
        now_ms: int,
        files: MetadataFiles,
        applied: list[ChangedRows],
    ) -> None:
        """Apply changes; `applied` gets their rows, if this process has committed them."""
        self._commits = commits
        self._commit_id = commit_id
        self._now_ms = now_ms
        self._files = files
        self._applied = applied

    def __call__(self, tx: StoreTransaction) -> Steps[Results | Stale]:
        """Apply the changes."""
        result = yield from apply_commit(
            tx, self._commits, self._commit_id, self._now_ms, self._files.written_first, self._applied
        )
        return result

    def call(self) -> Call | None:
        """Return the changes as a call; None: rows were prepared, for files that only this process has written."""
        if any(one.rows is not None for one in self._commits):
            return None
        changes = [PortableChange(one.change, self._commit_id, self._files.mode) for one in self._commits]
        fields = {"now_ms": self._now_ms, "changes": [encoded_change(one).decode() for one in changes]}
        return Call(NAME, VERSION, to_json(fields))

    def outcome(self, result: Outcome) -> Outcome:
        """Return the results of the call as those of the function."""
        self._applied.clear()  # computed here, but on a state that another process may have seen changed
        if isinstance(result.error, RefusalError):
            error = record_or_error(CallResult(REFUSED, result.error.reason))
            return Outcome(error=error if isinstance(error, Exception) else result.error)
        if result.error is not None:
            return result
        if result.value == STALE:
            return Outcome(Stale(self._commits[0].change.identifier))
        return Outcome(tuple(CommitRecord.decoded(text.encode()) for text in from_json(result.value)))


@procedure(NAME, VERSION)
def apply_portable(tx: Transaction, argument: bytes) -> Steps[bytes]:
    """Apply changes; the argument is that of `ApplyCommit.call`."""
    fields = from_json(argument)
    changes = [decoded_change(text.encode()) for text in fields["changes"]]
    first = changes[0]
    files = MetadataFiles({}, first.metadata_mode)
    commits = [PreparedCommit(one.change) for one in changes]
    try:
        results = yield from apply_commit(tx, commits, first.commit_id, fields["now_ms"], files.written_first)
    except tuple(ERRORS.values()) as error:
        if type(error).__name__ not in ERRORS:
            raise
        raise RefusalError(to_json([type(error).__name__, list(error.args)])) from error
    if isinstance(results, Stale):
        return STALE
    return to_json([record.encoded().decode() for record in results])
