"""Procedures: transaction functions that are data, so that any process can carry them out.

A transaction function is Python code of one process. A *call* names a registered procedure and its version, and has an
argument of bytes: any process that knows the procedure computes the same rows from the same state.

A procedure must be deterministic. It may depend on its argument and its reads, and on nothing else: no clock, no random
numbers, no settings of the process. To change what a procedure does is to register the next version; calls of the old
version may still be pending, so the old one stays registered.

    @procedure("bank.transfer", 1)
    def transfer(tx, argument):
        ...
        raise RefusalError(b"nothing left")  # writes nothing; the caller gets this error

A procedure that raises `RefusalError` has decided: nothing is written, and that is its recorded result. Any other error
of its code is recorded as a failure. Errors of the object store decide nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from endive.errors import ConfigurationError
from endive.kv.transaction import Outcome, Transaction
from endive.protocol.requests import Steps

Procedure = Callable[[Transaction, bytes], Steps[bytes]]
"""Reads, decides and puts; returns the result for the caller."""

_registered: dict[tuple[str, int], Procedure] = {}


@dataclass(frozen=True)
class Call:
    """A procedure, and what to call it with."""

    procedure: str
    version: int
    argument: bytes

    def __call__(self, tx: Transaction) -> Steps[bytes]:
        """Run the procedure, as a transaction function."""
        function = _registered.get((self.procedure, self.version))
        if function is None:
            raise ConfigurationError(str(self), ["no such procedure is registered in this process"])
        result = yield from function(tx, self.argument)
        return result

    @property
    def is_known(self) -> bool:
        """Whether this process has the procedure."""
        return (self.procedure, self.version) in _registered

    def __str__(self) -> str:
        return f"{self.procedure}/{self.version}"


def procedure(name: str, version: int) -> Callable[[Procedure], Procedure]:
    """Register a procedure under a name and a version. The same code in every process."""

    def register(function: Procedure) -> Procedure:
        if _registered.setdefault((name, version), function) is not function:
            raise ConfigurationError(f"{name}/{version}", ["another procedure is registered under this name"])
        return function

    return register


class PortableFunction(ABC):
    """A transaction function that can also be called as a procedure, with the same effect.

    A process runs its own functions directly. It announces the call, if it expects that another process commits first.
    """

    is_urgent: ClassVar[bool] = True
    """False: it waits for another function of its process for a while, to share a WAL entry with it."""

    @abstractmethod
    def call(self) -> Call | None:
        """Return the call; None: only this process can run the function."""

    @abstractmethod
    def outcome(self, result: Outcome) -> Outcome:
        """Return the outcome of the function, from that of the call."""
