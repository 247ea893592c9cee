"""A FileIO that syncs local files, so that a commit never names a file that a power failure can destroy.

`endive.catalog.file_io` imports this module when it is needed.
"""

from pathlib import Path

import pyarrow as pa
from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from endive.objects.local import sync, sync_parents

_durable: set[Path] = set()
"""Directories whose names are on disk."""


class SyncedFileIO(PyArrowFileIO):
    """PyIceberg's default FileIO, except that closing a local file syncs it and its directory."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return an output file; a local one is durable once its stream is closed."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme != "file":
            return super().new_output(location)
        return SyncedFile(location, path, self.fs_by_scheme(scheme, netloc))


class SyncedFile(PyArrowFile):
    """A local file that is synced when its stream is closed."""

    def create(self, overwrite: bool = False) -> OutputStream:
        """Return a stream that writes the file."""
        if not overwrite and self.exists():
            raise FileExistsError(f"Cannot create file, already exists: {self.location}")
        path = Path(PyArrowFileIO.parse_location(self.location)[2])
        if not path.parent.is_dir():
            _durable.discard(path.parent)
            path.parent.mkdir(parents=True, exist_ok=True)
        return _SyncedStream(str(path), "wb")


class _SyncedStream(pa.OSFile):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, path: str, mode: str) -> None:  # noqa: ARG002 - `OSFile` opens the file in `__cinit__`
        super().__init__()
        self._path = Path(path)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        sync(self._path)
        sync(self._path.parent)
        if self._path.parent not in _durable:
            sync_parents(self._path.parent)
            _durable.add(self._path.parent)
