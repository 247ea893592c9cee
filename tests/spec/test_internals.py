"""Conflict granularity, conflict resolution, parallel reads, and a worked example of a commit latency."""

from typing import Any

import pytest

from endive.sim.catalog import Catalog, IntentionRecord
from endive.sim.commit_options import CommitOptions
from endive.sim.latency import FixedLatency, UniformLatency
from endive.sim.storage import Profile
from endive.sim.transaction import TransactionResult, TransactionStatus
from endive.timing import Latency
from tests.instruments import RecordingProvider, ScriptedSource, drain, fixed_provider, session
from tests.support import (
    ALWAYS,
    NEVER,
    catalog_of,
    commit,
    fast_append,
    losing,
    merge_append,
    overwrite,
    paused_before_commit,
    resume,
    run,
    state_of,
)


def while_rivals_commit(
    steps: Latency[TransactionResult], catalog: Catalog, every_ms: float, until_ms: float
) -> TransactionResult:
    """Drive a transaction while other commits to table 0 land at a steady rate."""
    now_ms, rival = 0.0, session(catalog)
    while True:
        try:
            now_ms += next(steps)
        except StopIteration as stop:
            result: TransactionResult = stop.value
            return result
        while catalog.seq < int(min(now_ms, until_ms) / every_ms):
            drain(rival.commit(catalog.seq, {0: catalog.seq + 1}))


def test_commit_latency_breakdown_example() -> None:
    """150 s of runtime at 25 commits per second; the commits end where the example lets the second retry succeed."""
    storage = fixed_provider(1.0, manifest_list_read=30.0, manifest_list_write=30.0, manifest_file_write=0.0)
    catalog = catalog_of()
    before_ms = 1 + 60 + 1 + 1  # first read, first attempt, its swap, and the read that shows the intervening commits
    txn = overwrite(runtime_ms=150_000.0 - before_ms)
    steps = txn.execute(catalog, storage, NEVER, options=CommitOptions(max_parallel=4))

    result = while_rivals_commit(steps, catalog, every_ms=1_000 / 25, until_ms=150_000 + 28_202)

    assert txn.requests["historical_ml_reads"] == 3_750 + 705
    assert result.conflict_io_ms == 938 * 30 + 177 * 30  # 28.1 s and 5.3 s
    assert (result.status, result.total_retries) == (TransactionStatus.COMMITTED, 2)
    assert result.commit_latency_ms / 1_000 == pytest.approx(33.6, abs=0.05)


# Granularity of conflicts.

DISTANCES = {"same partition": (0, 0), "other partition": (0, 1), "other table": (1, 0)}


@pytest.mark.parametrize(
    ("granularity", "fails"),
    [("catalog", set(DISTANCES)), ("table", {"same partition", "other partition"}), ("partition", {"same partition"})],
)
@pytest.mark.parametrize("distance", DISTANCES)
def test_conflict_granularity(granularity: str, fails: set[str], distance: str) -> None:
    catalog = catalog_of(tables=2, partitions=2, granularity=granularity)
    slow = paused_before_commit(fast_append(0, partition=0), catalog)
    table, partition = DISTANCES[distance]
    commit(fast_append(table, partition=partition), catalog)
    assert resume(slow).total_retries == (1 if distance in fails else 0)
    assert catalog.seq == 2


def test_partition_granularity_falls_back_to_the_table_where_partitions_are_not_tracked() -> None:
    catalog = catalog_of(partitions=2, granularity="partition")
    slow = paused_before_commit(fast_append(), catalog)
    commit(fast_append(partition=1), catalog)
    assert resume(slow).total_retries == 1


def test_commits_to_disjoint_partitions_both_advance_the_table() -> None:
    catalog = catalog_of(partitions=2, granularity="partition")
    writers = [paused_before_commit(fast_append(partition=partition), catalog) for partition in (0, 1)]
    assert [resume(writer).total_retries for writer in writers] == [0, 0]
    assert state_of(catalog).get_table(0).version == 2


