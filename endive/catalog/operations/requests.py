"""Idempotency keys of operations that are not commits: the result of a request, stored in its transaction.

A commit's result is a row of its table. A drop or a rename has no table to put it under, so its result has a row of
its own, under the client's key. A retry with the key finds the row and returns the same result, in any process.

Rows are deleted when they are older than `LIFETIME_MS`, by the next request that stores one: they are few, since only
drops, renames and the like have them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic_core import from_json, to_json

from endive.catalog.model.encoding import decodes
from endive.catalog.model.keys import REQUESTS, request_key
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.errors import AlreadyInCatalogError, CommitConflictError, ConfigurationError, NotInCatalogError
from endive.protocol.requests import Steps

T = TypeVar("T")
Json = Mapping[str, Any]

LIFETIME_MS = 30 * 60 * 1000
"""How long a client may repeat a request under its key."""


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request that was carried out."""

    operation: str
    """The request in words: a key belongs to one request."""
    result: Json
    unix_ms: int

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json({"operation": self.operation, "result": self.result, "unix_ms": self.unix_ms})

    @staticmethod
    @decodes("a request's record")
    def decoded(body: bytes) -> "RequestRecord":
        """Return the record of a JSON."""
        return RequestRecord(**from_json(body))


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with an idempotency key."""

    key: str
    operation: str
    now_ms: int

    def find(self, tx: StoreTransaction) -> Steps[Json | None]:
        """Return the stored result; None if there is none."""
        body = yield from tx.get(request_key(self.key))
        if body is None:
            return None
        found = RequestRecord.decoded(body)
        if found.operation != self.operation:
            problem = f"was used for another request: {found.operation}"
            raise ConfigurationError(f"Idempotency-Key {self.key}", [problem])
        return found.result

    def put(self, tx: StoreTransaction, result: Json) -> Steps[None]:
        """Store the result with the rows of the transaction, and delete old results."""
        rows = yield from tx.scan(REQUESTS.encode())
        for key, body in rows:
            if RequestRecord.decoded(body).unix_ms < self.now_ms - LIFETIME_MS:
                tx.delete(key)
        tx.put(request_key(self.key), RequestRecord(self.operation, result, self.now_ms).encoded())


def keyed(key: str | None, operation: str, now_ms: int) -> KeyedRequest | None:
    """Return a request with its key; None without one."""
    return None if key is None else KeyedRequest(key, operation, now_ms)


def recorded(
    tx: StoreTransaction,
    request: KeyedRequest | None,
    steps: Steps[T],
    result: Callable[[T], Json] = lambda _: {},
) -> Steps[T]:
    """Run the steps of a transaction, and store their result if the request has a key."""
    value = yield from steps
    if request is not None:
        yield from request.put(tx, result(value))
    return value


def once(
    store: TransactionalStore, request: KeyedRequest | None, run: Callable[[], T], replay: Callable[[Json], T]
) -> T:
    """Run an operation that stores its result (`recorded`); with a stored result, return that."""
    if request is None:
        return run()
    found = store.read(request.find)
    if found is None:
        try:
            return run()
        except (AlreadyInCatalogError, CommitConflictError, NotInCatalogError):
            found = store.read(request.find)  # a retry that overtook this call may have done it
            if found is None:
                raise
    return replay(found)
