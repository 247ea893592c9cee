"""Deletes the leftovers of interrupted sweeps, and nothing that a result needs.

Leftovers are: markers of runs in progress; transactions of runs whose rows were never written; files of data sets and
plans that were replaced; temporary files of killed processes. None of them counts as a result. Files of runs are kept,
whichever plan they belong to. Leftovers of a sweep in tables alone are data files that no commit has added, and the
folders of starts that were killed.

A listing may lag behind the writes. It names the files that may be deleted; the files that must stay are found in files
that are read: the plan, the measures, the snapshots of the tables.
"""

import json
from collections.abc import Iterator

from endive.catalog import KVCatalog
from endive.objects.local import TEMPORARY
from endive.pipeline.catalog_tables import NAMESPACE, catalog_at
from endive.pipeline.consolidate import INPUTS, TRANSACTIONS
from endive.pipeline.directory import MARKERS, SweepDirectory, done_in, read_parquet
from endive.pipeline.saved_sweep import SavedSweep
from endive.pipeline.sweep import in_progress
from endive.pipeline.table_files import WRITTEN, write_prefix
from endive.spark.source.writing import delete_files

EVER_UNIX_MS = 2**53
"""Later than any file: a sweep that has ended writes no more, however young its files are."""


def clean(directory: SweepDirectory) -> list[str]:
    """Delete leftovers; return their names. No other sweep may be running in the directory."""
    found = sorted({*_markers(directory), *_plans(directory), *_transactions(directory), *_data_sets(directory)})
    for path in found:
        directory.delete(path)
    if directory.local:
        directory.delete_all(MARKERS)
        temporary = [file for sign in (f"{TEMPORARY}*", ".*.part") for file in directory.local.rglob(sign)]
        for file in temporary:
            file.unlink(missing_ok=True)
        found += [str(file.relative_to(directory.local)) for file in temporary]
    return found


def clean_tables(url: str, sweep: str, endpoint: str | None = None) -> list[str]:
    """Delete the data files of a sweep that are in no snapshot; return them. The sweep may not be running.

    Files of other sweeps in the same tables stay: they may be about to be committed. Plans and markers of starts that
    were killed are deleted, too.
    """
    starts = SweepDirectory(in_progress(url, sweep), endpoint)
    for info in starts.list(""):
        starts.delete(info.path)
    sign, deleted = f"-{write_prefix(sweep)}", list[str]()
    with KVCatalog.open(url, None, catalog_at(url, endpoint), create=False) as catalog:
        for name in WRITTEN:
            metadata = catalog.load_table((NAMESPACE, name)).metadata
            found = catalog.remove_orphan_files((NAMESPACE, name), EVER_UNIX_MS, dry_run=True)
            own = [path for path in found if sign in path.rpartition("/")[2]]
            delete_files(catalog.files.io(metadata.location, metadata.properties), own)
            deleted += own
    return deleted


def _markers(directory: SweepDirectory) -> Iterator[str]:
    yield from (info.path for info in directory.list(f"{MARKERS}/"))


def _plans(directory: SweepDirectory) -> Iterator[str]:
    """Yield the plans that the directory no longer shows."""
    shown = SavedSweep(directory).about.get("experiments")
    yield from (info.path for info in directory.list("experiments-") if info.path != shown)


def _transactions(directory: SweepDirectory) -> Iterator[str]:
    """Yield transactions of runs without a row: their task was killed before it wrote its part."""
    kept = [info.path for info in directory.list("transactions/")]
    if kept:
        rows = [rows for _, rows in directory.read_parts(directory.parts())]
        measured = directory.read("measures/runs.parquet")  # has the runs of parts that the listing does not show yet
        rows += [read_parquet(measured)] if measured else []
        done = {directory.transactions(*run) for one in rows for run in done_in(one)}
        yield from (path for path in kept if path not in done)


def _data_sets(directory: SweepDirectory) -> Iterator[str]:
    """Yield files that belong to no complete data set."""
    current = set(json.loads(directory.read(INPUTS) or b"{}").get("transactions", ()))
    yield from (info.path for info in directory.list(f"{TRANSACTIONS}/") if info.path not in current)
