"""What the catalog keeps: records, and their JSON.

The records are the truth about a table; `metadata.json` is written from them. A table's record holds all of Iceberg's
table metadata but its snapshots and its history, which grow with every commit and have rows of their own: a commit
writes the table's record, its snapshot, a line of history and its files, however long the table has lived.

Names follow the catalog's specification (`table_uuid`, `current_snapshot_id`, …); what Iceberg needs beyond it is in
`iceberg`, under Iceberg's own names. Decoding is cached: values are immutable, and so are the models made of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from threading import Lock
from typing import Any, Generic, TypeVar
from uuid import UUID

from pydantic import BaseModel
from pydantic_core import from_json, to_json
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from endive.catalog.model.names import Identifier
from endive.errors import CorruptObjectError

R = TypeVar("R")

FORMAT_VERSION = 1
"""Of the records; raised when an older Endive could not read them."""

TABLES_BYTES_CACHED = 4 * 1024 * 1024
"""JSON of tables that is kept decoded, which takes some ten times as much memory. Every commit makes another record, of
a kilobyte with few columns: those of thousands of tables fit, or of a few dozen with thousands of columns."""

SNAPSHOTS_BYTES_CACHED = 5 * 1024 * 1024
"""The same of snapshots: about 8,000. One takes 3.5 kB and 28 µs to decode: 28 MB in all, and a fifth of a second for
each load of a table that has more of them, and should be expired."""

HISTORY_CACHED = 8192
"""Decoded lines of history that are kept."""

SCHEMAS_CACHED = 256
"""Schemas whose JSON is kept."""

TABLE_FIELDS = {
    "table_uuid": "table-uuid",
    "format_version": "format-version",
    "location": "location",
    "current_snapshot_id": "current-snapshot-id",
    "last_updated_time": "last-updated-ms",
    "properties": "properties",
    "partition_specs": "partition-specs",
}
"""The specification's fields of a table, and Iceberg's names of the same."""

KEPT_ELSEWHERE = {"snapshots", "snapshot_log", "schemas"}
"""What is not with the rest of Iceberg's metadata: in rows of their own, and in a field of its own."""


T = TypeVar("T")


class Decoded(Generic[T]):
    """Records by their JSON, the youngest ones. What this process writes it need not decode: `remember` it.

    Safe to use from many threads. A record that is still in use when it is forgotten is decoded again.
    """

    def __init__(self, decode: Callable[[bytes], T], bytes_max: int) -> None:
        self._decode = decode
        self._bytes_max = bytes_max
        self._records: dict[bytes, T] = {}
        self._lock = Lock()
        self.bytes_held = 0
        """Of JSON."""

    def remember(self, body: bytes, record: T) -> bytes:
        """Take note of what a JSON stands for; return the JSON."""
        with self._lock:
            if body not in self._records:
                self.bytes_held += len(body)
            self._records[body] = record
            while self.bytes_held > self._bytes_max:
                oldest = next(iter(self._records))
                del self._records[oldest]
                self.bytes_held -= len(oldest)
        return body

    def __call__(self, body: bytes) -> T:
        """Return the record of a JSON."""
        record = self._records.get(body)
        if record is None:
            record = self._decode(body)
            self.remember(body, record)
        return record


