"""PyIceberg's private names, all in this module.

PyIceberg has no public way to apply updates without copying the whole table, to plan a scan from other entries than
those of manifests, or to see the updates of a transaction. Everything of it that begins with an underscore and that
Endive uses is here, and `PRIVATE_NAMES` lists it: a test checks each name against the installed version, so that a new
version of PyIceberg fails by name and not in the middle of a commit. pyproject.toml bounds the version.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.manifest import DataFile, ManifestFile, write_manifest_list
from pyiceberg.partitioning import (
    UNPARTITIONED_PARTITION_SPEC,
    PartitionField,
    PartitionSpec,
    _PartitionNameGenerator,
    _visit_partition_field,
)
from pyiceberg.schema import Schema
from pyiceberg.table import ManifestGroupPlanner, StagedTable, Table, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV3
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import (
    TableRequirement,
    TableUpdate,
    UpdatesAndRequirements,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
    _update_table_metadata_log,
)
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.table.update.snapshot import UpdateSnapshot, _FastAppendFiles
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties

from endive.catalog.commit.manifest_lists import BytesFile, ListOnTop, avro_blocks, keeps_all_manifests
from endive.catalog.file_io import open_file_io

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io.pyarrow import ArrowScan, ParquetFormatWriter
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.update.snapshot import _SnapshotProducer

PRIVATE_NAMES = (
    "pyiceberg.catalog:MetastoreCatalog._check_for_overlap",
    "pyiceberg.catalog:Catalog._convert_schema_if_needed",
    "pyiceberg.catalog:Catalog._delete_old_metadata",
    "pyiceberg.catalog:Catalog._load_file_io",
    "pyiceberg.catalog:MetastoreCatalog._create_staged_table",
    "pyiceberg.catalog:MetastoreCatalog._empty_table_metadata",
    "pyiceberg.catalog:MetastoreCatalog._parse_metadata_version",
    "pyiceberg.io.pyarrow:ArrowScan._record_batches_from_scan_tasks_and_deletes",
    "pyiceberg.io.pyarrow:_get_field_from_arrow_table",
    "pyiceberg.io.pyarrow:_read_all_delete_files",
    "pyiceberg.io.pyarrow:_to_requested_schema",
    "pyiceberg.partitioning:_PartitionNameGenerator",
    "pyiceberg.partitioning:_visit_partition_field",
    "pyiceberg.table:ManifestGroupPlanner._build_metrics_evaluator",
    "pyiceberg.table:ManifestGroupPlanner._build_partition_evaluator",
    "pyiceberg.table:ManifestGroupPlanner._build_residual_evaluator",
    "pyiceberg.table:Transaction._rebuild_snapshot_updates",
    "pyiceberg.table.update:_apply_table_update",
    "pyiceberg.table.update:_TableMetadataUpdateContext",
    "pyiceberg.table.update:_update_table_metadata_log",
    "pyiceberg.table.update.snapshot:_FastAppendFiles",
    "pyiceberg.table.update.snapshot:_FastAppendFiles._commit",
    "pyiceberg.table.update.snapshot:_FastAppendFiles._existing_manifests",
)
"""Private functions, methods and classes that Endive uses, as `module:name`."""

PRIVATE_ATTRIBUTES = (
    "pyiceberg.io.pyarrow:ParquetFormatWriter._parquet_writer_kwargs",
    "pyiceberg.table:Transaction._requirements",
    "pyiceberg.table:Transaction._snapshot_producers",
    "pyiceberg.table:Transaction._table",
    "pyiceberg.table:Transaction._updates",
    "pyiceberg.table.update:UpdateTableMetadata._transaction",
    "pyiceberg.table.update.snapshot:UpdateSnapshot._branch",
    "pyiceberg.table.update.snapshot:UpdateSnapshot._io",
    "pyiceberg.table.update.snapshot:UpdateSnapshot._snapshot_properties",
    "pyiceberg.table.update.snapshot:_SnapshotProducer._compression",
    "pyiceberg.table.update.snapshot:_SnapshotProducer._io",
    "pyiceberg.table.update.snapshot:_SnapshotProducer._parent_snapshot_id",
)
"""Private attributes of instances that Endive uses: named in the source of their class."""


# Metadata.


def empty_table_metadata() -> TableMetadata:
    """Return the metadata that the updates of a new table are applied to."""
    return MetastoreCatalog._empty_table_metadata()


def with_updates(base: TableMetadata, updates: Sequence[TableUpdate]) -> TableMetadata:
    """Return the metadata after updates, without a deep copy; `base` itself if they change nothing."""
    context = _TableMetadataUpdateContext()
    new = base
    for update in updates:
        if isinstance(update, UpgradeFormatVersionUpdate) and update.format_version == 3 != new.format_version:
            context.add_update(update)
            new = _of_format_3(new)
        else:
            new = _apply_table_update(update, new, context)
    return _not_backwards(base, new) if context.has_changes() else base


def _not_backwards(base: TableMetadata, new: TableMetadata) -> TableMetadata:
    """Return `new` with the higher last sequence number: a snapshot without a parent may have an older one."""
    if isinstance(base, TableMetadataV1) or isinstance(new, TableMetadataV1):
        return new
    last = base.last_sequence_number
    return new if new.last_sequence_number >= last else new.model_copy(update={"last_sequence_number": last})


def _of_format_3(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata in format 3, to which PyIceberg upgrades no table. Like its upgrades, without validation."""
    return with_row_ids(TableMetadataV3.model_construct(**{**dict(metadata), "format_version": 3}))


