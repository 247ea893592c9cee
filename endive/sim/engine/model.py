"""Translate a configuration and a seed into the arrays of the compiled kernel."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from endive.rng import stream
from endive.sim.config.configuration import Settings
from endive.sim.config.schema import Configuration
from endive.sim.cost import REQUEST_KINDS
from endive.sim.engine import kernel
from endive.sim.engine.layout import (
    Floats,
    Ints,
    Layout,
    Numbers,
    counts_kinds,
    has_lists_per_partition,
    weighted,
    written_of,
)
from endive.sim.engine.stores import catalog_profile, client_waits, prefix_numbers, station_numbers, store_numbers
from endive.sim.latency import FixedLatency, LatencyDistribution, QuantileFunction, QuantileTable, SizeBasedLatency
from endive.sim.operations import OPERATION_TYPES, OPERATIONS, SNAPSHOT_KINDS, SnapshotKind
from endive.sim.requests import BATCHED, OBJECTS
from endive.sim.simulation import SimulationConfig
from endive.sim.station import SERVER_ROWS
from endive.sim.storage import Profile
from endive.sim.streams import stream_name
from endive.sim.sums import longest_of, sum_of
from endive.sim.workload import WorkloadClass
from endive.timing import TICKS_PER_MS, to_ticks

STREAMS = (
    "storage", "catalog", "backoff", "conflict", "arrival", "think", "runtime", "operation", "tables", "partitions"
)  # fmt: skip
"""In the order of the kernel's R_ constants."""

BUCKET_BITS = 16
"""A run has at most 2**16 buckets of time: a few dozen events in each if it is busy, soon skipped if it is quiet."""

CURVE_LENGTH = 4 * QuantileTable.OCTAVES * QuantileTable.PIECES
"""Numbers in a curve: start and rise of each piece on both sides."""

COMMITS_FIRST, COMMITS_FACTOR = 15, 8
"""Commits that the tables of sums suffice for at first, and how that grows: most runs need no convoys of thousands."""

GRANULARITIES = {"catalog": 0, "table": 1, "partition": 2}
REAL_ACTIONS = {"abort": 0, "merge": 1, "restart": 2}


class Model(NamedTuple):
    """A configuration with one seed, as the kernel takes it."""

    config: npt.NDArray[np.void]
    """A record of `kernel.CONFIG` for each class of transactions."""
    convoys: "list[Convoys]"
    """The convoys of each class of transactions."""
    odds: Floats
    topology: Ints
    bound: Ints
    """Tables of the writers that have one of their own."""
    rates: Floats
    """Factors of the rates of arrivals that vary."""
    backoff: Floats
    """Milliseconds before each retry, without jitter."""
    client: Floats
    """Milliseconds before each repetition of a throttled request, without jitter: of the catalog, of the tables."""
    polls: Ints
    """Ticks after its arrival at which a commit asks for the lock."""
    first_state: Ints
    detail_size: int
    buckets: int
    """Parts of the run that events are sorted by."""

    def tabulate(self, commits: int) -> tuple[Floats, int]:
        """Tabulate the sums that so many commits make possible.

        Return all curves, and the number of commits that they suffice for.
        """
        enough = [convoys.tabulate(self.config[cls], commits) for cls, convoys in enumerate(self.convoys)]
        return self.convoys[0].distributions.curves(), min(enough)


