"""The interface of an object store: create-if-absent, get, range reads, list, delete.

It has no update by etag and no attributes: a local directory has neither, and S3's etag is the content's MD5, which
is the same for two writers of equal bytes.
"""

import time
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from endive.errors import ConfigurationError
from endive.protocol.requests import Delete, Get, GetRange, List, ObjectInfo, Put, PutIfAbsent, Request

__all__ = [
    "Capabilities",
    "HasSiblings",
    "HasTemporaries",
    "HasUnsyncedPuts",
    "ObjectInfo",
    "ObjectStore",
    "execute_request",
    "require_conditional_writes",
    "unix_ms",
]


@dataclass(frozen=True)
class Capabilities:
    """Properties of a store, known from its documentation and from tests. A user's bucket is never probed."""

    create_if_absent: bool
    """False: `put_if_absent` is not available; see `endive.objects.two_phase`."""
    survives_power_loss: bool
    """Writes that `put_if_absent` and `put` have confirmed are on stable storage."""
    shared: bool
    """Other processes see the same objects."""
    reads_at_once: bool = False
    """A read takes no longer than handing it to another thread: several are made one after the other."""


class ObjectStore(Protocol):
    """A store of immutable bytes under `/`-separated paths. Safe to use from several threads.

    Raises `StorageUnavailableError` if nothing was changed and a retry may help, `OutcomeUnknownError` if a write may
    have happened, `StorageAccessError` if a retry does not help.
    """

    @property
    def url(self) -> str:
        """URL of the store, for messages."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Properties of this store."""
        ...

    def get(self, path: str) -> bytes | None:
        """Return the object; None if it does not exist."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes from `start`; None if the object does not exist."""
        ...

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Create the object. False: it already exists, and is unchanged."""
        ...

    def put(self, path: str, body: bytes) -> None:
        """Write the object; replaces an existing one."""
        ...

    def list(self, prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        """Return the objects whose path starts with `prefix` and sorts after `after`, sorted by path."""
        ...

    def delete(self, path: str) -> None:
        """Delete the object. Idempotent."""
        ...


@runtime_checkable
class HasSiblings(Protocol):
    """An object store that can open others of its kind, with the same settings and credentials."""

    def sibling(self, url: str) -> ObjectStore:
        """Return the store at another URL."""
        ...


@runtime_checkable
class HasTemporaries(Protocol):
    """An object store that writes under temporary names first, which a crash may leave behind."""

    def delete_temporaries(self, before_unix_ms: int) -> int:
        """Delete those that were written before a time; return how many."""
        ...


@runtime_checkable
class HasUnsyncedPuts(Protocol):
    """An object store where writing to stable storage costs extra."""

    def put_unsynced(self, path: str, body: bytes) -> None:
        """Write the object where other processes see it; it may be lost or damaged by a power failure."""
        ...


def execute_request(objects: ObjectStore, request: Request[Any]) -> Any:  # noqa: ANN401, PLR0911 - the reply's type is the request's
    """Execute a protocol's request on an object store and return the reply. `TypeError` for other requests."""
    match request:
        case Get(path):
            return objects.get(path)
        case GetRange(path, start, length):
            return objects.get_range(path, start, length)
        case PutIfAbsent(path, body):
            return objects.put_if_absent(path, body)
        case Put(path, body, is_durable):
            if not is_durable and isinstance(objects, HasUnsyncedPuts):
                return objects.put_unsynced(path, body)
            return objects.put(path, body)
        case List(prefix, after):
            return objects.list(prefix, after)
        case Delete(path):
            return objects.delete(path)
    raise TypeError(f"not a request to an object store: {request!r}")


def require_conditional_writes(objects: ObjectStore) -> ObjectStore:
    """Return `objects` if it has conditional writes. `ConfigurationError` otherwise: two writers would both succeed."""
    if not objects.capabilities.create_if_absent:
        raise ConfigurationError(
            objects.url,
            ["it has no conditional writes; use a record store: `records`, --records or endive.records"],
        )
    return objects


def require_path(path: str) -> str:
    """Return `path` if it is a plain relative path; `ValueError` otherwise: a defect of the caller."""
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"not an object path: {path!r}")
    return path


def unix_ms() -> int:
    """Return the time by this machine's clock."""
    return time.time_ns() // 1_000_000
