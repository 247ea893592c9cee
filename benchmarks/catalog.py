"""The catalog beside PyIceberg's SqlCatalog, both through PyIceberg, in one process, with the same work.

    python -m benchmarks.catalog                # writes results/catalog.json
    python -m benchmarks.catalog --only s3      # that part anew; `beside` is the other one
    python -m benchmarks.catalog --quick        # a look at every case; writes nothing

Writers are threads that commit as fast as they are answered: metadata-only commits (a property is set) and appends of
ten rows, to a table each or all to one. Catalogs take turns inside every case, so that a noisy machine is noisy for
all of them: compare figures of one case. A commit that a catalog refuses counts against its success and is not
repeated; after each case everything that was acknowledged is looked for.

`endive` syncs every group of commits to disk, as SQLite does with every commit of the file. Metadata files are synced
by neither. A SQLite database in memory is a file on a memory file system: what SQLite itself keeps in memory cannot
be used by several threads through PyIceberg.
"""

import argparse
import json
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks import catalog_s3
from benchmarks.catalog_load import APPEND, METADATA, ROWS, Figures, run
from benchmarks.report import RESULTS, commit, save
from endive.catalog.pyiceberg.catalog import EndiveCatalog

MEMORY = Path("/dev/shm")  # noqa: S108 - a memory file system, where there is one
PARTS = ("beside", "s3")
WRITERS = (1, 4, 8, 16)
SECONDS = {METADATA: 2.0, APPEND: 4.0}
REPEATS = {METADATA: 3, APPEND: 2}
SQL_FILE, SQL_MEMORY = "SqlCatalog, SQLite file", "SqlCatalog, SQLite in memory"
BEFORE, BACKGROUND = "endive, before-acknowledgement", "endive, background"
EXCLUSIVE = "endive, background, exclusive writer"
PROPERTIES = {
    BEFORE: {"endive.metadata-json": "before-acknowledgement"},
    BACKGROUND: {"endive.metadata-json": "background"},
    EXCLUSIVE: {"endive.metadata-json": "background", "endive.writer": "exclusive"},
}
SUBJECTS = (SQL_FILE, SQL_MEMORY, *PROPERTIES)
FIGURES = ("commits_per_s", "success", "p50_ms", "p99_ms", "cpu_ms_per_commit")


_left_over: list[Path] = []
"""Directories of earlier cases. They go at the end: ext4 looks for room among what was deleted seconds ago."""


@contextmanager
def opened(subject: str) -> Iterator[Catalog]:
    """Open a new catalog of a kind."""
    disk = Path(tempfile.mkdtemp(prefix="endive-bench-"))
    memory = Path(tempfile.mkdtemp(prefix="endive-bench-", dir=MEMORY if MEMORY.is_dir() else None))
    catalog: Catalog
    if subject in PROPERTIES:
        catalog = EndiveCatalog("endive", uri=str(disk), **PROPERTIES[subject])
    else:
        database = (disk if subject == SQL_FILE else memory) / "catalog.db"
        catalog = SqlCatalog("sql", uri=f"sqlite:///{database}", warehouse=disk.as_uri())
    try:
        catalog.create_namespace("db")
        yield catalog
    finally:
        catalog.close()
        _left_over.extend((disk, memory))


def case(work: str, tables: str, writers: int, seconds: float, repeats: int) -> list[Figures]:
    """Measure one kind of work with every catalog, in turns; return a row for each."""
    samples: dict[str, list[Figures]] = {subject: [] for subject in SUBJECTS}
    for _ in range(repeats):
        for subject, found in samples.items():
            with opened(subject) as catalog:
                names = [f"db.t{0 if tables == 'one' else place}" for place in range(writers)]
                found.append(run(catalog, work, names, seconds))
    rows = [
        {"work": work, "tables": tables, "writers": writers, "catalog": subject, **summary(found)}
        for subject, found in samples.items()
    ]
    for row in rows:
        print(row, flush=True)
    return rows


def summary(samples: list[Figures]) -> Figures:
    """Return the median of each figure over the repeats, all samples of the rate, and every loss."""
    found: Figures = {}
    for name in FIGURES:
        values = [one[name] for one in samples if one[name] is not None]
        found[name] = round(median(values), 4) if values else None
    errors: Counter[str] = sum((Counter(one["errors"]) for one in samples), Counter())
    return found | {
        "samples_commits_per_s": [one["commits_per_s"] for one in samples],
        "lost": sum(one["lost"] for one in samples),
        "acknowledged": sum(one["acknowledged"] for one in samples),
        "errors": dict(errors),
    }


def ratios(rows: list[Figures]) -> list[Figures]:
    """Return how many times as many commits as SqlCatalog on a file, for each case."""
    rates = {(row["work"], row["tables"], row["writers"], row["catalog"]): row["commits_per_s"] for row in rows}
    return [
        {
            "work": work,
            "tables": tables,
            "writers": writers,
            "catalog": catalog,
            "times": round(rate / rates[work, tables, writers, SQL_FILE], 1),
        }
        for (work, tables, writers, catalog), rate in rates.items()
        if catalog in PROPERTIES
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=PARTS)
    arguments = parser.parse_args()
    try:
        measure(arguments.quick, arguments.only)
    finally:
        for path in _left_over:
            shutil.rmtree(path, ignore_errors=True)


def measure(is_quick: bool, only: str | None) -> None:
    """Measure all cases, or one part; write the results, beside those of the other part."""
    quick = dict.fromkeys(SECONDS, 0.5), dict.fromkeys(REPEATS, 1)
    seconds, repeats = quick if is_quick else (SECONDS, REPEATS)
    rows: list[Figures] = []
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it tells of every retry
    load_before = os.getloadavg()[0]
    for work in (METADATA, APPEND) if only != "s3" else ():
        for tables in ("distinct", "one"):
            for writers in WRITERS:
                rows += case(work, tables, writers, seconds[work], repeats[work])
    for ratio in ratios(rows):
        print(ratio)
    found: dict[str, object] = {"rows": rows, "ratios": ratios(rows)} if only != "s3" else {}
    if only != "beside":
        found["s3"] = catalog_s3.measure()
    parameters = {
        "rows_per_append": ROWS,
        "seconds": seconds,
        "repeats": repeats,
        "s3_create_ms": catalog_s3.CREATE_MS,
        "s3_read_ms": catalog_s3.READ_MS,
        "s3_seconds": catalog_s3.SECONDS,
    }
    load = {"load_average_before": round(load_before, 2), "load_average_after": round(os.getloadavg()[0], 2)}
    if not is_quick:
        print(save("catalog", _with_other_part({"parameters": parameters, **found}, only, load)))


def _with_other_part(found: dict[str, object], only: str | None, load: dict[str, float]) -> dict[str, object]:
    """Return what was found, the other part as it was, and at which commit and load each was measured."""
    path = RESULTS / "catalog.json"
    before = json.loads(path.read_text(encoding="utf-8")) if only is not None and path.exists() else {}
    now = {part: {"commit": commit(), **load} for part in PARTS if only in {None, part}}
    kept = {name: before[name] for name in ("rows", "ratios", "s3") if name in before}
    return kept | found | {"measured": before.get("measured", {}) | now}


if __name__ == "__main__":
    main()
