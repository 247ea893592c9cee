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
