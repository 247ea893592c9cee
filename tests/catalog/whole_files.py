"""A FileIO on a directory whose metadata files appear as a whole, as in a bucket."""

import os
from io import BytesIO
from pathlib import Path
from urllib.parse import urlsplit

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

METADATA = ".metadata.json"


class WholeFile(PyArrowFile):
    """A file that is written under another name, and renamed."""

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Renamed(Path(urlsplit(self.location).path))


class _Renamed(BytesIO):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        if not self.closed:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = self._path.with_name(f"{self._path.name}.{os.getpid()}.unfinished")
            unfinished.write_bytes(self.getvalue())
            unfinished.replace(self._path)
        super().close()


class WholeFileIO(PyArrowFileIO):
    files_appear_whole = True

    def new_output(self, location: str) -> PyArrowFile:
        file = super().new_output(location)
        if not location.endswith(METADATA):
            return file
        return WholeFile(location, file._path, file._filesystem)
