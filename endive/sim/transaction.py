"""Transactions: read a snapshot, run, then commit optimistically until it succeeds or the retries are used up.

The commit loop:

* The snapshot is taken *before* the transaction runs, so the number of intervening commits grows with the runtime.
* An attempt prepares (per-attempt I/O) and calls `catalog.commit()`. A failed one reads the catalog again and checks
  whether an intervening commit overlaps. *No overlap*: the files written are valid, so the retry is the swap alone.
  *Overlap*: the type's conflict cost is paid, a real conflict may abort, and the next attempt prepares again.
* A transaction knows the catalog only through `read()`.

Every wait is accounted to one purpose; they add up to the total, which each result checks.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping
from typing import ClassVar

from endive.sim.catalog import Catalog, CatalogSnapshot, IntentionRecord, Partitions
from endive.sim.commit_options import CommitOptions, Prices
from endive.sim.cost import NOTHING, ConflictCost, OperationCost
from endive.sim.operations import OPERATIONS, SNAPSHOT_KINDS, Operation, SnapshotKind
from endive.sim.outcome import DEFAULT_CLASS, NO_WRITER, TransactionResult, TransactionStatus
from endive.sim.requests import Requests
from endive.sim.storage import StorageProvider
from endive.sim.streams import StreamFamily, TransactionStreams
from endive.timing import Latency, Spent, timed, to_ms, to_ticks

__all__ = [
    "PURPOSES",
    "ConflictDetector",
    "FastAppendTransaction",
    "MergeAppendTransaction",
    "Transaction",
    "TransactionResult",
    "TransactionStatus",
    "ValidatedOverwriteTransaction",
]

_NONE: frozenset[int] = frozenset()

PURPOSES = ("catalog_read", "runtime", "per_attempt_io", "conflict_io", "catalog_commit", "backoff")

_OTHER = Operation("append", validates_all=True)
"""An operation type of a user's own."""


class ConflictDetector(ABC):
    """Distinguishes a real data conflict from a false one, once an overlap is established."""

    @abstractmethod
    def is_real_conflict(
        self, txn: "Transaction", current_snapshot: CatalogSnapshot, start_snapshot: CatalogSnapshot
    ) -> bool:
        """Whether `txn`, prepared on `start_snapshot`, conflicts with the commits up to `current_snapshot`."""


