"""Upkeep of a catalog's tables, with files: expire, find orphans, purge, check."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.properties import property_as_bool

from endive.catalog import tables
from endive.catalog.changes import TableChange
from endive.catalog.files import ALL, file_rows, live_files
from endive.catalog.keys import COMMITS, FILES, HISTORY, SNAPSHOTS, TABLES, snapshot_key
from endive.catalog.maintenance import expired, named_by, orphans, overlaps, reachable, removal, unneeded
from endive.catalog.manifests import all_files, read_list
from endive.catalog.names import Identifier, table_of, text_of
from endive.catalog.opening import open_place
from endive.catalog.records import SnapshotRecord, TableRecord
from endive.catalog.works import Transaction
from endive.errors import ConfigurationError, EndiveError, NotInCatalogError
from endive.protocol.requests import Steps

if TYPE_CHECKING:
    from endive.catalog.table_catalog import LoadedTable, TableCatalog

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ExpiredSnapshots:
    """What expiry removed."""

    snapshot_ids: tuple[int, ...]
    deleted_files: tuple[str, ...]


def delete_files(io: FileIO, locations: Iterable[str]) -> tuple[str, ...]:
    """Delete files that nothing needs; return those that are gone by us. What cannot be deleted stays as an orphan."""
    deleted = []
    for location in locations:
        try:
            io.delete(location)
            deleted.append(location)
        except FileNotFoundError:
            pass
        except OSError:
            logger.warning("could not delete %s, which nothing needs", location, exc_info=True)
    return tuple(deleted)


def require_collectable(name: Identifier, metadata: TableMetadata) -> None:
    """Raise if the table's owner forbids deleting its files: others may share them."""
    if not property_as_bool(metadata.properties, "gc.enabled", True):
        raise ConfigurationError(text_of(name), ["its property gc.enabled=false forbids deleting its files"])


def expire(
    catalog: "TableCatalog", identifier: str | Identifier, older_than_unix_ms: int, keep_last: int
) -> ExpiredSnapshots:
    """Remove old snapshots from a table, then the files that nothing else needs."""
    table = catalog.load_table(identifier)
    require_collectable(table.identifier, table.metadata)
    ids = expired(table.metadata, older_than_unix_ms, keep_last)
    if not ids:
        return ExpiredSnapshots((), ())
    change = TableChange(table.identifier, *removal(table.metadata, ids))
    catalog.commit_many([change])
    gone = [one for one in table.metadata.snapshots if one.snapshot_id in ids]
    remaining = catalog.load_table(table.identifier).metadata.snapshots
    io = catalog.files.io(table.metadata.location, table.metadata.properties)
    return ExpiredSnapshots(ids, delete_files(io, unneeded(io, gone, remaining)))


def remove_orphans(
    catalog: "TableCatalog", identifier: str | Identifier, older_than_unix_ms: int, dry_run: bool
) -> tuple[str, ...]:
    """Delete files below a table's location that are old and that the table does not need; return them."""
    name = table_of(identifier)
    location = catalog.load_table(name).metadata.location
    _require_alone(catalog, name, location)
    place = open_place(location, catalog.properties)
    # An empty object may be PyArrow's mark of a folder on S3, which it makes when it deletes a file there.
    listed = [(f"{location}/{one.path}", one.modified_unix_ms) for one in place.list("") if one.size_bytes]
    table = catalog.load_table(name)  # after the listing: what was committed meanwhile is seen
    require_collectable(name, table.metadata)
    io = catalog.files.io(location, table.metadata.properties)
    needed = reachable(io, table.metadata.snapshots).paths | named_by(table.metadata, table.metadata_location)
    found = orphans(listed, needed, older_than_unix_ms)
    return found if dry_run else delete_files(io, found)


def index_files(catalog: "TableCatalog", identifier: str | Identifier) -> int:
    """Let the records list all files of a table's current snapshot, as its manifests do."""
    table = catalog.load_table(identifier)
    current = table.metadata.current_snapshot()
    if current is None:
        return 0
    io = catalog.files.io(table.metadata.location, table.metadata.properties)
    files = all_files(io, read_list(io, current.manifest_list), table.metadata)
    rows = file_rows(table.uuid, current, files)

    def put(tx: Transaction) -> Steps[None]:
        key = snapshot_key(table.uuid, current.snapshot_id)
        body = yield from tx.get(key)
        if body is None:
            raise NotInCatalogError("Snapshot", str(current.snapshot_id), "it has expired meanwhile")
        for row_key, value in rows:
            tx.put(row_key, value)
        tx.put(key, replace(SnapshotRecord.decoded(body), files=ALL).encoded())

    catalog.store.transact(put)
    return len(rows)


