"""From the keys of each class of transactions to the objects that simulate it."""

from collections.abc import Sequence

from endive.sim.commit_options import Backoff, CommitOptions, ManifestListAppend
from endive.sim.config.defaults import class_tables, partition_counts
from endive.sim.config.schema import Configuration, RateSection, Selection, TableSelection, TransactionSection
from endive.sim.conflict_detector import PartitionOverlapConflictDetector, ProbabilisticConflictDetector
from endive.sim.cost import COST_MODELS
from endive.sim.latency import FixedLatency
from endive.sim.operations import OPERATION_TYPES, SPECIFIED_TYPES
from endive.sim.rate import Rate
from endive.sim.selectors import (
    PARTITION_SELECTORS,
    TABLE_SELECTORS,
    SharesTableSelector,
    TableSelector,
    apportioned,
)
from endive.sim.transaction import ConflictDetector
from endive.sim.workload import ClosedLoop, Workload, WorkloadClass, WorkloadConfig
from endive.timing import to_ticks


def build_classes(config: Configuration, seed: int) -> tuple[WorkloadClass, ...]:
    """Return the classes of a complete configuration, ready to run with one seed."""
    classes = config.by_class()
    return tuple(
        WorkloadClass(
            name=name,
            workload=Workload(_workload(one), seed, name if config.workload else "", number, len(classes)),
            conflict_detector=_detector(one.transaction),
            max_retries=one.transaction.retry or 0,
            ml_append_mode=one.transaction.manifest_list_mode == "append",
            options=_options(one),
        )
        for number, (name, one) in enumerate(classes.items())
    )


def _detector(transaction: TransactionSection) -> ConflictDetector:
    if transaction.conflict_detector == "partition_overlap":
        return PartitionOverlapConflictDetector()
    return ProbabilisticConflictDetector(transaction.real_conflict_probability)


def _workload(config: Configuration) -> WorkloadConfig:
    transaction, mix = config.transaction, config.transaction.operation_types
    selector, tables = _table_selector(transaction.tables), class_tables(config)
    closed = _closed(transaction)
    return WorkloadConfig(
        inter_arrival=transaction.inter_arrival.build() if transaction.inter_arrival else FixedLatency(0.0),
        runtime=transaction.runtime.build(),
        runtime_fixed_ms=transaction.runtime_fixed_ms,
        num_tables=config.catalog.num_tables,
        partitions_per_table=partition_counts(config),
        fast_append_weight=mix.fast_append,
        merge_append_weight=mix.merge_append,
        validated_overwrite_weight=mix.validated_overwrite,
        other_weights={kind: getattr(mix, kind) for kind in OPERATION_TYPES if kind not in SPECIFIED_TYPES},
        tables_per_txn=transaction.tables.per_txn or 1,
        table_selector=selector,
        tables=None if transaction.tables.only is None else tuple(tables),
        writer_tables=_writer_tables(transaction, selector, tables),
        partitions_per_txn=transaction.partitions.per_txn,
        partition_selector=PARTITION_SELECTORS[transaction.partitions.selector](**_shape(transaction.partitions)),
        manifests_per_concurrent_commit=transaction.manifests_per_concurrent_commit,
        parts=transaction.partial_progress_commits,
        closed=closed,
        rate=_rate(transaction.rate) if closed is None else None,
    )


def _closed(transaction: TransactionSection) -> ClosedLoop | None:
    if transaction.arrivals == "open":
        return None
    triggered = transaction.arrivals == "triggered"
    return ClosedLoop(
        transaction.writers or 1,
        transaction.think.build(),
        transaction.stagger_ms or 0.0,
        transaction.interval_ms if triggered else None,
    )


def _writer_tables(
    transaction: TransactionSection, selector: TableSelector, tables: Sequence[int]
) -> tuple[int, ...] | None:
    """Return the table of each writer, if writers keep theirs."""
    if transaction.tables.choice != "writer":
        return None
    weights = selector.weights(len(tables))
    return tuple(tables[index] for index in apportioned(weights, transaction.writers or 1))


def _rate(section: RateSection) -> Rate | None:
    if section.factors is None and section.burst_every_ms is None:
        return None
    return Rate(
        section.factors or (1.0,),
        to_ticks(section.period_ms),
        section.burst_factor,
        to_ticks(section.burst_every_ms or 0.0),
        to_ticks(section.burst_ms or 0.0),
    )


def _table_selector(selection: TableSelection) -> TableSelector:
    if selection.selector == "shares" and selection.shares is not None:
        return SharesTableSelector(selection.shares, selection.write_fraction)
    return TABLE_SELECTORS[selection.selector or "uniform"](**_shape(selection))


def _shape(selection: Selection) -> dict[str, float]:
    shape = {"alpha": selection.alpha} if selection.selector == "zipf" else {}
    return shape | {"write_fraction": selection.write_fraction}


def _options(config: Configuration) -> CommitOptions:
    transaction = config.transaction
    return CommitOptions(
        cost_model=COST_MODELS[transaction.cost_model].with_reuse(bool(transaction.manifest_reuse)),
        behind=transaction.count_behind,
        serializable=transaction.isolation == "serializable",
        real_conflict=transaction.real_conflict,
        conflicting_manifests=transaction.conflicting_manifests.build(),
        backoff=_backoff(transaction),
        retry_timeout_ms=transaction.retry_timeout_ms,
        append_attempts=transaction.append_attempts,
        reads_metadata_root=transaction.metadata_root_read,
        max_parallel=transaction.max_parallel,
        metadata_inlined=bool(config.catalog.table_metadata_inlined),
        manifest_list_append=ManifestListAppend(
            transaction.manifest_list_entry_size,
            transaction.manifest_list_seal_threshold,
            transaction.manifest_list_entries == "kept",
            transaction.manifest_list_scope == "partition",
        ),
        table_manifests=transaction.table_manifests,
        merge_min_manifests=transaction.manifest_min_count_to_merge,
        manifest_list_bytes=transaction.manifest_list_bytes,
        manifest_list_growth_bytes=transaction.manifest_list_growth_bytes,
        manifest_file_bytes=transaction.manifest_file_bytes,
        table_metadata_bytes=transaction.table_metadata_bytes,
        snapshot_bytes=transaction.snapshot_bytes,
        table_snapshots=transaction.table_snapshots,
        snapshots_kept=transaction.snapshots_kept,
        entry_bytes=config.catalog.log_entry_size,
    )


def _backoff(transaction: TransactionSection) -> Backoff | None:
    backoff = transaction.retry_backoff
    if not backoff.enabled:
        return None
    return Backoff(
        backoff.base_ms or 0.0, backoff.multiplier, backoff.max_ms or 0.0, backoff.jitter, bool(backoff.before_read)
    )
