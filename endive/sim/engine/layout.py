"""The arrays that the classes of a run share in the compiled kernel, and the part of each class in them."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from endive.sim.config.configuration import Settings
from endive.sim.config.defaults import partition_counts
from endive.sim.engine import kernel
from endive.sim.operations import OPERATIONS, SNAPSHOT_KINDS, SPECIFIED_TYPES
from endive.sim.selectors import Selector
from endive.sim.workload import WorkloadClass, WorkloadConfig

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Numbers = dict[str, Any]
"""Values of `kernel.CONFIG` by name."""


class Layout:
    """The common arrays, and the part of each class in them."""

    def __init__(self, settings: Settings, classes: Sequence[WorkloadClass]) -> None:
        self._classes = classes
        self._counts = partition_counts(settings.values)
        self._tracks = any(one.workload.config.partitions_per_txn is not None for one in classes)
        self._counts_kinds = any(map(counts_kinds, classes))
        self._counts_growth = any(map(counts_growth, classes))
        self._lists_per_partition = any(map(has_lists_per_partition, classes))
        self._bound = [one.workload.config.writer_tables or () for one in classes]
        self._rates = [one.workload.config.rate for one in classes]
        self._waits = [_waits(one) for one in classes]
        self._state_size = self.detail_size = 0

    def numbers(self, number: int) -> Numbers:
        """Return where a class has its parts."""
        config, rate = self._classes[number].workload.config, self._rates[number]
        return {
            "cls": number,
            "classes": len(self._classes),
            "any_tracked": self._tracks,
            "by_kind": counts_kinds(self._classes[number]),
            "any_by_kind": self._counts_kinds,
            "counts_growth": self._counts_growth,
            "list_base": len(self._counts),
            "row_written": 2 + 2 * number,
            "row_tables": 3 + 2 * number,
            "row_odds": 4 * number,
            "class_tables": len(_tables_of(config)),
            "bound": config.writer_tables is not None,
            "at_bound": sum(map(len, self._bound[:number])),
            "at_backoff": sum(map(len, self._waits[:number])),
            "at_rate": sum(len(one.factors) for one in self._rates[:number] if one),
            "rate_count": len(rate.factors) if rate else 0,
            "rate_period": rate.period_ticks if rate else 0,
            "burst_every": rate.burst_every_ticks if rate else 0,
            "burst_length": rate.burst_ticks if rate else 0,
            "burst_factor": rate.burst_factor if rate else 1.0,
        }

    def arrays(self) -> tuple[Floats, Ints, Ints, Floats, Floats]:
        """Return odds, topology, tables of writers, rates and waits of all classes."""
        counts = self._counts
        topology = np.zeros((2 + 2 * len(self._classes), len(counts)), np.int64)
        topology[kernel.COUNT], topology[kernel.BEGINS] = counts, [0, *list(accumulate(counts))[:-1]]
        odds = np.zeros((4 * len(self._classes), max(len(counts), *counts)))
        for number, one in enumerate(self._classes):
            config = one.workload.config
            tables = _tables_of(config)
            topology[2 + 2 * number] = self._written(number)
            topology[3 + 2 * number, : len(tables)] = tables
            table_weights = weighted(config.table_selector).weights(len(tables))
            partition_weights = weighted(config.partition_selector).weights(max(counts))
            for row, weights in ((0, table_weights), (2, partition_weights)):
                odds[4 * number + row, : len(weights)] = list(accumulate(weights))
                odds[4 * number + row + 1, : len(weights)] = weights
        return (
            odds,
            topology,
            np.array([table for tables in self._bound for table in tables], np.int64),
            np.array([factor for rate in self._rates if rate for factor in rate.factors], np.float64),
            np.array([wait for waits in self._waits for wait in waits], np.float64),
        )

    def first_state(self, config: np.void) -> Ints:
        """Return the shared state at the beginning of a run."""
        state = np.zeros(self._state_size, np.int64)
        if self._counts_growth:
            first = int(config["at_manifests"])
            state[first : first + len(self._counts)] = self._classes[0].options.table_manifests
        return state

    def _written(self, number: int) -> list[int]:
        """Return how many partitions of each table a transaction of the class writes."""
        config = self._classes[number].workload.config
        partitions, tracked = weighted(config.partition_selector), config.partitions_per_txn
        return [written_of(partitions, min(tracked, count)) if tracked else 0 for count in self._counts]

    def place(self, number: int, numbers: Numbers) -> None:
        """Lay out the shared state and a transaction's details one after the other."""
        tables, partitions = len(self._counts), sum(self._counts)
        lists = tables + (partitions if self._lists_per_partition else 0)
        state = {
            "at_group": numbers["groups"],
            "at_table_seq": tables,
            "at_version": tables,
            "at_part_seq": partitions,
            "at_part_version": partitions,
            "at_length": lists,
            "at_sealed": lists,
            "at_in_flight": numbers["groups"] + 1 + lists,
            "at_full": numbers["groups"] + 1 + lists,
            "at_workers": numbers["workers"] * (numbers["groups"] if numbers["workers_per_table"] else 1),
            "at_batches": 2 + numbers["batches"],  # when the last begins, when each ends, when all are prepared
            "at_prefix": 2 * tables if numbers["limited"] else 0,
            "at_kinds": tables * len(SNAPSHOT_KINDS) if self._counts_kinds else 0,
            "at_manifests": tables if self._counts_growth else 0,
            "at_retained": tables if self._counts_growth else 0,
        }
        picked, tracked = numbers["tables_per_txn"], numbers["tracked"]
        per_table = max(self._written(number)) if numbers["lists_per_partition"] else 1
        numbers["lists"] = numbers["tables_written"] * per_table  # the most that one transaction appends to
        numbers["d_kinds"] = picked * (1 + tracked)  # where the kinds and manifests begin among the versions
        by_kind = picked if numbers["by_kind"] else 0
        numbers["d_size"] = numbers["d_kinds"] + by_kind * (len(SNAPSHOT_KINDS) + 1)  # of the manifest list
        numbers["d_metadata"] = numbers["d_size"] + (1 if numbers["list_varies"] else 0)
        numbers["versions"] = versions = numbers["d_metadata"] + (1 if numbers["snapshot_bytes"] else 0)
        details = {
            "d_picked": picked,
            "d_written": picked,
            "d_parts": picked * tracked,
            "d_seen": versions,
            "d_start": versions,
            "d_new": versions,
            "d_known": numbers["lists"],
            "d_sealed": numbers["lists"],
            "d_merged": by_kind,
        }
        self._state_size = _place(numbers, state)
        self.detail_size = max(self.detail_size, _place(numbers, details))


