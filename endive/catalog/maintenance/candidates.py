"""Files that may be deleted: those of expired snapshots, and orphans.

**Records first.** Snapshots leave the records in a commit like any other; only then are files deleted, and only those
that nothing in the table needs as it is after that commit. A crash between leaves orphans.

**Needed** is everything reachable from any snapshot of the table, on any branch or tag: manifest lists, manifests, live
data and delete files; and the metadata files that the table refers to. A new branch or tag cannot point to a removed
snapshot.

**Orphans** are files below the table's location that are not needed. Such a file may belong to a commit in progress, so
only files older than a limit count. Files are listed before the table is loaded, so that commits in between are seen.
If another table of the catalog is in the same location, nothing is deleted.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from posixpath import normpath
from urllib.parse import urlsplit

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from endive.catalog.commit.manifests import read_entries
from endive.catalog.connection import FOLDER
from endive.catalog.maintenance.lineage import READERS, lineage, list_changes
from endive.errors import CorruptObjectError


@dataclass(frozen=True, slots=True)
class Reachable:
    """The files that snapshots need."""

    lists: frozenset[str]
    manifests: frozenset[str]
    files: frozenset[str]
    """Data files and delete files."""

    @property
    def paths(self) -> frozenset[str]:
        """Return the paths of all kinds."""
        return self.lists | self.manifests | self.files


def reachable(
    io: FileIO,
    snapshots: Iterable[Snapshot],
    known: frozenset[str] | None = frozenset(),
    problems: list[FileNotFoundError | CorruptObjectError] | None = None,
) -> Reachable:
    """Return what snapshots need; manifests in `known` are not read, and none at all if it is None.

    `problems`: gets the errors about missing and damaged files; None: they are raised.
    """
    wanted = tuple(snapshots)
    lists = frozenset(one.manifest_list for one in wanted)
    with ThreadPoolExecutor(READERS, thread_name_prefix="endive-files") as pool:
        manifests: dict[str, ManifestFile] = {}
        for _, change in list_changes(io, lineage(wanted), pool):
            with _noting(problems):
                if isinstance(change, Exception):
                    raise change
                manifests |= {one.manifest_path: one for one in change.added}
        unread = [one for path, one in manifests.items() if known is not None and path not in known]
        files: set[str] = set()
        for reading in [pool.submit(_live_files, io, one) for one in unread]:
            with _noting(problems):
                files |= reading.result()
    return Reachable(lists, frozenset(manifests), frozenset(files))


def _live_files(io: FileIO, manifest: ManifestFile) -> set[str]:
    entries = read_entries(io, manifest)
    return {one.data_file.file_path for one in entries if one.status != ManifestEntryStatus.DELETED}


def manifests_of(io: FileIO, snapshots: Sequence[Snapshot]) -> frozenset[str]:
    """Return the paths of the manifests that snapshots need."""
    return reachable(io, snapshots, known=None).manifests


@contextmanager
def _noting(problems: list[FileNotFoundError | CorruptObjectError] | None) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, CorruptObjectError) as error:
        if problems is None:
            raise
        problems.append(error)


def named_by(metadata: TableMetadata, metadata_location: str) -> set[str]:
    """Return the files that a table itself refers to: metadata files and statistics."""
    named = {metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    named |= {one.statistics_path for one in metadata.statistics}
    named |= {one.statistics_path for one in metadata.partition_statistics}
    return named - {""}


def unneeded(io: FileIO, gone: Sequence[Snapshot], remaining: Sequence[Snapshot]) -> tuple[str, ...]:
    """Return the files that snapshots needed which are gone, and that no remaining one needs; data files first."""
    kept_manifests = manifests_of(io, remaining)
    before = reachable(io, gone, known=kept_manifests)
    after = reachable(io, remaining) if before.files else Reachable(frozenset(), kept_manifests, frozenset())
    return (
        *sorted(before.files - after.files),
        *sorted(before.manifests - after.manifests),
        *sorted(before.lists - {one.manifest_list for one in remaining}),
    )


# Orphans.


def path_of(location: str) -> str:
    """Return what identifies a file, however its location is written: without scheme, or a slash too many."""
    parts = urlsplit(location)
    path = normpath("/" + (parts.path if parts.scheme else location).lstrip("/"))
    return path if parts.scheme in {"", "file"} else f"{parts.netloc}{path}"


def is_inside(location: str, path: str) -> bool:
    """Whether a file or folder is below a location, in the same kind of storage. A path with `..` is nowhere."""
    if ".." in path.split("/") or ".." in location.split("/") or not location or _kind(path) != _kind(location):
        return False
    return path_of(path).startswith(path_of(location).rstrip("/") + "/")


def _kind(location: str) -> str:
    """Return the kind of storage; `file://host/…` is none of this machine, since it is read as a relative path."""
    parts = urlsplit(location)
    kind = {"s3a": "s3", "s3n": "s3", "": "file"}.get(parts.scheme, parts.scheme)
    return f"{kind}://{parts.netloc}" if kind == "file" and parts.netloc else kind


def orphans(listed: Iterable[tuple[str, int]], needed: Iterable[str], older_than_unix_ms: int) -> tuple[str, ...]:
    """Return the listed locations (with the time of their writing) that are old enough and not needed."""
    paths = {path_of(location) for location in needed}
    return tuple(
        location
        for location, modified_unix_ms in listed
        if modified_unix_ms < older_than_unix_ms
        and path_of(location) not in paths
        and f"/{FOLDER}/" not in path_of(location)
    )


def overlaps(location: str, other: str) -> bool:
    """Whether one location is inside the other, or the same."""
    one, two = path_of(location).rstrip("/") + "/", path_of(other).rstrip("/") + "/"
    return one.startswith(two) or two.startswith(one)
