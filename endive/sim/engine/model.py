"""Translate a configuration and a seed into the arrays of the compiled kernel."""

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from endive.rng import stream
from endive.sim import requests
from endive.sim.commit_options import CommitOptions
from endive.sim.config.configuration import Settings
from endive.sim.config.defaults import partition_counts
from endive.sim.cost import OPERATION_TYPES, REQUEST_KINDS
from endive.sim.engine import kernel
from endive.sim.latency import FixedLatency, LatencyDistribution, QuantileFunction, QuantileTable, SizeBasedLatency
from endive.sim.requests import BATCHED, OBJECTS
from endive.sim.selectors import Selector
from endive.sim.simulation import SimulationConfig
from endive.sim.storage import Profile
from endive.sim.sums import longest_of, sum_of
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

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Model(NamedTuple):
    """A configuration with one seed, as the kernel takes it."""

    config: npt.NDArray[np.void]
    """One record of `kernel.CONFIG`."""
    convoys: "Convoys"
    odds: Floats
    topology: Ints
    backoff: Floats
    """Milliseconds before each retry, without jitter."""
    client: Floats
    """Milliseconds before each repetition of a throttled request, without jitter."""
    state_size: int
    detail_size: int
    buckets: int
    """Parts of the run that events are sorted by."""


def compile_model(settings: Settings, seed: int) -> Model:
    """Return the configuration with one seed as the kernel takes it."""
    config = settings.build(seed)
    options = config.commit_options()
    instant = settings.values.catalog.type == "instant"
    catalog = _instant_profile(settings.values.catalog.latency_ms) if instant else settings.profile
    distributions = _distributions(settings.profile, config, options, catalog)
    topology, odds = _topology(settings, config)
    backoff, client = options.backoff, settings.profile.client
    throttled = [client.capped_ms(retry) for retry in range(1, client.attempts)]
    waits = [backoff.capped_ms(retry) for retry in range(1, config.max_retries + 1)] if backoff else []
    numbers: dict[str, Any] = (
        _run_numbers(settings, config, seed)
        | _catalog_numbers(settings)
        | _commit_numbers(config, options)
        | _store_numbers(catalog, settings.profile)
        | {"client_attempts": client.attempts, "client_jitter": client.jitter}
        | distributions.arrays()
    )
    numbers["costs"] = _costs(config, options, numbers["tables_written"])
    numbers |= _due(numbers["costs"])
    numbers["has_beside"] = numbers["costs"][:, kernel.LEFT].sum(axis=1) > 0
    convoys = _convoys(config, options, distributions, numbers)
    numbers |= convoys.arrays()
    numbers["lists"] = _list_count(numbers, topology)
    sizes = _layout(numbers, topology)
    record = np.zeros(1, kernel.CONFIG)
    for name in kernel.CONFIG.names or ():
        record[name] = numbers[name]
    buckets = (numbers["horizon"] >> numbers["bucket_shift"]) + 1
    return Model(
        record, convoys, odds, topology, np.array(waits, np.float64), np.array(throttled, np.float64), *sizes, buckets
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

    rows: list[_Row] = field(default_factory=list)
    tables: list[QuantileTable] = field(default_factory=list)

    def add(self, distribution: LatencyDistribution, size_bytes: int = 0) -> None:
        sized = distribution.with_size(size_bytes)
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

    def tabulate(self, config: npt.NDArray[np.void], commits: int) -> tuple[Floats, int]:
        """Add the sums that so many commits make possible to `config`.

        Return all curves, and the number of commits that they suffice for.
        """
        for kind, batch in enumerate(self.batches):
            most = int(max(self.counts[kind], self.per_commit[kind] * commits)) // batch
            if not self.by_term[kind] and most > 0 and self._is_convoy(kind, most):
                self._add(config, kind, min(most.bit_length() - 1, kernel.DOUBLINGS))
        return self.distributions.curves(), commits if self.per_commit.any() else int(kernel.NEVER)

    def _is_convoy(self, kind: int, most: int) -> bool:
        return most > 1 or self.batches[kind] > 1

    def _add(self, config: npt.NDArray[np.void], kind: int, powers: int) -> None:
        longest = longest_of(self.distributions.rows[kind].quantile, self.batches[kind])
        for power in range(powers + 1):
            quantile = sum_of(longest, power)
            at = (0, kind, power)
            config["sum_table"][at] = self.distributions.number_of(quantile.table) * CURVE_LENGTH
            config["sum_scale"][at], config["sum_floor"][at] = quantile.scale_ticks, quantile.floor_ticks
            config["sum_fixed"][at] = quantile.ticks_at(0.5) if quantile.is_constant else -1


def _convoys(
    config: SimulationConfig, options: CommitOptions, distributions: _Distributions, numbers: dict[str, Any]
) -> Convoys:
    costs, workload = numbers["costs"][numbers["weights"] > 0], config.workload.config
    counts = costs[:, : kernel.PER_SNAPSHOT].max(axis=(0, 1)).astype(np.float64)
    counts[kernel.METADATA_READ] = max(counts[kernel.METADATA_READ], workload.tables_per_txn)
    merged = np.rint(options.conflicting_manifests.quantile.ticks_at(1.0) / TICKS_PER_MS)
    for kind in (kernel.FILE_READ, kernel.FILE_WRITE):
        counts[kind] = max(counts[kind], merged if options.real_conflict == "merge" else 0)
    concurrent = costs[:, kernel.PER_CONCURRENT] * workload.manifests_per_concurrent_commit
    missed = workload.tables_per_txn * max(1, workload.partitions_per_txn or 0)  # counted for each commit, at most
    grows = options.manifest_list_growth_bytes > 0
    return Convoys(
        distributions,
        [options.max_parallel if kind in BATCHED else 1 for kind in REQUEST_KINDS],
        [
            grows and OBJECTS[kind] == "manifest_list" and isinstance(row.distribution, SizeBasedLatency)
            for kind, row in zip(REQUEST_KINDS, distributions.rows, strict=False)
        ],
        counts,
        (costs[:, kernel.PER_SNAPSHOT] + concurrent).max(axis=0) * missed,
    )


@lru_cache(maxsize=1024)
def curve_of(table: QuantileTable) -> Floats:
    """Return a table as the kernel reads it: from the tails inwards, of each piece start and rise on either side."""
    sides = np.array([table.starts, table.rises]).reshape(2, 2, table.OCTAVES, table.PIECES)
    return sides[:, :, ::-1].transpose(2, 3, 1, 0).reshape(-1)


def _instant_profile(latency_ms: float) -> Profile:
    fixed = FixedLatency(latency_ms)
    return Profile("instant-catalog", {"read": fixed, "cas": fixed})


def _distributions(
    tables: Profile, config: SimulationConfig, options: CommitOptions, catalog: Profile
) -> _Distributions:
    """Return the distributions in the order of the kernel's numbers; a fixed one stands for each that is not needed."""
    found, workload, unused = _Distributions(), config.workload.config, FixedLatency(0.0)
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
        (catalog, "append", "catalog", options.entry_bytes),
        (catalog, "cas", "compaction", 0),
        (tables, "append", "manifest_list", options.manifest_list_append.entry_bytes),
    ):
        success = profile.find(operation, kind) or unused
        found.add(success, size_bytes)
        found.add(profile.failure(operation, kind) or success, size_bytes)
    return found


