"""Maintenance of a whole catalog: snapshots, files, manifests and the store, by the policies of the tables.

Every step is one that commits and other maintenance may interleave with, and that can be killed: records first, files
afterwards (`candidates`). What a killed maintenance leaves is done by the next. A table whose maintenance fails does
not keep the others from theirs.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from endive.catalog.commit.change import TableChange
from endive.catalog.maintenance.candidates import unneeded
from endive.catalog.maintenance.expiry import clean_up, expire, remove_orphans
from endive.catalog.maintenance.manifest_rewrite import RewrittenManifests, plan_rewrite, rewrite_manifests
from endive.catalog.maintenance.protection import deletable, other_locations
from endive.catalog.maintenance.purge import clear_dropped, is_gc_enabled
from endive.catalog.maintenance.retention import expiring
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.operations.dropped_tables import dropped_tables
from endive.catalog.operations.table_rows import all_tables
from endive.catalog.operations.tables_in_store import TablesInStore
from endive.errors import CommitConflictError, ConfigurationError, EndiveError, FencedError, NotInCatalogError

logger = logging.getLogger(__name__)

DAY_MS = 86_400_000
METADATA_SUFFIXES = (".metadata.json", ".metadata.json.gz", ".gz.metadata.json")


@runtime_checkable
class MaintainedStore(Protocol):
    """A store that compacts its log and deletes what nothing needs. `endive.kv.Store` is one."""

    def compact(self, everything: bool = False) -> None:
        """Merge the log into the levels."""
        ...

    def collect(self) -> object:
        """Delete objects that no reader or writer needs."""
        ...

    def stats(self) -> dict[str, int]:
        """Return counters and sizes, by name."""
        ...


@dataclass(frozen=True, slots=True)
class MaintenanceOptions:
    """Options of a maintenance run. Snapshots expire by each table's own properties."""

    dry_run: bool = False
    """Change nothing, and report what would be done."""
    orphan_age_ms: int = 3 * DAY_MS
    """Files that nothing refers to are deleted once they are so old: younger ones may belong to a commit in progress.
    Iceberg's default."""
    manifests: bool = True
    """Rewrite manifests."""
    tables: tuple[Identifier, ...] = ()
    """Only these tables, and not the store. Empty: everything."""


@dataclass
class TableMaintenance:
    """Result of the maintenance of a table; in a dry run, the expected result."""

    table: str
    snapshots: int = 0
    """Expired snapshots."""
    refs: list[str] = field(default_factory=list)
    """Branches and tags past their age."""
    files: int = 0
    """Files that only expired snapshots needed."""
    orphans: int = 0
    """Files that nothing refers to."""
    metadata_files: int = 0
    """Old metadata files among them."""
    manifests_before: int = 0
    manifests_after: int = 0
    """Manifests of the current snapshot; both 0 if they were not rewritten."""
    data_files_before: int = 0
    data_files_after: int = 0
    """Data files that an engine has compacted, and those that replace them; both 0 if the engine was not asked."""
    delete_files_before: int = 0
    delete_files_after: int = 0
    """The same for position delete files."""
    skipped: str = ""
    """Why its files were left alone."""
    error: str = ""
    """Why its maintenance failed."""


@dataclass
class MaintenanceReport:
    """The changes that maintenance has made, or would make."""

    dry_run: bool = False
    tables: list[TableMaintenance] = field(default_factory=list)
    dropped: int = 0
    """Dropped tables whose rows or files were still to be deleted."""
    wal_entries: int = 0
    """Entries of the store's log that were merged into its levels."""
    error: str = ""
    """Why maintenance of the store failed."""

    @property
    def has_failed(self) -> bool:
        """Whether something could not be done."""
        return bool(self.error) or any(one.error for one in self.tables)

    def total(self, name: str) -> int:
        """Return the sum of a count over all tables."""
        return sum(getattr(one, name) for one in self.tables)

    def document(self) -> dict[str, Any]:
        """Return it for machines."""
        return asdict(self)


Commit = Callable[[list[TableChange]], object]
Tell = Callable[[str], None]


def maintain(
    tables: TablesInStore,
    commit: Commit,
    now_ms: Callable[[], int],
    new_id: Callable[[], str],
    options: MaintenanceOptions = MaintenanceOptions(),  # noqa: B008 - frozen
    tell: Tell = lambda _: None,
) -> MaintenanceReport:
    """Maintain every table, then the store. `tell` gets the name of each table before its turn."""
    report = MaintenanceReport(options.dry_run)
    report.dropped = len(tables.store.read(dropped_tables))
    if not options.dry_run:
        clear_dropped(tables.store, tables.files, now_ms())
    names = options.tables or tuple(record.identifier for record in tables.store.read(all_tables))
    for name in names:
        tell(text_of(name))
        done = _maintained(tables, commit, name, now_ms(), new_id, options)
        if done is not None:
            report.tables.append(done)
    if not options.tables:
        tell("the store")
        _maintain_store(tables.store, report)
    return report


