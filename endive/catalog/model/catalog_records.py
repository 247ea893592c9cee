"""The catalog's records, and their JSON.

The records are the truth about a table; `metadata.json` is written from them. A table's record holds all of Iceberg's
table metadata but its snapshots and its history, which grow with every commit and have rows of their own: a commit
writes the table's record, its snapshot, a line of history and its files, however long the table has lived. Large parts
of a record have rows of their own, too (`endive.catalog.model.table_parts`).

The main fields have plain names (`table_uuid`, `current_snapshot_id`, …); the rest of Iceberg's metadata is in
`iceberg`, under Iceberg's own names. Decoding is cached: values are immutable, and so are the models made of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import from_json, to_json
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from endive.catalog.model.encoding import DecodeCache, SchemaJson, decodes
from endive.catalog.model.names import Identifier
from endive.catalog.model.table_parts import INLINE_BYTES_MAX, digests_in, own_bytes, put_back, take_parts

FORMAT_VERSION = 2
"""Newest version of the records' format that is known here; an older Endive refuses a catalog of a newer one.

1: tables and namespaces. 2: there are checkpoints or cloned tables, whose files an older Endive would delete, or
records with parts in rows of their own, which it could not read, or an index of uuids, which it would not maintain."""
PLAIN_FORMAT_VERSION = 1
"""Version of a catalog without any of them."""

TABLES_BYTES_CACHED = 4 * 1024 * 1024
"""Size of the cache of table records, in bytes of JSON; decoded they take some ten times as much memory. A record of a
table with few columns takes a kilobyte: thousands of tables fit, or a few dozen with thousands of columns."""

SNAPSHOTS_BYTES_CACHED = 5 * 1024 * 1024
"""Size of the cache of snapshots: about 8,000. One takes 3.5 kB and 28 µs to decode: 28 MB in all, and a fifth of a
second for each load of a table that has more of them, and should be expired."""

HISTORY_CACHED = 8192
"""Size of the cache of history lines."""

SCHEMAS_CACHED = 256
"""Size of the cache of schemas' JSON."""

TABLE_FIELDS = {
    "table_uuid": "table-uuid",
    "format_version": "format-version",
    "location": "location",
    "current_snapshot_id": "current-snapshot-id",
    "last_updated_time": "last-updated-ms",
    "properties": "properties",
    "partition_specs": "partition-specs",
}
"""Fields of a table's record, and Iceberg's names of the same."""

STORED_ELSEWHERE = {"snapshots", "snapshot_log", "schemas", "metadata_log"}
"""Fields of Iceberg's metadata that have rows or a field of their own, or are encoded here because it is faster."""

schema_json = SchemaJson(SCHEMAS_CACHED)


