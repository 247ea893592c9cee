"""The twelve invariants of the simulated commit protocol, one heading each."""

import inspect
from dataclasses import FrozenInstanceError, fields

import pytest

from endive.sim.catalog import Catalog, CatalogSnapshot, CommitResult, InstantCatalog
from endive.sim.latency import ExponentialLatency, LognormalLatency
from endive.sim.storage import Profile, StorageResult
from endive.sim.transaction import TransactionStatus
from tests.instruments import RecordingProvider, drain, fixed_provider
from tests.support import (
    ALWAYS,
    NEVER,
    append_catalog_of,
    catalog_of,
    commit,
    fast_append,
    losing,
    merge_append,
    overwrite,
    paused_before_commit,
    resume,
    resume_to_commit,
    run,
    simulate,
    state_of,
    workload_of,
)


def test_version_monotonicity_a_commit_advances_seq_by_exactly_one_and_a_failure_by_nothing() -> None:
    catalog = catalog_of(tables=2)
    seen = [catalog.seq]
    for expected_seq, table in ((0, 0), (0, 1), (1, 1), (1, 0), (2, 0)):
        version = state_of(catalog).get_table(table).version + 1
        drain(catalog.commit(expected_seq, {table: version}))
        seen.append(catalog.seq)
    assert seen == [0, 1, 1, 2, 2, 3]


def test_version_monotonicity_a_tables_version_is_its_number_of_commits() -> None:
    catalog = catalog_of(tables=2)
    for table in (0, 1, 0, 0):
        commit(fast_append(table), catalog)
    assert [table.version for table in state_of(catalog).tables] == [3, 1]


def test_snapshot_isolation_a_snapshot_does_not_change_when_the_catalog_does() -> None:
    catalog = catalog_of(partitions=2)
    before = state_of(catalog)
    commit(fast_append(partition=1), catalog)
    assert (before.seq, before.get_table(0).version, before.get_partition_version(0, 1)) == (0, 0, 0)
    assert state_of(catalog).get_partition_version(0, 1) == 1
    with pytest.raises(FrozenInstanceError):
        before.seq = 7  # type: ignore[misc]


def test_snapshot_isolation_changes_are_visible_only_after_the_commit() -> None:
    catalog = catalog_of()
    writer = paused_before_commit(fast_append(), catalog)
    assert state_of(catalog).seq == 0
    resume(writer)
    assert state_of(catalog).seq == 1


@pytest.mark.parametrize("missed", [1, 2, 7])
def test_manifest_list_exactness_n_snapshots_behind_reads_exactly_n_historical_manifest_lists(missed: int) -> None:
    catalog = catalog_of()
    slow = paused_before_commit(overwrite(), catalog)
    for _ in range(missed):
        commit(fast_append(), catalog)
    resume(slow)
    assert slow.txn.requests["historical_ml_reads"] == missed


def test_manifest_list_exactness_a_second_retry_reads_only_snapshots_missed_since_the_first() -> None:
    catalog = catalog_of()
    slow = paused_before_commit(overwrite(), catalog)
    for missed in (5, 2):
        for _ in range(missed):
            commit(fast_append(), catalog)
        resume_to_commit(slow)
    resume(slow)
    assert slow.txn.requests["historical_ml_reads"] == 5 + 2


@pytest.mark.parametrize("rival", [{"table": 1, "partition": 0}, {"table": 0, "partition": 1}])
def test_manifest_list_exactness_no_overlap_skips_the_convoy_entirely(rival: dict[str, int]) -> None:
    catalog = catalog_of(tables=2, partitions=2)
    slow = paused_before_commit(overwrite(table=0, partition=0), catalog)
    commit(fast_append(**rival), catalog)
    result = resume(slow)
    assert (result.total_retries, slow.txn.requests["historical_ml_reads"]) == (1, 0)


@pytest.mark.parametrize(
    ("rival_table", "rival_partition", "detector_is_sure", "event", "status"),
    [
        (1, 0, True, "no_overlap", TransactionStatus.COMMITTED),
        (0, 1, True, "no_overlap", TransactionStatus.COMMITTED),
        (0, 0, False, "false_conflicts", TransactionStatus.COMMITTED),
        (0, 0, True, "real_conflicts", TransactionStatus.ABORTED),
    ],
)
def test_conflict_type_distinction(
    rival_table: int, rival_partition: int, detector_is_sure: bool, event: str, status: TransactionStatus
) -> None:
    catalog = catalog_of(tables=2, partitions=2)
    slow = paused_before_commit(overwrite(partition=0), catalog, detector=ALWAYS if detector_is_sure else NEVER)
    commit(fast_append(rival_table, partition=rival_partition), catalog)
    result = resume(slow)
    assert result.status is status
    assert dict(slow.txn.events) == {event: 1}
    assert result.manifest_file_writes == (2 if event == "false_conflicts" else 1)


def test_conflict_type_distinction_depends_on_the_operation() -> None:
    for transaction in (fast_append, merge_append):
        catalog = catalog_of()
        loser = losing(catalog, 1, fast_append)
        assert run(transaction(), loser, detector=ALWAYS).status is TransactionStatus.COMMITTED


