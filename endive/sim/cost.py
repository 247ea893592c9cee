"""The requests of a commit attempt: the named cost models.

* `spec`: the reference model, and the default. Every overlapping attempt reads the manifest list, writes a manifest
  file and writes the manifest list.
* `iceberg`: Iceberg's Java library. It refreshes the catalog before the first attempt, writes the manifest
  file once and reuses it, and reads and writes the table metadata at each attempt.
* `pyiceberg`: PyIceberg. It starts from the handle it has, writes the manifest file at each attempt, reads the
  catalog and the metadata again just before the swap (and gives up the attempt there if the table has changed),
  and validates everything since its start each time.

A model is data: rows of counts. The transaction's commit loop reads them and has no branch per model.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal

from endive.sim.operations import OPERATION_TYPES, OperationType

__all__ = [
    "COST_MODELS",
    "ICEBERG",
    "NOTHING",
    "OPERATION_TYPES",
    "PYICEBERG",
    "REQUEST_KINDS",
    "SPEC",
    "Behind",
    "ConflictCost",
    "CostModel",
    "OperationCost",
    "OperationType",
]

Behind = Literal["catalog", "table", "partition"]


@dataclass(frozen=True)
class ConflictCost:
    """Requests to make, by kind, in the order in which they are made."""

    metadata_reads: int = 0
    manifest_list_reads: int = 0
    manifest_list_writes: int = 0
    historical_ml_reads: int = 0
    """The convoy: one manifest list for each snapshot missed."""
    manifest_file_reads: int = 0
    manifest_file_writes: int = 0
    metadata_writes: int = 0
    heads: int = 0
    """Requests for an object's existence or length; they take as long as reading nothing."""
    metadata_root_reads: int = 0

    def __add__(self, other: "ConflictCost") -> "ConflictCost":
        return ConflictCost(**{kind: getattr(self, kind) + getattr(other, kind) for kind in REQUEST_KINDS})

    def times(self, factor: float) -> "ConflictCost":
        """Return the cost `factor` times, each count truncated to a whole number."""
        return ConflictCost(**{kind: int(count * factor) for kind, count in self.due})

    def without(self, kinds: Collection[str]) -> "ConflictCost":
        """Return the cost less all requests of these kinds."""
        return ConflictCost(**{kind: count for kind, count in self.due if kind not in kinds})

    def only(self, kinds: Collection[str]) -> "ConflictCost":
        """Return the requests of these kinds."""
        return ConflictCost(**{kind: count for kind, count in self.due if kind in kinds})

    @cached_property
    def reads_and_writes(self) -> tuple[int, int]:
        """The number of reads and of writes."""
        writes = sum(count for kind, count in self.due if kind.endswith("writes"))
        return sum(count for _, count in self.due) - writes, writes

    @cached_property
    def due(self) -> tuple[tuple[str, int], ...]:
        """The kinds that are due, with their counts, in the order of the fields."""
        return tuple((kind, getattr(self, kind)) for kind in REQUEST_KINDS if getattr(self, kind))


REQUEST_KINDS = tuple(field.name for field in fields(ConflictCost))
NOTHING = ConflictCost()


@dataclass(frozen=True)
class OperationCost:
    """Requests of one type of operation."""

    first: ConflictCost
    """Before the first swap."""
    retry: ConflictCost
    """Before the swap of a retry that overlaps."""
    beside: tuple[ConflictCost, ConflictCost] = (NOTHING, NOTHING)
    """Both attempts also make these two series of requests, at the same time."""
    per_manifest: ConflictCost = NOTHING
    """Both attempts, for each manifest that the table has."""
    per_snapshot: ConflictCost = NOTHING
    """A retry that overlaps, for each snapshot missed."""
    per_concurrent_manifest: ConflictCost = NOTHING
    """The same, times the manifests that a concurrent commit adds."""

    def conflict(self, n_behind: int, manifests_per_concurrent_commit: float) -> ConflictCost:
        """Return the requests of a retry that has missed `n_behind` snapshots."""
        merged = self.per_concurrent_manifest.times(n_behind * manifests_per_concurrent_commit)
        return self.per_snapshot.times(n_behind) + merged


@dataclass(frozen=True)
class CostModel:
    """The requests of a commit in one library, as data."""

    name: str
    trust: Literal["checked", "partly", "unchecked"]
    checked: str
    """How the model was checked."""
    operations: Mapping[OperationType, OperationCost]
    publish: ConflictCost
    """Last before the swap."""
    behind: Behind = "catalog"
    """Whose missed snapshots count: the catalog's, the written tables' or the written partitions'."""
    behind_since_start: bool = False
    """Every retry counts from the transaction's start, not from its last attempt."""
    refreshes_first: bool = False
    """The catalog is read again before the first attempt."""
    checks_before_swap: bool = False
    """Catalog and metadata are read before the swap, and an attempt that is out of date ends there."""
    resolves_last: bool = False
    """The last failed attempt still reads the catalog and resolves the conflict before it gives up."""
    per_table: bool = False
    """A transaction over several tables pays for each."""
    loads_metadata: bool = True
    """Table metadata that is not inlined is read at the transaction's start. False: in the first attempt."""
    metadata_inlined: bool = False
    """Default of `catalog.table_metadata_inlined`."""
    retries: int = 4
    backoff_ms: tuple[float, float] | None = (100.0, 60_000.0)
    """First and longest wait of the default backoff; None: no backoff unless asked for."""
    waits_before_read: bool = True
    """Default of `transaction.retry_backoff.before_read`: libraries wait, then refresh, then try again."""
    retry_timeout_ms: float | None = 1_800_000.0

    @property
    def reuses_manifests(self) -> bool:
        """Whether a retry uses the manifest file of the first attempt again."""
        row = self.operations["fast_append"]
        return not any(part.manifest_file_writes for part in (row.retry, *row.beside))

    def with_reuse(self, reuses: bool) -> "CostModel":
        """Return the model with retries that use the manifest file of the first attempt again, or write one each."""
        if reuses == self.reuses_manifests:
            return self
        written = ConflictCost(manifest_file_writes=1)
        rows = {
            kind: replace(row, retry=row.retry.without(("manifest_file_writes",)) if reuses else row.retry + written)
            for kind, row in self.operations.items()
        }
        return replace(self, operations=rows)

    def row(self, operation: str) -> OperationCost:
        """Return what an operation type pays. A type of a user's own pays like a fast append."""
        return next((row for name, row in self.operations.items() if name == operation), self.operations["fast_append"])