def compile_model(settings: Settings, seed: int) -> Model:
    """Return the configuration with one seed as the kernel takes it."""
    config = settings.build(seed)
    classes, values = config.all_classes, tuple(settings.values.by_class().values())
    layout = Layout(settings, classes)
    catalog, append = catalog_profile(settings), settings.values.catalog.append_request
    curves = list[QuantileTable]()
    records, convoys = np.zeros(len(classes), kernel.CONFIG), list[Convoys]()
    for number, one in enumerate(classes):
        distributions = _distributions(settings.profile, one, catalog, append, curves)
        numbers = (
            layout.numbers(number)
            | _run_numbers(config, one, values[number], seed)
            | _catalog_numbers(settings)
            | _commit_numbers(one)
            | _operation_numbers(one)
            | store_numbers(catalog, settings.profile, append)
            | station_numbers(catalog)
            | prefix_numbers(settings.profile)
            | _attempt_numbers(one)
            | distributions.arrays()
        )
        numbers["root_reads"] = numbers["tables_written"] if one.options.reads_metadata_root else 0
        numbers["costs"] = _costs(one, numbers["tables_written"])
        numbers |= _due(numbers["costs"])
        numbers["has_beside"] = numbers["costs"][:, kernel.LEFT].sum(axis=1) > 0
        convoys.append(_convoys(one, distributions, numbers))
        numbers |= convoys[-1].arrays()
        layout.place(number, numbers)
        for name in kernel.CONFIG.names or ():
            records[number][name] = numbers[name]
    polls = np.array(catalog.station.polls, np.int64)
    buckets = int(records["horizon"][0] >> records["bucket_shift"][0]) + 1
    return Model(
        records,
        convoys,
        *layout.arrays(),
        client_waits(catalog, settings.profile),
        polls,
        layout.first_state(records[0]),
        layout.detail_size,
        buckets,
    )


class _Row(NamedTuple):
    distribution: LatencyDistribution
    quantile: QuantileFunction
    table: int
    """Number of its curve."""

    @property
    def fixed_ticks(self) -> int:
        """The value of every draw; -1 if draws differ."""
        return self.quantile.ticks_at(0.5) if isinstance(self.distribution, FixedLatency) else -1


@dataclass
class _Distributions:
    """The distributions by number, sharing tables."""

    tables: list[QuantileTable]
    rows: list[_Row] = field(default_factory=list)

    def add(self, distribution: LatencyDistribution, size_bytes: int | None = 0) -> None:
        sized = distribution if size_bytes is None else distribution.with_size(size_bytes)
        quantile = sized.quantile  # read once: another thread may be caching another copy
        self.rows.append(_Row(sized, quantile, self.number_of(quantile.table)))

    def number_of(self, table: QuantileTable) -> int:
        """Return the number of a table's curve, adding it if it is new."""
        if table not in self.tables:
            self.tables.append(table)
        return self.tables.index(table)

    def curves(self) -> Floats:
        return np.concatenate([curve_of(table) for table in self.tables])

    def arrays(self) -> dict[str, list[float]]:
        sized = [row.distribution if isinstance(row.distribution, SizeBasedLatency) else None for row in self.rows]
        return {
            "dist_table": [row.table * CURVE_LENGTH for row in self.rows],
            "dist_scale": [row.quantile.scale_ticks for row in self.rows],
            "dist_floor": [row.quantile.floor_ticks for row in self.rows],
            "dist_base": [row.base_latency_ms if row else 0.0 for row in sized],
            "dist_per_mib": [row.latency_per_mib_ms if row else 0.0 for row in sized],
            "dist_sized": [1 if row else 0 for row in sized],
            "dist_fixed": [row.fixed_ticks for row in self.rows],
        }


@dataclass(frozen=True)
class Convoys:
    """The sums that a run draws from, tabulated as far as the number of commits makes them possible."""

    distributions: _Distributions
    batches: list[int]
    """Requests made at once, by request kind."""
    by_term: list[bool]
    """Request kinds whose distribution changes during the run: their convoys are drawn request by request."""
    counts: Floats
    """The most requests of a cost that does not depend on commits, by request kind."""
    per_commit: Floats
    """The most requests for each missed commit, by request kind."""

    def arrays(self) -> dict[str, Any]:
        """Return the numbers of the kernel before any sum is tabulated."""
        return {
            "sum_table": 0,
            "sum_scale": 0.0,
            "sum_floor": 0,
            "sum_fixed": kernel.HUGE,
            "by_term": self.by_term,
        }

    def tabulate(self, config: np.void, commits: int) -> int:
        """Add the sums that so many commits make possible to a class's `config`; return for how many they suffice."""
        for kind, batch in enumerate(self.batches):
            most = int(max(self.counts[kind], self.per_commit[kind] * commits)) // batch
            if not self.by_term[kind] and most > 0 and self._is_convoy(kind, most):
                self._add(config, kind, min(most.bit_length() - 1, kernel.DOUBLINGS))
        return commits if self.per_commit.any() else int(kernel.NEVER)

    def _is_convoy(self, kind: int, most: int) -> bool:
        return most > 1 or self.batches[kind] > 1

    def _add(self, config: np.void, kind: int, powers: int) -> None:
        longest = longest_of(self.distributions.rows[kind].quantile, self.batches[kind])
        for power in range(powers + 1):
            quantile = sum_of(longest, power)
            at = (kind, power)
            config["sum_table"][at] = self.distributions.number_of(quantile.table) * CURVE_LENGTH
            config["sum_scale"][at], config["sum_floor"][at] = quantile.scale_ticks, quantile.floor_ticks
            config["sum_fixed"][at] = quantile.ticks_at(0.5) if quantile.is_constant else -1


