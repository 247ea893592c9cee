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
from contextlib import contextmanager
from dataclasses import dataclass
from posixpath import normpath
from urllib.parse import urlsplit

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntryStatus, ManifestFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from endive.catalog.commit.manifests import read_entries, read_list
from endive.catalog.connection import FOLDER
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
        """All of them."""
        return self.lists | self.manifests | self.files


def reachable(
    io: FileIO,
    snapshots: Iterable[Snapshot],
    known: frozenset[str] = frozenset(),
    problems: list[FileNotFoundError | CorruptObjectError] | None = None,
) -> Reachable:
    """Return what snapshots need; manifests in `known` are not looked into.

    `problems`: gets the errors about missing and damaged files; None: they are raised.
    """
    lists: set[str] = set()
    manifests: dict[str, ManifestFile] = {}
    for snapshot in snapshots:
        lists.add(snapshot.manifest_list)
        with _noting(problems):
            manifests |= {one.manifest_path: one for one in read_list(io, snapshot.manifest_list)}
    files: set[str] = set()
    for path in manifests.keys() - known:
        with _noting(problems):
            entries = read_entries(io, manifests[path])
            files |= {one.data_file.file_path for one in entries if one.status != ManifestEntryStatus.DELETED}
    return Reachable(frozenset(lists), frozenset(manifests), frozenset(files))


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
    kept_manifests = frozenset(
        one.manifest_path for snapshot in remaining for one in read_list(io, snapshot.manifest_list)
    )
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
