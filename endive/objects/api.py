"""What Endive needs of an object store, and no more: create-if-absent, get, ranges, list, delete.

No update by etag and no attributes: a local directory has neither, and S3's etag is the content's MD5, which two
writers of equal bytes share.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from endive.errors import ConfigurationError
from endive.protocol.requests import Delete, Get, GetRange, List, ObjectInfo, Put, PutIfAbsent, Request

__all__ = ["Capabilities", "ObjectInfo", "ObjectStore", "execute_request", "require_conditional_writes"]


@dataclass(frozen=True)
class Capabilities:
    """What is known of a store, from its documentation and from tests; nothing is tried out on a user's bucket."""

    create_if_absent: bool
    """False: `put_if_absent` is not available; see `endive.objects.two_phase`."""
    survives_power_loss: bool
    """What `put_if_absent` and `put` have confirmed is on stable storage."""
    shared: bool
    """Other processes see the same objects."""


class ObjectStore(Protocol):
    """A store of immutable bytes under `/`-separated paths. Safe to use from several threads.

    Errors: `StorageUnavailableError` if nothing was changed and a retry may help, `OutcomeUnknownError` if a write may
    have happened, `StorageAccessError` if a retry will not help.
    """

    @property
    def url(self) -> str:
        """Where this is, for messages."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this store can do."""
        ...

    def get(self, path: str) -> bytes | None:
        """Return the object; None if there is none."""
        ...

    def get_range(self, path: str, start: int, length: int) -> bytes | None:
        """Return up to `length` bytes from `start`; None if there is no such object."""
        ...

    def put_if_absent(self, path: str, body: bytes) -> bool:
        """Create the object. False: there was one, and it stays as it is."""
        ...

    def put(self, path: str, body: bytes) -> None:
        """Write the object, over whatever is there."""
        ...

    def list(self, prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        """Return the objects whose path starts with `prefix` and sorts after `after`, sorted by path."""
        ...

    def delete(self, path: str) -> None:
        """Remove the object, if there is one."""
        ...


def execute_request(objects: ObjectStore, request: Request[Any]) -> Any:  # noqa: ANN401 - the reply's type is the request's
    """Do what a protocol asks of an object store, and return the reply. What does not concern one is a `TypeError`."""
    match request:
        case Get(path):
            return objects.get(path)
        case GetRange(path, start, length):
            return objects.get_range(path, start, length)
        case PutIfAbsent(path, body):
            return objects.put_if_absent(path, body)
        case Put(path, body):
            return objects.put(path, body)
        case List(prefix, after):
            return objects.list(prefix, after)
        case Delete(path):
            return objects.delete(path)
    raise TypeError(f"not a request to an object store: {request!r}")


def require_conditional_writes(objects: ObjectStore) -> ObjectStore:
    """Return `objects` if it can create if absent. `ConfigurationError` otherwise: two writers would both win."""
    if not objects.capabilities.create_if_absent:
        raise ConfigurationError(
            objects.url, ["it has no conditional writes; decide creates by a record store: `records`, or --records"]
        )
    return objects


def require_path(path: str) -> str:
    """Return `path` if it is a plain relative path; `ValueError` otherwise, since that is a defect of the caller."""
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"not an object path: {path!r}")
    return path
