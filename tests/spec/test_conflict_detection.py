"""Section "Conflict Detection", and "Write Overlap Check" of the section before it."""

from collections.abc import Callable

import pytest

from endive.rng import Stream
from endive.sim.catalog import CatalogSnapshot, TableMetadata
from endive.sim.conflict_detector import (
    ConflictDetector,
    PartitionOverlapConflictDetector,
    ProbabilisticConflictDetector,
)
from endive.sim.transaction import Transaction, TransactionStatus
from tests.instruments import ScriptedSource
from tests.support import (
    catalog_of,
    commit,
    fast_append,
    losing,
    merge_append,
    overwrite,
    paused_before_commit,
    resume,
    run,
)


def snapshot(*partition_versions: tuple[int, ...]) -> CatalogSnapshot:
    """Return a snapshot of tables with these partition versions; a table's version is their sum."""
    tables = [
        TableMetadata(number, sum(versions), len(versions), versions)
        for number, versions in enumerate(partition_versions)
    ]
    return CatalogSnapshot(sum(table.version for table in tables), tuple(tables), 0.0)


def started(txn: Transaction) -> Transaction:
    """Return the transaction in mid-flight, on a catalog of two tables with two partitions each."""
    return paused_before_commit(txn, catalog_of(tables=2, partitions=2)).txn


# Write overlap.

OLD = snapshot((0, 0), (0, 0))


@pytest.mark.parametrize(
    ("new", "overlaps"),
    [
        (snapshot((0, 0), (0, 0)), False),
        (snapshot((0, 0), (3, 0)), False),
        (snapshot((0, 2), (0, 0)), False),
        (snapshot((1, 0), (0, 0)), True),
        (snapshot((1, 1), (5, 5)), True),
    ],
    ids=["nothing", "other table", "disjoint partition", "same partition", "everything"],
)
def test_write_overlap_needs_the_same_table_and_the_same_partition(new: CatalogSnapshot, overlaps: bool) -> None:
    assert started(fast_append(0, partition=0)).has_write_overlap(OLD, new) is overlaps


def test_without_partition_tracking_any_change_to_a_written_table_overlaps() -> None:
    untracked = started(fast_append(0))
    assert untracked.has_write_overlap(OLD, snapshot((0, 1), (0, 0)))
    assert not untracked.has_write_overlap(OLD, snapshot((0, 0), (0, 1)))


def test_one_overlapping_table_of_several_is_enough() -> None:
    assert started(fast_append(tables=frozenset({0, 1}))).has_write_overlap(OLD, snapshot((0, 0), (0, 1)))


# Probabilistic.


@pytest.mark.parametrize(("u", "real"), [(0.29, True), (0.31, False)])
def test_probabilistic_is_real_with_the_configured_probability(u: float, real: bool) -> None:
    detector = ProbabilisticConflictDetector(0.3, ScriptedSource(u))
    assert detector.is_real_conflict(overwrite(), OLD, OLD) is real


def test_probabilistic_over_many_draws() -> None:
    detector = ProbabilisticConflictDetector(0.3, Stream(5))
    share = sum(detector.is_real_conflict(overwrite(), OLD, OLD) for _ in range(20_000)) / 20_000
    assert share == pytest.approx(0.3, abs=0.015)


@pytest.mark.parametrize("transaction", [fast_append, merge_append])
@pytest.mark.parametrize("detector", [ProbabilisticConflictDetector(1.0), PartitionOverlapConflictDetector()])
def test_appends_never_have_a_real_conflict(
    transaction: Callable[..., Transaction], detector: ConflictDetector
) -> None:
    assert not detector.is_real_conflict(started(transaction()), snapshot((9, 9), (9, 9)), OLD)


def test_without_a_source_of_its_own_each_transaction_draws_from_its_own_stream() -> None:
    detector = ProbabilisticConflictDetector(0.5)
    outcomes = [detector.is_real_conflict(overwrite(txn_id=number), OLD, OLD) for number in range(64)]
    again = [detector.is_real_conflict(overwrite(txn_id=number), OLD, OLD) for number in reversed(range(64))]
    assert outcomes == again[::-1]
    assert 16 < sum(outcomes) < 48


# Partition overlap.


@pytest.mark.parametrize(("rival_partition", "status"), [(0, "ABORTED"), (1, "COMMITTED")])
def test_partition_overlap_is_real_if_a_written_partition_was_modified(rival_partition: int, status: str) -> None:
    catalog = catalog_of(partitions=2)
    slow = paused_before_commit(overwrite(partition=0), catalog, detector=PartitionOverlapConflictDetector())
    commit(fast_append(partition=rival_partition), catalog)
    result = resume(slow)
    assert result.status is TransactionStatus[status]
    assert result.abort_reason == ("validation_exception" if status == "ABORTED" else None)


def test_partition_overlap_compares_start_with_current() -> None:
    detector, txn = PartitionOverlapConflictDetector(), started(overwrite(0, partition=1))
    moved = snapshot((0, 1), (0, 0))
    assert detector.is_real_conflict(txn, moved, OLD)
    assert not detector.is_real_conflict(txn, moved, moved)
    assert not detector.is_real_conflict(txn, snapshot((1, 0), (1, 1)), OLD)


# In the commit loop.


def test_the_detector_is_asked_only_once_an_overlap_is_established() -> None:
    class Counting(ConflictDetector):
        asked = 0

        def is_real_conflict(self, txn: Transaction, current: CatalogSnapshot, start: CatalogSnapshot) -> bool:
            self.asked += 1
            return False

    detector = Counting()
    run(overwrite(0), losing(catalog_of(tables=2), 3, lambda: fast_append(1)), detector=detector)
    assert detector.asked == 0
    run(overwrite(0), losing(catalog_of(tables=2), 3, lambda: fast_append(0)), detector=detector)
    assert detector.asked == 3