def _convoys(one: WorkloadClass, distributions: _Distributions, numbers: Numbers) -> Convoys:
    costs, workload, options = numbers["costs"][numbers["weights"] > 0], one.workload.config, one.options
    counts = costs[:, : kernel.PER_SNAPSHOT].max(axis=(0, 1)).astype(np.float64)
    counts[kernel.METADATA_READ] = max(counts[kernel.METADATA_READ], workload.tables_per_txn)
    counts[kernel.ROOT_READ] = numbers["root_reads"]
    merged = np.rint(options.conflicting_manifests.quantile.ticks_at(1.0) / TICKS_PER_MS)
    for kind in (kernel.FILE_READ, kernel.FILE_WRITE):
        counts[kind] = max(counts[kind], merged if options.real_conflict == "merge" else 0)
    per_commit = np.zeros(len(REQUEST_KINDS))
    merging = options.merge_min_manifests or one.workload.config.other_weights.get("rewrite_manifests", 0.0)
    if counts_kinds(one) and merging:  # a merge reads the first manifests and one of each commit
        first = 2 * workload.tables_per_txn * (options.table_manifests + 1)
        counts[kernel.FILE_READ] = max(counts[kernel.FILE_READ], first)
        counts[kernel.FILE_WRITE] = max(counts[kernel.FILE_WRITE], workload.tables_per_txn)
        per_commit[kernel.FILE_READ] = 2 * workload.tables_per_txn
    concurrent = costs[:, kernel.PER_CONCURRENT] * workload.manifests_per_concurrent_commit
    missed = workload.tables_per_txn * max(1, workload.partitions_per_txn or 0)  # counted for each commit, at most
    varies = {"manifest_list": numbers["list_varies"], "table_metadata": options.snapshot_bytes > 0}
    return Convoys(
        distributions,
        [options.max_parallel if kind in BATCHED else 1 for kind in REQUEST_KINDS],
        [
            varies.get(OBJECTS[kind], False) and isinstance(row.distribution, SizeBasedLatency)
            for kind, row in zip(REQUEST_KINDS, distributions.rows, strict=False)
        ],
        counts,
        np.maximum((costs[:, kernel.PER_SNAPSHOT] + concurrent).max(axis=0) * missed, per_commit),
    )


@lru_cache(maxsize=1024)
def curve_of(table: QuantileTable) -> Floats:
    """Return a table as the kernel reads it: from the tails inwards, of each piece start and rise on either side."""
    sides = np.array([table.starts, table.rises]).reshape(2, 2, table.OCTAVES, table.PIECES)
    return sides[:, :, ::-1].transpose(2, 3, 1, 0).reshape(-1)


