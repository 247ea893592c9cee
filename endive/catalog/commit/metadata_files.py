"""Metadata files: where they go, when they are written, and how they are deleted again."""

import logging
from collections.abc import Mapping
from functools import cache, lru_cache

from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.serializers import Compressor, FromInputFile
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.utils.config import Config

from endive.errors import ConfigurationError

MODE = "endive.metadata-json"
"""Property of a table, or of the catalog for tables that do not say: when the metadata file is written."""
BEFORE, BACKGROUND = "before-acknowledgement", "background"

IO_MAX = 64
"""What reads and writes files holds connections: it is kept from commit to commit, by scheme and properties."""

logger = logging.getLogger(__name__)


class MetadataFiles:
    """Reads, names, writes and deletes metadata files, with the catalog's properties for access."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties = dict(properties)
        self._shared_io = lru_cache(maxsize=IO_MAX)(_new_io)

    def io(self, location: str, properties: Mapping[str, str] | None = None) -> FileIO:
        """Return what reads and writes files at a location; a table's properties come before the catalog's."""
        scheme = location.partition("://")[0] if "://" in location else "file"
        return self._shared_io(scheme, tuple({**self.properties, **(properties or {})}.items()))

    def written_before(self, properties: Mapping[str, str]) -> bool:
        """Whether the metadata file of a table with these properties is written before a commit is acknowledged."""
        mode = properties.get(MODE, self.properties.get(MODE, BEFORE))
        if mode not in {BEFORE, BACKGROUND}:
            raise ConfigurationError(MODE, [f"{mode!r} is neither {BEFORE!r} nor {BACKGROUND!r}"])
        return mode == BEFORE

    def new_location(self, metadata: TableMetadata, previous: str) -> str:
        """Return a name that no other file has, numbered after the previous metadata file."""
        provider = load_location_provider(metadata.location, metadata.properties)
        number = MetastoreCatalog._parse_metadata_version(previous) + 1 if previous else 0
        return provider.new_table_metadata_file_location(number)

    def read(self, location: str) -> TableMetadata:
        """Return what a metadata file says."""
        return FromInputFile.table_metadata(self.io(location).new_input(location))

    def write(self, metadata: TableMetadata, location: str) -> None:
        """Write a metadata file under a name that no other has: so nobody needs to look whether it is there."""
        body = metadata.model_dump_json(exclude_none=not _says_no_snapshot()).encode()
        compress = Compressor.get_compressor(location).bytes_compressor()
        with self.io(location, metadata.properties).new_output(location).create(overwrite=True) as stream:
            stream.write(compress(body))

    def delete(self, location: str) -> None:
        """Delete a file that nothing names; what cannot be deleted stays as an orphan."""
        try:
            self.io(location).delete(location)
        except FileNotFoundError:
            pass
        except OSError:
            logger.warning("could not delete %s, which nothing names", location, exc_info=True)


def _new_io(scheme: str, properties: tuple[tuple[str, str], ...]) -> FileIO:
    return load_file_io(dict(properties), f"{scheme}://")


@cache
def _says_no_snapshot() -> bool:
    """Whether PyIceberg's configuration wants `null` for what a table does not have, for old readers of its files."""
    return bool(Config().get_bool("legacy-current-snapshot-id"))
