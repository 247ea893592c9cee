"""Clones: a new catalog with all tables of a checkpoint, which shares every file with its source and can be written.

Only rows are copied, and every table gets a metadata file of its own; data files, manifests and manifest lists are
shared. New files of the clone go to the clone's own warehouse.

**What keeps the shared files.** The source has a checkpoint of the clone. It expires in a day until the target has the
mark `__cloning`, and never from then on; only then are rows copied. The clone never deletes a file outside the
locations that its tables got (`__cloned/{uuid}`).

**A crash** before the mark leaves a checkpoint that expires; the same command takes the newest state again. A crash
after it leaves rows at the target without the record of a catalog: nothing opens it, and the same command goes on with
the checkpoint of the mark. Every batch of rows checks the mark, so that a second clone, or a slow process, cannot write
into a catalog that is finished or another's.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace

from endive.catalog.checkpoints import Checkpoints
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.maintenance.candidates import overlaps
from endive.catalog.model.catalog_records import FORMAT_VERSION, CatalogRecord, NamespaceRecord, TableRecord
from endive.catalog.model.checkpoint_records import CheckpointRecord, CloneSource
from endive.catalog.model.keys import (
    CATALOG,
    CLONING,
    NAMESPACES,
    TABLES,
    VIEWS,
    cloned_key,
    commits_of,
    files_of,
    history_of,
    imported_key,
    snapshots_of,
    table_from,
)
from endive.catalog.model.names import text_of
from endive.catalog.model.transaction import KeyValue, StoreTransaction, TransactionalStore
from endive.catalog.model.view_records import ViewRecord
from endive.catalog.operations.dropped_tables import batches
from endive.catalog.operations.retries import retrying
from endive.catalog.operations.stored_tables import put_record
from endive.catalog.operations.table_rows import TableView, all_tables, load_table
from endive.catalog.operations.tables_in_store import default_location
from endive.catalog.operations.uuid_index import put_uuid
from endive.errors import ConfigurationError, NotInCatalogError
from endive.protocol.requests import Steps

UNFINISHED_MS = 86_400_000
"""How long a checkpoint lasts whose clone has not begun."""
WRITERS = 16
"""Metadata files that are written at the same time."""
OTHERS_PLACES = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""Properties that would put the clone's files among those of the source."""


@dataclass(frozen=True, slots=True)
class Cloned:
    """The result of cloning a catalog."""

    url: str
    checkpoint: str
    """The checkpoint at the source that keeps the shared files."""
    tables: int
    rows: int


def clone(
    checkpoints: Checkpoints,
    source_url: str,
    target: TransactionalStore,
    target_url: str,
    warehouse: str,
    files: MetadataFiles,
    name: str | None,
    now_ms: Callable[[], int],
) -> Cloned:
    """Copy the rows of a checkpoint into a store without a catalog. `name` None: of the newest state."""
    if not warehouse:
        raise ConfigurationError(target_url, ["a clone in memory needs a warehouse for its tables"])
    _require_apart(checkpoints.store, target_url, warehouse)
    mark = target.read(lambda tx: tx.get(CLONING))
    begun = CloneSource.decoded(mark) if mark is not None else None
    record = _checkpoint(checkpoints, begun, target, target_url, name)
    source = CloneSource(source_url, record.name, record.id)
    if not retrying(lambda: target.transact(lambda tx: _begin(tx, source, target_url))):
        return Cloned(target_url, record.name, 0, 0)  # an earlier call has finished it
    checkpoints.keep(record)
    copier = _Copier(target, source, warehouse, files)
    with closing(checkpoints.store.at(record.store_checkpoint)) as past:
        copier.copy(past)
    last = CatalogRecord(FORMAT_VERSION, now_ms(), warehouse, has_uuid_index=True)
    retrying(lambda: target.transact(lambda tx: _finish(tx, source, last)))
    return Cloned(target_url, record.name, copier.tables, copier.rows)


def _require_apart(store: TransactionalStore, target_url: str, warehouse: str) -> None:
    """Raise if the clone would be among the files of a table of the source, where they could be taken for orphans."""
    problems = [
        f"it would be in the location of the table {text_of(record.identifier)}, {record.metadata.location}"
        for record in store.read(all_tables)
        if overlaps(target_url, record.metadata.location) or overlaps(warehouse, record.metadata.location)
    ]
    if problems:
        raise ConfigurationError(target_url, [*problems, "choose a place beside the source's tables"])


def _checkpoint(
    checkpoints: Checkpoints, begun: CloneSource | None, target: TransactionalStore, target_url: str, name: str | None
) -> CheckpointRecord:
    """Return the clone's checkpoint at the source: the one of an interrupted call, or a new one."""
    if begun is not None:
        found = [one for one in checkpoints.list() if one.id == begun.id]
        if not found:
            problem = f"a clone of {begun.url} was interrupted here, and its checkpoint {begun.checkpoint} is not there"
            raise ConfigurationError(target_url, [f"{problem}; delete what is here, or choose another place"])
        return found[0]
    if target.read(lambda tx: tx.get(CATALOG)) is not None:
        raise ConfigurationError(target_url, ["there is a catalog already; choose another place"])
    new_name = f"clone-{target_url.rstrip('/').rpartition('/')[2] or 'memory'}-{checkpoints.new_id()[:8]}"
    if name is None:
        return checkpoints.create(new_name, UNFINISHED_MS, target_url)
    return checkpoints.share(name, new_name, UNFINISHED_MS, target_url)


