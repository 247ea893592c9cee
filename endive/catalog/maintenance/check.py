"""The check of a catalog: rows against rows, rows against files.

**Rows.** Every row can be read, is under the key that its content gives, and belongs to an existing table; or to one
whose drop was interrupted, which is counted and is no finding. The snapshots that a table refers to (its current one,
branches, tags) exist.

**Files.** A table's metadata file exists and shows its records; manifest lists and manifests exist and can be read; and
for every snapshot with rows in `__files`, rows and manifests have the same files with the same metrics.

**Races.** A check runs beside writers, and files are deleted when snapshots expire. So the findings of a table count
only if the table's record is the same after its check as before; otherwise the table is checked again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from endive.catalog.commit.manifests import read_entries, read_list
from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.file_io import forget_files
from endive.catalog.maintenance.row_check import Finding, check_rows, words_of
from endive.catalog.model.catalog_records import SnapshotRecord
from endive.catalog.model.file_rows import CHANGES, NONE, chain_of, files_by_snapshot, walked
from endive.catalog.model.names import Identifier, table_of, text_of
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations import table_rows
from endive.catalog.operations.table_rows import TableView
from endive.errors import NotInCatalogError
from endive.protocol.requests import Steps

CHECKS_MAX = 5
"""How many times a table that changes meanwhile is checked; the last findings are reported."""

Facts = tuple[object, ...]
"""Facts of a file that rows and manifests must agree on."""


@dataclass
class CatalogReport:
    """The result of a check."""

    tables: int = 0
    snapshots: int = 0
    manifests: int = 0
    files: int = 0
    """Data and delete files in the manifests of the snapshots, each once."""
    leftovers: int = 0
    """Rows of dropped tables and expired snapshots that are still to be deleted: harmless."""
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: "CatalogReport") -> None:
        """Add another report to this one."""
        self.tables += other.tables
        self.snapshots += other.snapshots
        self.manifests += other.manifests
        self.files += other.files
        self.leftovers += other.leftovers
        self.findings += other.findings


def check(
    store: TransactionalStore,
    files: MetadataFiles,
    identifier: str | Identifier | None = None,
    data_files: bool = False,
) -> CatalogReport:
    """Check a table, or the whole catalog. `data_files`: also check that every data file exists."""
    forget_files()
    if identifier is not None:
        return _check_table(store, files, table_of(identifier), data_files)
    rows = store.read(check_rows)
    report = CatalogReport(findings=rows.findings, leftovers=rows.leftovers)
    for name in rows.tables:
        try:
            report.add(_check_table(store, files, name, data_files))
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
    rows: Mapping[int, list[bytes]]
    report: CatalogReport
    manifests: dict[str, dict[str, Facts] | None] = field(default_factory=dict)
    """Contents of manifests, by path; None: one that cannot be read, and has been reported."""

    def finding(self, place: str, problem: str) -> None:
        self.report.findings.append(Finding(f"{self.name}: {place}" if place else self.name, problem))


def _check_table(store: TransactionalStore, files: MetadataFiles, name: Identifier, data_files: bool) -> CatalogReport:
    report = CatalogReport()
    for _ in range(CHECKS_MAX):
        before = store.read(lambda tx: table_rows.require_table(tx, name))
        report = _look_at(store, files, name, data_files)
        if not report.findings or store.read(lambda tx: table_rows.find_table(tx, name)) == before:
            break
    return report


def _look_at(store: TransactionalStore, files: MetadataFiles, name: Identifier, data_files: bool) -> CatalogReport:
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
    look = _Look(text_of(name), files.io(metadata.location, metadata.properties), view, rows, report)
    _check_names(look)
    _check_metadata_file(look, files)
    paths: set[str] = set()
    for one in view.snapshots:
        paths |= _check_snapshot(look, one)
    report.snapshots, report.manifests, report.files = len(view.snapshots), len(look.manifests), len(paths)
    if data_files:
        for path in sorted(paths):
            if not look.io.new_input(path).exists():
                look.finding(path, "the data file is missing")
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
    except Exception as error:  # noqa: BLE001 - the check continues after any error
        look.finding(record.metadata_location, f"the metadata file cannot be read: {words_of(error)}")
        return
    if not record.is_dirty and written != look.view.metadata:
        look.finding(record.metadata_location, "the metadata file does not show what the records say")


def _check_snapshot(look: _Look, one: SnapshotRecord) -> set[str]:
    """Read a snapshot's manifests and compare them with its rows; return the files it has."""
    found = _manifested(look, one.snapshot)
    if found is None:
        return set()
    chain = chain_of(look.view.snapshots, one.snapshot.snapshot_id) if one.files != NONE else None
    if chain is None:
        return set(found)
    place = f"snapshot {one.snapshot.snapshot_id}"
    try:
        rows = {path: _facts(entry.file, entry.sequence_number) for path, entry in walked(chain, look.rows).items()}
    except Exception as error:  # noqa: BLE001 - the check continues after any error
        look.finding(place, f"its file rows cannot be read: {words_of(error)}")
        return set(found)
    for path in sorted(found.keys() - rows.keys()):
        look.finding(place, f"__files lacks {path}, which the manifests have")
    for path in sorted(rows.keys() - found.keys()):
        look.finding(place, f"__files has {path}, which the manifests do not have")
    for path in sorted(found.keys() & rows.keys()):
        if found[path] != rows[path]:
            look.finding(place, f"__files and the manifests differ about {path}: {rows[path]} and {found[path]}")
    return set(found)


def _manifested(look: _Look, snapshot: Snapshot) -> dict[str, Facts] | None:
    """Return the live files of a snapshot as its manifests have them; None if they cannot be read."""
    try:
        manifests = read_list(look.io, snapshot.manifest_list)
    except Exception as error:  # noqa: BLE001 - the check continues after any error
        problem = f"the manifest list of snapshot {snapshot.snapshot_id} cannot be read: {words_of(error)}"
        look.finding(snapshot.manifest_list, problem)
        return None
    found: dict[str, Facts] = {}
    for manifest in manifests:
        if manifest.manifest_path not in look.manifests:
            look.manifests[manifest.manifest_path] = _entries(look, manifest)
    contents = [look.manifests[manifest.manifest_path] for manifest in manifests]
    for content in contents:
        if content is None:
            return None
        found |= content
    return found


def _entries(look: _Look, manifest: ManifestFile) -> dict[str, Facts] | None:
    try:
        return {
            entry.data_file.file_path: _facts(entry.data_file, entry.sequence_number)
            for entry in read_entries(look.io, manifest)
        }
    except Exception as error:  # noqa: BLE001 - the check continues after any error
        look.finding(manifest.manifest_path, f"the manifest cannot be read: {words_of(error)}")
        return None


def _facts(file: DataFile, sequence_number: int | None) -> Facts:
    partition = tuple(str(file.partition[place]) for place in range(len(file.partition)))
    figures = (file.record_count, file.file_size_in_bytes, sequence_number)
    return (int(file.content), FileFormat(file.file_format).value, *figures, file.spec_id, partition)
