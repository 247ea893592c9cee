"""The store, open for reading: beside a writer, on another machine, or at a checkpoint.

A reader sees everything up to the first gap in the WAL as of its last `refresh`, which it can do in the background. It
writes nothing but checkpoints, and those only on request; the one that it reads at is refreshed in the background while
the reader is open. Without one, files that it uses may be deleted after a while: a `get` then refreshes and tries
again; a scan ends with `ViewExpiredError`.
"""

import logging
from collections.abc import Callable, Iterator
from threading import Event, Lock, Thread

from endive.closing import Closing
from endive.drivers.blocking import BlockingDriver
from endive.errors import EndiveError, MissingObjectError
from endive.kv.manifest import Checkpoint, StoreManifest
from endive.kv.read_view import ReadView
from endive.kv.sst.cache import CACHE_BYTES, BlockCache
from endive.kv.sst.merge import KeyRange
from endive.kv.views import View, create_checkpoint, delete_checkpoint, newest_view, refresh_checkpoint, view_at
from endive.logs import log_error
from endive.objects.api import ObjectStore
from endive.protocol.sequenced import Numbered

REFRESHES_MAX = 10
REFRESHES_PER_LIFETIME = 3
"""How often a reader refreshes its checkpoint within its lifetime: two of three may fail."""


log = logging.getLogger(__name__)


class Reader(Closing):
    """A store open for reading.

    `checkpoint`: an id or a name; the reader stays there, and does not refresh. `refresh_interval_ms`: move to the
    newest state in the background, so often; 0: only when `refresh` is called.
    """

    def __init__(
        self,
        objects: ObjectStore,
        checkpoint: str | None = None,
        cache_bytes: int = CACHE_BYTES,
        refresh_interval_ms: float = 0.0,
    ) -> None:
        self.driver = BlockingDriver(objects)
        self.cache = BlockCache(cache_bytes)
        self.checkpoint = checkpoint
        self._lock = Lock()
        self._view: View
        self._read_view: ReadView
        self._take(self.driver.run(newest_view() if checkpoint is None else view_at(checkpoint)))
        self._closed = Event()
        self._threads: list[Thread] = []
        if refresh_interval_ms and checkpoint is None:
            self._repeat(self.refresh, refresh_interval_ms / 1000)

    @property
    def manifest(self) -> Numbered[StoreManifest]:
        """The manifest that this reader uses."""
        return self._view.manifest

    @property
    def wal_end(self) -> int:
        """The last WAL entry that this reader sees; the next one is a gap, or has not been written."""
        return self._view.wal_end

    def refresh(self) -> None:
        """Move to the newest state. Does nothing at a checkpoint."""
        if self.checkpoint is None:
            with self._lock:
                self._take(self.driver.run(newest_view(self._view)))

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`; None if it has none."""
        for _ in range(REFRESHES_MAX):
            try:
                return self._read_view.get(key)
            except MissingObjectError:
                before = self._view.manifest.number
                self.refresh()
                if self._view.manifest.number == before:
                    raise
        raise MissingObjectError(self.driver.objects.url)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, prefix: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order, from `start` on, up to but without `end`; or all keys with a `prefix`."""
        keys = KeyRange(start, end) if prefix is None else KeyRange.of_prefix(prefix)
        return self._read_view.scan(keys.start, keys.end)

    def create_checkpoint(self, lifetime_s: int, name: str = "") -> Checkpoint:
        """Create a checkpoint of the newest state, and read there from now on.

        While the reader is open and stays there, the checkpoint is refreshed in the background: it expires `lifetime_s`
        after the reader was closed, or has crashed. 0: it never expires.
        """
        checkpoint = self.driver.run(create_checkpoint(lifetime_s, name))
        with self._lock:
            self._take(self.driver.run(view_at(checkpoint.id)))
            self.checkpoint = checkpoint.id
        if lifetime_s:
            self._repeat(lambda: self._refresh_own(checkpoint.id, lifetime_s), lifetime_s / REFRESHES_PER_LIFETIME)
        return checkpoint

    def _refresh_own(self, checkpoint_id: str, lifetime_s: int) -> None:
        if self.checkpoint == checkpoint_id:
            self.refresh_checkpoint(checkpoint_id, lifetime_s)

    def _repeat(self, action: Callable[[], None], interval_s: float) -> None:
        """Do something again and again in the background, until the reader is closed. Errors are logged."""

        def run() -> None:
            while not self._closed.wait(interval_s):
                try:
                    action()
                except EndiveError as error:
                    log_error(log, "refresh_failed", error)

        thread = Thread(target=run, name="endive-reader", daemon=True)
        self._threads.append(thread)
        thread.start()

    def refresh_checkpoint(self, checkpoint_id: str, lifetime_s: int) -> None:
        """Let a checkpoint expire `lifetime_s` from now; 0: never."""
        self.driver.run(refresh_checkpoint(checkpoint_id, lifetime_s))

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Delete a checkpoint, and read the newest state again."""
        self.driver.run(delete_checkpoint(checkpoint_id))
        self.checkpoint = None
        self.refresh()

    def close(self) -> None:
        """Release resources. Idempotent."""
        self._closed.set()
        for thread in self._threads:
            thread.join()
        self.driver.close()

    def _take(self, view: View) -> None:
        self._view = view
        self._read_view = ReadView.of_entries(view.manifest.value, view.entries, self.driver, self.cache)
