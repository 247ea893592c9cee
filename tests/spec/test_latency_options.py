"""The document "Simulator Internals": where the time of a request goes, and when it is decided."""

import pytest

from endive.sim.catalog import CASCatalog
from endive.sim.commit_options import Backoff, CommitOptions
from endive.sim.cost import PYICEBERG
from endive.sim.storage import Contention
from endive.sim.transaction import TransactionStatus
from tests.instruments import drain, fixed_provider, session, waits
from tests.support import catalog_of, commit, fast_append, losing, paused_before_commit, resume, run

# Table metadata.


def test_inlined_metadata_costs_no_requests_of_its_own() -> None:
    storage = fixed_provider()
    run(fast_append(), losing(catalog_of(), 1, fast_append), storage)
    assert not [request for request in storage.log if "metadata" in request]


def test_separate_metadata_is_read_in_the_first_attempt_and_written_before_each_commit() -> None:
    storage = fixed_provider()
    run(fast_append(), catalog_of(), storage, options=CommitOptions(metadata_inlined=False))
    attempt = ["read manifest_list", "write manifest_list", "write manifest_file"]
    assert storage.log == ["read table_metadata", *attempt, "write table_metadata"]


def test_separate_metadata_is_read_for_each_table_accessed() -> None:
    storage = fixed_provider()
    txn = fast_append(tables=frozenset({0, 1}), reads={2: None})
    run(txn, catalog_of(tables=3), storage, options=CommitOptions(metadata_inlined=False))
    assert storage.log[:4] == ["read table_metadata"] * 3 + ["read manifest_list"]


def test_separate_metadata_is_read_again_by_a_retry_that_overlaps() -> None:
    storage = fixed_provider()
    catalog = losing(catalog_of(), 1, fast_append)
    run(fast_append(), catalog, storage, options=CommitOptions(metadata_inlined=False))
    assert storage.log.count("read table_metadata") == 2
    assert storage.log.count("write table_metadata") == 2


def test_the_reference_model_reads_separate_metadata_in_its_first_attempt() -> None:
    storage = fixed_provider(10.0, table_metadata_read=400.0)
    result = run(fast_append(), catalog_of(), storage, options=CommitOptions(metadata_inlined=False))
    assert result.catalog_read_ms == 1.0
    assert result.per_attempt_io_ms == 400.0 + 3 * 10.0 + 10.0
    assert result.commit_latency_ms == 400.0 + 3 * 10.0 + 10.0 + 1.0


def test_pyiceberg_reads_separate_metadata_when_it_loads_the_table() -> None:
    storage = fixed_provider(10.0, table_metadata_read=400.0)
    options = CommitOptions(cost_model=PYICEBERG, metadata_inlined=False)
    result = run(fast_append(), catalog_of(), storage, options=options)
    assert result.catalog_read_ms == 1.0 + 400.0 + 1.0  # the check before the swap reads the catalog again


# Failure latencies.


def test_a_refused_request_has_a_latency_of_its_own() -> None:
    storage = fixed_provider(append=87.0, append_failure=2_072.0)
    assert waits(storage.append("a", 0, 10))[0] == [87.0]
    yielded, result = waits(storage.append("a", 0, 10))
    assert (sum(yielded), result.latency_ms, result.success) == (2_072.0, 2_072.0, False)


def test_a_request_is_decided_no_later_than_the_shorter_answer() -> None:
    storage = fixed_provider(cas=50.0, cas_failure=20.0)
    assert waits(storage.cas("a", 0, 1))[0] == [20.0, 30.0]
    assert waits(storage.cas("a", 0, 1))[0] == [20.0]


def test_a_failure_latency_reaches_the_commit_latency() -> None:
    storage = fixed_provider(1.0, cas_failure=500.0)
    catalog = CASCatalog(storage, 1, (1,))
    result = run(fast_append(), losing(catalog, 1, fast_append), storage)
    assert result.catalog_commit_ms == 500.0 + 1.0


# Where in the round trip the store decides.


