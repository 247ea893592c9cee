"""Defaults that depend on other keys, and rules between keys."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from endive.sim.config.distributions import DistributionSection
from endive.sim.config.profiles import decision_name
from endive.sim.config.schema import Configuration
from endive.sim.config.validation import InvalidKey
from endive.sim.cost import COST_MODELS
from endive.sim.storage import LatencyDistribution, Profile
from endive.timing import TICKS_PER_MS

TRANSACTIONS_MAX = 10_000_000
"""More than this takes too long and does not fit into memory."""
PARTITIONS_MAX = 10_000_000
MANIFESTS_MAX = 10_000

Origins = Mapping[str, str]
"""Dotted key to the reason of its value, for keys that the file does not give."""


def complete(config: Configuration, profile: Profile) -> tuple[Configuration, Origins]:
    """Fill in defaults that depend on other keys. Return the effective configuration and the reason of each default."""
    filled = {
        key: (value, reason) for key, value, reason in _defaults(config, profile) if value_at(config, key) is None
    }
    for key, (value, _) in filled.items():
        config = _with(config, key.split("."), value)
    return config, {key: reason for key, (_, reason) in filled.items()}


def _defaults(config: Configuration, profile: Profile) -> Iterator[tuple[str, Any, str]]:
    quarter_ms = config.simulation.duration_ms / 4
    yield "simulation.trim_start_ms", quarter_ms, "a quarter of the run"
    yield "simulation.trim_end_ms", quarter_ms, "a quarter of the run"
    yield "storage.decision", decision_name(profile.decision), f"profile {profile.name}"
    yield "storage.client", profile.client.name or None, f"profile {profile.name}"
    kind = config.catalog.type or ("cas" if profile.find("cas", "catalog") else "append")
    yield "catalog.type", kind, f"what {profile.name} can do"
    yield "catalog.conflict_granularity", "table" if kind == "append" else "catalog", f"catalog type {kind}"
    model = COST_MODELS[config.transaction.cost_model]
    reason = f"cost model {model.name}"
    base_ms, longest_ms = model.backoff_ms or (10.0, 5000.0)
    yield "catalog.table_metadata_inlined", model.metadata_inlined, reason
    yield "transaction.retry", model.retries, reason
    yield "transaction.retry_timeout_ms", model.retry_timeout_ms, reason
    yield "transaction.count_behind", model.behind, reason
    yield "transaction.retry_backoff.enabled", model.backoff_ms is not None, reason
    yield "transaction.retry_backoff.before_read", model.waits_before_read, reason
    yield "transaction.retry_backoff.base_ms", base_ms, reason
    yield "transaction.retry_backoff.max_ms", longest_ms, reason


def value_at(config: BaseModel, key: str) -> Any:  # noqa: ANN401 - as many types as there are keys
    """Return the value at a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def _with(model: Any, path: list[str], value: object) -> Any:  # noqa: ANN401
    inner = value if len(path) == 1 else _with(getattr(model, path[0]), path[1:], value)
    return model.model_copy(update={path[0]: inner})


def contradictions(config: Configuration, profile: Profile | None) -> Iterator[InvalidKey]:
    """Yield the errors of a configuration that cannot be built or would never end, each with its remedy.

    `config` is complete. Without a profile, rules about the provider are skipped.
    """
    transaction, catalog, simulation = config.transaction, config.catalog, config.simulation
    if (simulation.trim_start_ms or 0) + (simulation.trim_end_ms or 0) >= simulation.duration_ms:
        yield InvalidKey("simulation.trim_start_ms", "with trim_end_ms it leaves nothing of duration_ms; trim less")
    if transaction.operation_types.total == 0:
        yield InvalidKey("transaction.operation_types", "all weights are 0; give one of them")
    if mean_ms(transaction.conflicting_manifests) > MANIFESTS_MAX:
        yield InvalidKey("transaction.conflicting_manifests", f"a mean of more than {MANIFESTS_MAX:,} files; use fewer")
    backoff = transaction.retry_backoff
    if (backoff.base_ms or 0) > (backoff.max_ms or 0):
        yield InvalidKey("transaction.retry_backoff.max_ms", "less than base_ms; raise it")
    if catalog.table_groups > catalog.num_tables:
        problem = f"{catalog.table_groups} groups of {catalog.num_tables} tables; use at most as many"
        yield InvalidKey("catalog.table_groups", problem)
    yield from _topology_errors(config)
    if profile is not None:
        yield from _capability_errors(config, profile)
    yield from _arrival_errors(config, profile)


