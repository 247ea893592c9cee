"""The FileIO of a location: in a local directory, a file is on disk before a commit can name it.

The store syncs its own objects, but PyIceberg's FileIO does not sync metadata files, manifest lists, manifests and data
files. After a power failure, a durable commit could name a file that is empty or missing. Locations in object storage
are not affected: a PUT is durable when it is confirmed.
"""

from collections.abc import Mapping
from importlib import import_module

from pyiceberg.io import PY_IO_IMPL, FileIO, load_file_io


def open_file_io(properties: Mapping[str, str], location: str | None) -> FileIO:
    """Return the FileIO for a location. A FileIO that the user names (`py-io-impl`) is used unchanged."""
    is_local = location is not None and ("://" not in location or location.startswith("file:"))
    if not is_local or PY_IO_IMPL in properties:
        return load_file_io(dict(properties), location)
    # Imported when it is needed: PyArrow takes long to import.
    synced: FileIO = import_module("endive.catalog.synced_files").SyncedFileIO(dict(properties))
    return synced
