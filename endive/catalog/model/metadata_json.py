"""The JSON of a table's metadata, put together from the JSON of its parts.

A metadata file has every snapshot of the table. Encoding all of them for each commit would make a commit cost as much
as the table is old. Snapshots and schemas never change, so each is encoded once; the rest is small.
"""

from functools import partial

from pydantic import BaseModel
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from endive.catalog.model.encoding import JsonBytes

PARTS = ("schemas", "snapshots", "snapshot_log")
"""Fields that are put together here."""

SNAPSHOTS_CACHED = 16384
"""Snapshots whose JSON is kept, of all tables: some ten megabytes."""
SCHEMAS_CACHED = 1024
"""Schemas whose JSON is kept, of all tables."""


def _dumped(part: BaseModel, exclude_none: bool) -> bytes:
    """Return the JSON of a model, past PyIceberg's own method, which refuses tables of format 3."""
    return BaseModel.model_dump_json(part, exclude_none=exclude_none, by_alias=True).encode()


_snapshots = JsonBytes[Snapshot](SNAPSHOTS_CACHED, partial(_dumped, exclude_none=True))
_snapshots_with_nulls = JsonBytes[Snapshot](SNAPSHOTS_CACHED, partial(_dumped, exclude_none=False))
_schemas = JsonBytes[Schema](SCHEMAS_CACHED, partial(_dumped, exclude_none=True))
_schemas_with_nulls = JsonBytes[Schema](SCHEMAS_CACHED, partial(_dumped, exclude_none=False))


def metadata_json(metadata: TableMetadata, exclude_none: bool = True) -> bytes:
    """Return the JSON of a table's metadata, byte for byte as PyIceberg writes it.

    `exclude_none`: leave out fields without a value.
    """
    body = _dumped(metadata.model_copy(update={name: [] for name in PARTS}), exclude_none)
    snapshot_json = _snapshots if exclude_none else _snapshots_with_nulls
    schema_json = _schemas if exclude_none else _schemas_with_nulls
    fields = {
        b"schemas": map(schema_json, metadata.schemas),
        b"snapshots": map(snapshot_json, metadata.snapshots),
        b"snapshot-log": map(_log_entry, metadata.snapshot_log),
    }
    for name, parts in fields.items():
        # Only the field itself looks so: in a text quotes are escaped, and the values of properties are texts.
        head, field, rest = body.partition(b'"%s":[]' % name)
        body = b"".join((head, field[:-1], b",".join(parts), b"]", rest)) if field else body
    return body


def _log_entry(entry: SnapshotLogEntry) -> bytes:
    return b'{"snapshot-id":%d,"timestamp-ms":%d}' % (entry.snapshot_id, entry.timestamp_ms)
