"""The requests that one PyIceberg commit makes, in order.

`trace` runs a real PyIceberg operation on a fresh local table and returns the name of every
request it made: through the FileIO (`TracedFileIO`) and to the catalog (`PointerCatalog`).
To make the operation lose a race, an untraced rival commits just before the compare-and-swap,
so what is traced is PyIceberg's own retry loop, with its refresh, its validation and its clean-up.

One request is: a read, when an object is opened (for a Parquet file that may be several range
requests); a write, when it is closed, for only then does it exist; a head, for `exists()` and
`len()`. Loading the table before the operation is not part of the trace.

Order. PyIceberg runs these groups in a thread pool; every other request awaits the one before it:

* for each snapshot: {write + head of the manifest of added files}, {the same for deleted files},
  {read of the parent's manifest list; in a row delete, then of its manifests one by one};
* after that, the bins of a manifest merge (one bin, unless manifests exceed the target size);
* in a row delete, the manifest reads of the scan, and those that find the replaced entries
  (but the plan of a delete, and validation, read their manifests one by one);
* the data files of one write, where there are several.

`trace` gives PyIceberg one worker, which takes the tasks of a group as they were submitted: one
of the legal orders, the same each time. `attempts` counts, and so holds whatever the order.
"""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatch
from itertools import count
from typing import Any, Self
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO, _dataframe_to_data_files
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, StagedTable, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.utils.concurrent import ExecutorFactory

TABLE = ("db", "table")
ROWS_PER_FILE = 10

KINDS = (
    ("*.metadata.json", "metadata"),
    ("snap-*.avro", "manifest_list"),
    ("*-m*.avro", "manifest_file"),
    ("*.parquet", "data"),
)
"""What an object is, by the name PyIceberg gives it; the first pattern that matches."""

_write_ids = count(1)

QUICK_RETRIES = {
    "commit.retry.num-retries": "10",
    "commit.retry.min-wait-ms": "1",
    "commit.retry.max-wait-ms": "1",
}
MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}


def kind_of(location: str) -> str:
    """Return metadata, manifest_list, manifest_file or data; `ValueError` for any other name."""
    name = location.rpartition("/")[2]
    for pattern, kind in KINDS:
        if fnmatch(name, pattern):
            return kind
    raise ValueError(f"no kind of object is named like {name}")


class _Upload:
    """An output stream that reports when it is closed, once."""

    def __init__(self, stream: OutputStream, landed: Callable[[], None]) -> None:
        self._stream = stream
        self._landed = landed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if not self._stream.closed:  # type: ignore[attr-defined]  # the protocol lacks it, PyArrow has it
            self._stream.close()
            self._landed()


class TracedFile(PyArrowFile):
    """A file that notes each request in `log`."""

    def __init__(self, file: PyArrowFile, log: list[str]) -> None:
        super().__init__(file.location, file._path, file._filesystem, file._buffer_size)
        self._log = log

    def _note(self, verb: str) -> None:
        self._log.append(f"{kind_of(self.location)}_{verb}")

    def __len__(self) -> int:
        self._note("head")
        return super().__len__()

    def exists(self) -> bool:
        """Note a head. `create(overwrite=False)` asks this too, so it costs a head and a write."""
        self._note("head")
        return super().exists()

    def open(self, seekable: bool = True) -> InputStream:
        """Note a read."""
        self._note("read")
        return super().open(seekable)

    def create(self, overwrite: bool = False) -> OutputStream:
        """Note a write, when the stream is closed."""
        return _Upload(super().create(overwrite), lambda: self._note("write"))


class TracedFileIO(PyArrowFileIO):
    """PyArrow's FileIO, whose files note their requests in `log`."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self._log = log

    def new_input(self, location: str) -> TracedFile:
        """Return a file to read; no request yet."""
        return TracedFile(super().new_input(location), self._log)

    def new_output(self, location: str) -> TracedFile:
        """Return a file to write; no request yet."""
        return TracedFile(super().new_output(location), self._log)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete the object and note it."""
        self._log.append("delete")
        super().delete(location)


