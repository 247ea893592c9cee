"""A cache of decoded indexes and blocks with a limit on memory: what was not used for longest goes first."""

from collections import OrderedDict
from threading import Lock

from endive.kv.format import Index, Rows

ROW_OVERHEAD_BYTES = 150
"""What Python needs for a row's objects besides their bytes."""
CACHE_BYTES = 256 * 1024 * 1024

_INDEX = -1


class LruCache:
    """Remembers indexes and blocks, up to about `bytes_max`. Safe to use from several threads."""

    def __init__(self, bytes_max: int = CACHE_BYTES) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self.hits = 0
        self.misses = 0
        self._lock = Lock()
        self._held: OrderedDict[tuple[int, int], tuple[Index | Rows, int]] = OrderedDict()

    def index(self, sst_id: int) -> Index | None:
        found = self._get((sst_id, _INDEX))
        return found if isinstance(found, Index) else None

    def block(self, sst_id: int, number: int) -> Rows | None:
        found = self._get((sst_id, number))
        return found if isinstance(found, Rows) else None

    def keep_index(self, sst_id: int, index: Index, size_bytes: int) -> None:
        self._keep((sst_id, _INDEX), index, size_bytes + ROW_OVERHEAD_BYTES * len(index.places))

    def keep_block(self, sst_id: int, number: int, rows: Rows, size_bytes: int) -> None:
        held = sum(map(len, rows.keys)) + sum(len(value) for value in rows.values if value is not None)
        self._keep((sst_id, number), rows, max(held, size_bytes) + ROW_OVERHEAD_BYTES * len(rows.keys))

    def _get(self, key: tuple[int, int]) -> Index | Rows | None:
        with self._lock:
            found = self._held.get(key)
            if found is None:
                self.misses += 1
                return None
            self.hits += 1
            self._held.move_to_end(key)
            return found[0]

    def _keep(self, key: tuple[int, int], what: Index | Rows, size_bytes: int) -> None:
        with self._lock:
            known = self._held.pop(key, None)
            self.bytes_held += size_bytes - (known[1] if known else 0)
            self._held[key] = (what, size_bytes)
            while self.bytes_held > self.bytes_max:
                _, (_, freed) = self._held.popitem(last=False)
                self.bytes_held -= freed