@pytest.mark.parametrize(("decision", "yielded_ms"), [(0.5, [30.0, 30.0]), (1.0, [60.0])])
def test_decision_point(decision: float, yielded_ms: list[float]) -> None:
    storage = fixed_provider(cas=60.0, decision=decision)
    catalog = CASCatalog(storage, 1, (1,))
    committing = catalog.commit(0, {0: 1})
    assert next(committing) == yielded_ms[0]
    assert catalog.seq == 0
    rest, result = waits(committing)
    assert [yielded_ms[0], *rest] == yielded_ms
    assert (result.latency_ms, catalog.seq) == (60.0, 1)


def test_half_way_the_commit_is_visible_before_its_answer_arrives() -> None:
    storage = fixed_provider(cas=60.0, decision=0.5)
    catalog = CASCatalog(storage, 1, (1,))
    committing = session(catalog).commit(0, {0: 1})
    next(committing)
    next(committing)  # decided; the answer travels
    assert drain(catalog.read()).seq == 1


# Contention.


def test_contention_slows_down_conditional_requests_that_are_in_flight_together() -> None:
    storage = fixed_provider(10.0, contention=Contention(per_writer=0.5, scale_max=1.8))
    requests = [storage.cas("a", 0, 1) for _ in range(4)]
    assert [next(request) for request in requests] == [10.0, 15.0, 18.0, 18.0]
    assert next(storage.cas("b", 0, 1)) == 10.0  # another object
    for request in requests:
        drain(request)
    assert waits(storage.cas("a", 1, 1))[0] == [10.0]


def test_without_contention_requests_do_not_slow_each_other_down() -> None:
    storage = fixed_provider(10.0)
    assert [next(storage.cas("a", 0, 1)) for _ in range(5)] == [10.0] * 5


def test_plain_reads_and_writes_do_not_contend() -> None:
    storage = fixed_provider(10.0, contention=Contention(per_writer=1.0, scale_max=9.0))
    assert [next(storage.read("a", 0)) for _ in range(3)] == [10.0] * 3
    assert [next(storage.write("a", 0)) for _ in range(3)] == [10.0] * 3


# Waiting between attempts.


def test_backoff_may_come_before_the_catalog_is_read_again() -> None:
    options = CommitOptions(backoff=Backoff(base_ms=77.0, jitter=0.0, before_read=True))
    catalog = catalog_of(latency_ms=2.0)
    slow = paused_before_commit(fast_append(), catalog, fixed_provider(10.0), options=options)
    commit(fast_append(), catalog)
    yielded, _ = waits(slow.steps)
    assert yielded == [2.0, 77.0, 2.0, 10.0, 10.0, 10.0, 0.0, 2.0]  # swap, backoff, read, attempt, swap


def test_a_backoff_before_the_read_sees_commits_made_meanwhile() -> None:
    def retries(before_read: bool) -> int:
        catalog = catalog_of()
        options = CommitOptions(backoff=Backoff(base_ms=77.0, jitter=0.0, before_read=before_read))
        slow = paused_before_commit(fast_append(), catalog, options=options)
        commit(fast_append(), catalog)
        while next(slow.steps) != 77.0:
            pass
        commit(fast_append(), catalog)  # while the transaction waits
        return resume(slow).total_retries

    assert (retries(before_read=True), retries(before_read=False)) == (1, 2)


@pytest.mark.parametrize(("timeout_ms", "attempts"), [(None, 11), (0.0, 1), (12.0, 3)])
def test_no_retry_starts_after_the_timeout(timeout_ms: float | None, attempts: int) -> None:
    catalog = losing(catalog_of(), 100, fast_append)  # an attempt takes 3 + 1 + 1 ms
    result = run(fast_append(), catalog, options=CommitOptions(retry_timeout_ms=timeout_ms))
    assert catalog.log.count("cas") == attempts
    assert result.status is TransactionStatus.ABORTED
    assert result.abort_reason == ("max_retries_exceeded" if timeout_ms is None else "retry_timeout")
