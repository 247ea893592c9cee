"""Errors, grouped by what the caller can do about them.

Every class says in its docstring what to do, and declares the facts it carries as fields of a data class. Errors are
told apart by identity (`eq=False`), as exceptions are.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

from endive.wording import counted


@dataclass(eq=False, init=False, repr=False)
class EndiveError(Exception):
    """Root of all errors that Endive raises on purpose."""

    def __post_init__(self) -> None:
        # All facts that were given go to args, in their order: pickle and SimPy rebuild an error from them.
        self.args = tuple(getattr(self, fact.name) for fact in fields(self) if fact.init)


@dataclass(eq=False)
class UnsupportedOperationError(EndiveError):
    """The storage provider lacks this operation. Choose another provider or another mode."""

    provider: str
    operation: str

    def __str__(self) -> str:
        return f"provider {self.provider!r} does not support {self.operation!r}"


@dataclass(eq=False)
class ConfigurationError(EndiveError):
    """The input is wrong. Mend every fault listed; nothing has run and nothing was written."""

    source: str
    faults: Sequence[str]

    def __post_init__(self) -> None:
        self.faults = tuple(self.faults)
        super().__post_init__()

    def after(self, before: "ConfigurationError | None", option: str) -> "ConfigurationError":
        """Return this error with its faults blamed on an option, but those that were there `before` it was heeded."""
        known = set(before.faults) if before is not None else set()
        own = [fault for fault in self.faults if fault not in known]
        others = [fault for fault in self.faults if fault in known]
        if before is None or not others:
            return ConfigurationError(option, own)
        if not own:
            return ConfigurationError(before.source, others)
        return ConfigurationError(f"{before.source} and {option}", [*others, *(f"{option}: {fault}" for fault in own)])

    def __str__(self) -> str:
        lines = "\n".join(f"  - {fault}" for fault in self.faults)
        return f"{self.source}: {counted(len(self.faults), 'fault')}\n{lines}"


class FaultsOfAll:
    """Gathers the faults of several parts of an input, so that all are told at once.

    Each part is read inside `with faults.gathered():`; `faults.tell(…)` raises if there was one.
    """

    def __init__(self) -> None:
        self._errors: list[ConfigurationError] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Keep a `ConfigurationError` for later."""
        try:
            yield
        except ConfigurationError as error:
            self._errors.append(error)

    def tell(self, source: str) -> None:
        """Raise what was gathered: of one part as it is, of several as one error of `source`."""
        if len({(error.source, error.faults) for error in self._errors}) == 1:
            raise self._errors[0]
        named = [("" if error.source == source else f"{error.source}: ", error.faults) for error in self._errors]
        if named:
            told = [f"{name}{fault}" for name, faults in named for fault in faults]
            raise ConfigurationError(source, list(dict.fromkeys(told)))


@dataclass(eq=False)
class ResultError(EndiveError):
    """A stored result is missing, damaged or not ours. The message names the file and the remedy."""

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
    """The last lines that Spark's JVM wrote; empty if it wrote none or never ran."""

    def __post_init__(self) -> None:
        self.log = tuple(self.log)
        super().__post_init__()

    def __str__(self) -> str:
        lines = "".join(f"\n  {line}" for line in self.log)
        return f"{self.problem}; {self.remedy}" + (f"\nThe last lines of Spark's log:{lines}" if lines else "")


# The store's errors. What to do differs, so the classes differ.


@dataclass(eq=False)
class StorageUnavailableError(EndiveError):
    """The object store refused or could not be reached, and nothing was changed. Wait, then try again."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: the object store is unavailable: {self.problem}"


@dataclass(eq=False)
class StorageAccessError(EndiveError):
    """The object store will not do this: no permission, no such bucket, no space. Mend that; a retry will not help."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(eq=False)
class OutcomeUnknownError(EndiveError):
    """A write may or may not have happened. Read back before acting; never delete what it may have written."""

    path: str

    def __str__(self) -> str:
        return f"{self.path}: whether the write happened is not known; read back before doing it again"


@dataclass(eq=False)
class FencedError(EndiveError):
    """A process with a newer epoch owns the store. Close this one; do not retry."""

    role: str
    own_epoch: int
    found_epoch: int

    def __str__(self) -> str:
        return f"{self.role} epoch {self.own_epoch} was fenced by epoch {self.found_epoch}"


class ExclusiveWriterError(FencedError):
    """Another process has opened the store for itself alone. Wait until it is done, or open anew to take the store."""

    def __str__(self) -> str:
        return (
            f"another process has the store for itself: its writer epoch {self.found_epoch} is not shared "
            f"({self.role} had epoch {self.own_epoch}); try again when it is done"
        )


@dataclass(eq=False)
class AttemptsExhaustedError(EndiveError):
    """Others won every round of a race. Nothing was changed; try again later."""

    path: str
    attempts: int

    def __str__(self) -> str:
        return f"{self.path}: lost {self.attempts} races in a row; try again later"


@dataclass(eq=False)
class CorruptObjectError(EndiveError):
    """An object is damaged or not Endive's. Look at it; nothing was overwritten."""

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
    """The checkpoint does not exist or has expired. Make a new one; the old view cannot be had any more."""

    checkpoint_id: str

    def __str__(self) -> str:
        return f"checkpoint {self.checkpoint_id} does not exist or has expired"


@dataclass(eq=False)
class StoreClosedError(EndiveError):
    """The store was closed, or its writer has halted. Open it anew."""

    url: str

    def __str__(self) -> str:
        return f"{self.url}: the store is closed; open it anew"


@dataclass(eq=False)
class ReadOnlyError(EndiveError):
    """A read wanted to write. Use a transaction."""

    key: bytes

    def __str__(self) -> str:
        return f"key {self.key!r}: a read cannot write; use `transact`"


@dataclass(eq=False)
class ForkedError(EndiveError):
    """The store was opened before this process was forked. Open it anew here; threads do not survive a fork."""

    url: str
    opened_pid: int
    used_pid: int

    def __str__(self) -> str:
        return f"{self.url}: opened by process {self.opened_pid}, used by {self.used_pid} after a fork; open it anew"


@dataclass(eq=False)
class ViewExpiredError(EndiveError):
    """What this view needs has been collected. Start over; make a checkpoint for what takes long."""

    path: str

    def __str__(self) -> str:
        return f"{self.path}: collected while a view was using it; start over, with a checkpoint if it takes long"


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
    """The name is taken. Choose another, or use what is there; nothing was changed."""

    kind: str
    name: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.kind} already exists: {self.name}" + (f"; {self.hint}" if self.hint else "")


@dataclass(eq=False)
class NamespaceNotEmptyError(EndiveError):
    """A namespace that holds something cannot be dropped. Drop what it holds first."""

    namespace: str
    tables: int
    namespaces: int

    def __str__(self) -> str:
        holds = f"{counted(self.tables, 'table')}, {counted(self.namespaces, 'namespace')}"
        return f"Namespace {self.namespace} is not empty: {holds}"


@dataclass(eq=False)
class CommitConflictError(EndiveError):
    """Somebody else changed the table first, in a way that does not commute. Load it, decide anew, commit again."""

    table: str
    problem: str

    def __str__(self) -> str:
        return f"{self.table}: {self.problem}"


@dataclass(eq=False)
class CommitRetriesExhaustedError(CommitConflictError):
    """Every attempt to commit lost its race. Nothing was changed; the message says which limit to raise."""

    attempts: int
    option: str

    def __str__(self) -> str:
        return (
            f"{self.table}: {self.problem}, the limit of the table property {self.option}; raise it, or let fewer "
            "writers commit to this table at once"
        )
