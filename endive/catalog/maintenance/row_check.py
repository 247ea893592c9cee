"""The check of every row by itself: it can be read, is under its key, and belongs to an existing table."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from endive.catalog.maintenance.findings import Finding
from endive.catalog.maintenance.part_check import check_parts, check_uuids, record_decoder
from endive.catalog.model import keys
from endive.catalog.model.catalog_records import (
    CommitRecord,
    NamespaceRecord,
    SnapshotRecord,
    TableRecord,
    decoded_history,
)
from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.model.file_rows import decoded_file
from endive.catalog.model.grants import GrantsRecord
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import KeyValue, StoreTransaction
from endive.catalog.model.view_records import ViewRecord
from endive.catalog.operations.dropped_tables import DroppedTable
from endive.catalog.operations.requests import RequestRecord
from endive.catalog.operations.stored_tables import catalog_record
from endive.errors import CorruptObjectError
from endive.protocol.requests import Steps
from endive.wording import counted

T = TypeVar("T")
Rows = tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class RowsReport:
    """The result of the check."""

    tables: list[Identifier]
    """Tables whose records can be read."""
    findings: list[Finding]
    snapshots: int
    """Number of the snapshots' rows."""
    pending_deletions: int
    """Rows of dropped tables and expired snapshots that are still to be deleted: harmless."""


def check_rows(tx: StoreTransaction) -> Steps[RowsReport]:
    """Check every row by itself."""
    spaces: dict[str, Rows] = {}
    for space in (*SPACES, *BY_UUID):
        spaces[space] = yield from tx.scan(space.encode())
    results = tuple(row for row in spaces[keys.COMMITS] if b"/id/" in row[0])
    catalog = yield from catalog_record(tx)
    decode = record_decoder(spaces[keys.PARTS])
    records, findings = _read(spaces[keys.TABLES], decode, lambda one, _: keys.table_key(one.identifier))
    findings += check_parts(records, spaces[keys.PARTS])
    findings += _read(
        spaces[keys.NAMESPACES], NamespaceRecord.decoded, lambda one, _: keys.namespace_key(one.namespace)
    )[1]
    findings += _read(spaces[keys.VIEWS], ViewRecord.decoded, lambda one, _: keys.view_key(one.identifier))[1]
    snapshots, unreadable = _read(spaces[keys.SNAPSHOTS], SnapshotRecord.decoded, _snapshot_key)
    findings += unreadable
    findings += _read(spaces[keys.HISTORY], decoded_history, lambda _, key: key)[1]
    findings += _read(results, CommitRecord.decoded, lambda _, key: key)[1]
    findings += _read(spaces[keys.IMPORTED], bytes.decode, lambda _, key: key)[1]
    findings += _read(spaces[keys.CLONED], bytes.decode, lambda _, key: key)[1]
    findings += _read(spaces[keys.REQUESTS], RequestRecord.decoded, lambda _, key: key)[1]
    findings += _read(
        spaces[keys.GRANTS],
        GrantsRecord.decoded,
        lambda one, _: keys.grants_key(one.grantee.kind, one.grantee.name),
    )[1]
    findings += _read(spaces[keys.CHECKPOINTS], CheckpointRecord.decoded, lambda one, _: keys.checkpoint_key(one.name))[
        1
    ]
    findings += _read(
        spaces[keys.FILES], decoded_file, lambda one, key: key if key.endswith(one.file.file_path.encode()) else b""
    )[1]
    dropped, unreadable = _read(spaces[keys.DROPPED], DroppedTable.decoded, lambda one, _: keys.dropped_key(one.uuid))
    findings += unreadable
    left = {str(one.uuid) for one in dropped}
    pending = {f"{record.uuid}/{one}" for record in records for one in record.pending_deletions}
    if len(records) == len(spaces[keys.TABLES]):  # otherwise the tables of rows are not known
        known = {str(record.uuid) for record in records}
        findings += [Finding(f"{keys.DROPPED}{uuid}", "a table that is there is marked so") for uuid in left & known]
        findings += _strays(spaces, known | left)
        findings += check_uuids(catalog, records, spaces[keys.UUIDS])
    if len(snapshots) == len(spaces[keys.SNAPSHOTS]):
        rows = tuple(row for row in spaces[keys.FILES] if not _is_pending_deletion(row[0], left, pending))
        findings += _strays_of_snapshots(rows, snapshots)
    pending_deletions = sum(_uuid_of(key, space) in left for space in BY_UUID for key, _ in spaces[space])
    pending_deletions += sum(_is_pending_deletion(key, set(), pending) for key, _ in spaces[keys.FILES])
    names = [record.identifier for record in records]
    return RowsReport(names, findings + _shared_uuids(records), len(spaces[keys.SNAPSHOTS]), pending_deletions)


