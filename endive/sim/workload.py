"""The workload: which transactions arrive, and when.

A transaction's properties depend on the seed and its number only, one stream for each purpose. So the same
transactions arrive whatever the catalog, the provider or the cost model, and two configurations can be compared under
common random numbers.

Arrivals are *open* (a stream of transactions that does not care whether the others finish), *closed* (`writers` that
each commit, think and commit again) or *triggered* (writers that each begin a transaction at fixed intervals).
Transaction `k` of writer `w` has the number `k * writers + w`.

A run has one class of transactions or several. Numbers and streams are a class's own, so that classes do not disturb
each other. The id of transaction `n` of class `c` is `n * classes + c`: unique in the run, and equal to the number if
there is one class.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from endive.rng import Stream, stream
from endive.sim.catalog import Partitions
from endive.sim.commit_options import CommitOptions
from endive.sim.latency import FixedLatency, LatencyDistribution
from endive.sim.operations import OPERATION_TYPES, OperationType
from endive.sim.outcome import DEFAULT_CLASS, NO_WRITER
from endive.sim.rate import Rate
from endive.sim.selectors import (
    PartitionSelector,
    Selection,
    TableSelector,
    UniformPartitionSelector,
    UniformTableSelector,
)
from endive.sim.streams import StreamFamily, stream_name
from endive.sim.transaction import ConflictDetector, Transaction
from endive.sim.transaction_types import TRANSACTION_TYPES
from endive.timing import to_ms, to_ticks


@dataclass(frozen=True)
class ClosedLoop:
    """Writers that each have one transaction at a time: after a think time, or at fixed intervals."""

    writers: int
    think: LatencyDistribution = field(default_factory=lambda: FixedLatency(0.0))
    stagger_ms: float = 0.0
    """The writers' first transactions are spread evenly over this time."""
    interval_ms: float | None = None
    """Triggers: a transaction begins this long after the one before it, or when that one has ended. None: think."""

    def start_ticks(self, writer: int) -> int:
        """Return when a writer begins its first transaction."""
        return to_ticks(self.stagger_ms) * writer // self.writers

    def trigger_ticks(self, writer: int, began_ticks: int) -> int:
        """Return the first trigger after a transaction began. Triggers keep their times if a transaction is late."""
        first, interval = self.start_ticks(writer), to_ticks(self.interval_ms or 0.0)
        return first + ((began_ticks - first) // interval + 1) * interval


@dataclass(frozen=True)
class WorkloadConfig:
    """Arrivals, operations, tables and partitions. The catalog is built to match."""

    inter_arrival: LatencyDistribution
    runtime: LatencyDistribution
    num_tables: int
    partitions_per_table: tuple[int, ...]

    fast_append_weight: float = 0.7
    merge_append_weight: float = 0.2
    validated_overwrite_weight: float = 0.1
    other_weights: Mapping[OperationType, float] = field(default_factory=dict)
    """Of the operations that only Iceberg has."""

    tables_per_txn: int = 1
    table_selector: TableSelector | None = None
    """None: uniform."""
    tables: tuple[int, ...] | None = None
    """The tables to choose from. None: all."""
    writer_tables: tuple[int, ...] | None = None
    """The table of each writer. None: tables are chosen for each transaction."""
    partitions_per_txn: int | None = None
    """None: partitions are not tracked, so any change to a written table overlaps."""
    partition_selector: PartitionSelector | None = None
    """None: uniform."""

    manifests_per_concurrent_commit: float = 1.5
    runtime_fixed_ms: float = 0.0
    """Added to every runtime."""
    parts: int = 1
    """Commits that the work of a job is divided into. Each is a transaction; they follow one another."""
    closed: ClosedLoop | None = None
    """None: open arrivals."""
    rate: Rate | None = None
    """Open arrivals at a rate that varies. None: the rate is constant."""

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights of all operation types, in the order of `OPERATION_TYPES`."""
        specified = (self.fast_append_weight, self.merge_append_weight, self.validated_overwrite_weight)
        return (*specified, *(self.other_weights.get(kind, 0.0) for kind in OPERATION_TYPES[len(specified) :]))

    @property
    def stride(self) -> int:
        """Difference between the numbers of two transactions of a writer, or of a job of open arrivals."""
        return self.closed.writers if self.closed else 1


class Workload:
    """An endless supply of transactions of one class."""

    def __init__(
        self,
        config: WorkloadConfig,
        seed: int | None = None,
        class_name: str = "",
        class_number: int = 0,
        classes: int = 1,
    ) -> None:
        """`class_name` is empty if the run has one class; else it is part of the names of the streams."""
        self.config = config
        self.seed = 0 if seed is None else seed
        self.class_name = class_name
        self._class_number = class_number
        self._classes = classes
        self._streams = StreamFamily(self.seed, class_name)
        self._roots = {
            purpose: stream(self.seed, stream_name(purpose, class_name))
            for purpose in ("arrival", "think", "runtime", "operation", "tables", "partitions")
        }
        self._mix = _cumulative_mix(config)
        self._tables = config.table_selector or UniformTableSelector()
        self._partitions = config.partition_selector or UniformPartitionSelector()

    def generate(self) -> Iterator[tuple[float, Transaction]]:
        """Yield (delay since the arrival before, transaction), for ever."""
        submit_ticks = 0
        for arrival in count():
            delay_ticks = to_ticks(self.config.inter_arrival.sample(self._draw("arrival", arrival)))
            if self.config.rate:
                delay_ticks = self.config.rate.after(submit_ticks, delay_ticks) - submit_ticks
            submit_ticks += delay_ticks
            yield to_ms(delay_ticks), self.transaction(arrival * self.config.parts, to_ms(submit_ticks))

    def next_ms(self, number: int, began_ms: float, now_ms: float) -> float:
        """Return how long a writer waits after its transaction `number`, which has just ended."""
        closed = self._closed()
        if closed.interval_ms is None:
            return self.think_ms(number)
        trigger_ticks = closed.trigger_ticks(number % closed.writers, to_ticks(began_ms))
        return to_ms(max(trigger_ticks - to_ticks(now_ms), 0))

    def think_ms(self, number: int) -> float:
        """Return how long a closed-loop writer pauses after transaction `number`."""
        return self._closed().think.sample(self._draw("think", number))

    def _closed(self) -> ClosedLoop:
        if self.config.closed is None:
            raise ValueError("only closed arrivals have a think time")
        return self.config.closed

    def txn_id(self, number: int) -> int:
        """Return the id, unique in the run, of the class's transaction `number`."""
        return number * self._classes + self._class_number

    def number_of(self, txn_id: int) -> int:
        """Return the number within its class of the transaction with that id."""
        return txn_id // self._classes

    def part_of(self, number: int) -> int:
        """Return which part of its job a transaction is, from 0."""
        return number // self.config.stride % self.config.parts

    def next_part(self, before: Transaction, submit_time_ms: float) -> Transaction:
        """Return the next part of a job. What it validates begins with the job, not with itself."""
        txn = self.transaction(self.number_of(before.txn_id) + self.config.stride, submit_time_ms)
        txn.job_start = before.start_snapshot
        return txn

    def transaction(self, number: int, submit_time_ms: float, /) -> Transaction:
        """Return the class's transaction `number`, submitted at that time."""
        writer = number % self.config.closed.writers if self.config.closed else NO_WRITER
        job = number - self.part_of(number) * self.config.stride  # all parts of a job write the same tables
        read, written = self._select_tables(job, writer)
        partitions_read, partitions_written = self._select_partitions(job, read, written)
        return TRANSACTION_TYPES[self._operation_type(number)](
            self.txn_id(number),
            submit_time_ms,
            to_ms(self._runtime_ticks(number) // self.config.parts),
            written,
            partitions_written,
            reads=partitions_read,
            manifests_per_concurrent_commit=self.config.manifests_per_concurrent_commit,
            streams=self._streams.of(number),
            class_name=self.class_name or DEFAULT_CLASS,
            writer=writer,
        )

    def _select_tables(self, number: int, writer: int) -> Selection:
        if self.config.writer_tables is not None:
            own = frozenset({self.config.writer_tables[writer]})
            return own, own
        among = self.config.tables
        total = self.config.num_tables if among is None else len(among)
        read, written = self._tables.select(self.config.tables_per_txn, total, self._draw("tables", number))
        if among is None:
            return read, written
        return frozenset(among[index] for index in read), frozenset(among[index] for index in written)

    def _select_partitions(
        self, number: int, read: frozenset[int], written: frozenset[int]
    ) -> tuple[Mapping[int, frozenset[int] | None], Partitions | None]:
        """Return the partitions only read, and the partitions written (None: not tracked)."""
        wanted = self.config.partitions_per_txn
        if wanted is None:
            return dict.fromkeys(sorted(read - written)), None
        draw, reads, writes = self._draw("partitions", number), {}, {}
        for table in sorted(read):
            chosen, changed = self._partitions.select(wanted, self.config.partitions_per_table[table], draw)
            if table in written:
                writes[table] = changed
                reads[table] = chosen - changed
            else:
                reads[table] = chosen
        return {table: parts for table, parts in reads.items() if parts}, writes

    def _runtime_ticks(self, number: int) -> int:
        drawn_ms = self.config.runtime.sample(self._draw("runtime", number))
        return to_ticks(drawn_ms) + to_ticks(self.config.runtime_fixed_ms)

    def _operation_type(self, number: int) -> OperationType:
        u = self._draw("operation", number).random()
        return next((kind for kind, upto in self._mix if u < upto), self._mix[-1][0])

    def _draw(self, purpose: str, number: int) -> Stream:
        return self._roots[purpose].child(number)


@dataclass(frozen=True)
class WorkloadClass:
    """A class of transactions: its workload, and how its transactions commit."""

    name: str
    workload: Workload
    conflict_detector: ConflictDetector
    max_retries: int
    ml_append_mode: bool
    options: CommitOptions
    """With the backoff that is in force."""


def _cumulative_mix(config: WorkloadConfig) -> list[tuple[OperationType, float]]:
    """Normalise the weights of the operation types and add them up, leaving out those of weight 0."""
    total, so_far, mix = sum(config.weights), 0.0, []
    for kind, weight in zip(OPERATION_TYPES, config.weights, strict=True):
        if weight > 0:
            so_far += weight
            mix.append((kind, so_far / total))
    return mix
