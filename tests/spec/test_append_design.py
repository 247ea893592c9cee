"""The append catalog: its log, two worked examples, sealing, compaction.

A compare-and-swap that was lost to another table costs no manifest I/O, where the original example has one
manifest-list read and one write.
"""

from typing import Any

import pytest

from endive.sim.catalog import AppendCatalog, Catalog, IntentionRecord, LogLimits
from endive.sim.commit_options import CommitOptions, ManifestListAppend
from endive.sim.latency import ExponentialLatency
from endive.sim.transaction import TransactionStatus
from tests.instruments import drain, fixed_provider, session, waits
from tests.support import (
    append_catalog_of,
    catalog_of,
    commit,
    fast_append,
    paused_before_commit,
    resume,
    run,
    simulate,
    state_of,
    workload_of,
)

A, B = 0, 1


def read_session(catalog: AppendCatalog) -> Catalog:
    """Return a client that knows where the log ends."""
    client = session(catalog)
    drain(client.read())
    return client


def intention(number: int, table: int, version: int = 1, seq: int = 0, **options: Any) -> IntentionRecord:
    return IntentionRecord(number, seq, {table: version}, **options)


# Example: concurrent non-conflicting transactions.


def test_concurrent_non_conflicting_transactions_in_cas_mode() -> None:
    catalog = catalog_of(tables=2)
    t1, t2 = (paused_before_commit(fast_append(table), catalog) for table in (A, B))

    first, second = resume(t1), resume(t2)

    assert (catalog.counters["cas_failure"], first.total_retries, second.total_retries) == (1, 0, 1)
    assert catalog.seq == 2
    assert (second.manifest_list_reads, second.manifest_list_writes) == (1, 1)  # those of its first attempt


def test_a_false_conflict_on_one_table_costs_a_list_read_and_a_list_write() -> None:
    catalog = catalog_of()
    t1, t2 = (paused_before_commit(fast_append(A), catalog) for _ in range(2))

    resume(t1)
    second = resume(t2)

    assert (catalog.counters["cas_failure"], second.total_retries) == (1, 1)
    assert (second.manifest_list_reads - 1, second.manifest_list_writes - 1) == (1, 1)


def test_concurrent_non_conflicting_transactions_in_append_mode() -> None:
    storage = fixed_provider()
    catalog = append_catalog_of(tables=2, storage=storage)
    t1, t2 = (paused_before_commit(fast_append(table), catalog) for table in (A, B))

    first = resume(t1)
    assert storage.objects.lengths["catalog"] == 100
    storage.log.clear()
    second = resume(t2)

    assert storage.log == ["append catalog", "append catalog", "read catalog"]  # the physical retry reads nothing
    assert storage.objects.lengths["catalog"] == 200
    assert (first.total_retries, second.total_retries) == (0, 0)
    assert (catalog.counters["append_physical_failure"], catalog.counters["append_logical_conflict"]) == (1, 0)
    assert (second.manifest_list_reads, catalog.seq) == (1, 2)


# Example: ML+ with catalog conflict.


@pytest.mark.parametrize("tracked", [True, False], ids=["partitions tracked", "entries kept"])
def test_ml_plus_with_catalog_conflict(tracked: bool) -> None:
    storage, catalog = fixed_provider(), append_catalog_of(partitions=2)
    options = CommitOptions(manifest_list_append=ManifestListAppend(keeps_entries=True))
    ml_plus: dict[str, Any] = {"ml_append_mode": True, "options": options}
    p1, p2 = (0, 1) if tracked else (None, None)
    t2 = paused_before_commit(fast_append(A, partition=p2), catalog, storage, **ml_plus)
    commit(fast_append(A, partition=p1), catalog, storage, **ml_plus)
    assert state_of(catalog).get_table(A).version == 1
    storage.log.clear()

    result = resume(t2)

    assert (result.status, result.total_retries) == (TransactionStatus.COMMITTED, 1)
    assert catalog.counters["append_logical_conflict"] == 1
    assert storage.log == []  # no manifest list is read, and nothing is appended again
    assert t2.txn.requests["manifest_append_physical_success"] == 1
    assert storage.objects.lengths["manifest_list/0"] == 2 * 50
    assert state_of(catalog).get_table(A).version == 2
    assert dict(t2.txn.events) == {("no_overlap" if tracked else "false_conflicts"): 1}


def test_ml_plus_an_entry_of_another_writer_does_not_block_an_append() -> None:
    storage, catalog = fixed_provider(), append_catalog_of()
    paused_before_commit(fast_append(), catalog, storage, ml_append_mode=True)
    t2 = paused_before_commit(fast_append(), catalog, storage, ml_append_mode=True)
    assert t2.txn.requests["manifest_append_physical_failure"] == 0
    assert storage.objects.lengths["manifest_list/0"] == 2 * 50


# Physical and logical outcomes.


def test_a_physical_failure_returns_the_new_offset_and_costs_no_read() -> None:
    storage = fixed_provider(append=7.0, read=5.0)
    catalog = append_catalog_of(tables=3, storage=storage)
    clients = [read_session(catalog) for _ in range(3)]
    took = [sum(waits(client.commit(0, {table: 1}))[0]) for table, client in enumerate(clients)]
    assert took == [7 + 5, 7 + 7 + 5, 7 + 7 + 5]  # the third gets the offset after both others at once