@pytest.mark.parametrize("writer", [0, 3])
@pytest.mark.parametrize("rival", [0, 1, 2, 3])
def test_table_groups_contend_each_for_itself(writer: int, rival: int) -> None:
    catalog = catalog_of(tables=4, table_groups=2)
    slow = paused_before_commit(fast_append(writer), catalog)
    commit(fast_append(rival), catalog)
    assert resume(slow).total_retries == (1 if writer // 2 == rival // 2 else 0)


# Isolation.


@pytest.mark.parametrize(("serializable", "retries"), [(True, 1), (False, 0)])
def test_serializable_isolation_also_requires_reads_to_be_unchanged(serializable: bool, retries: int) -> None:
    catalog = catalog_of(tables=2, granularity="table")
    reader = fast_append(0, reads={1: None})
    slow = paused_before_commit(reader, catalog, options=CommitOptions(serializable=serializable))
    commit(fast_append(1), catalog)
    result = resume(slow)
    assert result.total_retries == retries
    assert result.manifest_file_writes == 1 + retries  # a change to a table that was read overlaps


@pytest.mark.parametrize(("serializable", "attempts_prepared"), [(True, 2), (False, 1)])
def test_a_change_to_a_table_only_read_overlaps_only_under_serializable_isolation(
    serializable: bool, attempts_prepared: int
) -> None:
    catalog = losing(catalog_of(tables=2), 1, lambda: fast_append(1))
    options = CommitOptions(serializable=serializable)
    result = run(fast_append(0, reads={1: None}), catalog, options=options)
    assert (result.total_retries, result.manifest_file_writes) == (1, attempts_prepared)


def test_serializable_reads_are_as_fine_as_their_partitions() -> None:
    catalog = catalog_of(tables=2, partitions=2, granularity="partition")
    drain(catalog.commit(0, {1: 1}, 0.0, IntentionRecord(1, 0, {1: 1}, {1: frozenset({1})})))
    for partition, succeeds in ((1, False), (0, True)):
        proposal = IntentionRecord(2, 0, {0: 1}, {0: frozenset({0})}, reads={1: frozenset({partition})})
        assert drain(catalog.commit(0, {0: 1}, 0.0, proposal)).success is succeeds


# Reading intervening commits.


def test_a_batch_of_parallel_reads_costs_its_maximum() -> None:
    rows = {"read": UniformLatency(0.0, 100.0), "write": FixedLatency(0.0), "cas": FixedLatency(0.0)}
    storage = RecordingProvider(Profile("p", rows), ScriptedSource(0.1, 0.3, 0.9, 0.2, 0.7, 0.4))
    slow = paused_before_commit(overwrite(), catalog := catalog_of(), storage, options=CommitOptions(max_parallel=3))
    for _ in range(4):
        commit(fast_append(), catalog)
    result = resume(slow)
    longest_of_three = 100.0 * 0.2 ** (1 / 3)  # one draw for a full batch, then one for the request that is left
    assert result.conflict_io_ms == pytest.approx(longest_of_three + 70.0, abs=0.01)
    assert slow.txn.requests["historical_ml_reads"] == 4


@pytest.mark.parametrize(("max_parallel", "batches"), [(1, 9), (4, 3), (9, 1), (100, 1)])
def test_max_parallel_applies_to_manifest_files_too(max_parallel: int, batches: int) -> None:
    catalog, options = catalog_of(), CommitOptions(max_parallel=max_parallel)
    txn = merge_append(manifests_per_concurrent_commit=3.0)
    slow = paused_before_commit(txn, catalog, fixed_provider(10.0), options=options)
    for _ in range(3):
        commit(fast_append(), catalog)
    assert resume(slow).conflict_io_ms == 2 * 10.0 * batches


@pytest.mark.parametrize(("behind", "missed"), [("catalog", 6), ("table", 3), ("partition", 1), (None, 6)])
def test_which_missed_snapshots_count(behind: Any, missed: int) -> None:
    catalog = catalog_of(tables=2, partitions=2)
    slow = paused_before_commit(overwrite(0, partition=0), catalog, options=CommitOptions(behind=behind))
    for table, partition in ((0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1)):
        commit(fast_append(table, partition=partition), catalog)
    resume(slow)
    assert slow.txn.requests["historical_ml_reads"] == missed


def test_manifest_lists_grow_with_each_commit_to_their_table() -> None:
    options = CommitOptions(manifest_list_bytes=1_000, manifest_list_growth_bytes=7)
    catalog = catalog_of(tables=2)
    for table in (0, 1, 0, 0):
        commit(fast_append(table), catalog)
    storage = fixed_provider()
    run(fast_append(0), catalog, storage, options=options)
    sizes = dict(zip(storage.log, storage.sizes, strict=True))
    assert sizes["read manifest_list"] == sizes["write manifest_list"] == 1_000 + 3 * 7
    assert sizes["write manifest_file"] == 100 * 1024


# Real conflicts.


def real_conflict(action: Any, **options: Any) -> tuple[TransactionResult, list[str]]:
    storage, catalog = fixed_provider(10.0), losing(catalog_of(), 1, fast_append)
    settings = CommitOptions(real_conflict=action, **options)
    return run(overwrite(runtime_ms=500.0), catalog, storage, detector=ALWAYS, options=settings), storage.log


def test_a_real_conflict_may_abort() -> None:
    result, log = real_conflict("abort")
    assert (result.status, result.abort_reason) == (TransactionStatus.ABORTED, "validation_exception")
    assert log.count("write manifest_list") == 1


def test_a_real_conflict_may_be_merged_by_reading_and_writing_the_conflicting_manifest_files() -> None:
    result, log = real_conflict("merge", conflicting_manifests=FixedLatency(3.0), max_parallel=2)
    assert result.status is TransactionStatus.COMMITTED
    assert (result.manifest_file_reads, result.manifest_file_writes) == (3, 3 + 2)
    assert result.conflict_io_ms == 10.0 + 2 * 20.0  # the convoy, then two batches each way
    assert log.count("write manifest_list") == 2


def test_a_real_conflict_may_restart_the_transaction() -> None:
    result, _ = real_conflict("restart")
    assert result.status is TransactionStatus.COMMITTED
    spent_on_io = result.per_attempt_io_ms + result.conflict_io_ms + result.catalog_read_ms + result.catalog_commit_ms
    assert result.total_latency_ms - spent_on_io == 2 * 500.0


@pytest.mark.parametrize("mean", [0.0, 0.2])
def test_a_merge_concerns_at_least_one_manifest(mean: float) -> None:
    assert real_conflict("merge", conflicting_manifests=FixedLatency(mean))[0].manifest_file_reads == 1