class Transaction(ABC):
    """One transaction, from submission to commit or abort. `execute` runs it, once."""

    operation_type: ClassVar[str] = "other"
    """Its row of the cost model; a name that the model does not have pays per attempt like a fast append."""

    def __init__(
        self,
        txn_id: int,
        submit_time_ms: float,
        runtime_ms: float,
        tables_written: frozenset[int],
        partitions_written: Partitions | None = None,
        *,
        reads: Mapping[int, frozenset[int] | None] | None = None,
        manifests_per_concurrent_commit: float = 1.5,
        streams: TransactionStreams | None = None,
        class_name: str = DEFAULT_CLASS,
        writer: int = NO_WRITER,
    ) -> None:
        self.txn_id = txn_id
        self.submit_time_ms = submit_time_ms
        self.runtime_ms = runtime_ms
        self.tables_written = tables_written
        self.partitions_written = partitions_written
        self.reads = dict(reads or {})
        """Tables read but not written, with their partitions; None: partitions not tracked."""
        self.manifests_per_concurrent_commit = manifests_per_concurrent_commit
        self.streams = streams or StreamFamily(0).of(txn_id)
        self.class_name = class_name
        self.writer = writer
        self.status = TransactionStatus.PENDING
        self.total_retries = 0
        self.abort_reason: str | None = None
        self.events: Counter[str] = Counter()
        self.spent = Spent(*PURPOSES)
        self._options = CommitOptions()
        self._before_commit_ticks = self._started_ticks = 0
        self._gave_up = False
        """The last attempt could not append its manifest-list entries."""
        self._operation = next((one for name, one in OPERATIONS.items() if name == self.operation_type), _OTHER)
        self._merged: dict[int, int] = {}
        """Table to the manifests that the last attempt has merged."""
        self.job_start: CatalogSnapshot | None = None
        """The snapshot that the job of this transaction began with; None: its own."""

    def execute(
        self,
        catalog: Catalog,
        storage: StorageProvider,
        conflict_detector: ConflictDetector,
        max_retries: int = 10,
        ml_append_mode: bool = False,
        options: CommitOptions = CommitOptions(),
    ) -> Latency[TransactionResult]:
        """Run the transaction; yield the milliseconds of everything that takes time."""
        self._catalog, self._storage, self._detector = catalog, storage, conflict_detector
        self._max_retries, self._ml_append, self._options = max_retries, ml_append_mode, options
        tables = (len(self.tables_written), len(self.reads.keys() - self.tables_written))
        self._prices = options.prices(self.operation_type, ml_append_mode, *tables)
        if type(self).get_per_attempt_cost is not Transaction.get_per_attempt_cost:
            self._prices = Prices.constant(self.get_per_attempt_cost(ml_append_mode))
        written = (self.tables_written, self.partitions_written)
        self._requests = Requests(storage, options, *written, ml_append_mode)
        self.status = TransactionStatus.EXECUTING
        self._snapshot = yield from self._read_catalog()
        self._start = self.job_start or self._snapshot
        yield from self._load_metadata()
        self._before_commit_ticks = self.spent.total_ticks
        yield from self._work()
        self.status = TransactionStatus.COMMITTING
        committed = yield from self._commit_loop()
        self.status = TransactionStatus.COMMITTED if committed else TransactionStatus.ABORTED
        return self.result()

    def _load_metadata(self) -> Latency[None]:
        """Read the metadata of each table concerned, unless the catalog holds it or the first attempt reads it."""
        if self._options.cost_model.loads_metadata and not self._options.metadata_inlined:
            tables = self.tables_written | self.reads.keys()
            yield from self._pay_conflict_cost(ConflictCost(metadata_reads=len(tables)), "catalog_read")

    def _work(self) -> Latency[None]:
        yield from timed(_wait(self.runtime_ms), self.spent, "runtime")

    # The commit loop.

    def _commit_loop(self) -> Latency[bool]:
        model, must_prepare = self._options.cost_model, True
        self._started_ticks = self.spent.total_ticks
        if model.refreshes_first:
            yield from self._refresh(self._start)
        for attempt in range(self._max_retries + 1):
            if attempt > 0 and not self.abort_reason and self._is_late():
                self.abort_reason = "retry_timeout"
            if self.abort_reason:
                return False
            self.total_retries = attempt
            ready = not must_prepare or (yield from self._prepare(first=attempt == 0))
            if ready and (yield from self._swap()):
                return True
            last = attempt == self._max_retries
            if not last or model.resolves_last:
                overlaps = yield from self._before_retry(attempt + 1, pause=not last)
                must_prepare = overlaps or self._gave_up
        self.abort_reason = self.abort_reason or "max_retries_exceeded"
        return False

    def _before_retry(self, retry: int, pause: bool) -> Latency[bool]:
        """Back off and refresh, in the configured order. Return whether the retry must prepare."""
        backoff = self._options.backoff if pause else None
        delay_ms = backoff.delay_ms(retry, self.streams.backoff.random()) if backoff else 0.0
        if backoff and backoff.before_read:
            yield from timed(_wait(delay_ms), self.spent, "backoff")
        must_prepare = yield from self._refresh()
        if backoff and not backoff.before_read and not self.abort_reason:
            yield from timed(_wait(delay_ms), self.spent, "backoff")
        return must_prepare

    def _is_late(self) -> bool:
        """Whether the time for retries is over."""
        limit_ms = self._options.retry_timeout_ms
        return limit_ms is not None and self.spent.total_ticks - self._started_ticks > to_ticks(limit_ms)

    @property
    def _deadline_ms(self) -> float | None:
        limit_ms = self._options.retry_timeout_ms
        if limit_ms is None:
            return None
        return to_ms(to_ticks(self.submit_time_ms) + self._started_ticks + to_ticks(limit_ms))

    def _prepare(self, first: bool) -> Latency[bool]:
        """Write the files that the swap publishes. False: the attempt has failed, and a swap is not tried."""
        prices, merging = self._prices, self._merging()
        admitted = self._queue(prices.attempts[0 if first else 1], merging)
        yield from self._pay_conflict_cost(prices.first if first else prices.retry, "per_attempt_io")
        if prices.beside[0] != NOTHING:
            both = self._requests.make_beside(*prices.beside, self._snapshot)
            yield from timed(both, self.spent, "per_attempt_io")
        yield from self._pay_conflict_cost(merging, "per_attempt_io")
        if self._ml_append and not self._operation.expires:
            appends = self._requests.append_entries(self._snapshot, self._is_late)
            self._gave_up = not (yield from timed(appends, self.spent, "per_attempt_io"))
            if self._gave_up:
                return False
        if self._options.cost_model.checks_before_swap and not (yield from self._is_current()):
            return False
        yield from self._pay_conflict_cost(prices.publish, "per_attempt_io")
        yield from self._be_admitted(admitted, "per_attempt_io")
        return True

    def _merging(self) -> ConflictCost:
        """Choose the tables with enough manifests to merge; return the requests: read all and its own, write one.

        A rewrite of all manifests keeps what it has merged, unless another transaction has merged them too.
        """
        least, counts = self._options.merge_min_manifests, self._manifests()
        if self._operation.merges_all:
            due = {table: count for table, count in counts.items() if not 0 < self._merged.get(table, 0) <= count}
            self._merged |= due
        else:
            merges = self._operation.merges and least > 0
            due = {table: count + 1 for table, count in counts.items() if merges and count + 1 >= least}
            self._merged = {table: count - 1 for table, count in due.items()}
        if not due:
            return NOTHING
        return ConflictCost(manifest_file_reads=sum(due.values()), manifest_file_writes=len(due))

    def _manifests(self) -> dict[int, int]:
        """Return the manifests of each written table, as the snapshot has them."""
        return {table: self._snapshot.get_table(table).manifests for table in self.tables_written}

    def _is_current(self) -> Latency[bool]:
        """Refresh before the swap. False: the table has changed, and the retry resolves it."""
        latest = yield from self._read_catalog()
        yield from self._pay_conflict_cost(self._prices.check, "per_attempt_io")
        if self.has_write_overlap(self._snapshot, latest):
            self.events["stale_before_swap"] += 1
            return False
        self._snapshot = latest
        return True

    def _swap(self) -> Latency[bool]:
        writes = {table: self._snapshot.get_table(table).version + 1 for table in sorted(self.tables_written)}
        intention = IntentionRecord(
            self.txn_id,
            self._snapshot.seq,
            writes,
            self.partitions_written,
            self._options.entry_bytes,
            self.reads if self._options.serializable else {},
            self._operation.snapshot,
            self._merged,
            self._options.snapshots_kept - self._options.table_snapshots if self._operation.expires else None,
            self._options.append_attempts,
            self._deadline_ms,
        )
        commit = self._catalog.commit(self._snapshot.seq, writes, self.now_ms, intention)
        result = yield from timed(commit, self.spent, "catalog_commit")
        return result.success

    def _refresh(self, since: CatalogSnapshot | None = None) -> Latency[bool]:
        """Read the catalog and resolve intervening commits: those after `since`, or after the last read.

        Return whether the next attempt must prepare again.
        """
        seen, self._snapshot = since or self._snapshot, (yield from self._read_catalog())
        if not self.has_write_overlap(seen, self._snapshot):
            if seen.seq != self._snapshot.seq:
                self.events["no_overlap"] += 1
            return False
        cost = self.get_conflict_cost(self._snapshots_missed(seen), self._ml_append)
        admitted = self._queue(cost)
        yield from self._pay_conflict_cost(cost, "conflict_io")
        yield from self._be_admitted(admitted, "conflict_io")
        can_conflict = self.can_have_real_conflict() and self._can_conflict(seen)
        if can_conflict and self._detector.is_real_conflict(self, self._snapshot, seen):
            self.events["real_conflicts"] += 1
            yield from self._resolve_real_conflict()
            return True
        self.events["false_conflicts"] += 1
        return not (self._ml_append and self._options.manifest_list_append.keeps_entries)

    def _resolve_real_conflict(self) -> Latency[None]:
        action = self._options.real_conflict
        if action == "abort" and self.should_abort_on_real_conflict():
            self.abort_reason = "validation_exception"
        elif action == "restart":
            yield from self._work()
        elif action == "merge":
            count = max(1, round(self._options.conflicting_manifests.sample(self.streams.conflict)))
            merged = ConflictCost(manifest_file_reads=count, manifest_file_writes=count)
            yield from self._pay_conflict_cost(merged, "conflict_io")

    # Costs.

    def get_per_attempt_cost(self, ml_append_mode: bool) -> ConflictCost:
        """Return the requests of the first attempt: under ML+ an append replaces the manifest-list write."""
        prices = self._options.prices(self.operation_type, ml_append_mode, len(self.tables_written))
        return prices.attempts[0]

    def get_conflict_cost(self, n_snapshots_behind: int, ml_append_mode: bool) -> ConflictCost:
        """Return the further requests of a retry that overlaps and has missed so many snapshots."""
        cost = self._row.conflict(n_snapshots_behind, self.manifests_per_concurrent_commit)
        if self._options.reads_metadata_root:
            cost += ConflictCost(metadata_root_reads=len(self.tables_written))
        return cost.without(self._options.layout(ml_append_mode))

    @property
    def _row(self) -> OperationCost:
        return self._options.cost_model.row(self.operation_type)

    def _pay_conflict_cost(self, cost: ConflictCost, purpose: str) -> Latency[None]:
        yield from timed(self._requests.make(cost, self._snapshot), self.spent, purpose)

    def _queue(self, *costs: ConflictCost) -> tuple[int, int]:
        """Ask the store to admit requests; return when all are admitted, in ticks of `spent`, and their number."""
        reads, writes = (sum(cost.reads_and_writes[side] for cost in costs) for side in (0, 1))
        wait_ticks = self._storage.queue_ticks(min(self.tables_written, default=0), (reads, writes))
        return self.spent.total_ticks + wait_ticks, reads + writes

    def _be_admitted(self, admitted: tuple[int, int], purpose: str) -> Latency[None]:
        """Wait, after requests have been made, until the store would have admitted all of them."""
        at_ticks, requests = admitted
        delay_ticks = self._storage.delay_ticks(at_ticks - self.spent.total_ticks, requests)
        if delay_ticks:
            yield from timed(_wait(to_ms(delay_ticks)), self.spent, purpose)

    def _read_catalog(self) -> Latency[CatalogSnapshot]:
        snapshot = yield from timed(self._catalog.read(self.now_ms), self.spent, "catalog_read")
        return self._requests.with_lengths(snapshot)

    # Intervening commits.

    def has_write_overlap(self, old_snapshot: CatalogSnapshot, new_snapshot: CatalogSnapshot) -> bool:
        """Whether a commit between the snapshots touched a table and partition that this transaction depends on.

        It depends on its writes; under serializable isolation also on its reads.
        """
        written = self.partitions_written
        watched = [(table, None if written is None else written.get(table, _NONE)) for table in self.tables_written]
        if self._options.serializable:
            watched += self.reads.items()
        return any(_changed(table, partitions, old_snapshot, new_snapshot) for table, partitions in watched)

    def snapshots_behind(self, old_snapshot: CatalogSnapshot, new_snapshot: CatalogSnapshot) -> int:
        """Return the number of commits between the snapshots that count for this transaction."""
        behind = self._options.behind or self._options.cost_model.behind
        if behind == "catalog":
            return new_snapshot.seq - old_snapshot.seq
        pairs = [(old_snapshot.get_table(table), new_snapshot.get_table(table)) for table in self.tables_written]
        if behind == "table" or self.partitions_written is None:
            return sum(new.version - old.version for old, new in pairs)
        return sum(
            new.partition_versions[partition] - old.partition_versions[partition]
            for old, new in pairs
            for partition in self.partitions_written.get(old.table_id, _NONE)
        )

    def _snapshots_missed(self, seen: CatalogSnapshot) -> int:
        """Return how many snapshots a retry pays for.

        Iceberg's operations validate those of some kinds since the job's start, each time from the start.
        """
        if not self._operation.is_validated or self._operation.validates_all:
            base = self._start if self._options.cost_model.behind_since_start else seen
            return self.snapshots_behind(base, self._snapshot)
        return self._snapshots_of(self._operation.reads(self._options.serializable), self._start)

    def _can_conflict(self, seen: CatalogSnapshot) -> bool:
        """Whether a commit of a kind that can conflict came after `seen`."""
        if self._operation.validates_all:
            return True
        return self._snapshots_of(self._operation.conflicts(self._options.serializable), seen) > 0

    def _snapshots_of(self, kinds: Collection[SnapshotKind], since: CatalogSnapshot) -> int:
        """Return the number of snapshots of these kinds that the written tables have got since then."""
        indexes = [SNAPSHOT_KINDS.index(kind) for kind in kinds]
        pairs = [(since.get_table(table), self._snapshot.get_table(table)) for table in self.tables_written]
        return sum(new.snapshots[index] - old.snapshots[index] for old, new in pairs for index in indexes)

    # Outcome.

    @property
    def start_snapshot(self) -> CatalogSnapshot:
        """The snapshot that the job of this transaction began with."""
        return self._start

    @abstractmethod
    def can_have_real_conflict(self) -> bool:
        """Whether this type of operation can have a real conflict."""

    @abstractmethod
    def should_abort_on_real_conflict(self) -> bool:
        """Whether a real conflict aborts the transaction."""

    @property
    def requests(self) -> Counter[str]:
        """Storage requests completed so far, by kind, and outcomes of manifest-list appends."""
        return self._requests.made if self.status is not TransactionStatus.PENDING else Counter()

    @property
    def now_ms(self) -> float:
        """Virtual time: submission plus everything spent so far."""
        return to_ms(to_ticks(self.submit_time_ms) + self.spent.total_ticks)

    def result(self) -> TransactionResult:
        """Return the outcome, or the progress so far."""
        spent, requests, finished = self.spent, self.requests, self.now_ms
        commit_ticks = spent.total_ticks - self._before_commit_ticks - spent.ticks["runtime"]
        committing = self.status not in (TransactionStatus.PENDING, TransactionStatus.EXECUTING)
        return TransactionResult(
            status=self.status,
            txn_id=self.txn_id,
            commit_time_ms=finished if self.status is TransactionStatus.COMMITTED else -1.0,
            abort_time_ms=finished if self.status is TransactionStatus.ABORTED else -1.0,
            abort_reason=self.abort_reason,
            total_retries=self.total_retries,
            commit_latency_ms=to_ms(commit_ticks) if committing else 0.0,
            total_latency_ms=to_ms(spent.total_ticks),
            operation_type=self.operation_type,
            runtime_ms=self.runtime_ms,
            manifest_list_reads=requests["manifest_list_reads"] + requests["historical_ml_reads"],
            manifest_list_writes=requests["manifest_list_writes"],
            manifest_file_reads=requests["manifest_file_reads"],
            manifest_file_writes=requests["manifest_file_writes"],
            catalog_read_ms=spent.ms("catalog_read"),
            per_attempt_io_ms=spent.ms("per_attempt_io"),
            conflict_io_ms=spent.ms("conflict_io"),
            catalog_commit_ms=spent.ms("catalog_commit"),
            submit_time_ms=self.submit_time_ms,
            class_name=self.class_name,
            writer=self.writer,
            table=min(self.tables_written, default=0),
        )


class FastAppendTransaction(Transaction):
    """Adds files without validation. Has no real conflicts and always retries."""

    operation_type = "fast_append"

    def can_have_real_conflict(self) -> bool:
        return False

    def should_abort_on_real_conflict(self) -> bool:
        return False


class MergeAppendTransaction(Transaction):
    """Adds files and merges manifests: a retry also merges the manifests of concurrent commits."""

    operation_type = "merge_append"

    def can_have_real_conflict(self) -> bool:
        return False

    def should_abort_on_real_conflict(self) -> bool:
        return False


class ValidatedOverwriteTransaction(Transaction):
    """Replaces data: a retry validates every missed snapshot, and a real conflict aborts."""

    operation_type = "validated_overwrite"

    def can_have_real_conflict(self) -> bool:
        return True

    def should_abort_on_real_conflict(self) -> bool:
        return True


def _wait(delay_ms: float) -> Latency[None]:
    yield delay_ms


def _changed(table: int, partitions: frozenset[int] | None, old: CatalogSnapshot, new: CatalogSnapshot) -> bool:
    before, after = old.get_table(table), new.get_table(table)
    if before.version == after.version or partitions is None:
        return before.version != after.version
    return any(before.partition_versions[p] != after.partition_versions[p] for p in partitions)
