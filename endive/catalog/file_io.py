"""The FileIO of a location, unless the user names one.

In a local directory, a file is on disk before a commit can name it (`endive.catalog.synced_files`). The store syncs its
own objects, but PyIceberg's FileIO does not sync metadata files, manifest lists, manifests and data files: after a
power failure, a durable commit could name a file that is empty or missing. In object storage a PUT is durable when it
is confirmed; there, a file costs as few requests as possible (`endive.catalog.object_files`).
"""

import sys
from collections.abc import Mapping
from importlib import import_module

from pyiceberg.io import PY_IO_IMPL, SCHEMA_TO_FILE_IO, FileIO, load_file_io

from endive.errors import ConfigurationError


def open_file_io(properties: Mapping[str, str], location: str | None) -> FileIO:
    """Return the FileIO for a location. A FileIO that the user names (`py-io-impl`) is used unchanged."""
    if PY_IO_IMPL in properties or location is None:
        return load_file_io(dict(properties), location)
    # Modules are imported when they are needed: PyArrow takes long to import.
    if "://" not in location or location.startswith("file:"):
        synced: FileIO = import_module("endive.catalog.synced_files").SyncedFileIO(dict(properties))
        return synced
    objects = import_module("endive.catalog.object_files")
    if objects.supports(properties, location):
        in_bucket: FileIO = objects.ObjectFileIO(dict(properties))
        return in_bucket
    scheme = location.partition("://")[0]
    if scheme not in SCHEMA_TO_FILE_IO:
        raise ConfigurationError(location, [f"no file system is known for {scheme}://"])
    return load_file_io(dict(properties), location)


def forget_files() -> None:
    """Let every file be read from its bucket the next time: a check must see what is there."""
    objects = sys.modules.get("endive.catalog.object_files")
    if objects is not None:
        objects.forget_files()
