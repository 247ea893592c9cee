"""The check of a table's files: manifest lists, manifests, and the file rows of every snapshot against them.

Snapshots are checked from parent to child. A child's manifests and file rows are the parent's with a few changes, so
only the files that changed are compared, and the check takes time in proportion to the number of snapshots and files.
Lists and manifests are read by several threads: over a remote store most of the time would be waiting.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, FileFormat, ManifestFile

from endive.catalog.commit.manifests import read_entries
from endive.catalog.maintenance.findings import Finding
from endive.catalog.maintenance.lineage import READERS, States, Step, lineage, list_changes
from endive.catalog.maintenance.raw_lists import ListChange, ManifestKey, key_of
from endive.catalog.maintenance.row_check import words_of
from endive.catalog.model.catalog_records import SnapshotRecord
from endive.catalog.model.file_rows import ALL, CHANGES, DELETED, decoded_file

Facts = tuple[object, ...]
"""Facts of a file that rows and manifests must agree on."""
Progress = Callable[[int], None]
"""Gets the number of snapshots checked so far."""


@dataclass
class FilesReport:
    """The manifests and files that were found, and what is wrong with them."""

    manifests: int = 0
    paths: set[str] = field(default_factory=set)
    """Data and delete files in the manifests of the snapshots."""
    findings: list[Finding] = field(default_factory=list)
    """By place: a file or a snapshot."""


def check_files(
    io: FileIO, snapshots: Sequence[SnapshotRecord], rows: Mapping[int, list[bytes]], progress: Progress
) -> FilesReport:
    """Read all manifest lists and manifests of a table, and compare them with the file rows."""
    report = FilesReport()
    ordered = lineage([one.snapshot for one in snapshots])
    kinds = {one.snapshot.snapshot_id: one.files for one in snapshots}
    changes: dict[int, ListChange | None] = {}
    with ThreadPoolExecutor(READERS, thread_name_prefix="endive-check") as pool:
        for step, change in list_changes(io, ordered, pool):
            changes[step.id] = None if isinstance(change, Exception) else change
            if isinstance(change, Exception):
                problem = f"the manifest list of snapshot {step.id} cannot be read: {words_of(change)}"
                report.findings.append(Finding(step.snapshot.manifest_list, problem))
            progress(len(changes))
        wanted = {key_of(one): one for change in changes.values() if change is not None for one in change.added}
        contents = dict(zip(wanted, pool.map(lambda one: _entries(io, one, report), wanted.values()), strict=True))
    report.manifests = len({path for path, _ in wanted})
    _compare(ordered, changes, contents, kinds, rows, report)
    return report


def missing_files(io: FileIO, paths: Iterable[str]) -> list[Finding]:
    """Return a finding for every data or delete file that does not exist."""
    ordered = sorted(paths)
    with ThreadPoolExecutor(READERS, thread_name_prefix="endive-check") as pool:
        exist = list(pool.map(lambda path: io.new_input(path).exists(), ordered))
    return [
        Finding(path, "the data file is missing") for path, exists in zip(ordered, exist, strict=True) if not exists
    ]


def _entries(io: FileIO, manifest: ManifestFile, report: FilesReport) -> dict[str, Facts] | None:
    """Return the live files of a manifest; None if it cannot be read, which is reported."""
    try:
        return {
            entry.data_file.file_path: _facts(entry.data_file, entry.sequence_number)
            for entry in read_entries(io, manifest)
        }
    except Exception as error:  # noqa: BLE001 - the check continues after any error
        problem = f"the manifest cannot be read: {words_of(error)}"
        report.findings.append(Finding(manifest.manifest_path, problem))
        return None


def _facts(file: DataFile, sequence_number: int | None) -> Facts:
    partition = tuple(str(file.partition[place]) for place in range(len(file.partition)))
    metrics = (file.record_count, file.file_size_in_bytes, sequence_number)
    return (int(file.content), FileFormat(file.file_format).value, *metrics, file.spec_id, partition)


# Rows against manifests.


@dataclass
class _Files:
    """The files of a snapshot, as its manifests and as its rows have them; None where that is not known."""

    listed: dict[str, Facts] | None = None
    rows: dict[str, Facts] | None = None
    differing: set[str] = field(default_factory=set)

    def copy(self) -> "_Files":
        listed = None if self.listed is None else dict(self.listed)
        return _Files(listed, None if self.rows is None else dict(self.rows), set(self.differing))


def _compare(
    ordered: Sequence[Step],
    changes: Mapping[int, ListChange | None],
    contents: Mapping[ManifestKey, dict[str, Facts] | None],
    kinds: Mapping[int, str],
    rows: Mapping[int, list[bytes]],
    report: FilesReport,
) -> None:
    states: States[_Files] = States(ordered)
    for step in ordered:
        files = states.take(step) or _Files(rows={} if step.snapshot.parent_snapshot_id is None else None)
        touched = _follow_manifests(files, step, changes, contents)
        listed = (files.listed or {}).keys()
        report.paths |= listed if touched is None else touched & listed
        changed = _follow_rows(files, step, kinds[step.id], rows.get(step.id, []), report)
        if files.listed is not None and files.rows is not None:
            some = None if touched is None or changed is None else touched | changed | files.differing
            _report_differences(files, step, listed | files.rows.keys() if some is None else some, report)
        states.keep(step, files)


def _follow_manifests(
    files: _Files,
    step: Step,
    changes: Mapping[int, ListChange | None],
    contents: Mapping[ManifestKey, dict[str, Facts] | None],
) -> set[str] | None:
    """Apply a snapshot's manifests; return the files that changed, or None if all of them are to be compared."""
    change = changes[step.id]
    if change is None:
        files.listed = None
        return set()
    if change.is_whole:
        files.listed = {}
    if files.listed is None:
        return set()  # a manifest that an ancestor has as well cannot be read
    touched: set[str] = set()
    for key in change.removed:
        for path in contents[key] or ():
            files.listed.pop(path, None)
            touched.add(path)
    for one in change.added:
        content = contents[key_of(one)]
        if content is None:
            files.listed = None
            return set()
        files.listed |= content
        touched |= content.keys()
    return None if change.is_whole else touched