def _tables_of(config: WorkloadConfig) -> Sequence[int]:
    return range(config.num_tables) if config.tables is None else config.tables


def _waits(one: WorkloadClass) -> list[float]:
    backoff = one.options.backoff
    return [backoff.capped_ms(retry) for retry in range(1, one.max_retries + 1)] if backoff else []


def _place(numbers: Numbers, lengths: dict[str, int]) -> int:
    end = 0
    for name, length in lengths.items():
        numbers[name] = end
        end += length
    return end


def weighted(selector: object) -> Selector:
    """Return a selector of a configuration, all of which choose by weight; None: uniform."""
    return selector if isinstance(selector, Selector) else Selector(0.0, 1.0)


def written_of(selector: Selector, chosen: int) -> int:
    """Return how many of the chosen tables or partitions are written."""
    return max(1, round(chosen * selector.write_fraction))


def counts_kinds(one: WorkloadClass) -> bool:
    """Whether a class has operations that depend on the kinds of missed snapshots, or on the manifests of a table."""
    weights = zip(OPERATIONS, one.workload.config.weights, strict=True)
    return any(weight > 0 and kind not in SPECIFIED_TYPES for kind, weight in weights)


def counts_growth(one: WorkloadClass) -> bool:
    """Whether the manifests and snapshots of tables are counted: an operation merges them, or sizes depend on them."""
    options = one.options
    return counts_kinds(one) or one.ml_append_mode or options.manifest_list_growth_bytes + options.snapshot_bytes > 0


def has_lists_per_partition(one: WorkloadClass) -> bool:
    """Whether a class appends to a manifest list for each partition."""
    lists = one.options.manifest_list_append
    return lists.per_partition and one.workload.config.partitions_per_txn is not None
