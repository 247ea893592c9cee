"""Position delete files, which PyIceberg reads and cannot write: the files, their manifests, and commits of them."""

from collections.abc import Sequence
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from endive.catalog import TableChange
from endive.catalog.commit.decision import last_sequence_number
from endive.catalog.commit.manifests import metadata_path, read_entries, read_list, write_list
from endive.drivers.blocking import random_id

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""Iceberg's reserved ids of the columns of a position delete file."""
PATH_PLACE = 1
"""Of a data file's path among its fields."""
_snapshot_ids = count(7_000_000_000)


class DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def data_paths(table: Table) -> list[str]:
    """The data files of the current snapshot, oldest first."""
    head = table.refresh().current_snapshot()
    assert head is not None
    manifests = [one for one in read_list(table.io, head.manifest_list) if one.content == ManifestContent.DATA]
    ordered = sorted(manifests, key=lambda one: one.sequence_number or 0)
    return [entry.data_file.file_path for one in ordered for entry in read_entries(table.io, one)]


def deletes_of(table: Table, path: str, *positions: int, partition: Record | None = None) -> DataFile:
    """Write a delete file for rows of a data file, by their positions."""
    columns = [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POSITION_ID)}),
    ]
    location = f"{table.location()}/data/deletes-{random_id()}.parquet"
    rows = pa.table({"file_path": [path] * len(positions), "pos": list(positions)}, schema=pa.schema(columns))
    with table.io.new_output(location).create() as stream:
        pq.write_table(rows, stream)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=partition or Record(),
        record_count=len(positions),
        file_size_in_bytes=len(table.io.new_input(location)),
        lower_bounds={PATH_ID: path.encode()},
        upper_bounds={PATH_ID: path.encode()},
    )
    file.spec_id = table.spec().spec_id
    return file


def copied(table: Table, file: DataFile, suffix: str) -> DataFile:
    """Copy a data file under another name."""
    path = file.file_path.replace(".parquet", f"-{suffix}.parquet")
    with table.io.new_input(file.file_path).open() as source, table.io.new_output(path).create() as target:
        target.write(source.read())
    copy = DataFile(*(file[place] for place in range(len(file))))
    copy[PATH_PLACE] = path
    copy.spec_id = file.spec_id
    return copy


def entry(file: DataFile, sequence_number: int | None = None) -> ManifestEntry:
    """An added file, with a data sequence number of its own if one is given."""
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, sequence_number=sequence_number, data_file=file)


def manifest_of(table: Table, snapshot_id: int, entries: Sequence[ManifestEntry], deletes: bool) -> ManifestFile:
    path = metadata_path(table.metadata, f"{random_id()}-m0.avro")
    kind = DeleteManifestWriter if deletes else ManifestWriterV2
    with kind(table.spec(), table.schema(), table.io.new_output(path), snapshot_id, "deflate") as writer:
        for one in entries:
            writer.add(one)
    return writer.to_manifest_file()


def change_of(
    table: Table,
    deletes: Sequence[ManifestEntry] = (),
    data: Sequence[ManifestEntry] = (),
    operation: Operation = Operation.OVERWRITE,
    branch: str = MAIN_BRANCH,
) -> TableChange:
    """Return a change that adds delete files and data files to a branch, on the state that the table was loaded in."""
    metadata = table.metadata
    head = metadata.snapshot_by_name(branch)
    snapshot_id, number = next(_snapshot_ids), (last_sequence_number(metadata) or 0) + 1
    groups = [(entries, is_delete) for entries, is_delete in ((deletes, True), (data, False)) if entries]
    manifests = [manifest_of(table, snapshot_id, entries, is_delete) for entries, is_delete in groups]
    before = list(read_list(table.io, head.manifest_list)) if head is not None else []
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id if head is not None else None,
        sequence_number=number,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=metadata_path(metadata, f"snap-{snapshot_id}.avro"),
        summary=Summary(operation),
        schema_id=metadata.current_schema_id,
    )
    write_list(table.io, metadata, snapshot, [*manifests, *before])
    move = SetSnapshotRefUpdate(
        ref_name=branch,
        type=SnapshotRefType.BRANCH,
        snapshot_id=snapshot_id,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    unmoved = AssertRefSnapshotId(ref=branch, snapshot_id=head.snapshot_id if head is not None else None)
    return TableChange(table.name(), (unmoved,), (AddSnapshotUpdate(snapshot=snapshot), move))
