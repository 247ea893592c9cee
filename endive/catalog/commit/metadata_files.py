"""Metadata files: their locations, when they are written, and how they are read and deleted.

**Files beside their records.** A commit may write its metadata file and its WAL entry at the same time, and is
acknowledged when both are durable. If the process dies in between, a record names a file that is not there; so does
every record for a moment before its commit is acknowledged. The file's content follows from the rows, so any process
can write it: `existing` does, before a location is given to a caller or becomes part of a metadata log.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, lru_cache
from threading import Lock, Thread

from pydantic import ValidationError as PydanticValidationError
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.serializers import Compressor, FromInputFile
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.config import Config

from endive.catalog.file_io import open_file_io
from endive.catalog.iceberg import metadata_file_version
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.metadata_json import metadata_json
from endive.catalog.operations.table_rows import TableView
from endive.catalog.settings import BACKGROUND, BEFORE, METADATA_JSON
from endive.errors import AtCheckpointError, ConfigurationError, EndiveError
from endive.stages import stage

IO_MAX = 64
"""FileIO objects that are kept from commit to commit, by scheme and properties: they hold connections."""
FILES_APPEAR_WHOLE = "files_appear_whole"
"""Attribute of a FileIO whose files appear with all their bytes, or not at all, whenever a process dies."""
KNOWN_MAX = 4096
"""Metadata files beside their records of which a process remembers that they exist."""

logger = logging.getLogger(__name__)


@contextmanager
def reading_metadata(location: str) -> Iterator[None]:
    """Name a caller's metadata file in the error if it cannot be read, or is no metadata file."""
    try:
        yield
    except (FileNotFoundError, EndiveError):
        raise
    except (OSError, ValueError, TypeError, LookupError, ValidationError) as error:
        raise ConfigurationError(location, _problems(error)) from error


def _problems(error: Exception) -> list[str]:
    """Return why a file is no metadata file: every error in it."""
    inside = error if isinstance(error, PydanticValidationError) else error.__cause__
    if not isinstance(inside, PydanticValidationError):
        return [f"not a metadata file: {str(error).partition(chr(10))[0]}"]
    problems = [(".".join(map(str, one["loc"])), one["msg"]) for one in inside.errors(include_url=False)]
    # A place begins with the version of the format by which the file was read.
    parts = [("not a metadata file", place.lstrip("0123456789."), problem) for place, problem in problems]
    return [": ".join(filter(None, part)) for part in parts]


