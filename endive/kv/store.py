"""The store, open for writing: threads around the protocols and the write queue.

A thread that waits for its rows to become durable does the work itself if nobody else does: it takes all rows that
wait, writes them as one WAL object, and wakes whoever waits for them. Everything that arrives meanwhile shares the
next write. So a single writer pays one request and no change of thread, and a hundred writers share a request.

Rows that nobody waits for are written by a background thread, after an interval or when there are enough of them. The
same thread compacts and collects, if the store is opened that way, and looks for newer manifests.

A writer that cannot write halts: fenced, outcome unknown, or the object store gone for longer than the driver retries.
Everything it has acknowledged is durable; what it has not is reported to whoever waits. Open the store anew to go on.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Lock, Thread
from time import monotonic

from endive.closing import Closing
from endive.drivers.blocking import BlockingDriver
from endive.errors import EndiveError, FencedError, MissingObjectError, OutcomeUnknownError, StoreClosedError
from endive.kv.counters import counters
from endive.kv.log.opening import Lease, open_writer, replay_writer
from endive.kv.log.wal import WAL
from endive.kv.log.write_queue import Batch, WriteQueue
from endive.kv.maintenance.background import Housekeeper
from endive.kv.manifest import Checkpoint, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.options import StoreOptions
from endive.kv.read_view import ReadView, rows_of
from endive.kv.sst.cache import BlockCache
from endive.kv.sst.format import KEY_BYTES_MAX, VALUE_BYTES_MAX, encode_sst
from endive.kv.sst.lookup import NOT_CACHED, Row, find_cached, find_in_runs
from endive.kv.sst.merge import KeyRange
from endive.kv.views import create_checkpoint
from endive.logs import log_error, log_event
from endive.objects.api import ObjectStore, require_conditional_writes
from endive.protocol.fencing import append
from endive.protocol.requests import NewId
from endive.protocol.sequenced import Numbered, newest

log = logging.getLogger(__name__)

REFRESHES_MAX = 10
"""How often a read takes a newer manifest because a file was gone."""


class Ticket:
    """A write on its way. `wait` returns when it is durable."""

    __slots__ = ("_batch", "_store")

    def __init__(self, store: "Store", batch: Batch) -> None:
        self._store = store
        self._batch = batch

    @property
    def is_durable(self) -> bool:
        """Whether the write would survive a crash now."""
        return self._batch.is_durable

    def wait(self) -> None:
        """Return when the write is durable. Raises what made the writer halt, if it will not be."""
        self._store._make_durable(self._batch)


class Store(Closing):
    """A key-value store on an object store, open for writing. One process at a time; opening fences the one before.

    Safe to use from several threads. Keys and values are bytes; a key's order is that of its bytes.
    """

    def __init__(self, objects: ObjectStore, options: StoreOptions = StoreOptions()) -> None:  # noqa: B008 - frozen
        self.options = options
        self.driver = BlockingDriver(require_conditional_writes(objects))
        self._url = objects.url
        self.cache = BlockCache(options.cache_bytes)
        self._changed = Condition(Lock())
        lease, manifest, queue = self._opened()
        self.lease: Lease = lease
        self._manifest: Numbered[StoreManifest] = manifest
        self._queue: WriteQueue = queue
        self._closed = False
        self._housekeeper = Housekeeper(self)
        self._writers = ThreadPoolExecutor(options.max_parallel_writes, thread_name_prefix="endive-write")
        self._flusher = Thread(target=self._flush_now_and_then, name="endive-flush", daemon=True)
        self._flusher.start()
        self._housekeeper.start()

    def _opened(self) -> tuple[Lease, Numbered[StoreManifest], WriteQueue]:
        lease = self.driver.run(open_writer(self.options.max_parallel_writes))
        manifest, groups = self.driver.run(replay_writer(lease))
        queue = WriteQueue(
            lease.next_slot,
            manifest.value.row_seq_last_compacted,
            groups,
            self.options.max_parallel_writes,
            self.options.memtable_bytes,
        )
        log_event(
            log,
            "opened",
            epoch=lease.epoch,
            next_slot=lease.next_slot,
            groups_replayed=len(groups),
            survives_power_loss=self.driver.objects.capabilities.survives_power_loss,
            url=self._url,
        )
        return lease, manifest, queue

    # Writing.

    def put(self, key: bytes, value: bytes, await_durable: bool = True) -> Ticket:
        """Set `key` to `value`. With `await_durable` it is durable on return; without, the ticket tells."""
        row = _checked(key, value)
        with self._changed:
            batch = self._add((row,), await_durable)
        ticket = Ticket(self, batch)
        if await_durable:
            ticket.wait()
        return ticket

    def delete(self, key: bytes, await_durable: bool = True) -> Ticket:
        """Remove `key`, if it is there."""
        return self.write(((key, None),), await_durable)

    def write(self, rows: Iterable[tuple[bytes, bytes | None]], await_durable: bool = True) -> Ticket:
        """Set keys to values, and remove keys whose value is None: all of them or none, for every reader."""
        checked = [_checked(key, value) for key, value in rows]
        if not checked:
            raise ValueError("a batch needs at least one row")
        with self._changed:
            batch = self._add(checked, await_durable)
        ticket = Ticket(self, batch)
        if await_durable:
            ticket.wait()
        return ticket

    def flush(self) -> None:
        """Return when everything put so far is durable."""
        with self._changed:
            batches = [*self._queue.under_way, *([self._queue.waiting] if self._queue.waiting.rows else [])]
        for batch in batches:
            self._make_durable(batch)

    def _add(self, rows: Sequence[tuple[bytes, bytes | None]], await_durable: bool) -> Batch:
        """Let rows wait for the next WAL object. Holding the lock."""
        queue, options = self._queue, self.options
        self._require_open()
        if (
            queue.unflushed_bytes > options.unflushed_bytes_max
            or queue.uncompacted_bytes > options.uncompacted_bytes_max
        ):
            self._wait_for_room()
        batch = queue.add(rows)
        if not await_durable and batch.size_bytes >= options.flush_bytes:
            self._changed.notify_all()
        return batch

    def _wait_for_room(self) -> None:
        """Let the caller wait while too much is in memory. Holding the lock."""
        while (
            self._queue.unflushed_bytes > self.options.unflushed_bytes_max
            or self._queue.uncompacted_bytes > self.options.uncompacted_bytes_max
        ):
            self._housekeeper.hurry()
            self._changed.wait(0.05)
            self._require_open()

    def _make_durable(self, batch: Batch) -> None:
        """Write what waits, or wait for who writes, until `batch` is durable."""
        while True:
            with self._changed:
                while not batch.is_durable and not self._queue.can_take():
                    if self._queue.halted is not None:
                        raise self._queue.halted
                    self._changed.wait()
                if batch.is_durable:
                    return
                if batch.slot:
                    self._changed.wait()
                    continue
                taken = self._queue.take()
            self._write(taken)

    def _write(self, batch: Batch) -> None:
        """Write one WAL object, and tell everybody how it went."""
        error: EndiveError | None = None
        try:
            put_id: str = self.driver.answer(NewId())
            body = encode_sst(batch.sorted_rows(), self.lease.epoch, put_id)
            self.driver.run(append(WAL, batch.slot, body, self.lease.epoch))
        except EndiveError as raised:
            error = raised
        except BaseException as raised:
            error = OutcomeUnknownError(WAL.path_of(batch.slot))
            self._settle(batch, error)
            raise raised from None
        self._settle(batch, error)

    def _settle(self, batch: Batch, error: EndiveError | None) -> None:
        with self._changed:
            if error is None:
                self._queue.landed(batch)
            else:
                self._halt(error)
            self._changed.notify_all()

    def _halt(self, error: EndiveError) -> None:
        """Write nothing more. Holding the lock."""
        if self._queue.halted is None:
            log_error(log, "halted", error, epoch=self.lease.epoch, url=self._url)
        self._queue.halt(error)

    def _flush_now_and_then(self) -> None:
        while not self._closed:
            with self._changed:
                self._wait_for_flush()
                taken = self._queue.take() if self._queue.can_take() and not self._closed else None
            if taken is not None:
                self._writers.submit(self._write, taken)

    def _wait_for_flush(self) -> None:
        """Wait for the interval, or for enough rows that can be written. Holding the lock; many things wake it."""
        due_s = monotonic() + self.options.flush_interval_ms / 1000
        while not self._closed and (left_s := due_s - monotonic()) > 0:
            if self._queue.waiting.size_bytes >= self.options.flush_bytes and self._queue.can_take():
                return
            self._changed.wait(left_s)

    # Reading.

    def get(self, key: bytes, durable: bool = False) -> bytes | None:
        """Return the value of `key`; None if it has none. `durable`: leave out what a crash could still undo."""
        self._require_open()
        row = self._queue.find(key, durable)
        if row is not None:
            return row[0]
        manifest = self._manifest  # after looking into memory: what was forgotten there is in this one
        found = find_cached(manifest.value.runs, key, self.cache)
        if found is NOT_CACHED:
            found = self._find(key, manifest)
        return None if found is None else found.value

    def _find(self, key: bytes, manifest: Numbered[StoreManifest]) -> Row | None:
        """Look into the levels, with a newer manifest if files of this one are gone."""
        for _ in range(REFRESHES_MAX):
            try:
                return self.driver.run(find_in_runs(manifest.value.runs, key, self.cache))
            except MissingObjectError:
                if not self.refresh(manifest.number):
                    raise
            manifest = self._manifest
        raise MissingObjectError(MANIFESTS.prefix)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, prefix: bytes | None = None, durable: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order, as of now: what is written while the scan goes on is not in it.

        From `start` on, up to but without `end`; or all keys with a `prefix`.
        """
        keys = KeyRange(start, end) if prefix is None else KeyRange.of_prefix(prefix)
        return self.view(durable, keys).scan(keys.start, keys.end)

    def view(self, durable: bool = False, keys: KeyRange = KeyRange(None, None)) -> ReadView:  # noqa: B008 - frozen
        """Return a consistent view as of now, of all keys or of a range."""
        with self._changed:
            self._require_open()
            memory = rows_of(self._queue.layers(durable), keys)
            return ReadView(self._manifest.value, memory, self.driver, self.cache)

    def refresh(self, known: int = 0) -> bool:
        """Take a newer manifest, if there is one. Whether there was one newer than `known`."""
        found = self.driver.run(newest(MANIFESTS, max(known, self._manifest.number)))
        with self._changed:
            if found is not None and found.number > self._manifest.number:
                self._manifest = found
                self._queue.compacted(found.value.wal_id_last_compacted)
                if found.value.writer_epoch != self.lease.epoch:
                    self._halt(FencedError("writer", self.lease.epoch, found.value.writer_epoch))
                self._changed.notify_all()
            return self._manifest.number > known

    # For the housekeeper.

    def look_around(self) -> None:
        """Look for a newer manifest."""
        self.refresh()

    def learn_compaction(self) -> None:
        """Take the manifest that a compaction has just written."""
        self.refresh()

    def wants_compaction(self) -> bool:
        """Whether enough is in the WAL that is not in the levels."""
        return self.uncompacted_bytes >= self.options.compact_bytes

    # The rest.

    @property
    def manifest(self) -> Numbered[StoreManifest]:
        """The newest manifest that this writer knows."""
        return self._manifest

    @property
    def uncompacted_bytes(self) -> int:
        """Bytes that are durable, but not in the levels as far as this writer knows."""
        return self._queue.uncompacted_bytes

    def checkpoint(self, lifetime_s: int, name: str = "") -> Checkpoint:
        """Make everything durable and pin it; `lifetime_s` 0: until it is removed."""
        self.flush()
        pin = self.driver.run(create_checkpoint(lifetime_s, name))
        log_event(log, "checkpointed", checkpoint=pin.id, name=name, manifest_id=pin.manifest_id, lifetime_s=lifetime_s)
        return pin

    def compact(self, everything: bool = False) -> None:
        """Bring the WAL into the levels now, and merge levels; `everything`: into one run."""
        self.flush()
        self._housekeeper.compact(everything)

    def collect(self) -> None:
        """Delete what nobody needs any more."""
        self._housekeeper.collect()

    def stats(self) -> dict[str, int]:
        """Return counters and sizes, by name."""
        with self._changed:
            queue, manifest = self._queue, self._manifest.value
            held = {
                "epoch": self.lease.epoch,
                "manifest_id": self._manifest.number,
                "row_seq": queue.row_seq_last,
                "unflushed_bytes": queue.unflushed_bytes,
                "uncompacted_bytes": queue.uncompacted_bytes,
            }
        return held | counters(manifest, self.cache, self.driver)

    def close(self) -> None:
        """Make everything durable, then let go. Closing twice is no mistake."""
        if self._closed:
            return
        try:
            if self._queue.halted is None:
                self.flush()
        finally:
            self._closed = True
            with self._changed:
                self._queue.halt(StoreClosedError(self._url))
                self._changed.notify_all()
            self._housekeeper.stop()
            self._flusher.join()
            self._writers.shutdown()
            self.driver.close()
            log_event(log, "closed", epoch=self.lease.epoch, url=self._url)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosedError(self._url)
        if self._queue.halted is not None:
            raise self._queue.halted


def _checked(key: bytes, value: bytes | None) -> tuple[bytes, bytes | None]:
    """Return a row that can be stored; what cannot must not get into a group with others' rows."""
    if type(key) is not bytes or not (value is None or type(value) is bytes):
        raise TypeError(f"keys and values are bytes, not {type(key).__name__} and {type(value).__name__}")
    if len(key) > KEY_BYTES_MAX or (value is not None and len(value) > VALUE_BYTES_MAX):
        raise ValueError(f"a key may have {KEY_BYTES_MAX:,} bytes, a value {VALUE_BYTES_MAX:,}")
    return key, value
