"""An object store in memory, for tests and experiments."""

from collections.abc import Callable, MutableMapping
from threading import Lock

from endive.errors import ConfigurationError
from endive.objects.api import Capabilities, ObjectStore, require_path, unix_ms
from endive.protocol.requests import ObjectInfo


class MemoryStore:
    """Objects in this process's memory. `clock` gives their modification times, in Unix milliseconds.

    `neighbours`: other such stores by their URL, `memory://name`, which can share files with this one.
    """

    capabilities = Capabilities(create_if_absent=True, survives_power_loss=False, shared=False)

    def __init__(
        self,
        clock: Callable[[], int] = unix_ms,
        url: str = "memory://",
        neighbours: MutableMapping[str, ObjectStore] | None = None,
    ) -> None:
        self.url = url
        self._clock = clock
        self._neighbours = {} if neighbours is None else neighbours
        self._lock = Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}

    def sibling(self, url: str) -> ObjectStore:
        """Return the store of another name."""
        found = self if url == self.url else self._neighbours.get(url)
        if found is None:
            raise ConfigurationError(url, ["there is no such store in this process's memory"])
        return found

    def get(self, path: str) -> bytes | None:
        found = self._objects.get(require_path(path))
        return None if found is None else found[0]

    def get_range(self, path: str, start: int, length: int) -> bytes | None:
        body = self.get(path)
        return None if body is None else body[start : start + length]

    def put_if_absent(self, path: str, body: bytes) -> bool:
        require_path(path)
        with self._lock:
            # Not `setdefault(path, body) is body`: equal empty bytes are one object, so two fences would both win.
            if path in self._objects:
                return False
            self._objects[path] = (bytes(body), self._clock())
            return True

    def put(self, path: str, body: bytes) -> None:
        require_path(path)
        with self._lock:
            self._objects[path] = (bytes(body), self._clock())

    def list(self, prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        with self._lock:
            found = [(path, *held) for path, held in self._objects.items() if path.startswith(prefix) and path > after]
        return tuple(ObjectInfo(path, len(body), modified) for path, body, modified in sorted(found))

    def delete(self, path: str) -> None:
        with self._lock:
            self._objects.pop(require_path(path), None)
