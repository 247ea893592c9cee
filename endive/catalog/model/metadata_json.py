"""The JSON of a table's metadata, put together from the JSON of its parts.

A metadata file has every snapshot of the table. Encoding all of them for each commit would make a commit cost as much
as the table is old. Snapshots and schemas never change, so each is encoded once; the rest is small.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import Generic, TypeVar

from pydantic import BaseModel
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry

from endive.catalog.model.encoding import JsonBytes

T = TypeVar("T")

PARTS = ("schemas", "snapshots", "snapshot_log")
"""Fields that are put together here."""

SNAPSHOTS_CACHED = 16384
"""Snapshots whose JSON is kept, of all tables: some ten megabytes."""
JOINED_BYTES_MAX = 16 * 1024 * 1024
"""JSON of whole lists that is kept, for each kind."""
SCHEMAS_CACHED = 1024
"""Schemas whose JSON is kept, of all tables."""


def _dumped(part: BaseModel, exclude_none: bool) -> bytes:
    """Return the JSON of a model, past PyIceberg's own method, which refuses tables of format 3."""
    return BaseModel.model_dump_json(part, exclude_none=exclude_none, by_alias=True).encode()


class JoinedJson(Generic[T]):
    """The JSON of lists that only grow, without its brackets: what was joined before is not joined again.

    A list is recognised by its first part, and compared with the one before by identity.
    """

    def __init__(self, encode: Callable[[T], bytes]) -> None:
        self._encode = encode
        self._held: OrderedDict[int, tuple[list[T], bytes]] = OrderedDict()
        self._bytes_held = 0
        self._lock = Lock()

    def __call__(self, parts: list[T]) -> bytes:
        """Return the JSON of parts, which never change."""
        if not parts:
            return b""
        known, body = self._held.get(id(parts[0]), ([], b""))
        if parts[: len(known)] != known:
            known, body = [], b""
        if known and len(known) == len(parts):
            return body
        added = map(self._encode, parts[len(known) :])
        body = b",".join((body, *added)) if known else b",".join(added)
        with self._lock:
            self._bytes_held += len(body) - len(self._held.pop(id(parts[0]), ([], b""))[1])
            self._held[id(parts[0])] = list(parts), body
            while self._bytes_held > JOINED_BYTES_MAX:
                self._bytes_held -= len(self._held.popitem(last=False)[1][1])
        return body


_snapshots = JsonBytes[Snapshot](SNAPSHOTS_CACHED, partial(_dumped, exclude_none=True))
_snapshots_with_nulls = JsonBytes[Snapshot](SNAPSHOTS_CACHED, partial(_dumped, exclude_none=False))
_schemas = JsonBytes[Schema](SCHEMAS_CACHED, partial(_dumped, exclude_none=True))
_schemas_with_nulls = JsonBytes[Schema](SCHEMAS_CACHED, partial(_dumped, exclude_none=False))


_joined_snapshots = JoinedJson[Snapshot](_snapshots)
_joined_snapshots_with_nulls = JoinedJson[Snapshot](_snapshots_with_nulls)


def metadata_json(metadata: TableMetadata, exclude_none: bool = True) -> bytes:
    """Return the JSON of a table's metadata, byte for byte as PyIceberg writes it.

    `exclude_none`: leave out fields without a value.
    """
    return b"".join(metadata_pieces(metadata, exclude_none))


def metadata_pieces(metadata: TableMetadata, exclude_none: bool = True) -> list[bytes]:
    """Return the JSON of a table's metadata in pieces: those of a long past are kept, and not copied here."""
    body = _dumped(metadata.model_copy(update={name: [] for name in PARTS}), exclude_none)
    snapshots = _joined_snapshots if exclude_none else _joined_snapshots_with_nulls
    schema_json = _schemas if exclude_none else _schemas_with_nulls
    parts = {
        b"schemas": b",".join(map(schema_json, metadata.schemas)),
        b"snapshots": snapshots(metadata.snapshots),
        b"snapshot-log": _joined_log(metadata.snapshot_log),
    }
    # Only the field itself looks so: in a text quotes are escaped, and the values of properties are texts.
    places = sorted((place, name) for name in parts if (place := body.find(b'"%s":[]' % name)) >= 0)
    pieces: list[bytes] = []
    done = 0
    for place, name in places:
        bracket = place + len(name) + 4
        pieces += (body[done:bracket], parts[name])
        done = bracket
    return [*pieces, body[done:]]


def _log_entry(entry: SnapshotLogEntry) -> bytes:
    return b'{"snapshot-id":%d,"timestamp-ms":%d}' % (entry.snapshot_id, entry.timestamp_ms)


_joined_log = JoinedJson[SnapshotLogEntry](_log_entry)
