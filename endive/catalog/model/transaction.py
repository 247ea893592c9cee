"""The store's interface for the catalog: transaction functions that run on a consistent state, all or nothing.

A transaction function is a generator over a transaction, without I/O of its own, so that the same code runs on a real
store and under the explorer. It may run several times, and may depend on nothing but what it reads and its arguments.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from endive.kv.exchange import Exchange
from endive.protocol.requests import Steps

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
KeyValue = tuple[bytes, bytes]
"""A row of the store: its key and its value."""


class StoreTransaction(Protocol):
    """A consistent state to read, with changes on top that become visible to others all at once."""

    def get(self, key: bytes) -> Steps[bytes | None]:
        """Return the value of a key; None if it has none."""
        ...

    def scan(self, prefix: bytes) -> Steps[tuple[KeyValue, ...]]:
        """Return the rows whose keys start with `prefix`, sorted by key."""
        ...

    def scan_many(self, prefixes: Sequence[bytes]) -> Steps[tuple[tuple[KeyValue, ...], ...]]:
        """Return what `scan` does, for each prefix, in as many round trips as for one."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove a key; no error if it has no value."""
        ...


TransactionFunction = Callable[[StoreTransaction], Steps[T]]


class Submitted(Protocol[T_co]):
    """A transaction under way."""

    def wait(self) -> T_co:
        """Return what the function returns when its changes are durable. Raises what `transact` raises."""
        ...


class TransactionalStore(Protocol):
    """Runs transaction functions. `endive.kv.Store` is one."""

    @property
    def is_exclusive_elsewhere(self) -> bool:
        """Whether another process is the exclusive writer: a write from here would end that."""
        ...

    def transact(self, function: TransactionFunction[T], /) -> T:
        """Run a transaction function on the newest state; return when its changes are durable. Raises its errors."""
        ...

    def submit(self, function: TransactionFunction[T], /) -> Submitted[T]:
        """Begin what `transact` does, and return at once."""
        ...

    def read(self, function: TransactionFunction[T], /) -> T:
        """Run a transaction function that changes nothing, on a state at least as new as this call."""
        ...

    def read_cached(self, function: TransactionFunction[T], /) -> T:
        """Run a transaction function that changes nothing, on the last state that this process knows."""
        ...

    def settle(self) -> tuple[str, ...]:
        """Carry out all transactions that other processes have announced; return those that cannot be."""
        ...

    def checkpoint(self, lifetime_s: int, name: str = "") -> "StoreCheckpoint":
        """Create a checkpoint of the present state; `lifetime_s` 0: it never expires."""
        ...

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Delete a checkpoint. Idempotent."""
        ...

    def refresh_checkpoint(self, checkpoint_id: str, lifetime_s: int) -> None:
        """Let a checkpoint expire `lifetime_s` from now; 0: never."""
        ...

    def checkpoints(self) -> "Sequence[StoreCheckpoint]":
        """Return the store's checkpoints."""
        ...

    def at(self, checkpoint_id: str) -> "TransactionalStore":
        """Return the store as it was at a checkpoint, to be closed by the caller. Its `transact` raises."""
        ...

    def close(self) -> None:
        """Release resources. Idempotent."""
        ...


@runtime_checkable
class HelpingStore(Protocol):
    """A store whose processes carry out each other's commits."""

    @property
    def exchange(self) -> "Exchange":
        """Commits that processes have announced."""
        ...


class StoreCheckpoint(Protocol):
    """A checkpoint of the store."""

    @property
    def id(self) -> str:
        """Return the checkpoint's id."""
        ...

    @property
    def name(self) -> str:
        """Its name; may be empty."""
        ...
