"""What the catalog needs of a store: works that run on a consistent state, all or nothing.

A work is a generator over a transaction, without I/O of its own, so that the same code runs on a real store and under
the explorer. It may be run several times, and may depend on nothing but what it reads and was given.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from endive.protocol.requests import Steps

T = TypeVar("T")


class Transaction(Protocol):
    """A consistent state to read, with changes of one's own on top that become visible to others all at once."""

    def get(self, key: bytes) -> Steps[bytes | None]:
        """Return the value of a key; None if it has none."""
        ...

    def scan(self, prefix: bytes) -> Steps[tuple[tuple[bytes, bytes], ...]]:
        """Return the rows whose keys start with `prefix`, sorted by key."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove a key; no complaint if it has no value."""
        ...


TransactionFunction = Callable[[Transaction], Steps[T]]


class TransactionalStore(Protocol):
    """Runs works. `endive.kv.Store` is one."""

    @property
    def is_exclusive_elsewhere(self) -> bool:
        """Whether another process keeps the store to itself, so that writing would take it away."""
        ...

    def transact(self, work: TransactionFunction[T]) -> T:
        """Run a work on the newest state; return when its changes are durable. Raises what the work raises."""
        ...

    def read(self, work: TransactionFunction[T]) -> T:
        """Run a work that changes nothing, on a state at least as new as this call."""
        ...

    def read_cached(self, work: TransactionFunction[T]) -> T:
        """Run a work that changes nothing on the state this process knows, which others may have left behind."""
        ...

    def close(self) -> None:
        """Let go."""
        ...