def _run_numbers(settings: Settings, config: SimulationConfig, seed: int) -> dict[str, Any]:
    workload, horizon = config.workload.config, to_ticks(config.duration_ms)
    weights = (workload.fast_append_weight, workload.merge_append_weight, workload.validated_overwrite_weight)
    return {
        "horizon": horizon,
        "bucket_shift": max(0, horizon.bit_length() - BUCKET_BITS),
        "roots": [stream(seed, name).key for name in STREAMS],
        "mix": _mix(weights),
        "weights": np.array(weights),
        "writers": workload.closed.writers if workload.closed else 0,
        "tables": workload.num_tables,
        "tables_per_txn": workload.tables_per_txn,
        "tables_written": _written(_weighted(workload.table_selector), workload.tables_per_txn),
        "tracked": workload.partitions_per_txn or 0,
        "concurrent_manifests": workload.manifests_per_concurrent_commit,
        "detector": settings.values.transaction.conflict_detector == "partition_overlap",
        "probability": settings.values.transaction.real_conflict_probability,
    }


def _mix(weights: tuple[float, float, float]) -> list[float]:
    """Return the cumulative shares; from the last type that occurs on, they are out of reach."""
    total, last = sum(weights), max(index for index, weight in enumerate(weights) if weight > 0)
    return [2.0 if index >= last else so_far / total for index, so_far in enumerate(accumulate(weights))]


