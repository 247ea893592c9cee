"""Section "Transaction Types": the life of a transaction, its retries, its costs, its accounting."""

from dataclasses import fields

import pytest

from endive.sim.commit_options import Backoff, CommitOptions
from endive.sim.cost import NOTHING, ConflictCost
from endive.sim.transaction import (
    FastAppendTransaction,
    MergeAppendTransaction,
    Transaction,
    TransactionResult,
    TransactionStatus,
    ValidatedOverwriteTransaction,
)
from tests.instruments import fixed_provider, waits
from tests.support import (
    ALWAYS,
    catalog_of,
    fast_append,
    losing,
    merge_append,
    overwrite,
    paused_before_commit,
    resume,
    run,
)

FOREVER = 1_000


def executed(txn: Transaction) -> Transaction:
    run(txn, catalog_of())
    return txn


# Types.


def test_the_five_statuses() -> None:
    assert [status.name for status in TransactionStatus] == [
        "PENDING",
        "EXECUTING",
        "COMMITTING",
        "COMMITTED",
        "ABORTED",
    ]


def test_a_result_has_at_least_the_specified_fields() -> None:
    specified = (
        "status txn_id commit_time_ms abort_time_ms abort_reason total_retries commit_latency_ms total_latency_ms "
        "operation_type runtime_ms manifest_list_reads manifest_list_writes manifest_file_reads manifest_file_writes "
        "catalog_read_ms per_attempt_io_ms conflict_io_ms catalog_commit_ms"
    )
    assert [field.name for field in fields(TransactionResult)][:18] == specified.split()


@pytest.mark.parametrize(
    ("kind", "name", "real", "aborts"),
    [
        (FastAppendTransaction, "fast_append", False, False),
        (MergeAppendTransaction, "merge_append", False, False),
        (ValidatedOverwriteTransaction, "validated_overwrite", True, True),
    ],
)
def test_concrete_types(kind: type[Transaction], name: str, real: bool, aborts: bool) -> None:
    txn = kind(1, 0.0, 1.0, frozenset({0}))
    assert kind.operation_type == name
    assert (txn.can_have_real_conflict(), txn.should_abort_on_real_conflict()) == (real, aborts)


# Costs.


def test_per_attempt_cost_is_one_list_read_one_file_write_and_one_list_write_which_ml_plus_saves() -> None:
    txn = executed(fast_append())
    attempt = ConflictCost(manifest_list_reads=1, manifest_file_writes=1, manifest_list_writes=1)
    assert txn.get_per_attempt_cost(ml_append_mode=False) == attempt
    assert txn.get_per_attempt_cost(ml_append_mode=True) == attempt.without({"manifest_list_writes"})


def test_conflict_cost_of_each_type_when_five_snapshots_behind() -> None:
    assert executed(fast_append()).get_conflict_cost(5, False) == NOTHING
    merged = ConflictCost(manifest_file_reads=7, manifest_file_writes=7)  # 5 * 1.5, truncated
    assert executed(merge_append()).get_conflict_cost(5, False) == merged
    assert executed(overwrite()).get_conflict_cost(5, False) == ConflictCost(historical_ml_reads=5)


def test_a_merge_append_reads_and_writes_manifests_per_concurrent_commit() -> None:
    txn = merge_append(manifests_per_concurrent_commit=3.0)
    result = run(txn, losing(catalog_of(), 2, fast_append))
    assert (result.manifest_file_reads, result.manifest_file_writes) == (2 * 3, 2 * 3 + 3)


# The life of a transaction.


def test_execute_reads_then_runs_then_prepares_then_commits() -> None:
    storage = fixed_provider(manifest_list_read=3.0, manifest_list_write=4.0, manifest_file_write=5.0)
    txn = fast_append(runtime_ms=100.0)
    yielded, result = waits(txn.execute(catalog_of(latency_ms=2.0), storage, ALWAYS))
    assert yielded[:2] == [2.0, 100.0]
    assert sorted(yielded[2:5]) == [3.0, 4.0, 5.0]
    assert yielded[5:] == [2.0]
    assert (result.total_latency_ms, result.commit_latency_ms) == (116.0, 14.0)


def test_the_status_follows_the_phases() -> None:
    txn = fast_append()
    seen = [txn.status.name]
    seen += [txn.status.name for _ in txn.execute(catalog_of(), fixed_provider(), ALWAYS)]
    seen.append(txn.status.name)
    assert seen == ["PENDING", "EXECUTING", "EXECUTING", *["COMMITTING"] * 4, "COMMITTED"]


def test_the_snapshot_is_taken_before_the_runtime_so_a_commit_during_it_is_missed() -> None:
    catalog = catalog_of()
    steps = fast_append().execute(catalog, fixed_provider(), ALWAYS)
    next(steps)
    next(steps)  # the catalog has been read, the transaction runs
    run(fast_append(), catalog)
    assert waits(steps)[1].total_retries == 1


