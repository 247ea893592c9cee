"""The store, open for writing.

    with Store(objects) as store:                       # exclusive: other writers are fenced
        store.put(b"key", b"value")

    with Store(objects, writer="shared") as store:      # any number of processes
        store.transact(function)

Both kinds of writer do the same; how they commit is in `endive.kv.writer`. Safe to use from several threads.
"""

import logging
import os
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Literal, TypeVar, get_args

from endive.closing import Closing
from endive.drivers.blocking import BlockingDriver, random_id
from endive.errors import (
    ConfigurationError,
    EndiveError,
    FencedError,
    ForkedError,
    MissingObjectError,
    ProcedureFailedError,
)
from endive.kv.at_checkpoint import StoreAtCheckpoint
from endive.kv.commit_times import CommitTimes
from endive.kv.exchange import Exchange
from endive.kv.group_commit import Result
from endive.kv.log.helping import pending
from endive.kv.log.intentions import CallResult
from endive.kv.log.state import StoreState
from endive.kv.maintenance.background import BackgroundMaintenance
from endive.kv.manifest import Checkpoint, StoreManifest
from endive.kv.options import StoreOptions
from endive.kv.pipeline import Written
from endive.kv.procedures import Call
from endive.kv.read_view import ReadView, rows_of
from endive.kv.serving import Service, collect_closed, results_at, settle
from endive.kv.sst.cache import BlockCache
from endive.kv.sst.lookup import NOT_CACHED, Row, find_cached, find_in_runs
from endive.kv.sst.merge import KeyRange
from endive.kv.transaction import Transaction, TransactionFunction, checked_row, run_function
from endive.kv.views import create_checkpoint, delete_checkpoint, refresh_checkpoint
from endive.kv.writer import Writer
from endive.logs import log_event
from endive.objects.api import ObjectStore, require_conditional_writes
from endive.protocol.requests import Steps
from endive.protocol.sequenced import Numbered
from endive.rng import stream

log = logging.getLogger(__name__)

T = TypeVar("T")
WriterKind = Literal["exclusive", "shared"]

COMPACTIONS_MAX = 3
ROOM_REFRESH_S = 0.5
"""How often a write that waits for compaction looks whether another process has compacted."""
ROOM_LOGGED_S = 10.0
"""A write that waits so long for compaction says so."""
REFRESHES_MAX = 10
"""How often a read refreshes because a file was deleted."""


class Ticket:
    """A write on its way. `wait` returns when it is durable."""

    __slots__ = ("_store", "_written")

    def __init__(self, store: "Store", written: Written) -> None:
        self._store = store
        self._written = written

    @property
    def is_durable(self) -> bool:
        """Whether the write would survive a crash now."""
        return self._written.is_durable

    def wait(self) -> None:
        """Return when the write is durable. Raises the error of the write if it failed, or may have."""
        self._store._writer.group.wait(self._written)


