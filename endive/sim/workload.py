"""The workload: which transactions arrive, and when.

A transaction's properties depend on the seed and its number only, one stream for each purpose. So the same
transactions arrive whatever the catalog, the provider or the cost model, and two configurations can be compared under
common random numbers.

Arrivals are *open* (a stream of transactions that does not care whether the others finish) or *closed*: `writers` that
each commit, think and commit again. Transaction `k` of writer `w` has the number `k * writers + w`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

from endive.rng import Stream, stream
from endive.sim.catalog import Partitions
from endive.sim.cost import OPERATION_TYPES, OperationType
from endive.sim.latency import FixedLatency, LatencyDistribution
from endive.sim.selectors import (
    PartitionSelector,
    TableSelector,
    UniformPartitionSelector,
    UniformTableSelector,
)
from endive.sim.streams import StreamFamily
from endive.sim.transaction import TRANSACTION_TYPES, Transaction
from endive.timing import to_ms, to_ticks


@dataclass(frozen=True)
class ClosedLoop:
    """Writers that each keep one transaction going, with a think time in between."""

    writers: int
    think: LatencyDistribution = field(default_factory=lambda: FixedLatency(0.0))


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

    tables_per_txn: int = 1
    table_selector: TableSelector | None = None
    """None: uniform."""
    partitions_per_txn: int | None = None
    """None: partitions are not tracked, so any change to a written table overlaps."""
    partition_selector: PartitionSelector | None = None
    """None: uniform."""

    manifests_per_concurrent_commit: float = 1.5
    closed: ClosedLoop | None = None
    """None: open arrivals."""


class Workload:
    """An endless supply of transactions."""

    def __init__(self, config: WorkloadConfig, seed: int | None = None) -> None:
        self.config = config
        self.seed = 0 if seed is None else seed
        self._streams = StreamFamily(self.seed)
        self._roots = {
            name: stream(self.seed, name)
            for name in ("arrival", "think", "runtime", "operation", "tables", "partitions")
        }
        self._mix = _cumulative_mix(config)
        self._tables = config.table_selector or UniformTableSelector()
        self._partitions = config.partition_selector or UniformPartitionSelector()

    def generate(self) -> Iterator[tuple[float, Transaction]]:
        """Yield (delay since the arrival before, transaction), for ever."""
        submit_ticks = 0
        for txn_id in count():
            delay_ms = self.config.inter_arrival.sample(self._draw("arrival", txn_id))
            submit_ticks += to_ticks(delay_ms)
            yield delay_ms, self.transaction(txn_id, to_ms(submit_ticks))

    def think_ms(self, txn_id: int) -> float:
        """Return how long a closed-loop writer pauses after transaction `txn_id`."""
        if self.config.closed is None:
            raise ValueError("only closed arrivals have a think time")
        return self.config.closed.think.sample(self._draw("think", txn_id))

    def transaction(self, txn_id: int, submit_time_ms: float) -> Transaction:
        """Return transaction number `txn_id`, submitted at that time."""
        read, written = self._tables.select(
            self.config.tables_per_txn, self.config.num_tables, self._draw("tables", txn_id)
        )
        partitions_read, partitions_written = self._select_partitions(txn_id, read, written)
        return TRANSACTION_TYPES[self._operation_type(txn_id)](
            txn_id,
            submit_time_ms,
            self.config.runtime.sample(self._draw("runtime", txn_id)),
            written,
            partitions_written,
            reads=partitions_read,
            manifests_per_concurrent_commit=self.config.manifests_per_concurrent_commit,
            streams=self._streams.of(txn_id),
        )

    def _select_partitions(
        self, txn_id: int, read: frozenset[int], written: frozenset[int]
    ) -> tuple[Mapping[int, frozenset[int] | None], Partitions | None]:
        """Return the partitions only read, and the partitions written (None: not tracked)."""
        wanted = self.config.partitions_per_txn
        if wanted is None:
            return dict.fromkeys(sorted(read - written)), None
        draw, reads, writes = self._draw("partitions", txn_id), {}, {}
        for table in sorted(read):
            chosen, changed = self._partitions.select(wanted, self.config.partitions_per_table[table], draw)
            if table in written:
                writes[table] = changed
                reads[table] = chosen - changed
            else:
                reads[table] = chosen
        return {table: parts for table, parts in reads.items() if parts}, writes

    def _operation_type(self, txn_id: int) -> OperationType:
        u = self._draw("operation", txn_id).random()
        return next((kind for kind, upto in self._mix if u < upto), self._mix[-1][0])

    def _draw(self, purpose: str, txn_id: int) -> Stream:
        return self._roots[purpose].child(txn_id)


def _cumulative_mix(config: WorkloadConfig) -> list[tuple[OperationType, float]]:
    """Normalise the weights of the operation types and add them up, leaving out those of weight 0."""
    weights = (config.fast_append_weight, config.merge_append_weight, config.validated_overwrite_weight)
    total, so_far, mix = sum(weights), 0.0, []
    for kind, weight in zip(OPERATION_TYPES, weights, strict=True):
        if weight > 0:
            so_far += weight
            mix.append((kind, so_far / total))
    return mix
