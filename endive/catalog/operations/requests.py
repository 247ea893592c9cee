"""Idempotency keys of operations that are not commits to tables: the result of a request, stored in its transaction.

A commit's result is a row of its table. A drop or a rename has no table to put it under, so its result has a row of
its own, under the client's key. A retry with the key finds the row and returns the same result, in any process. The
row has the operation in words and a digest of its arguments: a key that comes back with another request is refused.

**Lifetime.** A client may repeat a request for `LIFETIME_MS`. Its age is measured with the clocks of two processes, so
results are kept for `CLOCKS_DIFFER_MS` longer: the lifetime holds if the clocks differ by no more than that. Keys are
queued in the order of their requests. A request that stores a result deletes at most `DELETED_PER_REQUEST` from the
front of the queue, so that its cost does not depend on the number of stored results.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeVar

from pydantic_core import from_json, to_json

from endive.catalog.model.encoding import decodes
from endive.catalog.model.keys import REQUEST_QUEUE, REQUESTS, queued_request_key, request_key
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.errors import AlreadyInCatalogError, CommitConflictError, KeyReusedError, NotInCatalogError
from endive.protocol.requests import Steps

T = TypeVar("T")
Json = Mapping[str, Any]

LIFETIME_MS = 30 * 60 * 1000
"""How long a client may repeat a request under its key."""
CLOCKS_DIFFER_MS = 5 * 60 * 1000
"""How far the clocks of processes may be apart."""
DELETED_PER_REQUEST = 2
"""More than the one result that a request adds, so that a backlog shrinks."""


def has_expired(unix_ms: int, now_ms: int) -> bool:
    """Whether the result of a request from this time may be deleted."""
    return unix_ms < now_ms - LIFETIME_MS - CLOCKS_DIFFER_MS


def digest_of(*arguments: object) -> str:
    """Return a digest of JSON values. The order of an object's fields and white space make no difference."""
    return blake2b(json.dumps(arguments, sort_keys=True).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request that was carried out."""

    operation: str
    """The request in words: a key belongs to one request."""
    result: Json
    unix_ms: int
    digest: str = ""
    """Of its arguments; empty if `operation` says all, and in records of older versions."""

    def encoded(self) -> bytes:
        """Return the JSON."""
        digest = {"digest": self.digest} if self.digest else {}
        return to_json({"operation": self.operation, "result": self.result, "unix_ms": self.unix_ms, **digest})

    @staticmethod
    @decodes("a request's record")
    def decoded(body: bytes) -> "RequestRecord":
        """Return the record of a JSON."""
        fields = from_json(body)
        return RequestRecord(fields["operation"], fields["result"], fields["unix_ms"], fields.get("digest", ""))


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with an idempotency key."""

    key: str
    operation: str
    now_ms: int
    digest: str = ""

    def find(self, tx: StoreTransaction) -> Steps[Json | None]:
        """Return the stored result; None if there is none."""
        body = yield from tx.get(request_key(self.key))
        if body is None:
            return None
        found = RequestRecord.decoded(body)
        if found.operation != self.operation:
            raise KeyReusedError(f"Idempotency-Key {self.key}", [f"was used for another request: {found.operation}"])
        if found.digest and self.digest and found.digest != self.digest:
            problem = f"was used for this operation with other arguments: {found.operation}"
            raise KeyReusedError(f"Idempotency-Key {self.key}", [problem])
        return found.result

    def put(self, tx: StoreTransaction, result: Json) -> Steps[None]:
        """Store the result with the rows of the transaction, and delete some that have expired."""
        first, following = yield from _queue(tx)
        for _ in range(DELETED_PER_REQUEST):
            if first == following or not (yield from self._delete_if_expired(tx, first)):
                break
            first += 1
        row = request_key(self.key)
        tx.put(row, RequestRecord(self.operation, result, self.now_ms, self.digest).encoded())
        tx.put(queued_request_key(following), row)
        tx.put(REQUEST_QUEUE, to_json([first, following + 1]))

    def _delete_if_expired(self, tx: StoreTransaction, number: int) -> Steps[bool]:
        """Delete the request with this number in the queue unless it is too young; whether it is gone."""
        place = queued_request_key(number)
        row = yield from tx.get(place)
        body = None if row is None else (yield from tx.get(row))
        if row is not None and body is not None:
            if not has_expired(RequestRecord.decoded(body).unix_ms, self.now_ms):
                return False
            tx.delete(row)
        tx.delete(place)
        return True


def _queue(tx: StoreTransaction) -> Steps[tuple[int, int]]:
    """Return the numbers of the first request in the queue and of the next one.

    A catalog of an older version has results without a queue: they are queued, once.
    """
    body = yield from tx.get(REQUEST_QUEUE)
    if body is not None:
        first, following = from_json(body)
        return first, following
    rows = yield from tx.scan(REQUESTS.encode())
    for number, (row, _) in enumerate(rows):
        tx.put(queued_request_key(number), row)
    return 0, len(rows)


def keyed(key: str | None, operation: str, now_ms: int, digest: str = "") -> KeyedRequest | None:
    """Return a request with its key; None without one."""
    return None if key is None else KeyedRequest(key, operation, now_ms, digest)


def recorded(
    tx: StoreTransaction,
    request: KeyedRequest | None,
    steps: Steps[T],
    result: Callable[[T], Json] = lambda _: {},
) -> Steps[T]:
    """Run the steps of a transaction, and store their result if the request has a key.

    Raises if a retry has overtaken this call and stored its result meanwhile: the request takes effect once. `once`
    then returns that result.
    """
    if request is not None:
        found = yield from request.find(tx)
        if found is not None:
            raise CommitConflictError(request.operation, "a retry has done it meanwhile")
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