def _distributions(
    tables: Profile, one: WorkloadClass, catalog: Profile, append: str, curves: list[QuantileTable]
) -> _Distributions:
    """Return the distributions in the order of the kernel's numbers; a fixed one stands for each that is not needed.

    `append` is the request that appends to a log; `curves` are the tables of all classes.
    """
    found, workload, unused, options = _Distributions(curves), one.workload.config, FixedLatency(0.0), one.options
    sizes = {
        "manifest_list": options.manifest_list_bytes,
        "manifest_file": options.manifest_file_bytes,
        "table_metadata": options.table_metadata_bytes,
    }
    for kind in REQUEST_KINDS:
        operation = "write" if kind.endswith("writes") else "read"
        found.add(tables.find(operation, OBJECTS[kind]) or unused, sizes.get(OBJECTS[kind], 0))
    found.add(workload.inter_arrival)
    found.add(workload.closed.think if workload.closed else unused)
    found.add(workload.runtime)
    found.add(catalog.find("read", "catalog") or unused)
    found.add(options.conflicting_manifests)
    for profile, operation, kind, size_bytes in (
        (catalog, "cas", "catalog", 0),
        (catalog, append, "catalog", options.entry_bytes),
        (catalog, "cas", "compaction", 0),
        (tables, "append", "manifest_list", options.manifest_list_append.entry_bytes),
    ):
        success = profile.find(operation, kind) or unused
        found.add(success, size_bytes)
        found.add(profile.failure(operation, kind) or success, size_bytes)
    for name in SERVER_ROWS:
        found.add(catalog.latencies.get(name, unused), None)  # they have their size
    return found


def _run_numbers(config: SimulationConfig, one: WorkloadClass, values: Configuration, seed: int) -> Numbers:
    workload, horizon = one.workload.config, to_ticks(config.duration_ms)
    closed, name = workload.closed, one.workload.class_name
    weights = workload.weights
    return {
        "horizon": horizon,
        "bucket_shift": max(0, horizon.bit_length() - BUCKET_BITS),
        "roots": [stream(seed, stream_name(purpose, name)).key for purpose in STREAMS],
        "mix": _mix(weights),
        "weights": np.array(weights),
        "writers": closed.writers if closed else 0,
        "interval": to_ticks(closed.interval_ms or 0.0) if closed else 0,
        "stagger": to_ticks(closed.stagger_ms) if closed else 0,
        "tables": workload.num_tables,
        "parts": workload.parts,
        "stride": workload.stride,
        "tables_per_txn": workload.tables_per_txn,
        "tables_written": written_of(weighted(workload.table_selector), workload.tables_per_txn),
        "tracked": workload.partitions_per_txn or 0,
        "run_fixed": to_ticks(workload.runtime_fixed_ms),
        "concurrent_manifests": workload.manifests_per_concurrent_commit,
        "detector": values.transaction.conflict_detector == "partition_overlap",
        "probability": values.transaction.real_conflict_probability,
    }


def _mix(weights: tuple[float, ...]) -> list[float]:
    """Return the cumulative shares; from the last type that occurs on, they are out of reach."""
    total, last = sum(weights), max(index for index, weight in enumerate(weights) if weight > 0)
    return [2.0 if index >= last else so_far / total for index, so_far in enumerate(accumulate(weights))]


def _catalog_numbers(settings: Settings) -> Numbers:
    catalog = settings.values.catalog
    return {
        "granularity": GRANULARITIES[catalog.conflict_granularity or "catalog"],
        "groups": (catalog.table_groups or 1) if catalog.type != "append" else 1,
        "appending": catalog.type == "append",
        "tail": catalog.log_append == "tail",
        "entry_bytes": catalog.log_entry_size,
        "entry_read_ms": catalog.log_entry_read_ms,
        "log_bytes_max": catalog.compaction_threshold,
        "log_entries_max": catalog.compaction_max_entries,
    }