def _begin(tx: StoreTransaction, source: CloneSource, target_url: str) -> Steps[bool]:
    """Put the mark of a clone; False if the clone is finished already."""
    catalog = yield from tx.get(CATALOG)
    mark = yield from tx.get(CLONING)
    if catalog is not None:
        raise ConfigurationError(target_url, ["there is a catalog already; choose another place"])
    if mark is not None and CloneSource.decoded(mark).id != source.id:
        raise ConfigurationError(target_url, [f"another clone, of {CloneSource.decoded(mark).url}, is being made here"])
    tx.put(CLONING, source.encoded())
    return True


def _put_table(tx: StoreTransaction, source: CloneSource, record: TableRecord) -> Steps[None]:
    yield from _require_mark(tx, source)
    yield from put_record(tx, record)
    put_uuid(tx, record.uuid, record.identifier)


def _put_batch(tx: StoreTransaction, source: CloneSource, rows: Sequence[KeyValue]) -> Steps[None]:
    yield from _require_mark(tx, source)
    for key, value in rows:
        tx.put(key, value)


def _finish(tx: StoreTransaction, source: CloneSource, record: CatalogRecord) -> Steps[None]:
    mark = yield from tx.get(CLONING)
    catalog = yield from tx.get(CATALOG)
    if mark is None and catalog is not None:
        return  # an earlier try of this transaction, or another process with the same clone
    yield from _require_mark(tx, source)
    tx.delete(CLONING)
    tx.put(CATALOG, record.encoded())


def _require_mark(tx: StoreTransaction, source: CloneSource) -> Steps[None]:
    mark = yield from tx.get(CLONING)
    if mark is None or CloneSource.decoded(mark).id != source.id:
        raise NotInCatalogError("Clone", source.checkpoint, "another process has finished it, or has begun another")


class _Copier:
    """Copies the rows of a checkpoint."""

    def __init__(self, target: TransactionalStore, source: CloneSource, warehouse: str, files: MetadataFiles) -> None:
        self._target = target
        self._source = source
        self._warehouse = warehouse
        self._files = files
        self.tables = 0
        self.rows = 0

    def copy(self, past: TransactionalStore) -> None:
        """Copy namespaces, then tables with their rows, several tables at the same time."""
        rows = past.read(lambda tx: tx.scan(NAMESPACES.encode()))
        self._put([(key, _without_location(body)) for key, body in rows])
        rows = past.read(lambda tx: tx.scan(VIEWS.encode()))
        self._put([(key, self._view_of_its_own(body)) for key, body in rows])
        records = past.read(lambda tx: tx.scan(TABLES.encode()))
        names = [table_from(key) for key, _ in records]
        with ThreadPoolExecutor(WRITERS, thread_name_prefix="endive-clone") as pool:
            views = [past.read(lambda tx, name=name: load_table(tx, name)) for name in names]  # type: ignore[misc]
            tables = list(pool.map(self._with_own_metadata, views))
        for view, own in zip(views, tables, strict=True):
            for prefix in _prefixes(view.record):
                self._put(past.read(lambda tx, prefix=prefix: tx.scan(prefix)))  # type: ignore[misc]
            imported = past.read(lambda tx, view=view: tx.get(imported_key(view.record.uuid)))  # type: ignore[misc]
            extra = [(imported_key(view.record.uuid), imported)] if imported is not None else []
            location = own.metadata.location.encode()
            self._put([*extra, (cloned_key(own.uuid), location)])
            self._put_table(own)
        self.tables = len(names)

    def _with_own_metadata(self, view: TableView) -> TableRecord:
        """Write a table's metadata file at its own location; return its record."""
        record, metadata = view.record, view.metadata
        location = default_location(self._warehouse, record.identifier, record.uuid.hex)
        kept = {key: value for key, value in metadata.properties.items() if key not in OTHERS_PLACES}
        own = {"location": location, "metadata_log": [], "properties": kept}
        whole = metadata.model_copy(update=own)
        metadata_location = self._files.new_location(whole, "")
        self._files.write(whole, metadata_location)
        return replace(
            record,
            metadata=record.metadata.model_copy(update=own),
            metadata_location=metadata_location,
            metadata_version=record.version,
            metadata_unix_ms=metadata.last_updated_ms,
            is_written_beside=False,
            stored_parts=frozenset(),  # they have no rows in the clone yet
        )

    def _view_of_its_own(self, body: bytes) -> bytes:
        """Return a view whose next metadata file goes to the clone's warehouse; no catalog deletes the present one."""
        record = ViewRecord.decoded(body)
        location = default_location(self._warehouse, record.identifier, record.uuid)
        return replace(record, metadata={**record.metadata, "location": location}).encoded()

    def _put(self, rows: Sequence[KeyValue]) -> None:
        for batch in batches(rows):
            retrying(
                lambda batch=batch: self._target.transact(lambda tx: _put_batch(tx, self._source, batch))  # type: ignore[misc]
            )
            self.rows += len(batch)

    def _put_table(self, record: TableRecord) -> None:
        retrying(lambda: self._target.transact(lambda tx: _put_table(tx, self._source, record)))
        self.rows += 1


def _prefixes(record: TableRecord) -> Iterator[bytes]:
    """Return the prefixes of the rows under a table's uuid."""
    yield from (snapshots_of(record.uuid), history_of(record.uuid), files_of(record.uuid), commits_of(record.uuid))


def _without_location(body: bytes) -> bytes:
    """Return a namespace without the location that would put new tables among those of the source."""
    record = NamespaceRecord.decoded(body)
    return replace(record, properties={k: v for k, v in record.properties.items() if k != "location"}).encoded()
