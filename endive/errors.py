"""Errors, grouped by what the caller can do about them.

Every class says in its docstring what to do. Fields go to `args` unchanged, so that an error survives pickling
and SimPy, which rebuild it as `type(error)(*error.args)`.
"""

from collections.abc import Sequence


class EndiveError(Exception):
    """Root of all errors that Endive raises on purpose."""


class UnsupportedOperationError(EndiveError):
    """The storage provider lacks this operation. Choose another provider or another mode."""

    def __init__(self, provider: str, operation: str) -> None:
        super().__init__(provider, operation)
        self.provider = provider
        self.operation = operation

    def __str__(self) -> str:
        return f"provider {self.provider!r} does not support {self.operation!r}"


class ConfigurationError(EndiveError):
    """The input is wrong. Mend every fault listed; nothing has run and nothing was written."""

    def __init__(self, source: str, faults: Sequence[str]) -> None:
        super().__init__(source, faults)
        self.source = source
        self.faults = tuple(faults)

    def __str__(self) -> str:
        count = len(self.faults)
        lines = "\n".join(f"  - {fault}" for fault in self.faults)
        return f"{self.source}: {count} fault{'s' if count != 1 else ''}\n{lines}"


class ResultError(EndiveError):
    """A stored result is missing, damaged or not ours. The message names the file and the remedy."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(path, problem, remedy)
        self.path = path
        self.problem = problem
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}; {self.remedy}"


class InvariantError(EndiveError):
    """A run broke a rule of the model. This is a defect of Endive: report it with the configuration and seed."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(rule, detail)
        self.rule = rule
        self.detail = detail

    def __str__(self) -> str:
        return f"invariant broken: {self.rule}: {self.detail}"


class SparkUnavailableError(EndiveError):
    """Spark cannot be started, reached or kept alive. Follow the remedy and start again; finished work is kept."""

    def __init__(self, problem: str, remedy: str, log: Sequence[str] = ()) -> None:
        super().__init__(problem, remedy, log)
        self.problem = problem
        self.remedy = remedy
        self.log = tuple(log)
        """The last lines that Spark's JVM wrote; empty if it wrote none or never ran."""

    def __str__(self) -> str:
        lines = "".join(f"\n  {line}" for line in self.log)
        return f"{self.problem}; {self.remedy}" + (f"\nThe last lines of Spark's log:{lines}" if lines else "")


# The store's errors. What to do differs, so the classes differ.


class StorageUnavailableError(EndiveError):
    """The object store refused or could not be reached, and nothing was changed. Wait, then try again."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: the object store is unavailable: {self.problem}"


class StorageAccessError(EndiveError):
    """The object store will not do this: no permission, no such bucket, no space. Mend that; a retry will not help."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class OutcomeUnknownError(EndiveError):
    """A write may or may not have happened. Read back before acting; never delete what it may have written."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: whether the write happened is not known; read back before doing it again"


class FencedError(EndiveError):
    """A process with a newer epoch owns the store. Close this one; do not retry."""

    def __init__(self, role: str, own_epoch: int, found_epoch: int) -> None:
        super().__init__(role, own_epoch, found_epoch)
        self.role = role
        self.own_epoch = own_epoch
        self.found_epoch = found_epoch

    def __str__(self) -> str:
        return f"{self.role} epoch {self.own_epoch} was fenced by epoch {self.found_epoch}"


class ExclusiveWriterError(FencedError):
    """Another process has opened the store for itself alone. Wait until it is done, or open anew to take the store."""

    def __str__(self) -> str:
        return (
            f"another process has the store for itself: its writer epoch {self.found_epoch} is not shared "
            f"({self.role} had epoch {self.own_epoch}); try again when it is done"
        )


class AttemptsExhaustedError(EndiveError):
    """Others won every round of a race. Nothing was changed; try again later."""

    def __init__(self, path: str, attempts: int) -> None:
        super().__init__(path, attempts)
        self.path = path
        self.attempts = attempts

    def __str__(self) -> str:
        return f"{self.path}: lost {self.attempts} races in a row; try again later"


class CorruptObjectError(EndiveError):
    """An object is damaged or not Endive's. Look at it; nothing was overwritten."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


