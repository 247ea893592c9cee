"""Warnings about keys that have no effect with the other values, each with its reason.

Either another key disables it (`writers` with open arrivals), or no request depends on it: an append latency where
nothing is appended, the size of an object whose latency is fixed.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from endive.sim.config.choices import Choices, written
from endive.sim.config.defaults import class_tables, value_at
from endive.sim.config.schema import Selection
from endive.sim.limits import Contention, RateLimit
from endive.sim.operations import OPERATIONS


def _chosen(selection: Selection, tables: Collection[int]) -> bool:
    """Whether the selector has a choice: not all are selected, or not all are written."""
    total, chosen = len(tables), selection.per_txn or 1
    return total > 1 and (chosen < total or written(selection) < chosen)


def _divided(selection: Selection) -> bool:
    """Whether the written share leaves something out, or would if it were lower."""
    several = (selection.per_txn or 1) > 1
    return several and (selection.write_fraction == 1.0 or written(selection) < (selection.per_txn or 1))


@dataclass(frozen=True)
class _Rule:
    """Keys that have an effect only if a condition holds."""

    keys: tuple[str, ...]
    condition: Callable[[Choices], bool]
    needs: str


def _keys(prefix: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{name}" for name in names)


_STORAGE_RULES = (
    _Rule(("storage.profile_file",), lambda c: c.own_provider, "a provider that is in that file"),
    _Rule(
        ("storage.profiles",),
        lambda c: not c.own_provider and c.config.storage.provider != "instant",
        "a provider that differs between the sets",
    ),
    _Rule(
        ("storage.decision",), Choices.conditional, "conditional writes to the store: a cas or append catalog, or ML+"
    ),
    _Rule(
        ("storage.failure_latency",),
        lambda c: bool(c.latencies_used & {name for name in c.original.latencies if name.endswith("_failure")}),
        "a provider with a latency of its own for refused writes, and requests that can be refused",
    ),
    _Rule(
        ("storage.contention",),
        lambda c: c.original.contention != Contention() and c.conditional(),
        "a provider with contention, and conditional writes to it",
    ),
    _Rule(
        ("storage.limits",),
        lambda c: c.original.object_limit != RateLimit() and c.conditional(),
        "a provider that limits the updates of one object, and conditional writes to it",
    ),
    _Rule(
        ("storage.prefix_limits",),
        lambda c: c.original.prefix_limit.is_set,
        "a provider whose profile limits the requests to a prefix",
    ),
    _Rule(
        ("storage.prefix",),
        lambda c: c.config.storage.prefix_limits and c.catalog.num_tables > 1,
        "storage.prefix_limits, and more than one table",
    ),
    _Rule(
        ("storage.client",),
        lambda c: (c.profile.object_limit != RateLimit() and c.conditional()) or c.profile.prefix_limit.is_set,
        "a limit on the updates of one object (storage.limits) and conditional writes to it, or prefix_limits",
    ),
)

_CATALOG_RULES = (
    _Rule(("catalog.service",), lambda c: c.catalog.type == "service", 'catalog.type = "service"'),
    _Rule(
        ("catalog.service.per_table",),
        lambda c: bool(c.catalog.service.workers) and (c.catalog.table_groups or 1) > 1,
        "catalog.service.workers, and more than one pointer: catalog.table_groups",
    ),
    _Rule(("catalog.service.prepare_ms",), lambda c: bool(c.catalog.service.batches), "catalog.service.batches"),
    _Rule(("catalog.latency_ms",), lambda c: c.catalog.type == "instant", 'catalog.type = "instant"'),
    _Rule(
        _keys("catalog", "compaction_threshold", "compaction_max_entries", "log_entry_read_ms", "log_append"),
        lambda c: c.catalog.type == "append",
        'catalog.type = "append"',
    ),
    _Rule(
        ("catalog.log_entry_size",),
        lambda c: (
            c.catalog.type == "append"
            and (c.catalog.compaction_threshold > 0 or c.sized(("append", "catalog"), ("read", "catalog")))
        ),
        'catalog.type = "append", with a compaction_threshold or a latency that depends on size',
    ),
    _Rule(
        ("catalog.table_groups",),
        lambda c: c.catalog.type != "append" and (c.catalog.conflict_granularity == "catalog" or c.pointers_matter),
        'conflict_granularity = "catalog" and a catalog that swaps, or contention, limits or locks on its pointers',
    ),
    _Rule(
        ("catalog.conflict_granularity",),
        lambda c: c.catalog.num_tables > 1 or c.catalog.conflict_granularity == "partition",
        "more than one table: with one, catalog and table are the same",
    ),
    _Rule(
        ("catalog.partitions",),
        lambda c: c.transaction.partitions.per_txn is not None,
        "transaction.partitions.per_txn",
    ),
)

_WORKLOAD_RULES = (
    _Rule(
        _keys("transaction.tables", "selector", "alpha"),
        lambda c: _chosen(c.transaction.tables, class_tables(c.config)),
        "a choice between tables: catalog.num_tables above tables.per_txn",
    ),
    _Rule(("transaction.tables.alpha",), lambda c: c.transaction.tables.selector == "zipf", 'tables.selector = "zipf"'),
    _Rule(
        ("transaction.tables.write_fraction",),
        lambda c: _divided(c.transaction.tables),
        "tables.per_txn so large that the share leaves a table unwritten",
    ),
    _Rule(
        ("transaction.partitions.per_txn",),
        lambda c: c.tracked,
        "tables with more than one partition: catalog.partitions",
    ),
    _Rule(
        _keys("transaction.partitions", "selector", "alpha", "write_fraction"),
        lambda c: c.tracked,
        "transaction.partitions.per_txn, and tables with more than one partition",
    ),
    _Rule(
        ("transaction.partitions.alpha",),
        lambda c: c.transaction.partitions.selector == "zipf",
        'partitions.selector = "zipf"',
    ),
    _Rule(
        ("transaction.partitions.write_fraction",),
        lambda c: _divided(c.transaction.partitions),
        "partitions.per_txn so large that the share leaves a partition unwritten",
    ),
    _Rule(
        ("transaction.tables.shares",),
        lambda c: c.transaction.tables.selector == "shares",
        'tables.selector = "shares"',
    ),
    _Rule(
        _keys("transaction", "inter_arrival", "rate"), lambda c: c.transaction.arrivals == "open", 'arrivals = "open"'
    ),
    _Rule(
        _keys("transaction", "writers", "stagger_ms"),
        lambda c: c.transaction.arrivals != "open",
        'arrivals = "closed" or "triggered"',
    ),
    _Rule(("transaction.think",), lambda c: c.transaction.arrivals == "closed", 'arrivals = "closed"'),
    _Rule(("transaction.interval_ms",), lambda c: c.transaction.arrivals == "triggered", 'arrivals = "triggered"'),
    _Rule(
        _keys("transaction.rate", "burst_factor", "burst_every_ms", "burst_ms"),
        lambda c: c.transaction.rate.burst_every_ms is not None,
        "rate.burst_every_ms",
    ),
    _Rule(("transaction.rate.period_ms",), lambda c: c.transaction.rate.factors is not None, "rate.factors"),
)

_CONFLICT_RULES = (
    _Rule(
        ("transaction.real_conflict_probability",),
        lambda c: c.transaction.conflict_detector == "probabilistic" and c.validates,
        "the probabilistic detector and operations that validate",
    ),
    _Rule(
        ("transaction.conflict_detector",),
        lambda c: c.validates,
        "operations that validate, such as validated_overwrite, in operation_types",
    ),
    _Rule(
        ("transaction.real_conflict",),
        lambda c: c.real_conflicts,
        "real conflicts: operations that validate, and a probability above 0 or the partition_overlap detector",
    ),
    _Rule(("transaction.conflicting_manifests",), lambda c: c.merges, 'real conflicts, and real_conflict = "merge"'),
    _Rule(
        ("transaction.manifests_per_concurrent_commit",),
        lambda c: any(row.per_concurrent_manifest.due for row in c.rows),
        "merge appends, and a cost model other than pyiceberg",
    ),
    _Rule(("transaction.count_behind",), lambda c: c.pays_for_missed, "merge appends or validated overwrites"),
    _Rule(
        ("transaction.count_behind",),
        lambda c: c.catalog.num_tables > 1 or c.transaction.count_behind == "partition",
        "more than one table: with one, catalog and table are the same",
    ),
    _Rule(
        ("transaction.max_parallel",),
        lambda c: c.pays_for_missed or c.merges or c.merges_manifests or (c.transaction.tables.per_txn or 1) > 1,
        "merge appends, validated overwrites or several tables per transaction",
    ),
    _Rule(
        ("transaction.table_manifests",),
        lambda c: any(row.per_manifest.due for row in c.rows) or c.merges_manifests,
        'operations that merge manifests; or cost_model = "pyiceberg", with merge appends or validated overwrites',
    ),
    _Rule(
        ("transaction.manifest_min_count_to_merge",),
        lambda c: c.weight(*(kind for kind, operation in OPERATIONS.items() if operation.merges)),
        "operations that merge manifests: append, overwrite, row_delta, replace_partitions or rewrite",
    ),
    _Rule(("transaction.partial_progress_commits",), lambda c: c.weight("rewrite"), "rewrites in operation_types"),
)

_LAYOUT_RULES = (
    _Rule(
        _keys(
            "transaction",
            "manifest_list_entry_size",
            "manifest_list_seal_threshold",
            "manifest_list_entries",
        ),
        lambda c: c.transaction.manifest_list_mode == "append",
        'manifest_list_mode = "append"',
    ),
    _Rule(
        ("transaction.manifest_list_scope",),
        lambda c: c.transaction.manifest_list_mode == "append" or c.transaction.manifest_list_growth_bytes > 0,
        'manifest_list_mode = "append", or manifest_list_growth_bytes',
    ),
    _Rule(
        ("transaction.manifest_list_entry_size",),
        lambda c: (
            c.transaction.manifest_list_seal_threshold > 0
            or c.sized(("append", "manifest_list"), ("read", "manifest_list"))
        ),
        "a manifest_list_seal_threshold, or an append or read latency that depends on size",
    ),
    _Rule(
        _keys("transaction", "manifest_list_bytes", "manifest_list_growth_bytes"),
        lambda c: c.sized(("read", "manifest_list"), ("write", "manifest_list")),
        "a manifest-list latency that depends on size",
    ),
    _Rule(
        ("transaction.manifest_file_bytes",),
        lambda c: c.sized(("read", "manifest_file"), ("write", "manifest_file")),
        "a manifest-file latency that depends on size",
    ),
    _Rule(
        ("transaction.table_metadata_bytes",),
        lambda c: c.sized(("read", "table_metadata"), ("write", "table_metadata")),
        "catalog.table_metadata_inlined = false, and a latency that depends on size",
    ),
)

_GROWTH_RULES = (
    _Rule(
        ("transaction.snapshot_bytes",),
        lambda c: (
            not c.catalog.table_metadata_inlined and c.sized(("read", "table_metadata"), ("write", "table_metadata"))
        ),
        "catalog.table_metadata_inlined = false, and a latency that depends on size; metadata that a server writes, or "
        "that is inlined, keeps its size",
    ),
    _Rule(
        _keys("transaction", "table_snapshots", "snapshots_kept"),
        lambda c: c.transaction.snapshot_bytes > 0,
        "transaction.snapshot_bytes",
    ),
    _Rule(
        ("transaction.snapshots_kept",), lambda c: c.weight("expire_snapshots"), "expire_snapshots in operation_types"
    ),
)

_RETRY_RULES = (
    _Rule(
        ("transaction.append_attempts",),
        lambda c: any(operation == "append" for operation, _ in c.requests),
        'appends at an offset: catalog.type = "append" with log_append = "offset", or manifest_list_mode = "append"',
    ),
    _Rule(
        _keys("transaction.retry_backoff", "base_ms", "multiplier", "max_ms", "jitter", "before_read"),
        lambda c: c.transaction.retry_backoff.enabled is True,
        "retry_backoff.enabled = true",
    ),
    _Rule(
        _keys("transaction", "retry_backoff", "retry_timeout_ms", "manifest_list_entries", "manifest_reuse"),
        lambda c: (c.transaction.retry or 0) > 0,
        "at least one retry",
    ),
    _Rule(("transaction.retry_backoff.multiplier",), lambda c: c.transaction.retry != 1, "at least two retries"),
)

_RULES = (
    *_STORAGE_RULES,
    *_CATALOG_RULES,
    *_WORKLOAD_RULES,
    *_CONFLICT_RULES,
    *_LAYOUT_RULES,
    *_GROWTH_RULES,
    *_RETRY_RULES,
)


_VALUE_RULES = (
    _Rule(
        ('transaction.isolation = "serializable"',),
        lambda c: c.transaction.isolation != "serializable" or c.only_reads or c.validates_more,
        "transactions that read more than they write (write_fraction below 1 and per_txn above 1), or operations that "
        "then validate more: overwrite, row_delta or replace_partitions",
    ),
)

_PARTITION_KEYS = ("catalog.conflict_granularity", "transaction.count_behind", "transaction.manifest_list_scope")
"""Keys whose value may be partition, which without partitions is the same as table."""


def ineffective(choices: Choices, given: Collection[str]) -> dict[str, str]:
    """Return a warning for each key in `given` that has no effect with the other values."""
    found: dict[str, str] = {}
    for rule in _RULES:
        for key in rule.keys:
            touched = any(name == key or name.startswith(f"{key}.") for name in given)
            if touched and not rule.condition(choices):
                found.setdefault(key, rule.needs)
    for rule in _VALUE_RULES:
        if not rule.condition(choices):
            found.setdefault(rule.keys[0], rule.needs)
    warnings = {key: f"has no effect: it needs {needs}" for key, needs in found.items()}
    return warnings | _untracked(choices) | _unused(choices, given)


def _untracked(choices: Choices) -> dict[str, str]:
    """Return a warning for each key that is about partitions where none are tracked."""
    keys = [key for key in _PARTITION_KEYS if value_at(choices.config, key) == "partition" and not choices.tracked]
    needs = "transaction.partitions.per_txn, and tables with more than one partition"
    return {f'{key} = "partition"': f'is the same as "table": it needs {needs}' for key in keys}


def _unused(choices: Choices, given: Collection[str]) -> dict[str, str]:
    """Return a warning for each given latency that no request uses."""
    prefix = "storage.latency."
    rows = dict.fromkeys(key.removeprefix(prefix).split(".")[0] for key in given if key.startswith(prefix))
    problem = "has no effect: no request uses it with this catalog, cost model and operation types"
    return {f"{prefix}{row}": problem for row in rows if row not in choices.latencies_used}