def _topology_errors(config: Configuration) -> Iterator[InvalidKey]:
    tables, partitions = config.catalog.num_tables, config.catalog.partitions
    if partitions.num_partitions is not None and partitions.per_table is not None:
        yield InvalidKey("catalog.partitions", "num_partitions or per_table, not both")
    if partitions.per_table is not None and len(partitions.per_table) != tables:
        yield InvalidKey(
            "catalog.partitions.per_table", f"{len(partitions.per_table)} entries for num_tables = {tables}"
        )
    if (config.transaction.tables.per_txn or 1) > tables:
        yield InvalidKey("transaction.tables.per_txn", f"more than catalog.num_tables = {tables}")
    counts = partition_counts(config)
    if sum(counts) > PARTITIONS_MAX:
        yield InvalidKey(
            "catalog.partitions", f"{sum(counts):,} in all tables together; use at most {PARTITIONS_MAX:,}"
        )
    if counts and (config.transaction.partitions.per_txn or 1) > min(counts):
        problem = f"more than a table's {min(counts)} partitions; see catalog.partitions"
        yield InvalidKey("transaction.partitions.per_txn", problem)


def _capability_errors(config: Configuration, profile: Profile) -> Iterator[InvalidKey]:
    kind, catalog = config.catalog.type, config.catalog
    if kind in ("cas", "append") and not profile.find(kind, "catalog"):
        yield InvalidKey(
            "catalog.type", f"{profile.name} has no {kind}; choose another, or give storage.latency.{kind}"
        )
    compacts = kind == "append" and (catalog.compaction_threshold or catalog.compaction_max_entries)
    if compacts and not profile.find("cas", "compaction"):
        yield InvalidKey(
            "catalog.compaction_threshold",
            f"{profile.name} has no cas, which compaction needs; never compact (0), or give storage.latency.cas",
        )
    if config.transaction.manifest_list_mode == "append" and not profile.find("append", "manifest_list"):
        yield InvalidKey(
            "transaction.manifest_list_mode",
            f"{profile.name} has no append, which ML+ needs; use rewrite, another provider, or give "
            "storage.latency.append",
        )


def _arrival_errors(config: Configuration, profile: Profile | None) -> Iterator[InvalidKey]:
    transaction, duration_ms = config.transaction, config.simulation.duration_ms
    problem = f"more than {TRANSACTIONS_MAX:,} transactions in duration_ms; space them out, or run shorter"
    if transaction.arrivals == "open":
        if transaction.inter_arrival is None:
            example = "required for open arrivals, such as { scale = 1000 } for one a second"
            yield InvalidKey("transaction.inter_arrival", example)
        elif mean_ms(transaction.inter_arrival) * TRANSACTIONS_MAX < duration_ms:
            yield InvalidKey("transaction.inter_arrival", problem)
    elif transaction.writers is None:
        yield InvalidKey("transaction.writers", "required for closed arrivals; say how many writers")
    elif profile and _shortest_cycle_ms(config, profile) * TRANSACTIONS_MAX < duration_ms * transaction.writers:
        yield InvalidKey("transaction.think", problem)


def _shortest_cycle_ms(config: Configuration, profile: Profile) -> float:
    """Return about how long a closed-loop writer takes at least from one transaction to the next."""
    own_ms = mean_ms(config.transaction.think) + mean_ms(config.transaction.runtime)
    kind = config.catalog.type or "cas"
    commit_ms = config.catalog.latency_ms if kind == "instant" else _row_mean_ms(profile, kind, "catalog")
    io_ms = _row_mean_ms(profile, "read", "manifest_list") + _row_mean_ms(profile, "write", "manifest_file")
    return own_ms + commit_ms + io_ms


def _row_mean_ms(profile: Profile, operation: str, kind: str) -> float:
    row = profile.find(operation, kind)
    return _mean_ms(row) if row else 0.0


def mean_ms(section: DistributionSection) -> float:
    """Return about the mean of a distribution."""
    return _mean_ms(section.build())


def _mean_ms(row: LatencyDistribution) -> float:
    return row.quantile.mean_ticks / TICKS_PER_MS


def partition_counts(config: Configuration) -> tuple[int, ...]:
    """Return the number of partitions of each table."""
    partitions = config.catalog.partitions
    if partitions.per_table is not None:
        return partitions.per_table
    return (partitions.num_partitions or 1,) * config.catalog.num_tables