SPACES = (
    keys.NAMESPACES,
    keys.TABLES,
    keys.VIEWS,
    keys.DROPPED,
    keys.CHECKPOINTS,
    keys.REQUESTS,
    keys.GRANTS,
    keys.UUIDS,
)
BY_UUID = (keys.PARTS, keys.SNAPSHOTS, keys.HISTORY, keys.FILES, keys.COMMITS, keys.IMPORTED, keys.CLONED)


def _uuid_of(key: bytes, space: str) -> str:
    return _text(key).removeprefix(space).partition("/")[0]


def _snapshot_key(one: SnapshotRecord, _: bytes) -> bytes:
    return keys.snapshot_key(one.table_uuid, one.snapshot.snapshot_id)


def _read(
    rows: Rows, decode: Callable[[bytes], T], key_of: Callable[[T, bytes], bytes]
) -> tuple[list[T], list[Finding]]:
    """Return the records that can be read, and the findings of the others; `key_of` says where one should be."""
    good: list[T] = []
    findings = []
    for key, body in rows:
        try:
            record = decode(body)
            expected = key_of(record, key)
        except Exception as error:  # noqa: BLE001 - the check continues after any error
            findings.append(Finding(_text(key), f"the row cannot be read: {words_of(error)}"))
            continue
        good.append(record)
        if expected != key:
            findings.append(Finding(_text(key), f"the row belongs elsewhere: {_text(expected) or 'to another file'}"))
    return good, findings


def _is_pending_deletion(key: bytes, dropped: set[str], pending: set[str]) -> bool:
    """Whether a file's row is of a dropped table, or of a snapshot that has expired."""
    uuid, snapshot_id = _text(key).removeprefix(keys.FILES).split("/")[:2]
    return uuid in dropped or f"{uuid}/{snapshot_id}" in pending


def _strays(spaces: Mapping[str, Rows], known: set[str]) -> list[Finding]:
    """Rows of tables that are not there, by keyspace and table."""
    found: dict[str, int] = {}
    for space in BY_UUID:
        for key, _ in spaces[space]:
            uuid = _uuid_of(key, space)
            if uuid not in known:
                found[f"{space}{uuid}/"] = found.get(f"{space}{uuid}/", 0) + 1
    return [Finding(place, f"{counted(rows, 'row')} of a table that is not there") for place, rows in found.items()]


def _strays_of_snapshots(rows: Rows, snapshots: Iterable[SnapshotRecord]) -> list[Finding]:
    """Rows of files whose snapshots are not there, by snapshot."""
    known = {f"{one.table_uuid}/{one.snapshot.snapshot_id}" for one in snapshots}
    found: dict[str, int] = {}
    for key, _ in rows:
        uuid, snapshot_id = _text(key).removeprefix(keys.FILES).split("/")[:2]
        if f"{uuid}/{snapshot_id}" not in known:
            place = f"{keys.FILES}{uuid}/{snapshot_id}/"
            found[place] = found.get(place, 0) + 1
    words = "of a snapshot that is not there"
    return [Finding(place, f"{counted(count, 'row')} {words}") for place, count in found.items()]


def _shared_uuids(records: Iterable[TableRecord]) -> list[Finding]:
    names: dict[str, list[str]] = {}
    for record in records:
        names.setdefault(str(record.uuid), []).append(text_of(record.identifier))
    return [
        Finding(" and ".join(shared), f"have the same uuid {uuid}, and so the same rows")
        for uuid, shared in names.items()
        if len(shared) > 1
    ]


def _text(key: bytes) -> str:
    return key.decode(errors="backslashreplace")


def words_of(error: BaseException) -> str:
    """Return the message of an error in one line; for a damaged record, that of its cause."""
    inner = error.__cause__ or error if isinstance(error, CorruptObjectError) else error
    return f"{type(inner).__name__}: {inner}".splitlines()[0]
