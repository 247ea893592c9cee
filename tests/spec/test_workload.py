"""Section "Workload Generator": selectors, the mix of operations, arrivals, topology."""

from collections import Counter
from itertools import islice

import pytest

from endive.rng import Stream
from endive.sim.latency import ExponentialLatency, FixedLatency, LognormalLatency
from endive.sim.selectors import (
    Selector,
    UniformPartitionSelector,
    UniformTableSelector,
    ZipfPartitionSelector,
    ZipfTableSelector,
)
from endive.sim.transaction import Transaction
from endive.sim.workload import ClosedLoop, Workload
from tests.instruments import ScriptedSource
from tests.support import workload_of

SELECTORS = [UniformTableSelector(), UniformPartitionSelector(), ZipfTableSelector(), ZipfPartitionSelector()]


def transactions(workload: Workload, count: int) -> list[Transaction]:
    return [txn for _, txn in islice(workload.generate(), count)]


# Selectors.


@pytest.mark.parametrize("alpha", [0.5, 1.5, 3.0])
def test_zipf_pmf(alpha: float) -> None:
    n, draws = 5, 40_000
    selector, rng = ZipfTableSelector(alpha), Stream(3)
    seen = Counter(min(selector.select(1, n, rng)[0]) for _ in range(draws))
    total = sum(1 / i**alpha for i in range(1, n + 1))
    for k in range(1, n + 1):
        assert seen[k - 1] / draws == pytest.approx((1 / k**alpha) / total, abs=0.01)


def test_the_zipf_boundaries_are_where_the_pmf_puts_them() -> None:
    share = 1 / (1 + 2**-1.5 + 3**-1.5)  # of the first of three, with the default alpha of 1.5
    selector = ZipfPartitionSelector()
    assert selector.select(1, 3, ScriptedSource(share - 1e-6))[0] == {0}
    assert selector.select(1, 3, ScriptedSource(share + 1e-6))[0] == {1}


def test_uniform_is_uniform() -> None:
    rng = Stream(1)
    seen = Counter(min(UniformTableSelector().select(1, 4, rng)[0]) for _ in range(20_000))
    assert all(count / 20_000 == pytest.approx(0.25, abs=0.012) for count in seen.values())
    assert set(seen) == {0, 1, 2, 3}


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda selector: type(selector).__name__)
def test_a_selection_is_distinct_and_writes_a_subset_of_its_reads(selector: Selector) -> None:
    rng = Stream(7)
    for n in (1, 3, 6):
        for _ in range(50):
            read, written = selector.select(n, 6, rng)
            assert len(read) == n
            assert read <= set(range(6))
            assert written == read  # by default everything is written


@pytest.mark.parametrize("selector", SELECTORS, ids=lambda selector: type(selector).__name__)
def test_a_selection_is_never_larger_than_the_total(selector: Selector) -> None:
    assert selector.select(9, 3, Stream(1))[0] == {0, 1, 2}


def test_write_fraction_is_the_share_of_reads_that_is_written_and_at_least_one() -> None:
    for fraction, expected in ((1.0, 8), (0.5, 4), (0.25, 2), (0.0, 1)):
        read, written = ZipfTableSelector(1.5, write_fraction=fraction).select(8, 10, Stream(2))
        assert (len(read), len(written)) == (8, expected)
        assert written <= read


# The mix of operations.


def test_operation_type_weights_are_normalised() -> None:
    workload = workload_of(fast_append_weight=14.0, merge_append_weight=4.0, validated_overwrite_weight=2.0)
    seen = Counter(txn.operation_type for txn in transactions(workload, 10_000))
    shares = {kind: count / 10_000 for kind, count in seen.items()}
    expected = {"fast_append": 0.7, "merge_append": 0.2, "validated_overwrite": 0.1}
    assert shares == pytest.approx(expected, abs=0.015)


def test_the_default_mix_is_70_20_10() -> None:
    config = workload_of().config
    weights = (config.fast_append_weight, config.merge_append_weight, config.validated_overwrite_weight)
    assert weights == (0.7, 0.2, 0.1)


