"""Errors, grouped by what the caller can do about them.

Every docstring says what to do. The fields of each data class are the facts that the error carries. Errors compare by
identity (`eq=False`), as exceptions do.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

from endive.wording import counted


@dataclass(eq=False, init=False, repr=False)
class EndiveError(Exception):
    """Base class of all errors that Endive raises deliberately."""

    def __post_init__(self) -> None:
        # pickle and SimPy rebuild an error from `args`, so all fields go there, in order.
        self.args = tuple(getattr(self, fact.name) for fact in fields(self) if fact.init)


def copy_of(error: EndiveError) -> EndiveError:
    """Return an equal error: one that is raised in several threads must not share its traceback."""
    copied = type(error)(*error.args)
    copied.__cause__ = error
    return copied


@dataclass(eq=False)
class UnsupportedOperationError(EndiveError):
    """The storage provider lacks this operation. Choose another provider or another mode."""

    provider: str
    operation: str

    def __str__(self) -> str:
        return f"provider {self.provider!r} does not support {self.operation!r}"


@dataclass(eq=False)
class ConfigurationError(EndiveError, ValueError):
    """The input is invalid. Fix every error listed; nothing has run and nothing was written."""

    source: str
    errors: Sequence[str]

    def __post_init__(self) -> None:
        self.errors = tuple(self.errors)
        super().__post_init__()

    def after(self, before: "ConfigurationError | None", option: str) -> "ConfigurationError":
        """Return this error attributed to an option, except for the errors that existed `before` it was applied."""
        known = set(before.errors) if before is not None else set()
        own = [error for error in self.errors if error not in known]
        others = [error for error in self.errors if error in known]
        if before is None or not others:
            return ConfigurationError(option, own)
        if not own:
            return ConfigurationError(before.source, others)
        return ConfigurationError(f"{before.source} and {option}", [*others, *(f"{option}: {error}" for error in own)])

    def __str__(self) -> str:
        lines = "\n".join(f"  - {error}" for error in self.errors)
        return f"{self.source}: {counted(len(self.errors), 'error')}\n{lines}"


class KeyReusedError(ConfigurationError):
    """An idempotency key was used for another request. Nothing was done now: send the request with a key of its own."""


class ErrorCollector:
    """Collects the `ConfigurationError`s of several parts of an input, so that all are reported at once.

    Read each part inside `with errors.collected():`, then call `errors.raise_for(source)`.
    """

    def __init__(self) -> None:
        self._errors: list[ConfigurationError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Keep a `ConfigurationError` for `raise_for`."""
        try:
            yield
        except ConfigurationError as error:
            self._errors.append(error)

    def raise_for(self, source: str) -> None:
        """Raise the collected errors, if any: a single one unchanged, several as one error of `source`."""
        if len({(error.source, error.errors) for error in self._errors}) == 1:
            raise self._errors[0]
        named = [("" if error.source == source else f"{error.source}: ", error.errors) for error in self._errors]
        if named:
            lines = [f"{name}{error}" for name, errors in named for error in errors]
            raise ConfigurationError(source, list(dict.fromkeys(lines)))


@dataclass(eq=False)
class ResultError(EndiveError):
    """A stored result is missing, damaged or of another program. The message names the file and the remedy."""

    path: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; {self.remedy}"


@dataclass(eq=False)
class InvariantError(EndiveError):
    """A run broke a rule of the model. This is a defect of Endive: report it with the configuration and seed."""

    rule: str
    detail: str

    def __str__(self) -> str:
        return f"invariant broken: {self.rule}: {self.detail}"


@dataclass(eq=False)
class SparkUnavailableError(EndiveError):
    """Spark cannot be started, reached or kept alive. Follow the remedy and start again; finished work is kept."""

    problem: str
    remedy: str
    log: Sequence[str] = ()
    """Last lines of the JVM's output; empty if there was none."""

    def __post_init__(self) -> None:
        self.log = tuple(self.log)
        super().__post_init__()

    def __str__(self) -> str:
        lines = "".join(f"\n  {line}" for line in self.log)
        return f"{self.problem}; {self.remedy}" + (f"\nThe last lines of Spark's log:{lines}" if lines else "")


# The store's errors: one class for each reaction of the caller.


@dataclass(eq=False)
class StorageUnavailableError(EndiveError):
    """The object store refused or could not be reached, and nothing was changed. Wait, then try again."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: the object store is unavailable: {self.problem}"


@dataclass(eq=False)
class StorageAccessError(EndiveError):
    """The object store denies this: no permission, no such bucket, no space. Fix the cause; a retry does not help."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(eq=False)
class OutcomeUnknownError(EndiveError):
    """A write may or may not have happened. Read back before acting; never delete files that it may have written."""

    path: str

    def __str__(self) -> str:
        return f"{self.path}: whether the write happened is not known; read back before doing it again"


@dataclass(eq=False)
class IntentionExpiredError(OutcomeUnknownError):
    """So many commits came after this one that its result is no longer kept. Read back before doing it again."""

    def __str__(self) -> str:
        return f"{self.path}: too far behind the log: if it was carried out, the result is no longer kept; read back"


@dataclass(eq=False)
class RefusalError(EndiveError):
    """A procedure has refused, and wrote nothing. `reason` says why, in the procedure's own format."""

    reason: bytes

    def __str__(self) -> str:
        return self.reason.decode(errors="replace")


@dataclass(eq=False)
class ProcedureFailedError(EndiveError):
    """A procedure failed by a defect, and wrote nothing. Correct the call or the procedure; a retry fails again."""

    procedure: str
    problem: str

    def __str__(self) -> str:
        return f"{self.procedure}: {self.problem}"