@dataclass(frozen=True, slots=True)
class CatalogRecord:
    """The record of the catalog itself."""

    format_version: int
    created_unix_ms: int
    warehouse: str = ""
    """Location of tables that are created without one; empty: beside the catalog."""
    has_uuid_index: bool = False
    """Whether every table has its row in `__uuids`. Only in format 2: an older Endive would not put them."""

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json(
            {
                "format_version": self.format_version,
                "created_unix_ms": self.created_unix_ms,
                "warehouse": self.warehouse,
                **({"has_uuid_index": True} if self.has_uuid_index else {}),
            }
        )

    @staticmethod
    @decodes("the record of the catalog itself")
    def decoded(body: bytes) -> "CatalogRecord":
        """Return the record of a JSON."""
        fields = from_json(body)
        return CatalogRecord(
            fields["format_version"],
            fields["created_unix_ms"],
            fields.get("warehouse", ""),
            fields.get("has_uuid_index", False),
        )


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """A namespace."""

    namespace: Identifier
    properties: dict[str, str]
    creation_id: str
    """Drawn by the creating call, which recognises its own namespace by it in a retry."""

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json(
            {"namespace": self.namespace, "properties": self.properties, "creation_id": self.creation_id},
        )

    @staticmethod
    @decodes("a namespace's record")
    def decoded(body: bytes) -> "NamespaceRecord":
        """Return the record of a JSON."""
        fields = from_json(body)
        return NamespaceRecord(tuple(fields["namespace"]), fields["properties"], fields["creation_id"])


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table, without its snapshots and its history."""

    identifier: Identifier
    version: int
    """Grows by one with every change of the metadata; commits compare it."""
    metadata: TableMetadata
    """Iceberg's table metadata; `snapshots` and `snapshot_log` are empty here."""
    metadata_location: str
    """The metadata file that shows version `metadata_version`; empty if none was written yet.

    It exists, unless `is_written_beside`."""
    metadata_version: int
    metadata_unix_ms: int = 0
    """Time of the last update at that version."""
    snapshots_made: int = 0
    """Number of snapshots ever added; the next one's ordinal."""
    history_length: int = 0
    """Number of the next line of history."""
    pending_deletions: tuple[int, ...] = ()
    """Expired snapshots whose file rows are still to be deleted (`unswept` in the JSON)."""
    stored_parts: frozenset[str] = field(default=frozenset(), compare=False)
    """Digests of the parts that have a row of their own (`endive.catalog.model.table_parts`)."""
    is_written_beside: bool = False
    """Whether the metadata file was written at the same time as this record, so that a crash may have left none."""

    @property
    def uuid(self) -> UUID:
        """The table's uuid, under which all its other rows are."""
        return self.metadata.table_uuid

    @property
    def state(self) -> tuple[UUID, int, int]:
        """Tells this state of the table from all others of it.

        The version alone does not: a table that is unregistered and registered again begins with version 0 again.
        """
        return self.uuid, self.version, self.metadata.last_updated_ms

    @property
    def is_dirty(self) -> bool:
        """Whether the metadata file is behind the records."""
        return self.metadata_version != self.version

    def encoded(self) -> bytes:
        """Return the JSON of the whole record."""
        return decoded_table.add(to_json(self._fields()), self)

    def stored(self) -> tuple[bytes, dict[str, bytes]]:
        """Return the JSON of the record without its large parts, and the parts by their digests."""
        fields = self._fields()
        if not self.stored_parts:
            body = to_json(fields)
            if len(body) <= INLINE_BYTES_MAX:  # then so is each of its parts
                return decoded_table.add(body, self), {}
        parts = take_parts(fields, self.metadata.schemas, self.stored_parts)
        record = replace(self, stored_parts=frozenset(parts))
        return decoded_table.add(to_json(fields), record, own_bytes(parts)), parts

    def _fields(self) -> dict[str, Any]:
        iceberg = BaseModel.model_dump(  # as PyIceberg's, but faster
            self.metadata, mode="json", exclude=STORED_ELSEWHERE, exclude_none=True, by_alias=True
        )
        iceberg["metadata-log"] = [
            {"metadata-file": entry.metadata_file, "timestamp-ms": entry.timestamp_ms}
            for entry in self.metadata.metadata_log
        ]
        schema = {
            "current-schema-id": iceberg.pop("current-schema-id"),
            "schemas": [schema_json(one) for one in self.metadata.schemas],
        }
        fields = {ours: iceberg.pop(theirs, None) for ours, theirs in TABLE_FIELDS.items()}
        return {
            "namespace": self.identifier[:-1],
            "table_name": self.identifier[-1],
            **fields,
            "schema": schema,
            "iceberg": iceberg,
            "version": self.version,
            "metadata_location": self.metadata_location,
            "metadata_version": self.metadata_version,
            "metadata_unix_ms": self.metadata_unix_ms,
            "snapshots_made": self.snapshots_made,
            "history_length": self.history_length,
            **({"unswept": self.pending_deletions} if self.pending_deletions else {}),
            **({"written_beside": True} if self.is_written_beside else {}),
        }

    @staticmethod
    def decoded(body: bytes) -> "TableRecord":
        """Return the record of a JSON that has all its parts. Records of tables are read by `read_record`."""
        return decoded_table(body)


def decode_table(body: bytes, parts: Mapping[str, bytes] | None = None) -> TableRecord:
    """Decode a JSON, past the cache. `parts`: rows of parts that this process does not hold."""

    @decodes("a table's record")
    def decode(body: bytes) -> TableRecord:
        fields = from_json(body)
        put_back(fields, parts or {})
        return _from_fields(fields)

    return decode(body)