class Dumped:
    """JSON values of schemas, the youngest ones, by identity: most commits leave a table's schemas as they are.

    A schema never changes, and is held here, so that no other one can have its id. Safe to use from many threads.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._held: dict[int, tuple[Schema, dict[str, Any]]] = {}
        self._lock = Lock()

    def __call__(self, schema: Schema) -> dict[str, Any]:
        """Return the JSON value of a schema. Shared: change nothing in it."""
        held = self._held.get(id(schema))
        if held is None:
            held = schema, schema.model_dump(mode="json")
            with self._lock:
                self._held[id(schema)] = held
                if len(self._held) > self._count_max:
                    del self._held[next(iter(self._held))]
        return held[1]


dumped_schema = Dumped(SCHEMAS_CACHED)


def readable(what: str) -> Callable[[Callable[[bytes], R]], Callable[[bytes], R]]:
    """Let a decoder say which kind of record is damaged, instead of where in its code it noticed."""

    def decorate(decode: Callable[[bytes], R]) -> Callable[[bytes], R]:
        @wraps(decode)
        def decoded(body: bytes) -> R:
            try:
                return decode(body)
            except (AttributeError, LookupError, TypeError, ValueError) as error:
                detail = f"{type(error).__name__}: {error}".splitlines()[0]
                problem = f"cannot be read ({detail}); `endive catalog check` says which one it is"
                raise CorruptObjectError(f"{what} in the catalog", problem) from error

        return decoded

    return decorate


@dataclass(frozen=True, slots=True)
class CatalogRecord:
    """The catalog itself: that there is one."""

    format_version: int
    created_unix_ms: int
    warehouse: str = ""
    """Where tables go whose creators do not say; empty: beside the catalog."""

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json(
            {
                "format_version": self.format_version,
                "created_unix_ms": self.created_unix_ms,
                "warehouse": self.warehouse,
            }
        )

    @staticmethod
    @readable("the record of the catalog itself")
    def decoded(body: bytes) -> "CatalogRecord":
        """Return the record of a JSON."""
        fields = from_json(body)
        return CatalogRecord(fields["format_version"], fields["created_unix_ms"], fields.get("warehouse", ""))


@dataclass(frozen=True, slots=True)
class NamespaceRecord:
    """A namespace."""

    namespace: Identifier
    properties: dict[str, str]
    creation_id: str
    """Drawn by who created it, who recognises it by that when the answer got lost."""

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json(
            {"namespace": self.namespace, "properties": self.properties, "creation_id": self.creation_id},
        )

    @staticmethod
    @readable("a namespace's record")
    def decoded(body: bytes) -> "NamespaceRecord":
        """Return the record of a JSON."""
        fields = from_json(body)
        return NamespaceRecord(tuple(fields["namespace"]), fields["properties"], fields["creation_id"])


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A table, without its snapshots and its history."""

    identifier: Identifier
    version: int
    """Grows by one with every change of the metadata: what a commit compares."""
    metadata: TableMetadata
    """Iceberg's table metadata; `snapshots` and `snapshot_log` are empty here."""
    metadata_location: str
    """A metadata file that is there, and shows version `metadata_version`; empty if none was written yet."""
    metadata_version: int
    metadata_unix_ms: int = 0
    """When the table was last updated at that version."""
    snapshots_made: int = 0
    """How many there ever were: the next one's ordinal."""
    history_length: int = 0
    """The next line's number."""
    unswept: tuple[int, ...] = ()
    """Snapshots that have expired, and whose file rows are still to be deleted."""

    @property
    def uuid(self) -> UUID:
        """What the table's other rows go by."""
        return self.metadata.table_uuid

    @property
    def is_dirty(self) -> bool:
        """Whether the metadata file is behind the records."""
        return self.metadata_version != self.version

    def encoded(self) -> bytes:
        """Return the JSON."""
        iceberg = BaseModel.model_dump(  # as PyIceberg's, but faster
            self.metadata, mode="json", exclude=KEPT_ELSEWHERE, exclude_none=True, by_alias=True
        )
        schema = {
            "current-schema-id": iceberg.pop("current-schema-id"),
            "schemas": [dumped_schema(one) for one in self.metadata.schemas],
        }
        fields = {ours: iceberg.pop(theirs, None) for ours, theirs in TABLE_FIELDS.items()}
        body = to_json(
            {
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
                **({"unswept": self.unswept} if self.unswept else {}),
            }
        )
        return decoded_table.remember(body, self)

    @staticmethod
    def decoded(body: bytes) -> "TableRecord":
        """Return the record of a JSON."""
        return decoded_table(body)


@readable("a table's record")
def decode_table(body: bytes) -> TableRecord:
    """Return the record of a JSON, decoded anew."""
    fields = from_json(body)
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
        unswept=tuple(fields.get("unswept", ())),
    )


decoded_table = Decoded(decode_table, TABLES_BYTES_CACHED)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot of a table."""

    table_uuid: UUID
    ordinal: int
    """Its place among the table's snapshots."""
    snapshot: Snapshot
    files: str
    """What `__files` holds of it: `changes` since its parent, `all` its files, or `none`: read its manifests."""

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
        return decoded_snapshot.remember(body, self)

    @staticmethod
    def decoded(body: bytes) -> "SnapshotRecord":
        """Return the record of a JSON."""
        return decoded_snapshot(body)


@readable("a snapshot's record")
def decode_snapshot(body: bytes) -> SnapshotRecord:
    """Return the record of a JSON, decoded anew."""
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


decoded_snapshot = Decoded(decode_snapshot, SNAPSHOTS_BYTES_CACHED)


def encoded_history(entry: SnapshotLogEntry) -> bytes:
    """Return the JSON of a line of history."""
    return to_json({"snapshot_id": entry.snapshot_id, "timestamp_ms": entry.timestamp_ms})


@lru_cache(maxsize=HISTORY_CACHED)
@readable("a line of a table's history")
def decoded_history(body: bytes) -> SnapshotLogEntry:
    """Return the line of history of a JSON."""
    return SnapshotLogEntry(**from_json(body))


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """What a commit answered."""

    commit_id: str
    version: int
    snapshot_id: int | None
    metadata_location: str
    together: tuple[str, ...] = ()
    """The uuids of the tables that were changed at once; empty if it was one."""

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json(
            {
                "commit_id": self.commit_id,
                "version": self.version,
                "snapshot_id": self.snapshot_id,
                "metadata_location": self.metadata_location,
                **({"together": self.together} if self.together else {}),
            }
        )

    @staticmethod
    @readable("a commit's record")
    def decoded(body: bytes) -> "CommitRecord":
        """Return the record of a JSON."""
        fields = from_json(body)
        return CommitRecord(**{**fields, "together": tuple(fields.get("together", ()))})
