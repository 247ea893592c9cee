"""Results of announced commits, as they are recorded: a commit's record, or the error by name.

An error of the catalog is raised by the owner as if it had committed itself. Any other error is recorded as text.
"""

from pydantic_core import from_json, to_json

from endive.catalog.model.catalog_records import CommitRecord
from endive.errors import (
    AlreadyInCatalogError,
    CommitConflictError,
    ConfigurationError,
    CorruptObjectError,
    NotInCatalogError,
    ProcedureFailedError,
)
from endive.kv.log.intentions import DONE, FAILED, REFUSED, CallResult

NAME, VERSION = "endive.catalog.commit", 1
"""The procedure's name and version in intentions. A change of its argument is a new version."""

ERRORS = {
    kind.__name__: kind for kind in (AlreadyInCatalogError, CommitConflictError, ConfigurationError, NotInCatalogError)
}
"""Errors that say that a commit cannot be made on the table as it is."""


def is_decisive(error: Exception) -> bool:
    """Whether an error is about the commit, and not about the process that tried it, or its access to files."""
    return type(error).__name__ in ERRORS or isinstance(error, ValueError | CorruptObjectError)


def result_of_record(record: CommitRecord) -> CallResult:
    """Return the result of a commit that was made."""
    return CallResult(DONE, record.encoded())


def result_of_error(error: Exception) -> CallResult:
    """Return the result of a commit that was not made."""
    name = type(error).__name__
    if name in ERRORS:
        return CallResult(REFUSED, to_json([name, list(error.args)]))
    return CallResult(FAILED, f"{name}: {error}".encode())


def record_or_error(result: CallResult) -> CommitRecord | Exception:
    """Return what a result says."""
    if result.kind == DONE:
        return CommitRecord.decoded(result.body)
    if result.kind == REFUSED:
        name, arguments = from_json(result.body)
        if name in ERRORS:
            error: Exception = ERRORS[name](*arguments)
            return error
    return ProcedureFailedError(f"{NAME}/{VERSION}", result.body.decode(errors="replace"))
