"""Deletion of old metadata files, which would otherwise be most of a table's bytes: each has all snapshots.

A table's metadata log names its last `write.metadata.previous-versions-max` metadata files (100). A file that a commit
drops from the log is deleted afterwards, unless `write.metadata.delete-after-commit.enabled` is `false`. Iceberg's own
default is `false`, because its catalogs cannot know who else reads a file; here the records are the truth.

**Kept** are files of tables with `gc.enabled=false`; all files while the catalog has a checkpoint, which may need them
(maintenance deletes them later); files in another directory than the table's new ones, which a clone shares with its
source; and those of a table that was registered from another catalog, unless the property is set.

**Races.** The checkpoints are read on a state that has the commit: a checkpoint that is begun later has a state that
does not name the files. A crash before the deletion leaves orphans.
"""

from functools import partial

from pyiceberg.table import TableProperties

from endive.catalog.commit.metadata_files import MetadataFiles
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.keys import CHECKPOINTS, imported_key
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.protocol.requests import Steps

ENABLED = TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED


def dropped_files(before: TableRecord, after: TableRecord) -> list[str]:
    """Return the metadata files that a commit dropped from a table's log, and that may be deleted by its properties."""
    properties = after.metadata.properties
    if before.metadata.metadata_log is after.metadata.metadata_log:
        return []
    if properties.get(ENABLED, "true").lower() == "false" or properties.get("gc.enabled", "").lower() == "false":
        return []
    directory = after.metadata_location.rpartition("/")[0] + "/"
    named = {entry.metadata_file for entry in after.metadata.metadata_log} | {after.metadata_location}
    dropped = (entry.metadata_file for entry in before.metadata.metadata_log if entry.metadata_file not in named)
    return [file for file in dropped if file.startswith(directory)]


def are_needed(tx: StoreTransaction, record: TableRecord) -> Steps[bool]:
    """Whether a checkpoint or another catalog may need the old metadata files of a table."""
    checkpoints = yield from tx.scan(CHECKPOINTS.encode())
    if checkpoints:
        return True
    is_imported = (yield from tx.get(imported_key(record.uuid))) is not None
    return is_imported and ENABLED not in record.metadata.properties


def delete_dropped_files(
    store: TransactionalStore, files: MetadataFiles, before: TableRecord, after: TableRecord
) -> None:
    """Delete the metadata files that a commit of this process dropped from a table's log."""
    dropped = dropped_files(before, after)
    if dropped and not store.read_cached(partial(are_needed, record=after)):
        for file in dropped:
            files.delete(file)