class MissingObjectError(EndiveError):
    """An object that the newest manifest needs is not there. Run `endive kv check`; nothing was overwritten."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: the object is missing, and the newest manifest still needs it"


class StoreNotFoundError(EndiveError):
    """There is no store at this place. Check the URL, or create one by opening it for writing."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"{self.url}: there is no store here; open it for writing to create one"


class CheckpointGoneError(EndiveError):
    """The checkpoint does not exist or has expired. Make a new one; the old view cannot be had any more."""

    def __init__(self, checkpoint_id: str) -> None:
        super().__init__(checkpoint_id)
        self.checkpoint_id = checkpoint_id

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint_id} does not exist or has expired"


class StoreClosedError(EndiveError):
    """The store was closed, or its writer has halted. Open it anew."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return f"{self.url}: the store is closed; open it anew"


class ReadOnlyError(EndiveError):
    """A read wanted to write. Use a transaction."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"key {self.key!r}: a read cannot write; use `transact`"


class ForkedError(EndiveError):
    """The store was opened before this process was forked. Open it anew here; threads do not survive a fork."""

    def __init__(self, url: str, opened_pid: int, used_pid: int) -> None:
        super().__init__(url, opened_pid, used_pid)
        self.url = url
        self.opened_pid = opened_pid
        self.used_pid = used_pid

    def __str__(self) -> str:
        return f"{self.url}: opened by process {self.opened_pid}, used by {self.used_pid} after a fork; open it anew"


class ViewExpiredError(EndiveError):
    """What this view needs has been collected. Start over; make a checkpoint for what takes long."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: collected while a view was using it; start over, with a checkpoint if it takes long"


# The catalog's errors.


class CatalogNotFoundError(EndiveError):
    """There is no catalog at this place. Check the URL, or create one."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.url = url

    def __str__(self) -> str:
        return (
            f"{self.url}: there is no catalog here; check the URL, or create one with `endive catalog init`, "
            "KVCatalog.create() or the property endive.create=true"
        )


class NotInCatalogError(EndiveError):
    """The catalog has no table, namespace, snapshot, branch or tag of this name. Check it; nothing was changed."""

    def __init__(self, kind: str, name: str, hint: str = "") -> None:
        super().__init__(kind, name, hint)
        self.kind = kind
        self.name = name
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.kind} does not exist: {self.name}" + (f"; {self.hint}" if self.hint else "")


class AlreadyInCatalogError(EndiveError):
    """The name is taken. Choose another, or use what is there; nothing was changed."""

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        return f"{self.kind} already exists: {self.name}"


class NamespaceNotEmptyError(EndiveError):
    """A namespace that holds something cannot be dropped. Drop what it holds first."""

    def __init__(self, namespace: str, tables: int, namespaces: int) -> None:
        super().__init__(namespace, tables, namespaces)
        self.namespace = namespace
        self.tables = tables
        self.namespaces = namespaces

    def __str__(self) -> str:
        return f"Namespace {self.namespace} is not empty: {self.tables} tables, {self.namespaces} namespaces"


class CommitConflictError(EndiveError):
    """Somebody else changed the table first, in a way that does not commute. Load it, decide anew, commit again."""

    def __init__(self, table: str, problem: str) -> None:
        super().__init__(table, problem)
        self.table = table
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.table}: {self.problem}"


class CommitRetriesExhaustedError(CommitConflictError):
    """Every attempt to commit lost its race. Nothing was changed; the message says which limit to raise."""

    def __init__(self, table: str, attempts: int, option: str) -> None:
        super().__init__(table, f"lost {attempts} races in a row")
        self.args = (table, attempts, option)
        self.attempts = attempts
        self.option = option

    def __str__(self) -> str:
        return (
            f"{self.table}: lost {self.attempts} races in a row, the limit of the table property {self.option}; "
            "raise it, or let fewer writers commit to this table at once"
        )