def _weighted(selector: object) -> Selector:
    """Return a selector of a configuration, all of which choose by weight; None: uniform."""
    return selector if isinstance(selector, Selector) else Selector(0.0, 1.0)


def _written(selector: Selector, chosen: int) -> int:
    return max(1, round(chosen * selector.write_fraction))


def _catalog_numbers(settings: Settings) -> dict[str, Any]:
    catalog = settings.values.catalog
    return {
        "granularity": GRANULARITIES[catalog.conflict_granularity or "catalog"],
        "groups": catalog.table_groups if catalog.type != "append" else 1,
        "appending": catalog.type == "append",
        "entry_bytes": catalog.log_entry_size,
        "entry_read_ms": catalog.log_entry_read_ms,
        "log_bytes_max": catalog.compaction_threshold,
        "log_entries_max": catalog.compaction_max_entries,
    }


def _commit_numbers(config: SimulationConfig, options: CommitOptions) -> dict[str, Any]:
    model, backoff, lists = options.cost_model, options.backoff, options.manifest_list_append
    return {
        "max_retries": config.max_retries,
        "retry_timeout": -1 if options.retry_timeout_ms is None else to_ticks(options.retry_timeout_ms),
        "refreshes_first": model.refreshes_first,
        "checks_before_swap": model.checks_before_swap,
        "resolves_last": model.resolves_last,
        "behind": GRANULARITIES[options.behind or model.behind],
        "behind_since_start": model.behind_since_start,
        "serializable": options.serializable,
        "real_action": REAL_ACTIONS[options.real_conflict],
        "max_parallel": options.max_parallel,
        "load_metadata": not options.metadata_inlined,
        "list_bytes": options.manifest_list_bytes,
        "list_growth": options.manifest_list_growth_bytes,
        "has_backoff": backoff is not None,
        "jitter": backoff.jitter if backoff else 0.0,
        "backoff_before_read": backoff.before_read if backoff else False,
        "ml_append": config.ml_append_mode,
        "list_appends_max": requests.APPENDS_MAX,
        "list_entry_bytes": lists.entry_bytes,
        "list_seal_bytes": lists.seal_bytes,
        "keeps_entries": lists.keeps_entries,
        "lists_per_partition": lists.per_partition and config.workload.config.partitions_per_txn is not None,
    }


def _store_numbers(catalog: Profile, tables: Profile) -> dict[str, Any]:
    """Return contention and limits by kind of conditional request: `kernel.CAS` and so on."""
    kinds = [(catalog, "cas"), (catalog, "append"), (catalog, "cas"), (tables, "append")]
    contention = [store.contention_of(operation) for store, operation in kinds]
    limits = [store.object_limit for store, _ in kinds]
    return {
        "decision": [store.decision_of(operation) for store, operation in kinds],
        "per_writer": [each.per_writer for each in contention],
        "scale_max": [each.scale_max for each in contention],
        "contention_free": [each.free for each in contention],
        "contention_half": [each.half for each in contention],
        "limit_interval": [limit.interval_ticks for limit in limits],
        "limit_spare": [limit.spare_ticks for limit in limits],
        "limit_refusal": [limit.refusal_ticks for limit in limits],
        "limit_throttle": [limit.throttle_ticks for limit in limits],
    }