class PointerCatalog(MetastoreCatalog, NoopCatalog):
    """Tables as pointers to their metadata, moved by compare-and-swap; requests are noted in `log`.

    Two catalogs over the same `pointers` are two writers of the same tables. They must commit
    from one thread, since the swap takes no lock. What a commit does not need raises
    `NotImplementedError`, which `NoopCatalog` supplies.
    """

    def __init__(self, pointers: dict[Identifier, str], log: list[str]) -> None:
        super().__init__("traced")
        self._pointers = pointers
        self._io = TracedFileIO(log)
        self._log = log
        self._races_to_lose = 0
        self._rival: Callable[[], None] = lambda: None

    def lose(self, races: int, rival: Callable[[], None]) -> None:
        """Call `rival`, which must commit to the same table, before each of the next `races` CASes."""
        self._races_to_lose = races
        self._rival = rival

    def create(self, location: str, schema: pa.Schema, properties: Properties) -> Table:
        """Create the table `TABLE`, in place of any that had the name."""
        staged = self._create_staged_table(TABLE, schema, location, properties=properties)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        self._pointers[TABLE] = staged.metadata_location
        return self.load_table(TABLE)

    def load_table(self, identifier: str | Identifier) -> Table:
        """Read the pointer, then the metadata it points to."""
        name = self.identifier_to_tuple(identifier)
        self._log.append("catalog_read")
        location = self._pointers.get(name)
        if location is None:
            raise NoSuchTableError(name)
        metadata = FromInputFile.table_metadata(self._io.new_input(location))
        return Table(name, metadata, location, self._io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        """Write the new metadata and swap the pointer to it, or raise `CommitFailedException`."""
        current = self.load_table(table.name())
        staged = self._update_and_stage_table(current, table.name(), requirements, updates)
        self._write_metadata(staged.metadata, staged.io, staged.metadata_location)
        if not self._swap(current, staged):
            raise CommitFailedException(f"another commit to {table.name()} came first")
        return CommitTableResponse.model_validate(
            {"metadata": staged.metadata, "metadata-location": staged.metadata_location}
        )

    def _swap(self, current: Table, staged: StagedTable) -> bool:
        if self._races_to_lose > 0:
            self._races_to_lose -= 1
            self._rival()
        self._log.append("cas")
        # Locations are unique, so the pointer is its own version.
        if self._pointers[current.name()] != current.metadata_location:
            return False
        self._pointers[current.name()] = staged.metadata_location
        return True

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> TracedFileIO:
        return self._io


def rows(file: int) -> pa.Table:
    """The rows of data file number `file`; no two files share an id."""
    first = file * ROWS_PER_FILE
    return pa.table({"id": pa.array(range(first, first + ROWS_PER_FILE), pa.int64())})


def append_manifest(table: Table, data: pa.Table) -> None:
    """Append `data` as one data file in one new manifest, whatever the table says about merging."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in _dataframe_to_data_files(table.metadata, data, table.io, write_uuid=UUID(int=next(_write_ids))):
            append.append_data_file(file)


OPERATIONS: Mapping[str, Callable[[Table], None]] = {
    "fast_append": lambda table: table.append(rows(1_000)),
    "merge_append": lambda table: table.append(rows(1_000)),
    # The filter covers the first data file exactly: the file is dropped unread, and replaced.
    "validated_overwrite": lambda table: table.overwrite(rows(1_000), f"id < {ROWS_PER_FILE}"),
    # The filter cuts the first data file in two: the file is read, and its remainder written.
    "row_delete": lambda table: table.delete("id < 1"),
}
"""Every file of `rows` but the first is outside the filters, so appends never conflict with them."""


@contextmanager
def _workers(workers: int) -> Iterator[None]:
    """Give PyIceberg a pool of so many threads; `max-workers` has no effect once a pool exists."""
    usual = ExecutorFactory.get_or_create()
    with ThreadPoolExecutor(workers) as pool:
        ExecutorFactory._instance = pool
        try:
            yield
        finally:
            ExecutorFactory._instance = usual


def trace(
    operation: str,
    lost_races: int,
    *,
    manifests: int = 3,
    missed_per_race: int = 1,
    rival: Callable[[Table, int], None] | None = None,
    properties: Mapping[str, str] = EMPTY_DICT,
    workers: int = 1,
) -> list[str]:
    """Run `operation` of `OPERATIONS` so that it loses `lost_races` races; return its requests in order.

    The table starts with so many `manifests`, of one data file each. In every lost race the
    rival commits `missed_per_race` times: it appends a manifest that conflicts with nothing, or
    calls `rival(table, n)`, where `n` counts the rival's commits from 1. With more than one of
    `workers` the order within a concurrent group (see the module) is up to the scheduler.
    """
    log: list[str] = []
    pointers: dict[Identifier, str] = {}
    commit_numbers = count(1)
    with tempfile.TemporaryDirectory() as location, _workers(workers):
        untraced = PointerCatalog(pointers, log=[])
        merging = MERGING if operation == "merge_append" else {}
        created = untraced.create(location, rows(0).schema, {**QUICK_RETRIES, **merging, **properties})
        for file in range(manifests):
            append_manifest(created, rows(file))
        traced = PointerCatalog(pointers, log)

        def rival_commits() -> None:
            for _ in range(missed_per_race):
                (rival or _append_unrelated)(untraced.load_table(TABLE), next(commit_numbers))

        traced.lose(lost_races, rival_commits)
        table = traced.load_table(TABLE)
        log.clear()
        OPERATIONS[operation](table)
    return log


def _append_unrelated(table: Table, commit_number: int) -> None:
    append_manifest(table, rows(2_000 + commit_number))


def attempts(requests: Sequence[str]) -> list[Counter[str]]:
    """Count the requests of each attempt, up to and with its CAS.

    If requests follow the last CAS (the clean-up after lost races), their count comes last.
    """
    counts = [Counter[str]()]
    for request in requests:
        counts[-1][request] += 1
        if request == "cas":
            counts.append(Counter())
    return [counted for counted in counts if counted]
