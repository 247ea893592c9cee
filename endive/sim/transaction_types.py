"""Iceberg's own operations as transactions, and the transaction class of every operation type."""

from collections.abc import Mapping

from endive.sim.operations import OperationType
from endive.sim.transaction import (
    FastAppendTransaction,
    MergeAppendTransaction,
    Transaction,
    ValidatedOverwriteTransaction,
)


class IcebergTransaction(Transaction):
    """One of Iceberg's operations: `OPERATIONS` says what it validates."""

    def can_have_real_conflict(self) -> bool:
        return self._operation.is_validated

    def should_abort_on_real_conflict(self) -> bool:
        return True


class AppendTransaction(IcebergTransaction):
    """Adds files, and merges manifests once a table has enough of them."""

    operation_type = "append"


class OverwriteTransaction(IcebergTransaction):
    """Replaces data files by others."""

    operation_type = "overwrite"


class RowDeltaTransaction(IcebergTransaction):
    """Adds data files and delete files."""

    operation_type = "row_delta"


class ReplacePartitionsTransaction(IcebergTransaction):
    """Replaces all files of the partitions that it writes."""

    operation_type = "replace_partitions"


class RewriteTransaction(IcebergTransaction):
    """Compaction: replaces data files by fewer ones with the same rows."""

    operation_type = "rewrite"


class ExpireSnapshotsTransaction(IcebergTransaction):
    """Removes old snapshots from the table metadata."""

    operation_type = "expire_snapshots"


class RewriteManifestsTransaction(IcebergTransaction):
    """Merges all manifests of a table into one."""

    operation_type = "rewrite_manifests"


TRANSACTION_TYPES: Mapping[OperationType, type[Transaction]] = {
    "fast_append": FastAppendTransaction,
    "merge_append": MergeAppendTransaction,
    "validated_overwrite": ValidatedOverwriteTransaction,
    "append": AppendTransaction,
    "overwrite": OverwriteTransaction,
    "row_delta": RowDeltaTransaction,
    "replace_partitions": ReplacePartitionsTransaction,
    "rewrite": RewriteTransaction,
    "expire_snapshots": ExpireSnapshotsTransaction,
    "rewrite_manifests": RewriteManifestsTransaction,
}
