"""The append catalog: transactions append intentions to a log instead of swapping the whole catalog.

Races, and the cost of each outcome:

* *Physical* failure: the log has grown since the writer last saw it. The failed append returns the new length, so the
  retry costs no read. Commits to other tables cause nothing more than this. A commit sends a limited number of
  appends and then fails like any other: the longer it repeats them, the older the snapshot that its intention is
  built on, so that an append that lands at last is not applied.
* *Logical* failure: the bytes landed, but the intention's precondition did not hold. The append does not report
  this; the writer finds out by a discovery read.
* A log that has grown past a threshold is *sealed* by the append that crossed it. A sealed log takes no append; the
  next commit first compacts it by a compare-and-swap on the checkpoint. If two try, one wins and both go on.

Success is decided by *which intention was applied*: the catalog remembers the ids of applied transactions. So an
intention that is proposed again after it landed is recognised, and never applied twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from endive.sim.catalog.cas import StoredCatalog
from endive.sim.catalog.state import CatalogState
from endive.sim.catalog.types import CatalogSnapshot, CommitResult, IntentionRecord
from endive.sim.storage import StorageProvider
from endive.timing import Latency


@dataclass(frozen=True)
class LogLimits:
    """When the log is sealed: past so many bytes, or at so many entries (0: never)."""

    bytes_max: int = 16_000_000
    entries_max: int = 0

    def exceeded(self, size_bytes: int, entries: int) -> bool:
        """Whether a log of this size must be compacted."""
        return (self.bytes_max > 0 and size_bytes > self.bytes_max) or 0 < self.entries_max <= entries


class _Log:
    """State of the log, shared by all sessions."""

    def __init__(self) -> None:
        self.checkpoint_offset = 0
        self.entries = 0
        self.applied: set[int] = set()


class AppendCatalog(StoredCatalog):
    """A checkpoint and a log of intentions. Its interface is that of every other catalog."""

    LOG = "catalog"
    CHECKPOINT = "compaction"

    def __init__(
        self,
        storage: StorageProvider,
        num_tables: int,
        partitions_per_table: Sequence[int],
        granularity: str = "table",
        limits: LogLimits | None = None,
        entry_read_ms: float = 0.0,
        manifests: int = 1,
        append: Literal["append", "tail_append"] = "append",
    ) -> None:
        """`tail_append`: the store appends wherever the log ends, so an append fails only if the log is sealed."""
        super().__init__(storage, CatalogState(num_tables, partitions_per_table, granularity, manifests=manifests))
        self._log = _Log()
        self._limits = limits or LogLimits()
        self._entry_read_ms = entry_read_ms
        self._append = append
        self._known_offset = 0

    def read(self, timestamp_ms: float = 0.0) -> Latency[CatalogSnapshot]:
        elapsed_ms = yield from self._read_log()
        self._state.counters["catalog_reads"] += 1
        self._known_offset = self._storage.objects.lengths[self.LOG]
        return self._state.snapshot(timestamp_ms + elapsed_ms)

    def _read_log(self) -> Latency[float]:
        """Read the checkpoint and the entries after it."""
        size_bytes = self._storage.objects.lengths[self.LOG] - self._log.checkpoint_offset
        replay_ms = self._log.entries * self._entry_read_ms
        result = yield from self._storage.read(self.LOG, size_bytes)
        if replay_ms:
            yield replay_ms
        return result.latency_ms + replay_ms

    def commit(
        self,
        expected_seq: int,
        writes: Mapping[int, int],
        timestamp_ms: float = 0.0,
        intention: IntentionRecord | None = None,
    ) -> Latency[CommitResult]:
        """Append the intention, then find out by a read whether it was applied."""
        proposal = intention or IntentionRecord(-1, expected_seq, writes)
        elapsed_ms = 0.0
        for _ in range(proposal.appends_max):
            if self.LOG in self._storage.objects.sealed:
                elapsed_ms += yield from self._compact()
            applied: list[bool] = []
            result = yield from self._storage.conditional(
                self._append, self.LOG, proposal.size_bytes, partial(self._land, proposal, applied)
            )
            elapsed_ms += result.latency_ms
            self._known_offset = result.offset
            if result.success:
                elapsed_ms += yield from self._discover()
                return CommitResult(applied[0], elapsed_ms)
            if proposal.is_late(timestamp_ms, elapsed_ms):
                break
        self._state.counters["append_gave_up"] += 1
        return CommitResult(False, elapsed_ms)

    def _discover(self) -> Latency[float]:
        self._state.counters["discovery_reads"] += 1
        return (yield from self._read_log())

    def _land(self, proposal: IntentionRecord, applied: list[bool]) -> bool:
        """Decide one append: whether it lands, and whether its intention is applied."""
        counters = self._state.counters
        objects = self._storage.objects
        offset = self._known_offset if self._append == "append" else objects.lengths[self.LOG]
        if not objects.extend(self.LOG, offset, proposal.size_bytes):
            counters["append_physical_failure"] += 1
            return False
        counters["append_physical_success"] += 1
        self._log.entries += 1
        applied.append(self._apply(proposal))
        counters["append_logical_success" if applied[0] else "append_logical_conflict"] += 1
        self._seal_if_full()
        return True

    def _apply(self, proposal: IntentionRecord) -> bool:
        if proposal.txn_id in self._log.applied:
            self._state.counters["append_recognised"] += 1
            return True
        if self._state.conflicts(proposal):
            return False
        self._state.apply(proposal)
        if proposal.txn_id >= 0:
            self._log.applied.add(proposal.txn_id)
        return True

    def _seal_if_full(self) -> None:
        size_bytes = self._storage.objects.lengths[self.LOG] - self._log.checkpoint_offset
        if self._limits.exceeded(size_bytes, self._log.entries):
            self._storage.objects.sealed.add(self.LOG)
            self._state.counters["append_compactions_triggered"] += 1

    def _compact(self) -> Latency[float]:
        result = yield from self._storage.conditional("cas", self.CHECKPOINT, 0, self._checkpoint)
        return result.latency_ms

    def _checkpoint(self) -> bool:
        length = self._storage.objects.lengths[self.LOG]
        if not self._storage.objects.renew(self.LOG, length):
            return False
        self._log.checkpoint_offset = length
        self._log.entries = 0
        self._state.counters["append_compactions_completed"] += 1
        return True