def test_an_intention_that_was_not_applied_stays_in_the_log() -> None:
    storage = fixed_provider()
    catalog = append_catalog_of(storage=storage)
    assert drain(read_session(catalog).commit(0, {A: 1})).success
    assert not drain(read_session(catalog).commit(0, {A: 1})).success
    assert (storage.objects.lengths["catalog"], catalog.seq) == (200, 1)


def test_physical_conflicts_bound_logical_ones() -> None:
    catalog = append_catalog_of(tables=4, storage=fixed_provider(10.0))
    counters = simulate(workload_of(tables=4, inter_arrival=ExponentialLatency(30.0)), catalog=catalog).counters
    assert counters["append_physical_failure"] > 0
    landed = counters["append_logical_success"] + counters["append_logical_conflict"]
    assert counters["append_physical_success"] == landed


def test_a_read_set_that_changed_is_a_logical_conflict() -> None:
    catalog = append_catalog_of(tables=2)
    drain(read_session(catalog).commit(0, {A: 1}))
    stale = intention(1, B, reads={A: None})
    assert not drain(read_session(catalog).commit(0, {B: 1}, 0.0, stale)).success
    fresh = intention(1, B, seq=1, reads={A: None})
    assert drain(read_session(catalog).commit(1, {B: 1}, 0.0, fresh)).success


def test_an_intention_that_already_landed_is_recognised_and_not_applied_twice() -> None:
    catalog = append_catalog_of()
    again = intention(7, A)
    assert drain(read_session(catalog).commit(0, {A: 1}, 0.0, again)).success
    assert drain(read_session(catalog).commit(0, {A: 1}, 0.0, again)).success
    assert (catalog.seq, catalog.counters["append_recognised"]) == (1, 1)


def test_success_is_which_intention_was_applied_not_an_equal_version() -> None:
    catalog = append_catalog_of()
    assert drain(read_session(catalog).commit(0, {A: 1}, 0.0, intention(1, A))).success
    assert not drain(read_session(catalog).commit(0, {A: 1}, 0.0, intention(2, A))).success


# Sealing and compaction.


@pytest.mark.parametrize(
    ("limits", "commits_until_sealed"),
    [
        (LogLimits(bytes_max=300), 4),  # past 300 bytes
        (LogLimits(bytes_max=0, entries_max=3), 3),
        (LogLimits(bytes_max=300, entries_max=2), 2),
        (LogLimits(bytes_max=0), None),
    ],
)
def test_a_log_is_sealed_by_bytes_or_by_entries(limits: LogLimits, commits_until_sealed: int | None) -> None:
    storage = fixed_provider()
    catalog = append_catalog_of(storage=storage, limits=limits)
    sealed_after = None
    for number in range(1, 7):
        drain(read_session(catalog).commit(number - 1, {A: number}))
        if sealed_after is None and "catalog" in storage.objects.sealed:
            sealed_after = number
    assert sealed_after == commits_until_sealed


@pytest.mark.parametrize("limits", [LogLimits(entries_max=2), LogLimits(bytes_max=150)], ids=["entries", "bytes"])
def test_the_next_commit_compacts_a_sealed_log_first_and_the_count_starts_at_zero(limits: LogLimits) -> None:
    storage = fixed_provider(append=2.0, read=3.0, compaction_cas=200.0)
    catalog = append_catalog_of(storage=storage, limits=limits)
    took = []
    for number in range(1, 6):
        client = read_session(catalog)
        took.append(sum(waits(client.commit(number - 1, {A: number}))[0]))
    assert took == [5.0, 5.0, 205.0, 5.0, 205.0]
    assert catalog.counters["append_compactions_triggered"] == 2
    assert catalog.counters["append_compactions_completed"] == 2


def test_of_two_writers_that_compact_one_wins_and_both_go_on() -> None:
    storage = fixed_provider()
    catalog = append_catalog_of(tables=3, storage=storage, limits=LogLimits(entries_max=1))
    drain(read_session(catalog).commit(0, {A: 1}))
    storage.log.clear()
    committing = [read_session(catalog).commit(1, {table: 1}) for table in (1, 2)]
    for steps in committing:
        next(steps)  # both have sent the swap of the checkpoint
    assert storage.log[2:] == ["cas compaction", "cas compaction"]
    assert [drain(steps).success for steps in committing] == [True, True]
    assert catalog.seq == 3


def test_reading_the_log_costs_so_much_per_entry_since_the_checkpoint() -> None:
    storage = fixed_provider(append=1.0, read=10.0)
    catalog = append_catalog_of(storage=storage, entry_read_ms=5.0, limits=LogLimits(entries_max=3))
    reads = []
    for number in range(1, 5):
        reads.append(sum(waits(session(catalog).read())[0]))
        drain(read_session(catalog).commit(number - 1, {A: number}))
    assert reads == [10.0, 15.0, 20.0, 25.0]
    assert sum(waits(session(catalog).read())[0]) == 15.0  # compacted, then one entry
    assert storage.sizes[storage.log.index("read catalog")] == 0


def test_the_size_of_an_entry_is_a_setting() -> None:
    storage = fixed_provider()
    run(fast_append(), append_catalog_of(storage=storage), options=CommitOptions(entry_bytes=250))
    assert storage.objects.lengths["catalog"] == 250