def test_a_weight_of_zero_means_never() -> None:
    workload = workload_of(fast_append_weight=0.0, merge_append_weight=1.0, validated_overwrite_weight=0.0)
    assert {txn.operation_type for txn in transactions(workload, 500)} == {"merge_append"}


# Arrivals and runtimes.


def test_generate_yields_delays_and_transactions_whose_submissions_are_their_sums() -> None:
    pairs = list(islice(workload_of(inter_arrival=ExponentialLatency(30.0)).generate(), 200))
    elapsed_ms = 0.0
    for number, (delay_ms, txn) in enumerate(pairs):
        elapsed_ms += delay_ms
        assert txn.txn_id == number
        assert txn.submit_time_ms == pytest.approx(elapsed_ms)
    assert elapsed_ms / 200 == pytest.approx(30.0, rel=0.25)


def test_runtime_and_manifests_per_concurrent_commit_reach_the_transaction() -> None:
    workload = workload_of(runtime=FixedLatency(123.0), manifests_per_concurrent_commit=4.0)
    (txn,) = transactions(workload, 1)
    assert (txn.runtime_ms, txn.manifests_per_concurrent_commit) == (123.0, 4.0)


def test_a_seed_determines_the_workload_and_none_means_seed_0() -> None:
    def properties(seed: int | None) -> list[tuple[object, ...]]:
        workload = workload_of(seed, tables=5, runtime=LognormalLatency(3.0, 1.0))
        return [(t.submit_time_ms, t.runtime_ms, t.operation_type, t.tables_written) for t in transactions(workload, 9)]

    assert properties(1) == properties(1)
    assert properties(1) != properties(2)
    assert properties(None) == properties(None)


def test_a_property_depends_on_its_own_stream_only() -> None:
    narrow, wide = (transactions(workload_of(tables=n, tables_per_txn=n), 50) for n in (1, 7))
    assert [txn.operation_type for txn in narrow] == [txn.operation_type for txn in wide]
    assert [txn.streams.storage.random() for txn in narrow] == [txn.streams.storage.random() for txn in wide]


# Topology.


def test_partitions_are_not_tracked_unless_asked_for() -> None:
    assert transactions(workload_of(partitions=10), 1)[0].partitions_written is None


def test_partitions_are_chosen_within_each_table() -> None:
    workload = workload_of(tables=2, tables_per_txn=2, partitions_per_table=(1, 4), partitions_per_txn=3)
    for txn in transactions(workload, 100):
        assert txn.partitions_written is not None
        assert {table: len(chosen) for table, chosen in txn.partitions_written.items()} == {0: 1, 1: 3}
        assert txn.partitions_written[1] <= {0, 1, 2, 3}


def test_tables_read_but_not_written_are_recorded_as_reads() -> None:
    selector = ZipfTableSelector(0.0, write_fraction=0.5)
    for txn in transactions(workload_of(tables=6, tables_per_txn=4, table_selector=selector), 50):
        assert len(txn.tables_written) == 2
        assert len(txn.reads) == 2
        assert not txn.tables_written & txn.reads.keys()


def test_partitions_read_but_not_written_are_recorded_as_reads() -> None:
    selector = ZipfPartitionSelector(0.0, write_fraction=0.5)
    workload = workload_of(partitions=8, partitions_per_txn=4, partition_selector=selector)
    for txn in transactions(workload, 50):
        assert txn.partitions_written is not None
        read = txn.reads[0]
        assert read is not None
        assert (len(txn.partitions_written[0]), len(read)) == (2, 2)
        assert not txn.partitions_written[0] & read


def test_a_think_time_belongs_to_closed_arrivals_only() -> None:
    assert workload_of(closed=ClosedLoop(2, FixedLatency(9.0))).think_ms(0) == 9.0
    with pytest.raises(ValueError, match="think time"):
        workload_of().think_ms(0)
