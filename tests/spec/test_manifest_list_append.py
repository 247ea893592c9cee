"""ML+ in the document "Append Simulation Design": offsets, sealed rewrites, conflicts, every counter."""

from typing import Any

import pytest

from endive.sim.catalog import LogLimits
from endive.sim.commit_options import CommitOptions, ManifestListAppend
from endive.sim.latency import ExponentialLatency
from endive.sim.transaction import TransactionStatus
from tests.instruments import fixed_provider
from tests.support import (
    ALWAYS,
    append_catalog_of,
    catalog_of,
    commit,
    fast_append,
    losing,
    overwrite,
    paused_before_commit,
    resume,
    run,
    simulate,
    workload_of,
)

LIST = "manifest_list/0"
COUNTERS = """
append_physical_success append_logical_success append_logical_conflict append_physical_failure
append_compactions_triggered append_compactions_completed
manifest_append_physical_success manifest_append_physical_failure manifest_append_sealed_rewrite
false_conflicts real_conflicts
"""


def ml_plus(**settings: Any) -> dict[str, Any]:
    """Return the arguments that turn ML+ on."""
    merge = settings.pop("real_conflict", "abort")
    options = CommitOptions(manifest_list_append=ManifestListAppend(**settings), real_conflict=merge)
    return {"ml_append_mode": True, "options": options}


def test_an_entry_replaces_the_manifest_list_write() -> None:
    storage = fixed_provider()
    result = run(fast_append(), catalog_of(), storage, **ml_plus(entry_bytes=70))
    assert (result.manifest_list_reads, result.manifest_list_writes) == (1, 0)
    assert storage.log[-1] == f"append {LIST}"
    assert storage.objects.lengths[LIST] == 70


def test_ml_plus_works_with_both_kinds_of_catalog() -> None:
    for catalog in (catalog_of(), append_catalog_of()):
        assert run(fast_append(), catalog, **ml_plus()).status is TransactionStatus.COMMITTED


def test_each_written_table_has_a_list_of_its_own() -> None:
    storage = fixed_provider()
    run(fast_append(tables=frozenset({0, 2})), catalog_of(tables=3), storage, **ml_plus())
    assert storage.log[-2:] == ["append manifest_list/0", "append manifest_list/2"]


def test_a_moved_offset_is_a_physical_failure_whose_retry_costs_no_read() -> None:
    storage, catalog = fixed_provider(), catalog_of()
    txn = fast_append()
    steps = txn.execute(catalog, storage, ALWAYS, **ml_plus())
    for _ in range(4):
        next(steps)  # catalog read, runtime, manifest-list read, manifest-file write on its way
    next(steps)  # the append is on its way
    assert storage.log[-1] == f"append {LIST}"
    storage.objects.lengths[LIST] = 50  # a rival's entry arrives first
    storage.log.clear()
    next(steps)
    assert storage.log == [f"append {LIST}"]
    for _ in steps:
        pass
    assert txn.requests["manifest_append_physical_failure"] == 1
    assert txn.requests["manifest_append_physical_success"] == 1
    assert storage.objects.lengths[LIST] == 100


# Sealing.


def test_a_list_longer_than_its_threshold_is_sealed_and_the_next_writer_rewrites_it() -> None:
    storage, catalog = fixed_provider(), catalog_of()
    sealed = []
    for _ in range(4):
        run(fast_append(), catalog, storage, **ml_plus(entry_bytes=50, seal_bytes=100))
        sealed.append(LIST in storage.objects.sealed)
    assert sealed == [False, False, True, False]  # 50, 100, 150: sealed, rewritten
    assert storage.log[-2:] == [f"read {LIST}", f"write {LIST}"]
    assert storage.objects.lengths[LIST] == 50


def test_a_threshold_of_0_never_seals() -> None:
    storage, catalog = fixed_provider(), catalog_of()
    for _ in range(20):
        run(fast_append(), catalog, storage, **ml_plus(entry_bytes=1_000_000))
    assert not storage.objects.sealed