def test_determinism_same_seed_and_config_give_identical_results_and_another_seed_does_not() -> None:
    def rows(seed: int) -> object:
        profile = Profile("random", {name: LognormalLatency(2.0, 0.5) for name in ("read", "write", "cas")})
        workload = workload_of(seed, inter_arrival=ExponentialLatency(20.0), runtime=LognormalLatency(3.0, 1.0))
        return simulate(workload, duration_ms=3_000, storage=RecordingProvider(profile)).to_arrow().to_pylist()

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_minimum_latency_is_a_floor_under_every_operation() -> None:
    row = LognormalLatency.from_median(5.0, 2.0, min_latency_ms=4.0)
    storage = RecordingProvider(Profile("floored", dict.fromkeys(("read", "write", "cas", "append"), row)))
    results: list[StorageResult] = []
    for _ in range(200):
        results += [drain(storage.read("a", 0)), drain(storage.write("a", 0)), drain(storage.cas("a", -1, 0))]
    assert min(result.latency_ms for result in results) == 4.0 == storage.min_latency_ms
    assert max(result.latency_ms for result in results) > 10.0


def test_uniform_catalog_interface_read_and_commit_are_all_that_a_transaction_uses() -> None:
    class OnlyReadAndCommit:
        def __init__(self, catalog: Catalog) -> None:
            self.read, self.commit = catalog.read, catalog.commit

    for catalog in (catalog_of(), append_catalog_of()):
        result = run(overwrite(), OnlyReadAndCommit(catalog))  # type: ignore[arg-type]
        assert result.status is TransactionStatus.COMMITTED


def test_commit_does_not_return_state() -> None:
    assert [field.name for field in fields(CommitResult)] == ["success", "latency_ms"]


def test_commit_does_not_return_state_so_a_failure_costs_one_catalog_read_round_trip() -> None:
    catalog = catalog_of(tables=2, latency_ms=7.0)
    result = run(fast_append(0), losing(catalog, 1, lambda: fast_append(1)))
    assert (result.catalog_read_ms, result.catalog_commit_ms) == (2 * 7.0, 2 * 7.0)


def test_information_asymmetry_the_append_says_that_bytes_landed_and_a_discovery_read_the_rest() -> None:
    storage = fixed_provider()
    catalog = append_catalog_of(storage=storage)
    stale = catalog.session(storage._rng)
    drain(stale.read())
    drain(catalog.commit(0, {0: 1}))
    storage.log.clear()
    drain(stale.read())  # the offset is now right, the precondition (seq 0) is not
    result = drain(stale.commit(0, {0: 1}))
    assert storage.log == ["read catalog", "append catalog", "read catalog"]
    assert catalog.counters["append_physical_failure"] == 0
    assert (result.success, catalog.counters["append_logical_conflict"]) == (False, 1)


def test_ml_plus_deferred_validity_an_entry_appended_for_a_lost_commit_is_orphaned_and_the_list_read_again() -> None:
    storage, catalog = fixed_provider(), catalog_of()
    run(fast_append(), losing(catalog, 1, fast_append), storage, ml_append_mode=True)
    attempt = ["read manifest_list", "write manifest_file", "append manifest_list/0"]
    assert storage.log == attempt * 2
    assert storage.objects.lengths["manifest_list/0"] == 2 * 50  # the orphan stays


def test_topology_ownership_the_workload_owns_it_and_the_catalog_exposes_none() -> None:
    workload = workload_of(tables=3, partitions=4, tables_per_txn=3, partitions_per_txn=4)
    _, txn = next(workload.generate())
    assert txn.partitions_written == dict.fromkeys(range(3), frozenset(range(4)))
    public = {name for name, _ in inspect.getmembers(InstantCatalog) if not name.startswith("_")}
    assert public == {"read", "commit", "seq", "counters", "session", "KEY", "keep_time"}  # the last takes a clock


def test_topology_ownership_tables_and_partitions_are_fixed_at_the_start() -> None:
    def shape(snapshot: CatalogSnapshot) -> list[tuple[int, int]]:
        return [(table.table_id, table.num_partitions) for table in snapshot.tables]

    catalog = catalog_of(tables=2, partitions=3)
    before = shape(state_of(catalog))
    simulate(workload_of(tables=2, partitions=3, tables_per_txn=2, partitions_per_txn=2), catalog=catalog)
    assert catalog.seq > 50
    assert shape(state_of(catalog)) == before == [(0, 3), (1, 3)]


def test_a_cross_table_retry_costs_one_catalog_read_and_one_cas() -> None:
    catalog = catalog_of(tables=2)
    slow = paused_before_commit(fast_append(table=1), catalog)

    commit(fast_append(table=0), catalog)
    result = resume(slow)

    assert result.total_retries == 1
    assert result.manifest_list_reads == 1  # the first attempt's; the retry read none
    assert slow.catalog.log == ["catalog_read", "cas", "catalog_read", "cas"]


@pytest.mark.parametrize("rival_table", [0, 1])
def test_cross_table_retry_cost_per_attempt_io_is_paid_again_only_if_has_write_overlap(rival_table: int) -> None:
    catalog, storage = catalog_of(tables=2), fixed_provider(10.0)
    txn = overwrite(0)
    result = run(txn, losing(catalog, 1, lambda: fast_append(rival_table)), storage)
    overlaps = rival_table == 0
    assert result.per_attempt_io_ms == (60.0 if overlaps else 30.0)
    assert result.conflict_io_ms == (10.0 if overlaps else 0.0)


@pytest.mark.parametrize("tables", [2, 5])
def test_cross_table_retry_cost_most_cas_failures_of_n_tables_are_free_to_retry(tables: int) -> None:
    workload = workload_of(tables=tables, inter_arrival=ExponentialLatency(400.0))
    counters = simulate(workload, duration_ms=1_500_000).counters
    retried = counters["no_overlap"] + counters["false_conflicts"]
    assert retried > 400
    assert counters["no_overlap"] / retried == pytest.approx((tables - 1) / tables, abs=0.08)