def _maintained(
    tables: TablesInStore,
    commit: Commit,
    name: Identifier,
    now_ms: int,
    new_id: Callable[[], str],
    options: MaintenanceOptions,
) -> TableMaintenance | None:
    """Maintain a table; None if it was dropped or renamed meanwhile."""
    done = TableMaintenance(text_of(name))
    try:
        if options.dry_run:
            _look_at(tables, name, now_ms, options, done)
        else:
            _maintain_table(tables, commit, name, now_ms, UUID(new_id()), options, done)
    except NotInCatalogError:
        if options.tables:
            raise
        return None
    except (EndiveError, OSError) as error:
        logger.warning("maintenance of %s failed", text_of(name), exc_info=True)
        done.error = f"{type(error).__name__}: {error}".splitlines()[0]
    return done


def _maintain_table(
    tables: TablesInStore,
    commit: Commit,
    name: Identifier,
    now_ms: int,
    commit_uuid: UUID,
    options: MaintenanceOptions,
    done: TableMaintenance,
) -> None:
    metadata = tables.load(name).metadata
    clean_up(tables.store, name)
    if options.manifests:
        _note_manifests(done, rewrite_manifests(tables, commit, name, commit_uuid, now_ms))
    if not is_gc_enabled(metadata):
        done.skipped = "gc.enabled is false"
        return
    try:
        gone = expire(tables, commit, name, now_ms, None, None)
        done.snapshots, done.refs, done.files = len(gone.snapshot_ids), list(gone.refs), len(gone.deleted_files)
    except CommitConflictError:  # a branch or tag was set meanwhile: the next maintenance looks again
        logger.info("snapshots of %s were not expired: a commit came first", text_of(name), exc_info=True)
    _note_orphans(done, lambda: remove_orphans(tables, name, now_ms - options.orphan_age_ms, False, now_ms))


def _look_at(
    tables: TablesInStore, name: Identifier, now_ms: int, options: MaintenanceOptions, done: TableMaintenance
) -> None:
    """Find what maintenance of a table would do."""
    metadata = tables.load(name).metadata
    io = tables.files.io(metadata.location, metadata.properties)
    if options.manifests:
        merged, kept = plan_rewrite(io, metadata)
        if merged:
            before = sum(map(len, merged)) + len(kept)
            _note_manifests(done, RewrittenManifests(before, len(merged) + len(kept)))
    if not is_gc_enabled(metadata):
        done.skipped = "gc.enabled is false"
        return
    expiry = expiring(metadata, now_ms)
    gone = [one for one in metadata.snapshots if one.snapshot_id in expiry.snapshot_ids]
    remaining = [one for one in metadata.snapshots if one.snapshot_id not in expiry.snapshot_ids]
    done.snapshots, done.refs = len(gone), list(expiry.refs)
    named = unneeded(io, gone, remaining) if gone else ()
    others = tables.store.read_cached(partial(other_locations, uuid=metadata.table_uuid))
    done.files = len(deletable(named, metadata, others))
    _note_orphans(done, lambda: remove_orphans(tables, name, now_ms - options.orphan_age_ms, True, now_ms))


def _note_manifests(done: TableMaintenance, rewritten: RewrittenManifests) -> None:
    if rewritten:
        done.manifests_before, done.manifests_after = rewritten.before, rewritten.after


def _note_orphans(done: TableMaintenance, remove: Callable[[], Iterable[str]]) -> None:
    try:
        found = tuple(remove())
    except ConfigurationError as error:  # another table is in the same location
        done.skipped = "; ".join(error.errors)
        return
    done.orphans = len(found)
    done.metadata_files = sum(path.endswith(METADATA_SUFFIXES) for path in found)


def _maintain_store(store: object, report: MaintenanceReport) -> None:
    """Compact the store and collect its garbage, if it is one that does."""
    if not isinstance(store, MaintainedStore):
        return
    before = _uncompacted(store.stats())
    report.wal_entries = before
    if report.dry_run:
        return
    try:
        store.compact()
        store.collect()
    except FencedError as error:  # another process compacts
        logger.info("compaction was left to another process: %s", error)
    except EndiveError as error:
        logger.warning("maintenance of the store failed", exc_info=True)
        report.error = f"{type(error).__name__}: {error}".splitlines()[0]
    report.wal_entries = max(0, before - _uncompacted(store.stats()))


def _uncompacted(stats: Mapping[str, int]) -> int:
    return stats["uncompacted_entries"]
