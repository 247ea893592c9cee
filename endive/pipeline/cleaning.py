"""Removes what interrupted sweeps have left in a directory, and nothing that a result needs.

Left over are: markers of runs in progress; transactions of runs whose rows were never written; files of data sets and
plans that were replaced; temporary files of killed processes. Nothing of them counts as a result. Files of runs are
kept, whichever plan asked for them.
"""

import json
from collections.abc import Iterator

from endive.objects.local import TEMPORARY
from endive.pipeline.consolidate import INPUTS, TRANSACTIONS
from endive.pipeline.directory import MARKERS, SweepDirectory, done_in
from endive.pipeline.saved_sweep import SavedSweep


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
        parts = directory.read_parts(directory.parts())
        done = {directory.transactions(*run) for _, rows in parts for run in done_in(rows)}
        yield from (path for path in kept if path not in done)


def _data_sets(directory: SweepDirectory) -> Iterator[str]:
    """Yield files that belong to no complete data set."""
    current = set(json.loads(directory.read(INPUTS) or b"{}").get("transactions", ()))
    yield from (info.path for info in directory.list(f"{TRANSACTIONS}/") if info.path not in current)
