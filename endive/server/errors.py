"""From errors to statuses: Iceberg's error model.

A client acts by the status. After 409 it reloads and commits again. After 500, 502 or 504 on a commit it must assume
that the commit may have happened, and deletes none of its files. So 5xx means *unknown* or *a defect*; a request that
certainly changed nothing is refused with 4xx, or with 429 and `Retry-After` when it may be sent again as it is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.exceptions import ValidationError

from endive.errors import (
    AlreadyInCatalogError,
    AttemptsExhaustedError,
    CommitConflictError,
    ConfigurationError,
    CorruptObjectError,
    EndiveError,
    KeyReusedError,
    NamespaceNotEmptyError,
    NotInCatalogError,
    OutcomeUnknownError,
    StorageAccessError,
    StorageUnavailableError,
)

RETRY_AFTER_S = 1


@dataclass(eq=False)
class HttpError(EndiveError):
    """A request is answered with an error. The fields are those of Iceberg's error model."""

    status: int
    kind: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.status} {self.kind}: {self.message}"


def bad_request(message: str) -> HttpError:
    """Return the error of a request that is malformed or asks for something unknown."""
    return HttpError(400, "BadRequestException", message)


def missing_file(location: str) -> HttpError:
    """Return the error of a metadata file that does not exist."""
    return HttpError(404, "NotFoundException", f"Failed to open input stream for file: {location}")


def not_acceptable(what: str) -> HttpError:
    """Return the error of something in the specification that this server does not support."""
    return HttpError(406, "UnsupportedOperationException", f"The server does not support {what}")


def try_again(message: str) -> HttpError:
    """Return the error of a request that changed nothing and may be sent again."""
    return HttpError(429, "ServiceUnavailableException", message, {"retry-after": str(RETRY_AFTER_S)})


_MISSING = {"Namespace": "NoSuchNamespaceException", "Table": "NoSuchTableException", "View": "NoSuchViewException"}


def as_http(error: Exception, may_have_changed: bool) -> HttpError:
    """Return the answer to an error. `may_have_changed`: the request was one that changes something."""
    if isinstance(error, HttpError):
        return error
    known = _known(error)
    if known is not None:
        return known
    if isinstance(error, OutcomeUnknownError) or may_have_changed:
        return HttpError(500, "CommitStateUnknownException", str(error) or type(error).__name__)
    return HttpError(500, "InternalServerError", f"{type(error).__name__}: {error}")


_WORDS = (
    ("Table already exists", "Requirement failed: table already exists"),
    ("Table UUID does not match", "Requirement failed: UUID does not match"),
    ("current schema id has changed", "current schema changed"),
    ("default spec id has changed", "default partition spec changed"),
    ("default sort order id has changed", "default sort order changed"),
    ("id has changed", "id changed"),
)
"""PyIceberg's words for failed requirements, and those of Iceberg's library, which its clients look for."""


def _conflict(error: CommitConflictError) -> HttpError:
    problem = error.problem
    for ours, theirs in _WORDS:
        problem = problem.replace(ours, theirs)
    return HttpError(409, "CommitFailedException", f"{problem} (table {error.table})")


def _invalid(error: ConfigurationError) -> HttpError:
    return HttpError(400, "IllegalArgumentException", f"{'; '.join(error.errors)} ({error.source})")


def _reused(error: KeyReusedError) -> HttpError:
    return HttpError(422, "UnprocessableEntityException", f"{error.source} {'; '.join(error.errors)}")


_KNOWN: tuple[tuple[type[Exception], Callable[[Any], HttpError]], ...] = (
    (NotInCatalogError, lambda error: HttpError(404, _MISSING.get(error.kind, "NotFoundException"), str(error))),
    (AlreadyInCatalogError, lambda error: HttpError(409, "AlreadyExistsException", str(error))),
    (NamespaceNotEmptyError, lambda error: HttpError(409, "NamespaceNotEmptyException", str(error))),
    (CommitConflictError, _conflict),
    (KeyReusedError, _reused),
    (ConfigurationError, _invalid),
    (ValidationError, lambda error: HttpError(400, "ValidationException", str(error).splitlines()[0])),
    (StorageUnavailableError, lambda error: try_again(str(error))),
    (AttemptsExhaustedError, lambda error: try_again(str(error))),
    (StorageAccessError, lambda error: HttpError(403, "ForbiddenException", str(error))),
    (CorruptObjectError, lambda error: HttpError(500, "InternalServerError", str(error))),
)
"""Errors after which nothing was changed, and their answers."""


def _known(error: Exception) -> HttpError | None:
    return next((answer(error) for kind, answer in _KNOWN if isinstance(error, kind)), None)
