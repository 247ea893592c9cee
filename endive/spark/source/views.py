"""A table as of one snapshot: what a scan is planned from, and the little of it that tasks need.

Tasks never open the catalog. They get file names, the schemas and the way to the files, and touch data files only; so
ten thousand tasks are no load for the catalog, and a job reads one snapshot however long it takes.
"""

from dataclasses import dataclass
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from endive.errors import ConfigurationError
from endive.spark.source.options import ReadOptions


@dataclass(frozen=True)
class View:
    """A table as of a snapshot, with the schema that it had then."""

    name: str
    metadata: TableMetadata
    snapshot_id: int | None
    """None: the table has no snapshot yet, and no rows."""
    io: FileIO

    @property
    def schema(self) -> Schema:
        """The columns of the table as of the snapshot."""
        return self.metadata.schema()

    def projected(self, columns: tuple[str, ...] | None) -> Schema:
        """Return the schema of some columns, in that order. `ConfigurationError` names those that are not there."""
        if columns is None:
            return self.schema
        there = {field.name: field for field in self.schema.fields}
        faults = [f"there is no column {name!r}; there are {', '.join(there)}" for name in columns if name not in there]
        if faults:
            raise ConfigurationError(self.name, faults)
        return Schema(*(there[name] for name in columns), schema_id=self.schema.schema_id)


def view_of(table: Table, options: ReadOptions) -> View:
    """Return the table as of what the options name."""
    name = ".".join(table.name())
    snapshot = _snapshot(table, options, name)
    metadata = table.metadata
    # A branch is read with the table's newest schema, as Iceberg has it; a fixed snapshot with the schema of its day.
    fixed = options.snapshot_id is not None or options.as_of_ms is not None or _is_tag(table, options.ref)
    if fixed and snapshot is not None and snapshot.schema_id is not None:
        metadata = _changed(metadata, current_schema_id=snapshot.schema_id)
    return View(name, metadata, snapshot.snapshot_id if snapshot else None, table.io)


def _snapshot(table: Table, options: ReadOptions, name: str) -> Snapshot | None:
    if options.snapshot_id is not None:
        return _found(table.snapshot_by_id(options.snapshot_id), name, f"no snapshot {options.snapshot_id}")
    if options.as_of_ms is not None:
        return _found(
            table.snapshot_as_of_timestamp(options.as_of_ms), name, f"no snapshot as old as {options.as_of_ms}"
        )
    if options.ref is not None:
        known = ", ".join(table.refs()) or "none"
        return _found(
            table.snapshot_by_name(options.ref), name, f"no branch or tag {options.ref!r}; there are: {known}"
        )
    return table.current_snapshot()


def _found(snapshot: Snapshot | None, name: str, fault: str) -> Snapshot:
    if snapshot is None:
        raise ConfigurationError(name, [f"there is {fault}"])
    return snapshot


def _is_tag(table: Table, ref: str | None) -> bool:
    return ref is not None and str(table.refs()[ref].snapshot_ref_type) == "tag"


def without_history(metadata: TableMetadata) -> TableMetadata:
    """Return what tasks need of a table's metadata: schemas, specs and properties, not thousands of snapshots."""
    return _changed(
        metadata,
        snapshots=[],
        snapshot_log=[],
        metadata_log=[],
        refs={},
        current_snapshot_id=None,
        statistics=[],
        partition_statistics=[],
    )


def committed_as(metadata: TableMetadata, spec_id: int) -> TableMetadata:
    """Return what a commit is built on: files have the spec they were written under, and PyIceberg tries once.

    The specification lets files of any known spec be added; PyIceberg would take them for files of the newest one. It
    would also try again by itself, without looking for the commit's id in between.
    """
    properties = {**metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    return _changed(metadata, default_spec_id=spec_id, properties=properties)


def _changed(metadata: TableMetadata, **changes: Any) -> TableMetadata:  # noqa: ANN401 - fields of any type
    return metadata.model_copy(update=changes)