@pytest.mark.parametrize("max_retries", [0, 1, 10])
def test_max_retries_allows_one_attempt_more(max_retries: int) -> None:
    catalog = losing(catalog_of(), FOREVER, fast_append)
    result = run(fast_append(), catalog, max_retries=max_retries)
    assert catalog.log.count("cas") == max_retries + 1
    assert (result.status, result.total_retries) == (TransactionStatus.ABORTED, max_retries)
    assert result.abort_reason == "max_retries_exceeded"


def test_the_default_is_ten_retries_cross_table_ones_included() -> None:
    assert run(fast_append(0), losing(catalog_of(2), FOREVER, lambda: fast_append(1))).total_retries == 10
    won = run(fast_append(), losing(catalog_of(), 10, fast_append))
    assert (won.status, won.total_retries) == (TransactionStatus.COMMITTED, 10)


def test_commit_and_abort_times_are_minus_one_unless_they_happened() -> None:
    committed = run(fast_append(), catalog_of())
    aborted = run(fast_append(), losing(catalog_of(), 1, fast_append), max_retries=0)
    assert (committed.commit_time_ms, committed.abort_time_ms) == (committed.total_latency_ms, -1.0)
    assert (aborted.commit_time_ms, aborted.abort_time_ms) == (-1.0, aborted.total_latency_ms)


def test_times_are_counted_from_the_submission() -> None:
    txn = FastAppendTransaction(1, 5_000.0, 100.0, frozenset({0}))
    result = run(txn, catalog_of())
    assert result.commit_time_ms == 5_000.0 + result.total_latency_ms


def test_a_real_conflict_aborts_an_overwrite_with_a_validation_exception_after_its_convoy() -> None:
    storage = fixed_provider()
    result = run(overwrite(), losing(catalog_of(), 1, fast_append), storage, detector=ALWAYS)
    assert (result.status, result.abort_reason) == (TransactionStatus.ABORTED, "validation_exception")
    assert result.manifest_list_reads == 1 + 1  # the attempt's, and the snapshot missed
    assert result.total_retries == 0


# Accounting.


def test_every_wait_is_accounted_to_one_purpose() -> None:
    options = CommitOptions(backoff=Backoff(base_ms=40.0, jitter=0.0))
    storage = fixed_provider(10.0)
    result = run(overwrite(), losing(catalog_of(latency_ms=3.0), 2, fast_append), storage, options=options)
    assert result.catalog_read_ms == 3 * 3.0
    assert result.catalog_commit_ms == 3 * 3.0
    assert result.per_attempt_io_ms == 3 * 30.0
    assert result.conflict_io_ms == 2 * 10.0
    assert result.total_latency_ms == 9 + 9 + 90 + 20 + 100 + (40 + 80)


# Backoff.


def test_backoff_grows_up_to_its_limit() -> None:
    backoff = Backoff(base_ms=10.0, multiplier=2.0, max_ms=50.0, jitter=0.1)
    assert [backoff.delay_ms(retry, 0.0) for retry in (1, 2, 3, 4, 9)] == [10.0, 20.0, 40.0, 50.0, 50.0]


def test_jitter_lengthens_a_wait_by_up_to_its_share() -> None:
    backoff = Backoff(base_ms=100.0, jitter=0.1)
    assert backoff.delay_ms(1, 0.5) == pytest.approx(105.0)
    assert backoff.delay_ms(1, 0.999999) == pytest.approx(110.0, abs=1e-3)


def test_backoff_acts_before_a_retry_after_conflict_resolution() -> None:
    options = CommitOptions(backoff=Backoff(base_ms=77.0, jitter=0.0))
    storage = fixed_provider(10.0)
    slow = paused_before_commit(overwrite(), catalog_of(latency_ms=2.0), storage, options=options)
    run(fast_append(), slow.catalog._inner)
    yielded, _ = waits(slow.steps)
    assert yielded == [2.0, 2.0, 10.0, 77.0, 10.0, 10.0, 10.0, 0.0, 2.0]  # cas, read, convoy, backoff, attempt, cas


def test_no_backoff_before_the_first_attempt_nor_after_the_last() -> None:
    options = CommitOptions(backoff=Backoff(base_ms=77.0, multiplier=1.0, jitter=0.0))
    for max_retries in (0, 2):
        yielded, _ = waits(
            fast_append().execute(
                losing(catalog_of(), FOREVER, fast_append), fixed_provider(), ALWAYS, max_retries, False, options
            )
        )
        assert yielded.count(77.0) == max_retries


def test_no_backoff_once_a_real_conflict_has_ended_the_transaction() -> None:
    options = CommitOptions(backoff=Backoff(base_ms=9_000.0))
    result = run(overwrite(), losing(catalog_of(), 1, fast_append), detector=ALWAYS, options=options)
    assert result.abort_reason == "validation_exception"
    assert result.total_latency_ms < 1_000.0


def test_jitter_comes_from_the_transactions_own_stream() -> None:
    options = CommitOptions(backoff=Backoff(base_ms=1_000.0, jitter=0.5))

    def total_ms(txn_id: int) -> float:
        slow = paused_before_commit(fast_append(txn_id=txn_id), catalog := catalog_of(), options=options)
        run(fast_append(), catalog)
        return resume(slow).total_latency_ms

    assert total_ms(501) == total_ms(501) != total_ms(502)