def _require_alone(catalog: "TableCatalog", name: Identifier, location: str) -> None:
    others = [
        text_of(record.identifier)
        for record in catalog.store.read(all_tables)
        if record.identifier != name and overlaps(location, record.metadata.location)
    ]
    if others:
        faults = [f"{other} lives in the same place, so that no file can be called an orphan" for other in others]
        raise ConfigurationError(text_of(name), faults)


def all_tables(tx: Transaction) -> Steps[tuple[TableRecord, ...]]:
    """Return the records of all tables."""
    rows = yield from tx.scan(TABLES.encode())
    return tuple(TableRecord.decoded(body) for _, body in rows)


def purge(catalog: "TableCatalog", table: "LoadedTable") -> None:
    """Delete all files of a table that is no longer in the catalog."""
    io = catalog.files.io(table.metadata.location, table.metadata.properties)
    needed = reachable(io, table.metadata.snapshots)
    for group in (needed.files, needed.manifests, needed.lists, named_by(table.metadata, table.metadata_location)):
        delete_files(io, sorted(group))


# Checking.


def check_table(catalog: "TableCatalog", identifier: str | Identifier) -> list[str]:
    """Return what is wrong with a table's records and files."""
    name = table_of(identifier)

    def look(tx: Transaction) -> Steps[tuple[tables.TableView, frozenset[str] | None]]:
        view = yield from tables.load_table(tx, name)
        current = view.record.metadata.current_snapshot_id
        files = (yield from live_files(tx, view.snapshots, current)) if current is not None else None
        return view, None if files is None else frozenset(one.file.file_path for one in files)

    view, indexed = catalog.store.read(look)
    metadata = view.metadata
    ids = {one.snapshot_id for one in metadata.snapshots}
    problems = [
        f"{ref} points to snapshot {one.snapshot_id}, which is not there"
        for ref, one in metadata.refs.items()
        if one.snapshot_id not in ids
    ]
    problems += _missing_files(catalog, view)
    current = metadata.current_snapshot()
    if indexed is not None and current is not None and not problems:
        io = catalog.files.io(metadata.location, metadata.properties)
        real = reachable(io, [current]).files
        problems += [f"__files lacks {path}" for path in sorted(real - indexed)]
        problems += [f"__files has {path}, the manifests do not" for path in sorted(indexed - real)]
    return [f"{text_of(name)}: {problem}" for problem in problems]


def _missing_files(catalog: "TableCatalog", view: tables.TableView) -> list[str]:
    metadata = view.metadata
    io = catalog.files.io(metadata.location, metadata.properties)
    problems = [
        f"the manifest list of snapshot {one.snapshot_id} is missing: {one.manifest_list}"
        for one in metadata.snapshots
        if not io.new_input(one.manifest_list).exists()
    ]
    location = view.record.metadata_location
    if not location or not io.new_input(location).exists():
        problems.append(f"the metadata file is missing: {location or 'none was written'}")
    elif not view.record.is_dirty and catalog.files.read(location) != metadata:
        problems.append(f"the metadata file does not show the records: {location}")
    return problems


def check_rows(catalog: "TableCatalog") -> list[str]:
    """Return rows that belong to no table."""

    def look(tx: Transaction) -> Steps[list[str]]:
        records = yield from all_tables(tx)
        known = {str(record.uuid) for record in records}
        strays = []
        for space in (SNAPSHOTS, HISTORY, FILES, COMMITS):
            rows = yield from tx.scan(space.encode())
            strays += [key.decode() for key, _ in rows if key.decode().split("/")[1] not in known]
        return strays

    return [f"a row without a table: {key}" for key in catalog.store.read(look)]


def check(catalog: "TableCatalog", identifier: str | Identifier | None) -> list[str]:
    """Return what is wrong with a table, or with all of them."""
    if identifier is not None:
        return check_table(catalog, identifier)
    problems = check_rows(catalog)
    for record in catalog.store.read(all_tables):
        try:
            problems += check_table(catalog, record.identifier)
        except (EndiveError, OSError) as error:
            problems.append(f"{text_of(record.identifier)}: {error}")
    return problems
