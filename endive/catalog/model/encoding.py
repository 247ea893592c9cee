"""Caches of decoded rows and of encoded parts of metadata, and errors that say which kind of row is damaged."""

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, Generic, TypeVar

from pyiceberg.schema import Schema

from endive.errors import CorruptObjectError

T = TypeVar("T")
V = TypeVar("V")


class DecodeCache(Generic[T]):
    """Records by their JSON, up to a number of bytes, oldest first out. Safe to use from many threads.

    `add` a record that this process writes, so that it is not decoded. A record that is still in use when it leaves the
    cache is decoded again.
    """

    def __init__(self, decode: Callable[[bytes], T], bytes_max: int) -> None:
        self._decode = decode
        self._bytes_max = bytes_max
        self._records: dict[bytes, tuple[T, int]] = {}
        self._lock = Lock()
        self.bytes_held = 0
        """Bytes of JSON in the cache."""

    def add(self, body: bytes, record: T, elsewhere_bytes: int = 0) -> bytes:
        """Add a record under its JSON; return the JSON. `elsewhere_bytes`: the size of its parts in other rows."""
        with self._lock:
            known = self._records.get(body)
            self.bytes_held += len(body) + elsewhere_bytes if known is None else 0
            self._records[body] = record, len(body) + elsewhere_bytes if known is None else known[1]
            while self.bytes_held > self._bytes_max:
                self.bytes_held -= self._records.pop(next(iter(self._records)))[1]
        return body

    def held(self, body: bytes) -> T | None:
        """Return the record of a JSON; None if it is not in the cache."""
        held = self._records.get(body)
        return None if held is None else held[0]

    def __call__(self, body: bytes) -> T:
        """Return the record of a JSON."""
        record = self.held(body)
        if record is None:
            record = self._decode(body)
            self.add(body, record)
        return record


class ByIdentity(Generic[T, V]):
    """Values that are computed from objects which never change, by the object's identity; the newest ones.

    An object is referenced here, so that no other one can have its id. Safe to use from many threads.
    """

    def __init__(self, count_max: int, compute: Callable[[T], V]) -> None:
        self._count_max = count_max
        self._compute = compute
        self._held: dict[int, tuple[T, V]] = {}
        self._lock = Lock()

    def __call__(self, part: T) -> V:
        """Return the value of an object. It is shared: do not change it."""
        held = self._held.get(id(part))
        if held is None:
            held = part, self._compute(part)
            with self._lock:
                self._held[id(part)] = held
                if len(self._held) > self._count_max:
                    del self._held[next(iter(self._held))]
        return held[1]


class SchemaJson(ByIdentity[Schema, dict[str, Any]]):
    """JSON values of schemas: most commits leave a table's schemas as they are."""

    def __init__(self, count_max: int) -> None:
        super().__init__(count_max, lambda schema: schema.model_dump(mode="json"))


class JsonBytes(ByIdentity[T, bytes]):
    """JSON of parts of a table's metadata."""


def decodes(kind: str) -> Callable[[Callable[[bytes], T]], Callable[[bytes], T]]:
    """Let a decoder raise `CorruptObjectError` with the kind of row that is damaged."""

    def decorate(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
        @wraps(decode)
        def decoded(body: bytes) -> T:
            try:
                return decode(body)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                detail = f"{type(error).__name__}: {error}".splitlines()[0]
                problem = f"cannot be read ({detail}); `endive catalog check` says which one it is"
                raise CorruptObjectError(f"{kind} in the catalog", problem) from error

        return decoded

    return decorate