class Store(Closing):
    """A key-value store on an object store, open for writing. Keys and values are bytes; keys are ordered bytewise.

    `writer`: an "exclusive" writer fences all others; "shared" ones write side by side. `create`: make a store where
    there is none. Not usable after a fork: open it in the child.
    """

    def __init__(
        self,
        objects: ObjectStore,
        writer: WriterKind = "exclusive",
        options: StoreOptions = StoreOptions(),  # noqa: B008 - frozen
        create: bool = True,
    ) -> None:
        if writer not in get_args(WriterKind):
            raise ConfigurationError(
                objects.url, [f"writer is {writer!r}, not one of {', '.join(get_args(WriterKind))}"]
            )
        self.options = options
        self.driver = BlockingDriver(require_conditional_writes(objects))
        self.cache = BlockCache(options.cache_bytes)
        self._pid = os.getpid()
        self._closed = False
        self._reads_miss = True
        """Whether the last read has found blocks missing in the cache."""
        is_exclusive = writer == "exclusive"
        self._writer = Writer(self.driver, self.cache, is_exclusive, options, create)
        self._group = self._writer.group
        self._pipeline = self._writer.pipeline
        self.exchange = Exchange(self._writer, self.driver, self.cache)
        """Intentions that need files, for the layer above."""
        self._service = Service(self._writer, self.exchange)
        # Processes that share a store should not collect at the same time.
        factor = 1.0 + (stream(int(random_id(), 16), "maintenance").random() if self._writer.may_reopen else 0.0)
        self._maintenance = BackgroundMaintenance(self, self.driver, options, factor)
        state = self._writer.state
        log_event(
            log,
            "opened",
            epoch=state.manifest.value.writer_epoch,
            next_entry=state.wal_end + 1,
            entries_replayed=state.uncompacted_entries,
            survives_power_loss=self.driver.objects.capabilities.survives_power_loss,
            url=objects.url,
        )
        self._group.start()
        self._maintenance.start()

    # Writing.

    def put(self, key: bytes, value: bytes, await_durable: bool = True) -> Ticket:
        """Set `key` to `value`. With `await_durable` it is durable on return; without, the ticket says when it is."""
        return self._write((checked_row(key, value),), await_durable)

    def delete(self, key: bytes, await_durable: bool = True) -> Ticket:
        """Remove `key`, if it has a value."""
        return self._write((checked_row(key, None),), await_durable)

    def write(self, rows: Iterable[tuple[bytes, bytes | None]], await_durable: bool = True) -> Ticket:
        """Set keys to values, and remove keys whose value is None: all of them or none, for every reader."""
        checked = [checked_row(key, value) for key, value in rows]
        if not checked:
            raise ValueError("a batch needs at least one row")
        return self._write(checked, await_durable)

    def _write(self, rows: Iterable[tuple[bytes, bytes | None]], await_durable: bool) -> Ticket:
        self._require_process()
        self._require_room()
        written = self._group.put(rows, await_durable)
        if await_durable:
            self._group.wait(written)
        return Ticket(self, written)

    def transact(self, function: TransactionFunction[T]) -> T:
        """Run a function on the newest state, and return what it returns when all rows that it has put are durable.

        An error of the function is raised; nothing was written then. `OutcomeUnknownError`: it may be written.
        """
        return self.submit(function).wait()

    def submit(self, function: TransactionFunction[T]) -> Result[T]:
        """Begin what `transact` does, and return at once: `wait` returns what `transact` would."""
        self._require_process()
        self._require_room()
        return self._group.submit(function)

    def call(self, procedure: str, version: int, argument: bytes) -> bytes:
        """Call a registered procedure on the newest state; return its result when all its rows are durable.

        With shared writers that commit at the same time, another process may carry out the call, in one WAL entry with
        its own: `endive.kv.procedures`. `RefusalError`: the procedure has refused; `ProcedureFailedError`: it failed.
        Nothing of it was written then. `OutcomeUnknownError`: it may have been carried out, or may still be, once.
        """
        call = Call(procedure, version, argument)
        if not call.is_known:
            raise ConfigurationError(str(call), ["no such procedure is registered in this process"])
        try:
            result: bytes = self.submit(call).wait()
        except EndiveError:
            raise
        except Exception as error:
            raise ProcedureFailedError(str(call), f"{type(error).__name__}: {error}") from error
        return result

    def flush(self) -> None:
        """Return when all rows put so far are durable."""
        self._group.flush()

    def _require_room(self) -> None:
        """Let the caller wait while too much is not durable, or compaction cannot keep up."""
        started_s = refreshed_s = monotonic()
        is_logged = False
        while not self._has_room():
            self._group.require_open()
            self._maintenance.hurry()
            with self._group.changed:
                self._group.changed.wait(0.05)
            if monotonic() - refreshed_s >= ROOM_REFRESH_S:  # another process may have compacted
                self._writer.refresh()
                refreshed_s = monotonic()
            if monotonic() - started_s >= ROOM_LOGGED_S and not is_logged:
                is_logged = True
                state = self._writer.state
                facts = {"entries": state.uncompacted_entries, "size_bytes": state.recent.size_bytes}
                log_event(log, "waiting_for_compaction", logging.WARNING, **facts, url=self.driver.objects.url)

    def _has_room(self) -> bool:
        options, state = self.options, self._writer.state
        return (
            self._pipeline.unflushed_bytes <= options.unflushed_bytes_max
            and state.recent.size_bytes <= options.uncompacted_bytes_max
            and state.uncompacted_entries <= options.uncompacted_entries_max
        )

    # Reading.

    def get(self, key: bytes, durable: bool = False) -> bytes | None:
        """Return the value of `key` in the state that this process knows; None if it has none.

        `durable`: leave out rows that a crash could still undo. With shared writers the state may be behind commits of
        other processes: `refresh` first, or use `read`.
        """
        self._require_open()
        if not durable:
            buffered = self._pipeline.find(key)
            if buffered is not None:
                return buffered[0]
        state = self._writer.state  # after looking at rows that are not durable: what has become so is in this one
        row = state.recent.find(key)
        if row is None:
            cached = find_cached(state.manifest.value.runs, key, self.cache)
            row = self._find(key, state) if cached is NOT_CACHED else cached
        return None if row is None else row.value

    def _find(self, key: bytes, state: StoreState) -> Row | None:
        """Look into the levels, with a newer state if files of this one were deleted."""
        for _ in range(REFRESHES_MAX):
            try:
                return self.driver.run(find_in_runs(state.manifest.value.runs, key, self.cache))
            except MissingObjectError:
                before, state = state, self._writer.refresh()
                if state.manifest.number == before.manifest.number:
                    raise
            row = state.recent.find(key)
            if row is not None:
                return row
        raise MissingObjectError(self.driver.objects.url)

    def scan(
        self, start: bytes | None = None, end: bytes | None = None, prefix: bytes | None = None, durable: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Yield keys and values in order, of the state that this process knows now: later writes are not in it.

        From `start` on, up to but without `end`; or all keys with a `prefix`.
        """
        keys = KeyRange(start, end) if prefix is None else KeyRange.of_prefix(prefix)
        return self.view(durable, keys).scan(keys.start, keys.end)

    def view(self, durable: bool = False, keys: KeyRange = KeyRange(None, None)) -> ReadView:  # noqa: B008 - frozen
        """Return a consistent view of the state that this process knows, of all keys or of a range."""
        self._require_open()
        with self._group.changed:
            state = self._writer.state
            memory = rows_of(state.recent.within(keys), () if durable else self._pipeline.buffered(), keys)
        return ReadView(state.manifest.value, memory, self.driver, self.cache)

    def read(self, function: TransactionFunction[T]) -> T:
        """Run a function that only reads, on a durable state at least as new as this call."""
        self._require_open()

        def ahead(state: StoreState) -> Steps[object]:
            return run_function(function, self._reading(state))

        # A function whose last run found everything in the cache would only be run twice.
        return self._read(function, self._writer.refresh(ahead if self._reads_miss else None))

    def read_cached(self, function: TransactionFunction[T]) -> T:
        """Run a function that only reads, on the durable state that this process knows, without a request."""
        self._require_open()
        return self._read(function, self._writer.state)

    def _read(self, function: TransactionFunction[T], state: StoreState) -> T:
        for _ in range(REFRESHES_MAX):
            misses = self.cache.misses
            try:
                outcome = self.driver.run(run_function(function, self._reading(state)))
            except MissingObjectError:
                before, state = state, self._writer.refresh()
                if state.manifest.number == before.manifest.number:
                    raise
                continue
            self._reads_miss = self.cache.misses > misses
            if outcome.error is not None:
                raise outcome.error
            result: T = outcome.value
            return result
        raise MissingObjectError(self.driver.objects.url)

    def _reading(self, state: StoreState) -> Transaction:
        return Transaction(state.manifest.value.runs, state.recent, self.cache, is_writable=False)

    def refresh(self) -> None:
        """Learn what other processes have committed and compacted."""
        self._require_open()
        self._writer.refresh()

    # Maintenance.

    def checkpoint(self, lifetime_s: int, name: str = "", source: str | None = None) -> Checkpoint:
        """Make everything durable and create a checkpoint of it; `lifetime_s` 0: it never expires.

        `source`: create one of the state of another checkpoint instead, by id or name.
        """
        self.flush()
        created = self.driver.run(create_checkpoint(lifetime_s, name, source))
        log_event(
            log,
            "checkpointed",
            checkpoint=created.id,
            name=name,
            manifest_id=created.manifest_id,
            lifetime_s=lifetime_s,
        )
        return created

    def delete_checkpoint(self, checkpoint_id: str) -> None:
        """Delete a checkpoint. Idempotent."""
        self._require_open()
        self.driver.run(delete_checkpoint(checkpoint_id))

    def refresh_checkpoint(self, checkpoint_id: str, lifetime_s: int) -> None:
        """Let a checkpoint expire `lifetime_s` from now; 0: never. `CheckpointGoneError` if it was deleted."""
        self._require_open()
        self.driver.run(refresh_checkpoint(checkpoint_id, lifetime_s))

    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the newest manifest."""
        self.refresh()
        return self.manifest.value.checkpoints

    def at(self, checkpoint_id: str) -> StoreAtCheckpoint:
        """Return the store as it was at a checkpoint, by id or by name. Close it after use."""
        self._require_open()
        return StoreAtCheckpoint(self.driver.objects, checkpoint_id)

    def compact(self, everything: bool = False) -> None:
        """Merge the WAL into the levels now, and merge levels; `everything`: into one run.

        `FencedError`: compactors of other processes came in between again and again; they have done most of it.
        """
        self._require_open()
        self.flush()
        for _ in range(COMPACTIONS_MAX - 1):
            try:
                return self._maintenance.compact(everything)
            except FencedError as error:
                log.info("compacting again: %s", error)
        return self._maintenance.compact(everything)

    def collect(self) -> None:
        """Run the garbage collector now."""
        self._require_open()
        self._maintenance.collect()

    def wants_compaction(self) -> bool:
        """Whether enough rows are in the WAL that are not in the levels."""
        state = self._writer.state
        return (
            state.uncompacted_entries >= self.options.compact_entries
            or state.recent.size_bytes >= self.options.compact_bytes
        )

    def poll(self) -> None:
        """Refresh now and then if commits do not: another process may have compacted, or may want to write."""
        if self._writer.state.own_epoch:
            self._writer.refresh()
            if self._service.serve():
                self._maintenance.hurry()

    def outcome(self, path: str) -> tuple[CallResult, ...] | None:
        """Return how calls were decided, by the path of their `OutcomeUnknownError`; None: they may still be.

        After `settle` they are. The results are of all calls that waited together, in the order in which they came.
        `IntentionExpiredError`: they are no longer kept. `ConfigurationError`: the calls were not announced.
        """
        self.refresh()
        return results_at(path, self.exchange)

    def settle(self) -> tuple[str, ...]:
        """Carry out all intentions that are pending now; return the names of those whose procedures are unknown here.

        Afterwards nothing that an intention of a dead process named will be referred to by a later commit, unless its
        name was returned: what no row refers to can be deleted.
        """
        self._require_open()
        return settle(self._writer, self.driver, self.cache, self.exchange)

    def collect_intentions(self) -> tuple[str, ...]:
        """Delete the intentions that are decided or have expired; return their names."""
        return collect_closed(self._writer, self.driver, self.cache)

    # The rest.

    @property
    def epoch(self) -> int:
        """The newest writer epoch that this process knows; an exclusive writer's own while it writes."""
        return self._writer.state.manifest.value.writer_epoch

    @property
    def wal_end(self) -> int:
        """The last WAL entry that is durable, as far as this process knows."""
        return self._writer.state.wal_end

    @property
    def is_exclusive_elsewhere(self) -> bool:
        """Whether another process is the exclusive writer, as far as this one knows; a commit here would fence it."""
        return not self._writer.state.is_writable

    @property
    def manifest(self) -> Numbered[StoreManifest]:
        """The newest manifest that this process knows."""
        return self._writer.state.manifest

    @property
    def uncompacted_bytes(self) -> int:
        """Bytes that are durable, but not in the levels as far as this process knows."""
        return self._writer.state.recent.size_bytes

    @property
    def commit_times(self) -> CommitTimes:
        """How long commits take, by stage."""
        return self._group.times

    def stats(self) -> dict[str, int]:
        """Return counters and sizes, by name."""
        state = self._writer.state
        manifest = state.manifest.value
        return {
            "epoch": manifest.writer_epoch,
            "manifest_id": state.manifest.number,
            "wal_end": state.wal_end,
            "row_seq": state.row_seq_last,
            "unflushed_bytes": self._pipeline.unflushed_bytes,
            "uncompacted_bytes": state.recent.size_bytes,
            "uncompacted_entries": state.uncompacted_entries,
            "batches": self._group.batches,
            "transactions": self._group.functions,
            "lost_races": self._writer.losses,
            "refreshes": self._writer.refreshes,
            "announced_batches": self._writer.helper.announced,
            "carried_by_others": self._writer.helper.carried_by_others,
            "carried_for_others": self._writer.helper.carried_for_others,
            "pending_intentions": len(pending(state)),
            "runs": len(manifest.runs),
            "ssts": len(manifest.sst_ids()),
            "level_bytes": sum(run.size_bytes for run in manifest.runs),
            "cache_bytes": self.cache.bytes_held,
            "cache_hits": self.cache.hits,
            "cache_misses": self.cache.misses,
        } | {f"requests_{kind}": count for kind, count in sorted(self.driver.requests.by_kind.items())}

    def close(self) -> None:
        """Make everything durable, do this process's share of maintenance, and release resources.

        Idempotent; does nothing in a forked child. Maintenance is due when the WAL has many entries and no other
        process is at it; it takes at most about `StoreOptions.closing_ms`.

        Raises the error of rows that a background flush could not make durable, if no caller got it.
        """
        if self._closed or os.getpid() != self._pid:
            return
        self._closed = True
        try:
            if self._group.halted is None:
                self.flush()
            self._group.require_reported()
        finally:
            self._group.close()
            self._maintenance.stop()
            if self._group.halted is None:
                self._writer.release()
                self._maintenance.finish()
            self._writer.helper.close()
            self.driver.close()
            log_event(log, "closed", epoch=self.epoch, url=self.driver.objects.url)

    def _require_open(self) -> None:
        self._require_process()
        self._group.require_open()

    def _require_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(self.driver.objects.url, self._pid, os.getpid())
