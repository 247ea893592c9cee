"""Files of snapshots."""

from dataclasses import dataclass
from uuid import UUID

from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class FilesOfSnapshot:
    """What a snapshot changes."""

    kind: str
    entries: tuple[object, ...]


NO_FILES = FilesOfSnapshot("none", ())


def file_rows(uuid: UUID, snapshot: Snapshot, files: FilesOfSnapshot) -> list[tuple[bytes, bytes]]:
    """Return the rows of a snapshot's files."""
    return []
