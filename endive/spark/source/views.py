"""A table as of one snapshot, from which a scan is planned, and the part of it that tasks need.

Tasks never open the catalog. They get file names, schemas and a FileIO, and access data files only; so ten thousand
tasks put no load on the catalog, and a job reads one snapshot, however long it takes.
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
        """Return the schema of some columns, in that order. `ConfigurationError` names unknown columns."""
        if columns is None:
            return self.schema
        known = {field.name: field for field in self.schema.fields}
        errors = [f"there is no column {name!r}; there are {', '.join(known)}" for name in columns if name not in known]
        if errors:
            raise ConfigurationError(self.name, errors)
        return Schema(*(known[name] for name in columns), schema_id=self.schema.schema_id)


def view_of(table: Table, options: ReadOptions) -> View:
    """Return the table as of the snapshot that the options name."""
    name = ".".join(table.name())
    snapshot = _snapshot(table, options, name)
    metadata = table.metadata
    # As in Iceberg, a branch is read with the table's newest schema, a fixed snapshot with the schema of its commit.
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


def _found(snapshot: Snapshot | None, name: str, problem: str) -> Snapshot:
    if snapshot is None:
        raise ConfigurationError(name, [f"there is {problem}"])
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
    """Return the metadata for a commit: files keep the partition spec of their write, and PyIceberg tries once.

    Iceberg allows files of any known spec to be added; PyIceberg would assign them to the newest one. It would also
    retry by itself, without searching for the commit's id in between.
    """
    properties = {**metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    return _changed(metadata, default_spec_id=spec_id, properties=properties)


def _changed(metadata: TableMetadata, **changes: Any) -> TableMetadata:  # noqa: ANN401 - fields of any type
    return metadata.model_copy(update=changes)