@dataclass(eq=False)
class FencedError(EndiveError):
    """A process with a newer epoch owns the store. Close this one; do not retry."""

    role: str
    own_epoch: int
    found_epoch: int

    def __str__(self) -> str:
        return f"{self.role} epoch {self.own_epoch} was fenced by epoch {self.found_epoch}"


class ExclusiveWriterError(FencedError):
    """Another process is the exclusive writer. Wait until it is done, or reopen the store to take over."""

    def __str__(self) -> str:
        return (
            f"another process is the exclusive writer, with epoch {self.found_epoch} "
            f"({self.role} had epoch {self.own_epoch}); try again when it is done"
        )


@dataclass(eq=False)
class AttemptsExhaustedError(EndiveError):
    """Concurrent writers won every attempt. Nothing was changed; try again later."""

    path: str
    attempts: int

    def __str__(self) -> str:
        return f"{self.path}: lost {self.attempts} races in a row; try again later"


@dataclass(eq=False)
class CorruptObjectError(EndiveError):
    """An object is damaged, or another program wrote it. Inspect it; nothing was overwritten."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(eq=False)
class MissingObjectError(EndiveError):
    """An object that the newest manifest needs is not there. Run `endive kv check`; nothing was overwritten."""

    path: str

    def __str__(self) -> str:
        return f"{self.path}: the object is missing, and the newest manifest still needs it"


@dataclass(eq=False)
class StoreNotFoundError(EndiveError):
    """There is no store at this place. Check the URL, or create one by opening it for writing."""

    url: str

    def __str__(self) -> str:
        return f"{self.url}: there is no store here; `endive kv open {self.url}` makes one, as opening it to write does"


@dataclass(eq=False)
class CheckpointGoneError(EndiveError):
    """The checkpoint does not exist or has expired. Create a new one; the old view cannot be recovered."""

    checkpoint_id: str

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint_id} does not exist or has expired"


@dataclass(eq=False)
class StoreClosedError(EndiveError):
    """The store is closed, or its writer has stopped. Reopen it."""

    url: str

    def __str__(self) -> str:
        return f"{self.url}: the store is closed; reopen it"


@dataclass(eq=False)
class ReadOnlyError(EndiveError):
    """A read-only transaction function tried to write. Use `transact`."""

    key: bytes

    def __str__(self) -> str:
        return f"key {self.key!r}: a read cannot write; use `transact`"


@dataclass(eq=False)
class AtCheckpointError(EndiveError):
    """The store is open at a checkpoint, which never changes. Restore or clone the checkpoint to write."""

    checkpoint: str

    def __str__(self) -> str:
        return f"this is checkpoint {self.checkpoint}, which is read-only; restore it, or clone it, to write"


@dataclass(eq=False)
class ForkedError(EndiveError):
    """The store was opened before this process was forked. Reopen it here; threads do not survive a fork."""

    url: str
    opened_pid: int
    used_pid: int

    def __str__(self) -> str:
        return f"{self.url}: opened by process {self.opened_pid}, used by {self.used_pid} after a fork; reopen it"


@dataclass(eq=False)
class ViewExpiredError(EndiveError):
    """Garbage collection deleted files of this view. Start over; create a checkpoint for long reads."""

    path: str

    def __str__(self) -> str:
        return f"{self.path}: garbage-collected while a view was using it; start over; checkpoint a long read"


# The catalog's errors.


@dataclass(eq=False)
class CatalogNotFoundError(EndiveError):
    """There is no catalog at this place. Check the URL, or create one."""

    url: str

    def __str__(self) -> str:
        return (
            f"{self.url}: there is no catalog here; check the URL, or create one with `endive catalog init`, "
            "KVCatalog.create() or the property endive.create=true"
        )


@dataclass(eq=False)
class NotInCatalogError(EndiveError):
    """The catalog has no table, namespace, snapshot, branch or tag of this name. Check it; nothing was changed."""

    kind: str
    name: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.kind} does not exist: {self.name}" + (f"; {self.hint}" if self.hint else "")


@dataclass(eq=False)
class AlreadyInCatalogError(EndiveError):
    """The name is taken. Choose another one, or use the existing object; nothing was changed."""

    kind: str
    name: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.kind} already exists: {self.name}" + (f"; {self.hint}" if self.hint else "")


@dataclass(eq=False)
class NamespaceNotEmptyError(EndiveError):
    """The namespace is not empty. Drop its tables, views and namespaces first."""

    namespace: str
    tables: int
    namespaces: int
    views: int = 0

    def __str__(self) -> str:
        views = f"{counted(self.views, 'view')}, " if self.views else ""
        holds = f"{counted(self.tables, 'table')}, {views}{counted(self.namespaces, 'namespace')}"
        return f"Namespace {self.namespace} is not empty: {holds}"


@dataclass(eq=False)
class CommitConflictError(EndiveError):
    """A concurrent commit changed the table in a way that does not commute. Reload it and commit again."""

    table: str
    problem: str

    def __str__(self) -> str:
        return f"{self.table}: {self.problem}"


@dataclass(eq=False)
class CommitRetriesExhaustedError(CommitConflictError):
    """Every attempt to commit lost against a concurrent commit. Nothing was changed; the message names the limit."""

    attempts: int
    option: str

    def __str__(self) -> str:
        return (
            f"{self.table}: {self.problem}, the limit of the table property {self.option}; raise it, or let fewer "
            "writers commit to this table at once"
        )
