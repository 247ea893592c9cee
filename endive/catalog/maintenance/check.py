"""The check of a catalog: rows against rows, rows against files.

**Rows.** Every row can be read, is under the key that its content gives, and belongs to an existing table; or to one
whose drop was interrupted, which is counted and is no finding. The snapshots that a table refers to (its current one,
branches, tags) exist.

**Files.** A table's metadata file exists and shows its records; manifest lists and manifests exist and can be read; and
for every snapshot with rows in `__files`, rows and manifests have the same files with the same metrics.

**Races.** A check runs beside writers, and files are deleted when snapshots expire. So the findings of a table count
only if the table's record is the same after its check as before; otherwise the table is checked again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from pyiceberg.io import FileIO

from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.file_io import forget_files
from endive.catalog.maintenance.files_check import Progress, check_files, missing_files
from endive.catalog.maintenance.findings import Finding
from endive.catalog.maintenance.row_check import check_rows, words_of
from endive.catalog.model.file_rows import CHANGES, files_by_snapshot
from endive.catalog.model.names import Identifier, table_of, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations import table_rows
from endive.catalog.operations.table_rows import TableView
from endive.errors import NotInCatalogError
from endive.protocol.requests import Steps

CheckProgress = Callable[[int, int], None]
"""Gets the number of snapshots checked so far, and the number of all."""

CHECKS_MAX = 5
"""How many times a table that changes meanwhile is checked; the last findings are reported."""


@dataclass
class CatalogReport:
    """The result of a check."""

    tables: int = 0
    snapshots: int = 0
    manifests: int = 0
    files: int = 0
    """Data and delete files in the manifests of the snapshots, each once."""
    pending_deletions: int = 0
    """Rows of dropped tables and expired snapshots that are still to be deleted: harmless."""
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: "CatalogReport") -> None:
        """Add another report to this one."""
        self.tables += other.tables
        self.snapshots += other.snapshots
        self.manifests += other.manifests
        self.files += other.files
        self.pending_deletions += other.pending_deletions
        self.findings += other.findings


def check(
    store: TransactionalStore,
    files: MetadataFiles,
    identifier: str | Identifier | None = None,
    data_files: bool = False,
    progress: CheckProgress = lambda _, __: None,
) -> CatalogReport:
    """Check a table, or the whole catalog. `data_files`: also check that every data file exists.

    `progress`: gets the number of snapshots checked so far, and the number of all.
    """
    forget_files()
    if identifier is not None:
        name = table_of(identifier)
        total = len(store.read(lambda tx: table_rows.load_table(tx, name)).snapshots)
        return _check_table(store, files, name, data_files, lambda done: progress(done, total))
    rows = store.read(check_rows)
    report = CatalogReport(findings=rows.findings, pending_deletions=rows.pending_deletions)
    for name in rows.tables:
        before = report.snapshots
        try:
            report.add(
                _check_table(
                    store,
                    files,
                    name,
                    data_files,
                    lambda done, before=before: progress(before + done, rows.snapshots),  # type: ignore[misc]
                )
            )
        except NotInCatalogError:
            continue  # dropped or renamed since
    return report


# A table's rows against each other and against its files.


@dataclass
class _Look:
    """One check of a table."""

    name: str
    io: FileIO
    view: TableView
    report: CatalogReport

    def finding(self, place: str, problem: str) -> None:
        self.report.findings.append(Finding(f"{self.name}: {place}" if place else self.name, problem))


def _check_table(
    store: TransactionalStore, files: MetadataFiles, name: Identifier, data_files: bool, progress: Progress
) -> CatalogReport:
    report = CatalogReport()
    for _ in range(CHECKS_MAX):
        before = store.read(lambda tx: table_rows.require_table(tx, name))
        report = _look_at(store, files, name, data_files, progress)
        if not report.findings or store.read(lambda tx: table_rows.find_table(tx, name)) == before:
            break
    return report


def _look_at(
    store: TransactionalStore, files: MetadataFiles, name: Identifier, data_files: bool, progress: Progress
) -> CatalogReport:
    def load(tx: StoreTransaction) -> Steps[tuple[TableView, dict[int, list[bytes]]]]:
        view = yield from table_rows.load_table(tx, name)
        rows = yield from files_by_snapshot(tx, view.record.uuid)
        return view, rows

    report = CatalogReport(tables=1)
    try:
        view, rows = store.read(load)
    except NotInCatalogError:
        raise
    except Exception as error:  # noqa: BLE001 - the check continues after any error
        report.findings.append(Finding(text_of(name), f"its rows cannot be read: {words_of(error)}"))
        return report
    metadata = view.metadata
    look = _Look(text_of(name), files.io(metadata.location, metadata.properties), view, report)
    _check_names(look)
    _check_metadata_file(look, files)
    files_report = check_files(look.io, view.snapshots, rows, progress)
    if data_files:
        files_report.findings += missing_files(look.io, files_report.paths)
    for one in files_report.findings:
        look.finding(one.place, one.problem)
    report.snapshots, report.manifests = len(view.snapshots), files_report.manifests
    report.files = len(files_report.paths)
    return report


def _check_names(look: _Look) -> None:
    """Check that the snapshots that the table refers to exist, and the parents that file rows depend on."""
    metadata = look.view.metadata
    ids = {one.snapshot.snapshot_id: one for one in look.view.snapshots}
    if metadata.current_snapshot_id is not None and metadata.current_snapshot_id not in ids:
        look.finding("", f"its current snapshot {metadata.current_snapshot_id} is not there")
    for name, ref in sorted(metadata.refs.items()):
        if ref.snapshot_id not in ids:
            look.finding(
                "", f"{ref.snapshot_ref_type.value} {name} points to snapshot {ref.snapshot_id}, which is not there"
            )
    for snapshot_id, one in ids.items():
        parent = one.snapshot.parent_snapshot_id
        if one.files == CHANGES and parent is not None and parent not in ids:
            look.finding(f"snapshot {snapshot_id}", f"its file rows build on snapshot {parent}, which is not there")


def _check_metadata_file(look: _Look, files: MetadataFiles) -> None:
    record = look.view.record
    if not record.metadata_location:
        look.finding("", "it has no metadata file; `endive catalog export` writes one")
        return
    try:
        written = files.read(record.metadata_location)
    except FileNotFoundError as error:
        if not record.is_written_beside:  # else any process that loads the table writes it
            look.finding(record.metadata_location, f"the metadata file cannot be read: {words_of(error)}")
        return
    except Exception as error:  # noqa: BLE001 - the check continues after any error
        look.finding(record.metadata_location, f"the metadata file cannot be read: {words_of(error)}")
        return
    if not record.is_dirty and written != look.view.metadata:
        look.finding(record.metadata_location, "the metadata file does not show what the records say")
