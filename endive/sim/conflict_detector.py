"""Conflict detectors decide whether an overlap is a real data conflict."""

from endive.rng import RandomSource
from endive.sim.catalog import CatalogSnapshot
from endive.sim.transaction import ConflictDetector, Transaction

__all__ = ["ConflictDetector", "PartitionOverlapConflictDetector", "ProbabilisticConflictDetector"]


class ProbabilisticConflictDetector(ConflictDetector):
    """Every overlap of a type that can conflict is real with the same probability.

    `rng=None`: each transaction draws from its own stream, so that its draws do not depend on other transactions.
    """

    def __init__(self, real_conflict_probability: float, rng: RandomSource | None = None) -> None:
        self._probability = real_conflict_probability
        self._rng = rng

    def is_real_conflict(
        self,
        txn: Transaction,
        current_snapshot: CatalogSnapshot,  # noqa: ARG002 - chance alone decides
        start_snapshot: CatalogSnapshot,  # noqa: ARG002
    ) -> bool:
        if not txn.can_have_real_conflict():
            return False
        return (self._rng or txn.streams.conflict).random() < self._probability


class PartitionOverlapConflictDetector(ConflictDetector):
    """A conflict is real if a partition that the transaction depends on was changed."""

    def is_real_conflict(
        self, txn: Transaction, current_snapshot: CatalogSnapshot, start_snapshot: CatalogSnapshot
    ) -> bool:
        return txn.can_have_real_conflict() and txn.has_write_overlap(start_snapshot, current_snapshot)
