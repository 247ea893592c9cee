"""What every catalog promises, whatever its mechanism: one suite, all implementations."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from endive.rng import Stream
from endive.sim.catalog import (
    AppendCatalog,
    CASCatalog,
    Catalog,
    CommitResult,
    InstantCatalog,
    IntentionRecord,
    LogLimits,
)
from endive.sim.transaction import TransactionStatus
from endive.timing import Latency
from tests.instruments import drain, fixed_provider, session, waits
from tests.support import catalog_of, commit, fast_append, losing, merge_append, overwrite, run, state_of

Make = Callable[[int, int], Catalog]


def _cas(tables: int, partitions: int, **options: Any) -> Catalog:
    return CASCatalog(fixed_provider(decision=0.5), tables, (partitions,) * tables, **options)


def _append(tables: int, partitions: int, **options: Any) -> Catalog:
    return AppendCatalog(fixed_provider(decision=0.5), tables, (partitions,) * tables, **options)


IMPLEMENTATIONS: dict[str, Make] = {
    "cas": _cas,
    "cas by table": lambda tables, partitions: _cas(tables, partitions, granularity="table"),
    "cas by partition": lambda tables, partitions: _cas(tables, partitions, granularity="partition"),
    "instant": catalog_of,
    "append": _append,
    "append by partition": lambda tables, partitions: _append(tables, partitions, granularity="partition"),
    "append, always sealed": lambda tables, partitions: _append(tables, partitions, limits=LogLimits(entries_max=1)),
}


@pytest.fixture(params=IMPLEMENTATIONS)
def make(request: pytest.FixtureRequest) -> Make:
    return IMPLEMENTATIONS[request.param]


def test_a_new_catalog_is_at_seq_0(make: Make) -> None:
    catalog = make(2, 3)
    snapshot = state_of(catalog)
    assert (catalog.seq, snapshot.seq) == (0, 0)
    assert [table.version for table in snapshot.tables] == [0, 0]
    assert snapshot.get_table(1).partition_versions == (0, 0, 0)


def test_a_commit_advances_seq_and_its_tables_by_one(make: Make) -> None:
    catalog = make(3, 1)
    assert drain(catalog.commit(0, {0: 1, 2: 1})).success
    assert catalog.seq == 1
    assert [table.version for table in state_of(catalog).tables] == [1, 0, 1]


def test_a_stale_commit_to_the_same_table_fails_and_changes_nothing(make: Make) -> None:
    catalog = make(2, 2)
    assert drain(session(catalog).commit(0, {0: 1})).success
    before = state_of(catalog)
    assert not drain(session(catalog).commit(0, {0: 1})).success
    assert state_of(catalog).tables == before.tables
    assert catalog.seq == 1


def test_a_commit_on_a_fresh_snapshot_succeeds_after_a_failure(make: Make) -> None:
    catalog = make(1, 1)
    client = session(catalog)
    drain(session(catalog).commit(0, {0: 1}))
    assert not drain(client.commit(0, {0: 1})).success
    seen = drain(client.read())
    assert drain(client.commit(seen.seq, {0: seen.get_table(0).version + 1})).success
    assert state_of(catalog).get_table(0).version == 2


def test_the_answer_is_yes_or_no_and_what_it_cost(make: Make) -> None:
    catalog = make(1, 1)
    for expected_success in (True, False):
        yielded, result = waits(session(catalog).commit(0, {0: 1}))
        assert result.success is expected_success
        assert result.latency_ms == pytest.approx(sum(yielded))
        assert min(yielded) >= 0.0


def test_a_read_costs_a_round_trip_and_is_stamped_with_its_end(make: Make) -> None:
    yielded, snapshot = waits(make(1, 1).read(timestamp_ms=500.0))
    assert sum(yielded) > 0.0
    assert snapshot.timestamp_ms == pytest.approx(500.0 + sum(yielded))


def test_only_the_written_partitions_advance(make: Make) -> None:
    catalog = make(1, 4)
    intention = IntentionRecord(1, 0, {0: 1}, {0: frozenset({1, 3})})
    assert drain(catalog.commit(0, {0: 1}, 0.0, intention)).success
    assert state_of(catalog).get_table(0).partition_versions == (0, 1, 0, 1)


def test_a_read_set_that_changed_refuses_the_commit(make: Make) -> None:
    catalog = make(2, 1)
    drain(session(catalog).commit(0, {1: 1}))
    stale = IntentionRecord(9, 0, {0: 1}, reads={1: None})
    assert not drain(session(catalog).commit(0, {0: 1}, 0.0, stale)).success


def _finish(turns: tuple[int, ...], writers: list[Latency[CommitResult]]) -> list[bool]:
    """Let the writers take steps in the order given, then to their ends; return the writers that succeeded."""
    outcomes: dict[int, bool] = {}
    for writer in [*turns, *([0] * 20), *([1] * 20)]:
        if writer not in outcomes:
            try:
                next(writers[writer])
            except StopIteration as stop:
                outcomes[writer] = stop.value.success
    return [outcomes[0], outcomes[1]]


def test_in_no_order_of_steps_do_two_writers_of_one_table_both_win(make: Make) -> None:
    for turns in product((0, 1), repeat=6):
        catalog = make(1, 1)
        proposals = [IntentionRecord(number, 0, {0: 1}) for number in (1, 2)]
        writers = [session(catalog).commit(0, {0: 1}, 0.0, proposal) for proposal in proposals]
        assert sorted(_finish(turns, writers)) == [False, True]
        assert catalog.seq == state_of(catalog).get_table(0).version == 1


def test_nothing_is_visible_before_the_commit_is_decided(make: Make) -> None:
    catalog = make(1, 1)
    committing = session(catalog).commit(0, {0: 1})
    next(committing)
    assert (catalog.seq, state_of(catalog).get_table(0).version) == (0, 0)
    drain(committing)
    assert (catalog.seq, state_of(catalog).get_table(0).version) == (1, 1)


def test_sessions_share_one_state(make: Make) -> None:
    catalog = make(1, 1)
    one, two = catalog.session(Stream(1)), catalog.session(Stream(2))
    drain(one.commit(0, {0: 1}))
    assert (two.seq, drain(two.read()).seq) == (1, 1)
    assert one.counters is two.counters is catalog.counters


@pytest.mark.parametrize("transaction", [fast_append, merge_append, overwrite])
def test_every_type_of_transaction_commits_after_lost_races(make: Make, transaction: Callable[..., Any]) -> None:
    catalog = make(1, 1)
    result = run(transaction(), losing(catalog, 3, fast_append))
    assert (result.status, result.total_retries) == (TransactionStatus.COMMITTED, 3)
    assert catalog.seq == 4


def test_seq_equals_the_number_of_commits(make: Make) -> None:
    catalog = make(2, 2)
    for number in range(10):
        commit(fast_append(number % 2), catalog)
    assert catalog.seq == 10
    assert [table.version for table in state_of(catalog).tables] == [5, 5]


def test_the_three_classes_of_the_specification_are_covered() -> None:
    covered = {type(make(1, 1)) for make in IMPLEMENTATIONS.values()}
    assert covered == {CASCatalog, AppendCatalog, InstantCatalog}
