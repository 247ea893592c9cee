"""Defaults that depend on other keys, and rules between keys."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from endive.sim.config.catalogs import load_presets
from endive.sim.config.classes import errors_by_class, in_class
from endive.sim.config.distributions import DistributionSection
from endive.sim.config.profiles import decision_name
from endive.sim.config.schema import Configuration, TransactionSection
from endive.sim.config.validation import MISSING, InvalidKey
from endive.sim.cost import COST_MODELS
from endive.sim.storage import LatencyDistribution, Profile
from endive.timing import TICKS_PER_MS

TRANSACTIONS_MAX = 10_000_000
"""More than this takes too long and does not fit into memory."""
PARTITIONS_MAX = 10_000_000
MANIFESTS_MAX = 10_000
RATE_MIN, RATE_PARTS_MAX = 0.001, 1_000
"""The least mean of the factors of a rate, and the most factors."""

Origins = Mapping[str, str]
"""Dotted key to the reason of its value, for keys that the file does not give."""


def complete(config: Configuration, profile: Profile) -> tuple[Configuration, Origins]:
    """Fill in defaults that depend on other keys. Return the effective configuration and the reason of each default."""
    config, origins = _filled(config, _defaults(config, profile))
    if not config.workload:
        config, more = _filled(config, _transaction_defaults(config))
        return config, origins | more
    sections: dict[str, TransactionSection] = {}
    for name, one in config.by_class().items():
        completed, reasons = _filled(one, _transaction_defaults(one))
        sections[name] = completed.transaction
        origins |= {in_class(key, name, config): reason for key, reason in reasons.items()}
    return config.model_copy(update={"workload": sections}), origins


def _filled(config: Configuration, defaults: Iterable[tuple[str, Any, str]]) -> tuple[Configuration, dict[str, str]]:
    """Fill in the defaults of keys that are not set. Return the reason of each as well."""
    filled: dict[str, tuple[Any, str]] = {}
    for key, value, reason in defaults:  # the first one counts
        if value_at(config, key) is None:
            filled.setdefault(key, (value, reason))
    for key, (value, _) in filled.items():
        config = _with(config, key.split("."), value)
    return config, {key: reason for key, (_, reason) in filled.items()}


def _defaults(config: Configuration, profile: Profile) -> Iterator[tuple[str, Any, str]]:
    quarter_ms = config.simulation.duration_ms / 4
    yield "simulation.trim_start_ms", quarter_ms, "a quarter of the run"
    yield "simulation.trim_end_ms", quarter_ms, "a quarter of the run"
    yield "storage.decision", decision_name(profile.decision), f"profile {profile.name}"
    yield "storage.client", profile.client.name or None, f"profile {profile.name}"
    if config.catalog.preset:
        reason = f"preset {config.catalog.preset}"
        preset = load_presets()[config.catalog.preset].defaults(config.catalog.num_tables)
        yield from ((key, value, reason) for key, value in preset)
    yield from _catalog_defaults(config, profile)


def _catalog_defaults(config: Configuration, profile: Profile) -> Iterator[tuple[str, Any, str]]:
    kind = config.catalog.type or ("cas" if profile.find("cas", "catalog") else "append")
    yield "catalog.table_groups", 1, f"catalog type {kind}"
    yield "catalog.type", kind, f"what {profile.name} can do"
    yield (
        "catalog.conflict_granularity",
        "table" if kind in ("append", "service") else "catalog",
        f"catalog type {kind}",
    )
    model = COST_MODELS[config.transaction.cost_model]
    yield "catalog.table_metadata_inlined", model.metadata_inlined, f"cost model {model.name}"


def _transaction_defaults(config: Configuration) -> Iterator[tuple[str, Any, str]]:
    transaction = config.transaction
    model = COST_MODELS[transaction.cost_model]
    reason = f"cost model {model.name}"
    base_ms, longest_ms = model.backoff_ms or (10.0, 5000.0)
    yield "transaction.retry", model.retries, reason
    yield "transaction.retry_timeout_ms", model.retry_timeout_ms, reason
    yield "transaction.count_behind", model.behind, reason
    yield "transaction.manifest_reuse", model.reuses_manifests, reason
    yield "transaction.retry_backoff.enabled", model.backoff_ms is not None, reason
    yield "transaction.retry_backoff.before_read", model.waits_before_read, reason
    yield "transaction.retry_backoff.base_ms", base_ms, reason
    yield "transaction.retry_backoff.max_ms", longest_ms, reason
    by_shares = transaction.tables.shares is not None
    yield "transaction.tables.selector", "shares" if by_shares else "uniform", "tables.shares"
    arrivals, reason = transaction.arrivals, f"{transaction.arrivals} arrivals"
    yield "transaction.tables.choice", "writer" if arrivals == "triggered" else "transaction", reason
    if arrivals == "triggered":
        yield "transaction.writers", len(class_tables(config)), "one for each table"
        yield "transaction.stagger_ms", transaction.interval_ms, "interval_ms"
    if arrivals == "closed":
        cycle_ms = mean_ms(transaction.think) + mean_ms(transaction.runtime) + transaction.runtime_fixed_ms
        yield "transaction.stagger_ms", cycle_ms, "the means of think and runtime"


def class_tables(config: Configuration) -> Sequence[int]:
    """Return the numbers of the tables that the transactions of a class choose from."""
    only = config.transaction.tables.only
    return range(config.catalog.num_tables) if only is None else only


def value_at(config: BaseModel, key: str) -> Any:  # noqa: ANN401 - as many types as there are keys
    """Return the value at a dotted key."""
    value: Any = config
    for part in key.split("."):
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def _with(model: Any, path: list[str], value: object) -> Any:  # noqa: ANN401
    inner = value if len(path) == 1 else _with(getattr(model, path[0]), path[1:], value)
    return model.model_copy(update={path[0]: inner})


def contradictions(config: Configuration, profile: Profile | None) -> Iterator[InvalidKey]:
    """Yield the errors of a configuration that cannot be built or would never end, each with its remedy.

    `config` is complete. Without a profile, rules about the provider are skipped.
    """
    return errors_by_class(config, lambda one: _class_errors(one, profile))


def _class_errors(config: Configuration, profile: Profile | None) -> Iterator[InvalidKey]:
    transaction, catalog, simulation = config.transaction, config.catalog, config.simulation
    if (simulation.trim_start_ms or 0) + (simulation.trim_end_ms or 0) >= simulation.duration_ms:
        yield InvalidKey("simulation.trim_start_ms", "with trim_end_ms it leaves nothing of duration_ms; trim less")
    if transaction.operation_types.total == 0:
        yield InvalidKey("transaction.operation_types", "all weights are 0; give one of them", of_section=True)
    elif (
        transaction.partial_progress_commits > 1
        and transaction.operation_types.rewrite < transaction.operation_types.total
    ):
        yield InvalidKey("transaction.partial_progress_commits", "only rewrites have it; use no other operation types")
    if mean_ms(transaction.conflicting_manifests) > MANIFESTS_MAX:
        yield InvalidKey("transaction.conflicting_manifests", f"a mean of more than {MANIFESTS_MAX:,} files; use fewer")
    if transaction.manifest_reuse and transaction.cost_model == "pyiceberg":
        problem = "PyIceberg writes a manifest at each attempt; use false, or the cost model iceberg"
        yield InvalidKey("transaction.manifest_reuse", problem)
    backoff = transaction.retry_backoff
    if (backoff.base_ms or 0) > (backoff.max_ms or 0):
        yield InvalidKey("transaction.retry_backoff.max_ms", "less than base_ms; raise it")
    if (catalog.table_groups or 1) > catalog.num_tables:
        problem = f"{catalog.table_groups} groups of {catalog.num_tables} tables; use at most as many"
        yield InvalidKey("catalog.table_groups", problem)
    if catalog.service.poll_ms and not catalog.service.wait_max_ms:
        yield InvalidKey("catalog.service.poll_ms", "needs wait_max_ms: say how long a commit waits for its turn")
    if catalog.service.helping and not catalog.service.batches:
        yield InvalidKey("catalog.service.helping", "needs batches: give catalog.service.batches, such as 1")
    if catalog.service.helping and catalog.service.writes_metadata:
        yield InvalidKey("catalog.service.helping", "there is no server that writes metadata; use one of the two")
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
    yield from _selection_errors(config)
    counts = partition_counts(config)
    if sum(counts) > PARTITIONS_MAX:
        yield InvalidKey(
            "catalog.partitions", f"{sum(counts):,} in all tables together; use at most {PARTITIONS_MAX:,}"
        )
    if counts and (config.transaction.partitions.per_txn or 1) > min(counts):
        problem = f"more than a table's {min(counts)} partitions; see catalog.partitions"
        yield InvalidKey("transaction.partitions.per_txn", problem)


def _selection_errors(config: Configuration) -> Iterator[InvalidKey]:
    selection, tables, chosen = config.transaction.tables, config.catalog.num_tables, class_tables(config)
    place = "transaction.tables"
    if not chosen or max(chosen) >= tables or len(set(chosen)) < len(chosen):
        yield InvalidKey(f"{place}.only", f"expected different numbers from 0 to {tables - 1} (catalog.num_tables)")
    elif (selection.per_txn or 1) > len(chosen):
        yield InvalidKey(f"{place}.per_txn", f"more than the {len(chosen)} of tables.only")
    if selection.selector == "shares" and selection.shares is None:
        yield InvalidKey(f"{place}.shares", f"{MISSING} for this selector; give a number for each table")
    if selection.shares is not None and len(selection.shares) != len(chosen):
        yield InvalidKey(f"{place}.shares", f"{len(selection.shares)} numbers for {len(chosen)} tables")
    elif selection.shares is not None and sum(share > 0 for share in selection.shares) < (selection.per_txn or 1):
        yield InvalidKey(f"{place}.shares", "fewer of them are above 0 than a transaction touches; raise some")
    if selection.choice == "writer" and config.transaction.arrivals == "open":
        yield InvalidKey(f"{place}.choice", "open arrivals have no writers; choose for each transaction")
    if selection.choice == "writer" and (selection.per_txn or 1) > 1:
        yield InvalidKey(f"{place}.choice", 'a writer has one table; use choice = "transaction", or per_txn = 1')


def _capability_errors(config: Configuration, profile: Profile) -> Iterator[InvalidKey]:
    kind, catalog = config.catalog.type, config.catalog
    request = catalog.commit_request
    if kind in ("cas", "append") and not profile.find(request, "catalog"):
        place = "catalog.log_append" if request == "tail_append" else "catalog.type"
        yield InvalidKey(place, f"{profile.name} has no {request}; choose another, or give storage.latency.{request}")
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
        elif mean_ms(transaction.inter_arrival) * TRANSACTIONS_MAX < duration_ms * _highest_factor(transaction):
            yield InvalidKey("transaction.inter_arrival", problem)
        yield from _rate_errors(transaction)
    elif transaction.arrivals == "triggered":
        if transaction.interval_ms is None:
            yield InvalidKey(
                "transaction.interval_ms", f"{MISSING} for triggered arrivals, such as 60_000 for a minute"
            )
        elif transaction.interval_ms * TRANSACTIONS_MAX < duration_ms * (transaction.writers or 1):
            yield InvalidKey("transaction.interval_ms", problem)
    elif transaction.writers is None:
        yield InvalidKey("transaction.writers", "required for closed arrivals; say how many writers")
    elif profile and _shortest_cycle_ms(config, profile) * TRANSACTIONS_MAX < duration_ms * transaction.writers:
        yield InvalidKey("transaction.think", problem)


def _highest_factor(transaction: TransactionSection) -> float:
    rate = transaction.rate
    return max(rate.factors or (1.0,), default=1.0) * max(1.0, rate.burst_factor)


def _rate_errors(transaction: TransactionSection) -> Iterator[InvalidKey]:
    rate = transaction.rate
    if rate.factors is not None and sum(rate.factors) < RATE_MIN * max(len(rate.factors), 1):
        yield InvalidKey("transaction.rate.factors", f"expected a mean of at least {RATE_MIN:g}; raise some")
    if rate.factors is not None and len(rate.factors) > RATE_PARTS_MAX:
        yield InvalidKey("transaction.rate.factors", f"more than {RATE_PARTS_MAX}; use fewer parts")
    if (rate.burst_every_ms is None) != (rate.burst_ms is None):
        yield InvalidKey("transaction.rate", "burst_every_ms and burst_ms go together; give both, or neither")
    elif rate.burst_every_ms is not None and not (rate.burst_ms or 0.0) < rate.burst_every_ms:
        yield InvalidKey("transaction.rate.burst_ms", "as long as burst_every_ms; shorten it")


def _shortest_cycle_ms(config: Configuration, profile: Profile) -> float:
    """Return about how long a closed-loop writer takes at least from one transaction to the next."""
    own_ms = mean_ms(config.transaction.think) + mean_ms(config.transaction.runtime)
    own_ms += config.transaction.runtime_fixed_ms
    kind = config.catalog.type or "cas"
    request = config.catalog.commit_request
    commit_ms = config.catalog.latency_ms if kind == "instant" else _row_mean_ms(profile, request, "catalog")
    if kind == "service":
        server = config.catalog.service.build(profile, config.transaction.table_metadata_bytes)
        commit_ms = sum(_row_mean_ms(server, request, "catalog") for request in ("read", "cas", "work"))
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