_ATTEMPT = ConflictCost(manifest_list_reads=1, manifest_file_writes=1, manifest_list_writes=1)
_REFRESH = ConflictCost(metadata_reads=1)
_WRITE_METADATA = ConflictCost(metadata_writes=1)
_CONVOY = ConflictCost(historical_ml_reads=1)
_MERGE = ConflictCost(manifest_file_reads=1, manifest_file_writes=1)


def _conflict_rows(
    row: OperationCost, validated: ConflictCost, filtered: ConflictCost, deletes: ConflictCost
) -> dict[OperationType, OperationCost]:
    """Add the cost of each type of operation to a common row.

    `validated` is the cost of each snapshot that Iceberg's operations validate; `filtered` that of rewriting the
    manifest that lists the replaced files, `deletes` that of a manifest of delete files, both in the first attempt.
    """
    replaces = replace(row, first=row.first + filtered, per_snapshot=validated)
    metadata, manifest = frozenset({"metadata_reads"}), frozenset({"manifest_file_writes"})
    return {
        "fast_append": row,
        "merge_append": replace(row, per_concurrent_manifest=_MERGE),
        "validated_overwrite": replace(row, per_snapshot=_CONVOY),
        "append": row,
        "overwrite": replaces,
        "row_delta": replace(row, first=row.first + deletes, per_snapshot=validated),
        "replace_partitions": replaces,
        "rewrite": replaces,
        "expire_snapshots": OperationCost(row.first.only(metadata), row.retry.only(metadata)),
        "rewrite_manifests": replace(row, first=row.first.without(manifest), retry=row.retry.without(manifest)),
    }


SPEC = CostModel(
    "spec",
    "unchecked",
    "as the simulator's design document describes it; compared with no library",
    operations=_conflict_rows(
        OperationCost(first=_ATTEMPT + _REFRESH, retry=_ATTEMPT + _REFRESH), _CONVOY, NOTHING, NOTHING
    ),
    publish=_WRITE_METADATA,
    resolves_last=True,
    loads_metadata=False,
    metadata_inlined=True,
    retries=10,
    backoff_ms=None,
    waits_before_read=False,
    retry_timeout_ms=None,
)

_ICEBERG_RETRY = ConflictCost(metadata_reads=1, manifest_list_reads=1, manifest_list_writes=1)

ICEBERG = CostModel(
    "iceberg",
    "unchecked",
    "as Iceberg's Java code is described; compared with no trace",
    operations=_conflict_rows(
        OperationCost(first=_ICEBERG_RETRY + ConflictCost(manifest_file_writes=1), retry=_ICEBERG_RETRY),
        validated=_CONVOY + ConflictCost(manifest_file_reads=1),
        filtered=_MERGE,
        deletes=ConflictCost(manifest_file_writes=1),
    ),
    publish=_WRITE_METADATA,
    behind="table",
    refreshes_first=True,
    per_table=True,
)

_MANIFEST = ConflictCost(manifest_file_writes=1, heads=1)
_LIST = ConflictCost(manifest_list_writes=1)
_BESIDE = (_MANIFEST, ConflictCost(manifest_list_reads=1))
_MERGED = _LIST + _MANIFEST + ConflictCost(manifest_file_reads=1)
_DELETED = _LIST + _LIST + _MANIFEST + ConflictCost(manifest_list_reads=1)
_READ_MANIFEST = ConflictCost(manifest_file_reads=1)

_REPLACED_LIST = _LIST + ConflictCost(manifest_list_reads=1)

_FAST = OperationCost(_LIST, _LIST + _REFRESH, _BESIDE)
_DELETES = OperationCost(
    _DELETED,
    _DELETED + _REFRESH,
    _BESIDE,
    per_manifest=_READ_MANIFEST,
    per_snapshot=_CONVOY + _READ_MANIFEST.times(2),
)

PYICEBERG = CostModel(
    "pyiceberg",
    "checked",
    "requests equal to a trace of PyIceberg 0.12.0, with 0 to 2 lost races",
    operations={
        "fast_append": _FAST,
        "merge_append": OperationCost(
            _MERGED, _MERGED + _REFRESH, _BESIDE, per_manifest=_READ_MANIFEST, per_snapshot=_READ_MANIFEST
        ),
        "validated_overwrite": _DELETES,
        "append": _FAST,
        "overwrite": _DELETES,
        "row_delta": _DELETES,
        "replace_partitions": _DELETES,
        "rewrite": _DELETES,
        "expire_snapshots": OperationCost(NOTHING, _REFRESH),
        "rewrite_manifests": OperationCost(_REPLACED_LIST, _REPLACED_LIST + _REFRESH),
    },
    publish=ConflictCost(metadata_writes=1, heads=1),
    behind="table",
    behind_since_start=True,
    checks_before_swap=True,
    per_table=True,
)

COST_MODELS: Mapping[str, CostModel] = {model.name: model for model in (SPEC, ICEBERG, PYICEBERG)}