def test_a_writer_that_meets_a_sealed_list_sees_it_in_the_failed_append_and_rewrites() -> None:
    storage, catalog = fixed_provider(), catalog_of()
    txn = fast_append()
    steps = txn.execute(catalog, storage, ALWAYS, **ml_plus())
    for _ in range(5):
        next(steps)
    storage.objects.sealed.add(LIST)
    for _ in steps:
        pass
    assert txn.requests["manifest_append_physical_failure"] == 1
    assert txn.requests["manifest_append_sealed_rewrite"] == 1
    assert storage.log[-3:] == [f"append {LIST}", f"read {LIST}", f"write {LIST}"]


def test_of_two_that_rewrite_a_sealed_list_one_wins_and_the_other_appends() -> None:
    storage, catalog = fixed_provider(), append_catalog_of(tables=1, partitions=2)
    storage.objects.sealed.add(LIST)
    writers = [fast_append(partition=partition) for partition in (0, 1)]
    running = [txn.execute(catalog.session(storage._rng), storage, ALWAYS, **ml_plus()) for txn in writers]
    for _ in range(6):
        for steps in running:
            next(steps)  # both have read the sealed list and sent the new one
    assert storage.log[-2:] == [f"write {LIST}"] * 2
    for steps in running:
        for _ in steps:
            pass
    assert writers[0].requests["manifest_append_sealed_rewrite"] == 1
    assert writers[1].requests["manifest_append_physical_success"] == 1
    assert storage.objects.lengths[LIST] == 2 * 50


# Offsets per partition.


def test_per_partition_offsets_let_writers_of_different_partitions_pass_each_other() -> None:
    storage, catalog = fixed_provider(), catalog_of(partitions=3)
    run(fast_append(partition=2), catalog, storage, **ml_plus(per_partition=True))
    assert storage.log[-1] == "append manifest_list/0/2"
    assert storage.objects.lengths == {"manifest_list/0/2": 50}


def test_without_partition_tracking_a_table_has_one_list_whatever_the_setting() -> None:
    storage = fixed_provider()
    run(fast_append(), catalog_of(partitions=3), storage, **ml_plus(per_partition=True))
    assert storage.log[-1] == f"append {LIST}"


# Conflicts.


@pytest.mark.parametrize(("keeps_entries", "appends"), [(False, 3), (True, 1)])
def test_a_false_conflict_appends_again_unless_entries_are_kept(keeps_entries: bool, appends: int) -> None:
    storage = fixed_provider()
    txn = fast_append()
    run(txn, losing(catalog_of(), 2, fast_append), storage, **ml_plus(keeps_entries=keeps_entries))
    assert storage.log.count(f"append {LIST}") == txn.requests["manifest_append_physical_success"] == appends
    assert storage.log.count("read manifest_list") == appends


def test_contrast_with_a_real_conflict_which_is_merged_and_appended_again() -> None:
    storage, catalog = fixed_provider(), append_catalog_of()
    settings = ml_plus(keeps_entries=True, real_conflict="merge")
    slow = paused_before_commit(overwrite(), catalog, storage, detector=ALWAYS, **settings)
    commit(fast_append(), catalog)
    storage.log.clear()

    result = resume(slow)

    assert result.status is TransactionStatus.COMMITTED
    assert dict(slow.txn.events) == {"real_conflicts": 1}
    merged = ["read manifest_file", "write manifest_file"]
    again = ["read manifest_list", "write manifest_file", f"append {LIST}"]
    assert storage.log == ["read manifest_list", *merged, *again]  # the convoy comes first
    assert storage.objects.lengths[LIST] == 2 * 50  # the first entry stays, filtered by readers


# Counters.


def test_every_counter_of_the_design_is_reported_and_they_agree() -> None:
    storage = fixed_provider(10.0)
    catalog = append_catalog_of(tables=2, storage=storage, limits=LogLimits(entries_max=10))
    workload = workload_of(tables=2, inter_arrival=ExponentialLatency(40.0))
    settings = ml_plus(seal_bytes=500)
    statistics = simulate(workload, storage=storage, catalog=catalog, detector=ALWAYS, duration_ms=6_000.0, **settings)
    counters = statistics.counters
    for name in COUNTERS.split():
        assert counters[name] > 0, name
    assert counters["append_logical_success"] == statistics.seq
    assert 0 <= counters["append_compactions_triggered"] - counters["append_compactions_completed"] <= 1