class MetadataFiles:
    """Reads, names, writes and deletes metadata files, with the catalog's properties for access."""

    def __init__(self, properties: Mapping[str, str], mode: str | None = None) -> None:
        self.properties = dict(properties) if mode is None else {**properties, METADATA_JSON: mode}
        self.read_only_at = ""
        """The checkpoint that the catalog is open at; nothing is written then."""
        self._shared_io = lru_cache(maxsize=IO_MAX)(_new_io)
        self._known: OrderedDict[str, None] = OrderedDict()
        self._known_lock = Lock()

    def io(self, location: str, properties: Mapping[str, str] | None = None) -> FileIO:
        """Return the FileIO for a location; a table's properties override the catalog's.

        The class of a FileIO comes from the catalog's properties alone: a table's writer must not choose the code that
        a server runs.
        """
        scheme = location.partition("://")[0] if "://" in location else "file"
        of_table = {name: value for name, value in (properties or {}).items() if name != PY_IO_IMPL}
        return self._shared_io(scheme, tuple({**self.properties, **of_table}.items()))

    @property
    def mode(self) -> str:
        """When the metadata files of tables are written that do not say it themselves."""
        return self.properties.get(METADATA_JSON, BEFORE)

    def written_first(self, properties: Mapping[str, str], default: str | None = None) -> bool:
        """Whether the metadata file of a table with these properties is written before a commit is acknowledged.

        `default`: what holds for tables that do not say it; without it, what the catalog's properties say.
        """
        mode = properties.get(METADATA_JSON, default or self.mode)
        if mode not in (BEFORE, BACKGROUND):
            raise ConfigurationError(METADATA_JSON, [f"{mode!r} is neither {BEFORE!r} nor {BACKGROUND!r}"])
        return mode == BEFORE

    def new_location(self, metadata: TableMetadata, previous: str) -> str:
        """Return a unique location, numbered after the previous metadata file."""
        provider = load_location_provider(metadata.location, metadata.properties)
        number = metadata_file_version(previous) + 1 if previous else 0
        return provider.new_table_metadata_file_location(number)

    def read(self, location: str) -> TableMetadata:
        """Return the metadata in a metadata file."""
        return FromInputFile.table_metadata(self.io(location).new_input(location))

    def read_given(self, location: str) -> TableMetadata:
        """Return the metadata in a file that a caller names; raise `ConfigurationError` if it is no metadata file."""
        with reading_metadata(location):
            return self.read(location)

    def write(self, metadata: TableMetadata, location: str) -> None:
        """Write a metadata file. Its location is unique, so it is not checked whether a file exists there."""
        if self.read_only_at:
            raise AtCheckpointError(self.read_only_at)
        # Past PyIceberg's own method, which refuses tables of format 3.
        body = metadata_json(metadata, exclude_none=not _says_no_snapshot())
        compress = Compressor.get_compressor(location).bytes_compressor()
        output = self.io(location, metadata.properties).new_output(location)
        with stage("commit.metadata_file"), output.create(overwrite=True) as stream:
            stream.write(compress(body))

    # Files beside their records.

    def may_be_beside(self, location: str, properties: Mapping[str, str]) -> bool:
        """Whether a metadata file may be written beside its record: only if no process ever sees a part of it.

        An object in a bucket appears as a whole. A file in a directory does not: a crash leaves its first bytes.
        """
        return bool(getattr(self.io(location, properties), FILES_APPEAR_WHOLE, False))

    def wrote_beside(self, location: str) -> None:
        """Remember that a file exists."""
        with self._known_lock:
            self._known[location] = None
            if len(self._known) > KNOWN_MAX:
                self._known.popitem(last=False)

    def is_certain(self, record: TableRecord) -> bool:
        """Whether the metadata file of a record exists, as far as this process knows without a request."""
        return not record.is_written_beside or record.metadata_location in self._known

    def look(self, record: TableRecord, before: "Look | None" = None) -> "Look | None":
        """Begin to look whether the metadata file of a record exists; None if that is certain.

        `before`: a look that has begun, and is returned if it is at the same file.
        """
        if self.is_certain(record):
            return None
        if before is not None and before.location == record.metadata_location:
            return before
        return Look(record.metadata_location, lambda: self._exists(record))

    def existing(self, record: TableRecord, load: Callable[[], TableView], look: "Look | None" = None) -> str:
        """Return the metadata file of a record, written now if it does not exist; empty if it cannot be written.

        `load`: returns the table with its whole past, in one state, which may be another one by then. `look`: a look at
        the same record that has begun before.
        """
        location = record.metadata_location
        if self.is_certain(record):
            return location
        is_there = look.is_there() if look is not None else self._exists(record)
        if not is_there:
            try:
                view = load()
                if record.is_dirty or view.record.metadata_location != location or view.record.state != record.state:
                    return ""  # the rows show a later version than the file would
                self.write(view.metadata, location)
            except (OSError, EndiveError):
                logger.warning("the metadata file %s is missing and cannot be written", location, exc_info=True)
                return ""
        self.wrote_beside(location)
        return location

    def _exists(self, record: TableRecord) -> bool:
        location = record.metadata_location
        try:
            return bool(self.io(location, record.metadata.properties).new_input(location).exists())
        except OSError:
            return False  # then it is written, if this process may

    def delete(self, location: str) -> None:
        """Delete a file that nothing refers to; one that cannot be deleted stays as an orphan."""
        try:
            self.io(location).delete(location)
        except FileNotFoundError:
            pass
        except OSError:
            logger.warning("could not delete %s, which nothing refers to", location, exc_info=True)


class Look(Thread):
    """A look whether a file exists, beside other requests."""

    def __init__(self, location: str, exists: Callable[[], bool]) -> None:
        super().__init__(name="endive-look", daemon=True)
        self.location = location
        self._exists = exists
        self._is_there = False
        self.start()

    def run(self) -> None:
        """Look."""
        self._is_there = self._exists()

    def is_there(self) -> bool:
        """Return the result, once it is known."""
        self.join()
        return self._is_there


def _new_io(scheme: str, properties: tuple[tuple[str, str], ...]) -> FileIO:
    return open_file_io(dict(properties), f"{scheme}://")


@cache
def _says_no_snapshot() -> bool:
    """Whether PyIceberg's configuration asks for `null` in place of missing fields, for old readers of its files."""
    return bool(Config().get_bool("legacy-current-snapshot-id"))
