"""Operations on a table: the snapshots that they make, and those that they validate.

The first three are simplified, as in the simulator's source document: every overlapping commit counts for a
`validated_overwrite`. The others are Iceberg's, as its Java library has them: a validation reads only snapshots of the
kinds that can conflict, and all but `fast_append` merge manifests once a table has
`commit.manifest.min-count-to-merge` of them. The last two are maintenance: they keep the metadata of a table from
growing, and validate nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

OperationType = Literal[
    "fast_append",
    "merge_append",
    "validated_overwrite",
    "append",
    "overwrite",
    "row_delta",
    "replace_partitions",
    "rewrite",
    "expire_snapshots",
    "rewrite_manifests",
]
SPECIFIED_TYPES: tuple[OperationType, ...] = ("fast_append", "merge_append", "validated_overwrite")
"""The simplified operation types."""

SnapshotKind = Literal["append", "overwrite", "replace"]
SNAPSHOT_KINDS: tuple[SnapshotKind, ...] = ("append", "overwrite", "replace")
"""Kinds of snapshots, as their summaries have them."""


@dataclass(frozen=True)
class Operation:
    """One type of operation."""

    snapshot: SnapshotKind | None
    """Kind of the snapshots that it makes. None: maintenance, which changes no rows and conflicts with nothing."""
    validates: frozenset[SnapshotKind] = frozenset()
    """Kinds of missed snapshots that a validation reads."""
    validates_serializable: frozenset[SnapshotKind] = frozenset()
    """Kinds that it also reads under serializable isolation."""
    removed_by: frozenset[SnapshotKind] = frozenset()
    """Kinds that can conflict although no validation reads them: they may remove files that the operation replaces."""
    validates_all: bool = False
    """Every missed commit is validated and can conflict, whatever its kind: the simplified operations."""
    merges: bool = False
    """It merges manifests as Iceberg's Java library does."""
    merges_all: bool = False
    """It merges all manifests of a table, however few. A retry keeps what it has merged."""
    expires: bool = False
    """It removes snapshots from the table metadata, and adds neither a snapshot nor a manifest."""

    def reads(self, serializable: bool) -> frozenset[SnapshotKind]:
        """Return the kinds of missed snapshots that its validation reads."""
        return self.validates | self.validates_serializable if serializable else self.validates

    def conflicts(self, serializable: bool) -> frozenset[SnapshotKind]:
        """Return the kinds of missed snapshots that can be a real conflict."""
        return self.reads(serializable) | self.removed_by

    @property
    def is_validated(self) -> bool:
        """Whether a real conflict is possible at all."""
        return self.validates_all or bool(self.conflicts(serializable=True))


_APPEND: frozenset[SnapshotKind] = frozenset({"append"})
_OVERWRITE: frozenset[SnapshotKind] = frozenset({"overwrite"})
_REPLACE: frozenset[SnapshotKind] = frozenset({"replace"})

OPERATIONS: Mapping[OperationType, Operation] = {
    "fast_append": Operation("append"),
    "merge_append": Operation("append"),
    "validated_overwrite": Operation("overwrite", validates_all=True),
    "append": Operation("append", merges=True),
    "overwrite": Operation("overwrite", _OVERWRITE, _APPEND, _REPLACE, merges=True),
    "row_delta": Operation("overwrite", _OVERWRITE | _REPLACE, _APPEND, merges=True),
    "replace_partitions": Operation("overwrite", frozenset(), _APPEND | _OVERWRITE, merges=True),
    "rewrite": Operation("replace", _OVERWRITE, frozenset(), _REPLACE, merges=True),
    "expire_snapshots": Operation(None, expires=True),
    "rewrite_manifests": Operation(None, merges_all=True),
}
OPERATION_TYPES: tuple[OperationType, ...] = tuple(OPERATIONS)
