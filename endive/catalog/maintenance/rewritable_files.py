"""Data files and delete files that a compaction would rewrite, found in the records without reading manifests.

The catalog does not rewrite data itself. The rules are the defaults of Iceberg's procedures `rewrite_data_files` and
`rewrite_position_delete_files`: files of less than 75 % or more than 180 % of the table's target size, in partitions
that have at least five of them, or more bytes of them than one file should have.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat

from endive.catalog.model.file_rows import FileEntry, live_files
from endive.catalog.model.names import Identifier
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.table_rows import TableView, load_table
from endive.catalog.operations.tables_in_store import TablesInStore
from endive.catalog.planner import plan_files
from endive.protocol.requests import Steps

DATA_TARGET = ("write.target-file-size-bytes", 512 * 1024 * 1024)
DELETE_TARGET = ("write.delete.target-file-size-bytes", 64 * 1024 * 1024)
"""Properties of a table, and Iceberg's defaults."""
SMALL, LARGE = 0.75, 1.8
"""Of the target size: smaller and larger files are rewritten."""
FILES_MIN = 5


@dataclass(frozen=True, slots=True)
class RewritableFiles:
    """How many files of a table's current snapshot a compaction would rewrite."""

    data_files: int = 0
    delete_files: int = 0


def rewritable_files(tables: TablesInStore, name: Identifier) -> RewritableFiles:
    """Return how many files of a table a compaction would rewrite.

    Of a registered table without file records the manifests are read, and its delete files are not counted.
    """
    view, entries = tables.store.read(partial(_look, name=name))
    properties = view.record.metadata.properties
    if entries is None:
        files = [task.file for task in plan_files(tables.store, tables.files, name, AlwaysTrue(), None, True)]
    else:
        files = [entry.file for entry in entries]
    data = (one for one in files if one.content == DataFileContent.DATA)
    deletes = (  # a deletion vector belongs to one data file, and is not rewritten
        one for one in files if one.content == DataFileContent.POSITION_DELETES and one.file_format != FileFormat.PUFFIN
    )
    return RewritableFiles(
        _rewritable(data, _size_of(properties, *DATA_TARGET)),
        _rewritable(deletes, _size_of(properties, *DELETE_TARGET)),
    )


def _look(tx: StoreTransaction, name: Identifier) -> Steps[tuple[TableView, tuple[FileEntry, ...] | None]]:
    view = yield from load_table(tx, name)
    target = view.record.metadata.current_snapshot_id
    entries = (yield from live_files(tx, view.snapshots, target)) if target is not None else ()
    return view, entries


def _size_of(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and int(text) > 0 else default


def _rewritable(files: Iterable[DataFile], target: int) -> int:
    """Return how many files are in partitions that a compaction would rewrite."""
    sizes: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for one in files:
        if not SMALL * target <= one.file_size_in_bytes <= LARGE * target:
            sizes[one.spec_id, repr(one.partition)].append(one.file_size_in_bytes)
    return sum(len(found) for found in sizes.values() if _is_worth_it(found, target))


def _is_worth_it(sizes: list[int], target: int) -> bool:
    total = sum(sizes)
    return len(sizes) >= FILES_MIN or (len(sizes) > 1 and total > target) or total > LARGE * target