def with_row_ids(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata of a table of format 3 with its first row id, which PyIceberg leaves out."""
    if isinstance(metadata, TableMetadataV3) and metadata.next_row_id is None:
        return metadata.model_copy(update={"next_row_id": 0})
    return metadata


def with_log_entry(metadata: TableMetadata, previous: str, previous_unix_ms: int) -> TableMetadata:
    """Return the metadata with its previous metadata file in the metadata log."""
    return _update_table_metadata_log(metadata, previous, previous_unix_ms)


def metadata_file_version(location: str) -> int:
    """Return the number in the name of a metadata file."""
    return MetastoreCatalog._parse_metadata_version(location)


# Schemas and partitions.


def iceberg_schema(schema: "Schema | pa.Schema", format_version: Any = 2) -> Schema:  # noqa: ANN401 - a literal type
    """Return an Iceberg schema for an Arrow schema."""
    return Catalog._convert_schema_if_needed(schema, format_version)


def partition_name(schema: Schema, field: PartitionField) -> str:
    """Return the name that Iceberg gives a partition field."""
    name: str = _visit_partition_field(schema, field, _PartitionNameGenerator())
    return name


# Transactions and schema updates.


class TransactionWithHooks(Transaction):
    """A transaction of PyIceberg whose requirements are replaced before they are sent."""

    @abstractmethod
    def requirements_to_send(self) -> tuple[TableRequirement, ...]:
        """Return the requirements to send with the updates."""

    def commit_transaction(self) -> Table:
        self._requirements = self.requirements_to_send()
        return super().commit_transaction()

    def update_snapshot(
        self, snapshot_properties: dict[str, str] = EMPTY_DICT, branch: str | None = MAIN_BRANCH
    ) -> UpdateSnapshot:
        return UpdateSnapshotOnTop(self, self._table.io, branch, snapshot_properties)

    def _rebuild_snapshot_updates(self) -> None:
        super()._rebuild_snapshot_updates()
        self._requirements = self.requirements_to_send()


@cache
def _list_kind(format_version: Any, compression: Any) -> tuple[bytes | None, bytes | None]:  # noqa: ANN401 - literals
    """Return the Avro schema and codec of manifest lists that PyIceberg writes."""
    empty = BytesFile("")
    with write_manifest_list(format_version, empty, 0, None, 0, compression):
        pass
    return avro_blocks(empty.body).kind


class _AppendOnTop(_FastAppendFiles):
    """PyIceberg's fast append, except that its list copies its parent's as it is stored (`ListOnTop`)."""

    _below: bytes | None = None

    def _existing_manifests(self) -> list[ManifestFile]:
        self._below = self._parents_list()
        return [] if self._below is not None else super()._existing_manifests()

    def _parents_list(self) -> bytes | None:
        """Return the list of the parent, if this append can copy it."""
        metadata, parent_id = self._transaction.table_metadata, self._parent_snapshot_id
        parent = metadata.snapshot_by_id(parent_id) if parent_id is not None else None
        if parent is None or not keeps_all_manifests(parent):
            return None
        with self._io.new_input(parent.manifest_list).open() as stream:
            below = bytes(stream.read())
        try:
            is_same = avro_blocks(below).kind == _list_kind(metadata.format_version, self._compression)
        except ValueError:
            return None  # PyIceberg will say what is wrong with it
        return below if is_same else None

    def _commit(self) -> UpdatesAndRequirements:
        io = self._io
        self._io = _ListsOnTop(io, self)
        try:
            return super()._commit()
        finally:
            self._io = io

    @property
    def below(self) -> bytes | None:
        """The parent's list, if it is to be copied."""
        return self._below


class _ListsOnTop(FileIO):
    """A FileIO that puts the manifest list of an append on top of its parent's."""

    def __init__(self, io: FileIO, append: _AppendOnTop) -> None:
        super().__init__(io.properties)
        self._io = io
        self._append = append

    def new_input(self, location: str) -> InputFile:
        return self._io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        output = self._io.new_output(location)
        is_list = location.rpartition("/")[2].startswith(f"snap-{self._append.snapshot_id}-")
        return ListOnTop(output, self._append.below) if is_list else output

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._io.delete(location)


class UpdateSnapshotOnTop(UpdateSnapshot):
    """PyIceberg's `UpdateSnapshot` with appends that do not decode the table's manifests."""

    def fast_append(self) -> _FastAppendFiles:
        """Return an append."""
        return _AppendOnTop(
            operation=Operation.APPEND,
            transaction=self._transaction,
            io=self._io,
            branch=self._branch,
            snapshot_properties=self._snapshot_properties,
        )


def base_table_of(transaction: Transaction) -> Table:
    """Return the table that a transaction changes."""
    return transaction._table


def requirements_of(transaction: Transaction) -> tuple[TableRequirement, ...]:
    """Return the requirements of a transaction."""
    return transaction._requirements


def updates_of(transaction: Transaction) -> tuple[TableUpdate, ...]:
    """Return the updates of a transaction."""
    return transaction._updates


def only_fast_appends(transaction: Transaction) -> bool:
    """Whether all snapshots of a transaction are plain appends."""
    producers: Sequence[_SnapshotProducer[Any]] = transaction._snapshot_producers
    return all(isinstance(one, _FastAppendFiles) for one in producers)


def metadata_of(update: UpdateSchema) -> TableMetadata:
    """Return the metadata that a schema update applies to."""
    return update._transaction.table_metadata


# Catalogs.


class CatalogWithStagedTables(MetastoreCatalog):
    """PyIceberg's base class for catalogs; `create_table_transaction` calls `staged_table`."""

    @abstractmethod
    def staged_table(
        self,
        identifier: str | Identifier,
        schema: "Schema | pa.Schema",
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> StagedTable:
        """Return a table that is not in the catalog yet."""

    def _create_staged_table(self, *arguments: Any, **named: Any) -> StagedTable:  # noqa: ANN401
        return self.staged_table(*arguments, **named)

    def file_io(self, properties: Properties, location: str) -> FileIO:
        """Return the FileIO for a table's properties and a location."""
        return self._load_file_io(properties, location)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return open_file_io({**self.properties, **properties}, location)

    @staticmethod
    def _delete_old_metadata(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None:
        """Do nothing after a commit: the catalog has done it (`endive.catalog.commit.old_metadata`)."""

    def check_for_overlap(self, removals: set[str] | None, updates: Properties) -> None:
        """Raise if a property is both removed and set."""
        self._check_for_overlap(removals, updates)


# Scans.


class PlannerWithEvaluators(ManifestGroupPlanner):
    """PyIceberg's scan planner, with the evaluators that it builds."""

    def partition_evaluator(self, spec_id: int) -> Callable[[DataFile], bool]:
        """Return a function that tells whether a file's partition may have matching rows."""
        return self._build_partition_evaluator(spec_id)

    def metrics_evaluator(self) -> Callable[[DataFile], bool]:
        """Return a function that tells whether a file's metrics allow matching rows."""
        return self._build_metrics_evaluator()

    def residual_of(self, file: DataFile) -> BooleanExpression:
        """Return the part of the filter that a file's partition does not decide."""
        try:
            return self._build_residual_evaluator(file.spec_id)(file).residual_for(file.partition)
        except TypeError:  # PyIceberg compares a null partition value with a literal
            return self.row_filter


def read_delete_files(io: FileIO, tasks: "Sequence[FileScanTask]") -> Any:  # noqa: ANN401 - PyIceberg's nested types
    """Return the positions deleted by the delete files of scan tasks."""
    from pyiceberg.io.pyarrow import _read_all_delete_files  # noqa: PLC0415 - the catalog does not need PyArrow's part

    return _read_all_delete_files(io, tasks)


def record_batches(scan: "ArrowScan", tasks: "Sequence[FileScanTask]", deletes: Any) -> "Iterator[pa.RecordBatch]":  # noqa: ANN401
    """Read scan tasks, without the deleted rows."""
    return scan._record_batches_from_scan_tasks_and_deletes(tasks, deletes)


def set_writer_argument(writer: "ParquetFormatWriter", name: str, value: object) -> None:
    """Set an argument of the Parquet writer that PyIceberg opens with the first batch."""
    writer._parquet_writer_kwargs[name] = value


def nested_column(rows: "pa.Table", name: str) -> "pa.Array | pa.ChunkedArray":
    """Return a column of an Arrow table; dots in its name lead into structs."""
    from pyiceberg.io.pyarrow import _get_field_from_arrow_table  # noqa: PLC0415 - as above

    return _get_field_from_arrow_table(rows, name)


def to_requested_schema(**arguments: Any) -> "pa.RecordBatch":  # noqa: ANN401 - PyIceberg's arguments
    """Return a record batch with the columns, types and field ids of a requested schema."""
    from pyiceberg.io.pyarrow import _to_requested_schema  # noqa: PLC0415 - as above

    return _to_requested_schema(**arguments)