def _costs(config: SimulationConfig, options: CommitOptions, written: int) -> Ints:
    costs = np.zeros((3, 8, len(REQUEST_KINDS)), np.int64)
    for operation, kind in enumerate(OPERATION_TYPES):
        prices = options.prices(kind, config.ml_append_mode, written)
        row, unneeded = options.cost_model.operations[kind], options.layout(config.ml_append_mode)
        conflict = (row.per_snapshot.without(unneeded), row.per_concurrent_manifest.without(unneeded))
        paid = (prices.first, prices.retry, *prices.beside, prices.check, prices.publish, *conflict)
        for which, cost in enumerate(paid):
            costs[operation, which] = [getattr(cost, name) for name in REQUEST_KINDS]
    return costs


def _due(costs: Ints) -> dict[str, Any]:
    """List the kinds that occur in each cost, so that the kernel skips the others.

    The costs per missed snapshot and per concurrent manifest are paid kind by kind, so they share one list.
    """
    occurs = costs > 0
    occurs[:, kernel.PER_SNAPSHOT] |= occurs[:, kernel.PER_CONCURRENT]
    return {"due": np.argsort(~occurs, axis=2, kind="stable"), "due_count": occurs.sum(axis=2)}


def _topology(settings: Settings, config: SimulationConfig) -> tuple[Ints, Floats]:
    workload, counts = config.workload.config, partition_counts(settings.values)
    tables, partitions = _weighted(workload.table_selector), _weighted(workload.partition_selector)
    tracked = workload.partitions_per_txn
    written = [_written(partitions, min(tracked, count)) if tracked else 0 for count in counts]
    topology = np.array([counts, [0, *list(accumulate(counts))[:-1]], written], np.int64)
    odds = np.zeros((4, max(len(counts), *counts)))
    for row, weights in ((0, tables.weights(len(counts))), (2, partitions.weights(max(counts)))):
        odds[row, : len(weights)] = list(accumulate(weights))
        odds[row + 1, : len(weights)] = weights
    return topology, odds


def _list_count(numbers: dict[str, Any], topology: Ints) -> int:
    """Return the most manifest lists that one transaction appends to."""
    per_table = int(topology[kernel.WRITTEN].max()) if numbers["lists_per_partition"] else 1
    return int(numbers["tables_written"]) * per_table


def _layout(numbers: dict[str, Any], topology: Ints) -> tuple[int, int]:
    """Lay out the shared state and a transaction's details one after the other; return the sizes."""
    tables, partitions = numbers["tables"], int(topology[kernel.COUNT].sum())
    lists = partitions if numbers["lists_per_partition"] else tables
    state = {
        "at_group": numbers["groups"],
        "at_table_seq": tables,
        "at_version": tables,
        "at_part_seq": partitions,
        "at_part_version": partitions,
        "at_length": lists,
        "at_sealed": lists,
        "at_in_flight": 2 + lists,
        "at_full": 2 + lists,
    }
    picked, tracked = numbers["tables_per_txn"], numbers["tracked"]
    numbers["versions"] = versions = picked * (1 + tracked)
    details = {
        "d_picked": picked,
        "d_written": picked,
        "d_parts": picked * tracked,
        "d_seen": versions,
        "d_start": versions,
        "d_new": versions,
        "d_known": numbers["lists"],
        "d_sealed": numbers["lists"],
    }
    return _place(numbers, state), _place(numbers, details)


def _place(numbers: dict[str, Any], lengths: dict[str, int]) -> int:
    end = 0
    for name, length in lengths.items():
        numbers[name] = end
        end += length
    return end