def _from_fields(fields: dict[str, Any]) -> TableRecord:
    iceberg: dict[str, Any] = fields["iceberg"] | fields["schema"]
    iceberg |= {theirs: fields[ours] for ours, theirs in TABLE_FIELDS.items() if fields[ours] is not None}
    return TableRecord(
        identifier=(*fields["namespace"], fields["table_name"]),
        version=fields["version"],
        metadata=TableMetadataUtil.parse_obj(iceberg),
        metadata_location=fields["metadata_location"],
        metadata_version=fields["metadata_version"],
        metadata_unix_ms=fields["metadata_unix_ms"],
        snapshots_made=fields["snapshots_made"],
        history_length=fields["history_length"],
        pending_deletions=tuple(fields.get("unswept", ())),
        stored_parts=digests_in(fields),
        is_written_beside=fields.get("written_beside", False),
    )


decoded_table = DecodeCache(decode_table, TABLES_BYTES_CACHED)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot of a table."""

    table_uuid: UUID
    ordinal: int
    """Its position among the table's snapshots."""
    snapshot: Snapshot
    files: str
    """Contents of `__files`: `changes` since the parent, `all` files of the snapshot, or `none`: read its manifests."""

    def encoded(self) -> bytes:
        """Return the JSON."""
        one = self.snapshot
        body = to_json(
            {
                "table_uuid": self.table_uuid,
                "snapshot_id": one.snapshot_id,
                "parent_snapshot_id": one.parent_snapshot_id,
                "timestamp_ms": one.timestamp_ms,
                "operation": one.summary.operation.value if one.summary is not None else None,
                "manifest_list": one.manifest_list,
                "summary": one.summary.additional_properties if one.summary is not None else None,
                "sequence_number": one.sequence_number,
                "schema_id": one.schema_id,
                "first_row_id": one.first_row_id,
                "added_rows": one.added_rows,
                "ordinal": self.ordinal,
                "files": self.files,
            }
        )
        return decoded_snapshot.add(body, self)

    @staticmethod
    def decoded(body: bytes) -> "SnapshotRecord":
        """Return the record of a JSON."""
        return decoded_snapshot(body)


@decodes("a snapshot's record")
def decode_snapshot(body: bytes) -> SnapshotRecord:
    """Decode a JSON, past the cache."""
    fields = from_json(body)
    operation, summary = fields["operation"], fields["summary"]
    snapshot = Snapshot(
        snapshot_id=fields["snapshot_id"],
        parent_snapshot_id=fields["parent_snapshot_id"],
        sequence_number=fields["sequence_number"],
        timestamp_ms=fields["timestamp_ms"],
        manifest_list=fields["manifest_list"],
        summary={"operation": operation, **summary} if operation is not None else None,
        schema_id=fields["schema_id"],
        first_row_id=fields["first_row_id"],
        added_rows=fields["added_rows"],
    )
    return SnapshotRecord(UUID(fields["table_uuid"]), fields["ordinal"], snapshot, fields["files"])


decoded_snapshot = DecodeCache(decode_snapshot, SNAPSHOTS_BYTES_CACHED)


def encoded_history(entry: SnapshotLogEntry) -> bytes:
    """Return the JSON of a line of history."""
    return to_json({"snapshot_id": entry.snapshot_id, "timestamp_ms": entry.timestamp_ms})


@lru_cache(maxsize=HISTORY_CACHED)
@decodes("a line of a table's history")
def decoded_history(body: bytes) -> SnapshotLogEntry:
    """Return the line of history of a JSON."""
    return SnapshotLogEntry(**from_json(body))


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """The stored result of a commit."""

    commit_id: str
    version: int
    snapshot_id: int | None
    metadata_location: str
    together: tuple[str, ...] = ()
    """The uuids of all tables of the commit; empty if it was one."""
    digest: str = ""
    """Digest of the client's request; empty if the client gave none, and in records of older versions."""
    unix_ms: int = 0
    """Time of the commit, by the clock of the process that computed its rows; 0 in records of older versions."""

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json(
            {
                "commit_id": self.commit_id,
                "version": self.version,
                "snapshot_id": self.snapshot_id,
                "metadata_location": self.metadata_location,
                "unix_ms": self.unix_ms,
                **({"together": self.together} if self.together else {}),
                **({"digest": self.digest} if self.digest else {}),
            }
        )

    @staticmethod
    @decodes("a commit's record")
    def decoded(body: bytes) -> "CommitRecord":
        """Return the record of a JSON."""
        fields = from_json(body)
        return CommitRecord(
            fields["commit_id"],
            fields["version"],
            fields["snapshot_id"],
            fields["metadata_location"],
            tuple(fields.get("together", ())),
            fields.get("digest", ""),
            fields.get("unix_ms", 0),
        )
