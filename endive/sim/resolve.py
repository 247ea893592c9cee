"""From what a file says to what is in force: defaults that depend on other choices, and rules between keys."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from endive.sim.cost import COST_MODELS
from endive.sim.schema import Configuration
from endive.sim.storage import Profile

Origins = Mapping[str, str]
"""Dotted key to the reason of its value, for keys that the file leaves open."""


def complete(config: Configuration, profile: Profile) -> tuple[Configuration, Origins]:
    """Fill in what depends on other choices. Return the configuration in force, and the reason of each value filled."""
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
    yield "storage.decision", "end" if profile.decision == 1.0 else "half", f"profile {profile.name}"
    kind = config.catalog.type or ("cas" if "cas" in profile.latencies else "append")
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


def contradictions(config: Configuration, profile: Profile) -> Iterator[str]:
    """Yield what cannot be built, each with its place and the remedy. `config` is complete."""
    transaction, catalog, simulation = config.transaction, config.catalog, config.simulation
    if (simulation.trim_start_ms or 0) + (simulation.trim_end_ms or 0) >= simulation.duration_ms:
        yield "simulation.trim_start_ms: with trim_end_ms it leaves nothing of duration_ms; trim less"
    if transaction.operation_types.total == 0:
        yield "transaction.operation_types: all weights are 0; give one of them"
    if transaction.arrivals == "open" and transaction.inter_arrival is None:
        yield "transaction.inter_arrival: required for open arrivals, such as { scale = 1000 } for one a second"
    if transaction.arrivals == "closed" and transaction.writers is None:
        yield "transaction.writers: required for closed arrivals; say how many writers"
    backoff = transaction.retry_backoff
    if (backoff.base_ms or 0) > (backoff.max_ms or 0):
        yield "transaction.retry_backoff.max_ms: less than base_ms; raise it"
    yield from _topology_faults(config)
    yield from _capability_faults(config, profile)
    if catalog.table_groups > catalog.num_tables:
        yield f"catalog.table_groups: {catalog.table_groups} groups of {catalog.num_tables} tables; use at most as many"


def _topology_faults(config: Configuration) -> Iterator[str]:
    tables, partitions = config.catalog.num_tables, config.catalog.partitions
    if partitions.num_partitions is not None and partitions.per_table is not None:
        yield "catalog.partitions: num_partitions or per_table, not both"
    if partitions.per_table is not None and len(partitions.per_table) != tables:
        yield f"catalog.partitions.per_table: {len(partitions.per_table)} entries for num_tables = {tables}"
    if (config.transaction.tables.per_txn or 1) > tables:
        yield f"transaction.tables.per_txn: more than catalog.num_tables = {tables}"
    fewest = min(partition_counts(config))
    if (config.transaction.partitions.per_txn or 1) > fewest:
        yield f"transaction.partitions.per_txn: more than a table's {fewest} partitions; see catalog.partitions"


def _capability_faults(config: Configuration, profile: Profile) -> Iterator[str]:
    kind = config.catalog.type
    if kind in ("cas", "append") and kind not in profile.latencies:
        yield f"catalog.type: {profile.name} has no {kind}; choose another, or give storage.latency.{kind}"
    if config.transaction.manifest_list_mode == "append" and "append" not in profile.latencies:
        yield (
            f"transaction.manifest_list_mode: {profile.name} has no append, which ML+ needs; "
            "use rewrite, another provider, or give storage.latency.append"
        )


def partition_counts(config: Configuration) -> tuple[int, ...]:
    """Return the number of partitions of each table."""
    partitions = config.catalog.partitions
    if partitions.per_table is not None:
        return partitions.per_table
    return (partitions.num_partitions or 1,) * config.catalog.num_tables


@dataclass(frozen=True)
class _Rule:
    """Keys that do something only if a condition holds."""

    keys: tuple[str, ...]
    condition: Callable[[Configuration], bool]
    needs: str


def _weight(config: Configuration, *names: str) -> bool:
    return any(getattr(config.transaction.operation_types, name) > 0 for name in names)


def _tracked(config: Configuration) -> bool:
    return config.transaction.partitions.per_txn is not None


def _reads_more(config: Configuration) -> bool:
    chosen = (config.transaction.tables, config.transaction.partitions)
    return any(part.write_fraction < 1 and (part.per_txn or 0) > 1 for part in chosen)


_RULES = (
    _Rule(("catalog.latency_ms",), lambda c: c.catalog.type == "instant", 'catalog.type = "instant"'),
    _Rule(
        (
            "catalog.compaction_threshold",
            "catalog.compaction_max_entries",
            "catalog.log_entry_size",
            "catalog.log_entry_read_ms",
        ),
        lambda c: c.catalog.type == "append",
        'catalog.type = "append"',
    ),
    _Rule(
        ("catalog.table_groups",),
        lambda c: c.catalog.conflict_granularity == "catalog" and c.catalog.type != "append",
        'conflict_granularity = "catalog" and a catalog that swaps',
    ),
    _Rule(("catalog.partitions",), _tracked, "transaction.partitions.per_txn"),
    _Rule(
        (
            "transaction.partitions.selector",
            "transaction.partitions.alpha",
            "transaction.partitions.write_fraction",
        ),
        _tracked,
        "transaction.partitions.per_txn",
    ),
    _Rule(("transaction.tables.alpha",), lambda c: c.transaction.tables.selector == "zipf", 'tables.selector = "zipf"'),
    _Rule(
        ("transaction.partitions.alpha",),
        lambda c: c.transaction.partitions.selector == "zipf",
        'partitions.selector = "zipf"',
    ),
    _Rule(("transaction.inter_arrival",), lambda c: c.transaction.arrivals == "open", 'arrivals = "open"'),
    _Rule(
        ("transaction.writers", "transaction.think"),
        lambda c: c.transaction.arrivals == "closed",
        'arrivals = "closed"',
    ),
    _Rule(
        ("transaction.real_conflict_probability",),
        lambda c: c.transaction.conflict_detector == "probabilistic" and _weight(c, "validated_overwrite"),
        "the probabilistic detector and validated overwrites",
    ),
    _Rule(
        ("transaction.real_conflict", "transaction.conflict_detector"),
        lambda c: _weight(c, "validated_overwrite"),
        "validated overwrites in operation_types",
    ),
    _Rule(
        ("transaction.conflicting_manifests",),
        lambda c: c.transaction.real_conflict == "merge",
        'real_conflict = "merge"',
    ),
    _Rule(
        ("transaction.manifests_per_concurrent_commit",),
        lambda c: _weight(c, "merge_append") and c.transaction.cost_model != "pyiceberg",
        "merge appends, and a cost model other than pyiceberg",
    ),
    _Rule(
        ("transaction.count_behind", "transaction.max_parallel"),
        lambda c: _weight(c, "merge_append", "validated_overwrite") or c.transaction.cost_model == "pyiceberg",
        "merge appends or validated overwrites",
    ),
    _Rule(
        ("transaction.table_manifests",),
        lambda c: c.transaction.cost_model == "pyiceberg" and _weight(c, "merge_append", "validated_overwrite"),
        'cost_model = "pyiceberg", with merge appends or validated overwrites',
    ),
    _Rule(
        (
            "transaction.manifest_list_entry_size",
            "transaction.manifest_list_seal_threshold",
            "transaction.manifest_list_entries",
            "transaction.manifest_list_scope",
        ),
        lambda c: c.transaction.manifest_list_mode == "append",
        'manifest_list_mode = "append"',
    ),
    _Rule(
        ("transaction.table_metadata_bytes",),
        lambda c: c.catalog.table_metadata_inlined is False,
        "catalog.table_metadata_inlined = false",
    ),
    _Rule(
        tuple(
            f"transaction.retry_backoff.{key}" for key in ("base_ms", "multiplier", "max_ms", "jitter", "before_read")
        ),
        lambda c: c.transaction.retry_backoff.enabled is True,
        "retry_backoff.enabled = true",
    ),
    _Rule(
        ("transaction.retry_backoff", "transaction.retry_timeout_ms"),
        lambda c: (c.transaction.retry or 0) > 0,
        "at least one retry",
    ),
)

_VALUE_RULES = (
    _Rule(
        ('transaction.isolation = "serializable"',),
        lambda c: c.transaction.isolation != "serializable" or _reads_more(c),
        "transactions that read more than they write: write_fraction below 1 and per_txn above 1",
    ),
    *(
        _Rule(
            (f'{key} = "partition"',),
            lambda c, key=key: value_at(c, key) != "partition" or _tracked(c),  # type: ignore[misc]
            "transaction.partitions.per_txn",
        )
        for key in (
            "catalog.conflict_granularity",
            "transaction.count_behind",
            "transaction.manifest_list_scope",
        )
    ),
    _Rule(
        ("write_fraction below 1",),
        lambda c: (
            not _reads_more(c) or c.transaction.isolation == "serializable" or c.catalog.table_metadata_inlined is False
        ),
        "serializable isolation, or table metadata of its own: else nothing depends on what is only read",
    ),
)


def ineffective(config: Configuration, given: Collection[str]) -> Iterator[str]:
    """Yield a warning for each key in `given` that does nothing with the other choices made. `config` is complete."""
    for rule in _RULES:
        for key in rule.keys:
            touched = any(name == key or name.startswith(f"{key}.") for name in given)
            if touched and not rule.condition(config):
                yield f"{key} has no effect: it needs {rule.needs}"
    for rule in _VALUE_RULES:
        if not rule.condition(config):
            yield f"{rule.keys[0]} has no effect: it needs {rule.needs}"