def _follow_rows(files: _Files, step: Step, kind: str, bodies: Sequence[bytes], report: FilesReport) -> set[str] | None:
    """Apply a snapshot's file rows; return the files that changed, or None if all of them are to be compared."""
    if kind == ALL:
        files.rows = {}
    elif kind != CHANGES:
        files.rows = None
    if files.rows is None:
        return set()
    try:
        entries = [decoded_file(body) for body in bodies]
    except Exception as error:  # noqa: BLE001 - the check continues after any error
        report.findings.append(Finding(f"snapshot {step.id}", f"its file rows cannot be read: {words_of(error)}"))
        files.rows = None
        return set()
    for entry in entries:
        if entry.status == DELETED:
            files.rows.pop(entry.file.file_path, None)
    for entry in entries:
        if entry.status != DELETED:
            files.rows[entry.file.file_path] = _facts(entry.file, entry.sequence_number)
    return None if kind == ALL else {entry.file.file_path for entry in entries}


def _report_differences(files: _Files, step: Step, paths: Iterable[str], report: FilesReport) -> None:
    """Compare the manifests and the rows of a snapshot about some files."""
    listed, rows = files.listed or {}, files.rows or {}
    files.differing = {path for path in paths if listed.get(path) != rows.get(path)}
    place = f"snapshot {step.id}"
    lacks = [path for path in sorted(files.differing) if path not in rows]
    extra = [path for path in sorted(files.differing) if path not in listed]
    report.findings += [Finding(place, f"__files lacks {path}, which the manifests have") for path in lacks]
    report.findings += [Finding(place, f"__files has {path}, which the manifests do not have") for path in extra]
    report.findings += [
        Finding(place, f"__files and the manifests differ about {path}: {rows[path]} and {listed[path]}")
        for path in sorted(files.differing & listed.keys() & rows.keys())
    ]