def _commit_numbers(one: WorkloadClass) -> Numbers:
    options = one.options
    model, backoff, lists = options.cost_model, options.backoff, options.manifest_list_append
    return {
        "max_retries": one.max_retries,
        "retry_timeout": -1 if options.retry_timeout_ms is None else to_ticks(options.retry_timeout_ms),
        "refreshes_first": model.refreshes_first,
        "checks_before_swap": model.checks_before_swap,
        "resolves_last": model.resolves_last,
        "behind": GRANULARITIES[options.behind or model.behind],
        "behind_since_start": model.behind_since_start,
        "serializable": options.serializable,
        "real_action": REAL_ACTIONS[options.real_conflict],
        "max_parallel": options.max_parallel,
        "load_metadata": model.loads_metadata and not options.metadata_inlined,
        "list_bytes": options.manifest_list_bytes,
        "list_growth": options.manifest_list_growth_bytes,
        "metadata_bytes": options.table_metadata_bytes + options.table_snapshots * options.snapshot_bytes,
        "snapshot_bytes": options.snapshot_bytes,
        "first_manifests": options.table_manifests,
        "retained_max": options.snapshots_kept - options.table_snapshots,
        "list_varies": options.manifest_list_growth_bytes > 0 or one.ml_append_mode,
        "has_backoff": backoff is not None,
        "jitter": backoff.jitter if backoff else 0.0,
        "backoff_before_read": backoff.before_read if backoff else False,
        "ml_append": one.ml_append_mode,
        "appends_max": options.append_attempts,
        "list_entry_bytes": lists.entry_bytes,
        "list_seal_bytes": lists.seal_bytes,
        "keeps_entries": lists.keeps_entries,
        "lists_per_partition": has_lists_per_partition(one),
    }


def _operation_numbers(one: WorkloadClass) -> Numbers:
    operations, serializable = OPERATIONS.values(), one.options.serializable

    def bits(kinds: Collection[SnapshotKind]) -> int:
        return sum(1 << SNAPSHOT_KINDS.index(kind) for kind in kinds)

    return {
        "op_kind": [SNAPSHOT_KINDS.index(each.snapshot) if each.snapshot else -1 for each in operations],
        "op_expires": [operation.expires for operation in operations],
        "op_merges_all": [operation.merges_all for operation in operations],
        "op_all": [operation.validates_all for operation in operations],
        "op_selects": [operation.is_validated and not operation.validates_all for operation in operations],
        "op_reads": [bits(operation.reads(serializable)) for operation in operations],
        "op_conflicts": [bits(operation.conflicts(serializable)) for operation in operations],
        "op_merges": [one.options.merge_min_manifests if operation.merges else 0 for operation in operations],
    }


def _costs(one: WorkloadClass, written: int) -> Ints:
    options, ml_append_mode = one.options, one.ml_append_mode
    costs = np.zeros((len(OPERATION_TYPES), 8, len(REQUEST_KINDS)), np.int64)
    for operation, kind in enumerate(OPERATION_TYPES):
        prices = options.prices(kind, ml_append_mode, written, one.workload.config.tables_per_txn - written)
        row, unneeded = options.cost_model.operations[kind], options.layout(ml_append_mode)
        conflict = (row.per_snapshot.without(unneeded), row.per_concurrent_manifest.without(unneeded))
        paid = (prices.first, prices.retry, *prices.beside, prices.check, prices.publish, *conflict)
        for which, cost in enumerate(paid):
            costs[operation, which] = [getattr(cost, name) for name in REQUEST_KINDS]
    return costs


def _attempt_numbers(one: WorkloadClass) -> Numbers:
    """Return the reads and writes of a first attempt and of a retry, by operation."""
    workload, options = one.workload.config, one.options
    written = written_of(weighted(workload.table_selector), workload.tables_per_txn)
    counts = np.zeros((2, len(OPERATION_TYPES), 2), np.int64)
    for operation, kind in enumerate(OPERATION_TYPES):
        prices = options.prices(kind, one.ml_append_mode, written, workload.tables_per_txn - written)
        for which, attempt in enumerate(prices.attempts):
            counts[:, operation, which] = attempt.reads_and_writes
    return {"attempt_reads": counts[0], "attempt_writes": counts[1]}


def _due(costs: Ints) -> Numbers:
    """List the kinds that occur in each cost, so that the kernel skips the others.

    The costs per missed snapshot and per concurrent manifest are paid kind by kind, so they share one list.
    """
    occurs = costs > 0
    occurs[:, kernel.PER_SNAPSHOT] |= occurs[:, kernel.PER_CONCURRENT]
    return {"due": np.argsort(~occurs, axis=2, kind="stable"), "due_count": occurs.sum(axis=2)}
