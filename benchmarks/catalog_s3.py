"""The catalog over an object store that answers like S3: commits per second against the number of committers.

The store is in memory, and every request takes as long as one to S3: 61 ms to create, 30 ms to read or list, with the
spread of the profile `spec`. The tables' files take as long, without spread. The model omits bandwidth,
throttling, and the network's own limits on connections.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from benchmarks.catalog_load import METADATA, SCHEMA, Figures, Window, Writer, figures, run, together
from endive.catalog import KVCatalog
from endive.catalog.connection import OPTIONS
from endive.catalog.object_files import ObjectFileIO
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.catalog.settings import EXCLUSIVE, SHARED
from endive.kv import Store
from endive.objects import MemoryStore
from endive.sim.config.profiles import parse_profiles
from endive.sim.delays import delay_of
from endive.testing import FaultInjectingStore, FaultProbabilities

CREATE_MS, READ_MS = 61, 30
PROFILE = f"""
[s3]
read = {{median = {READ_MS}, sigma = 0.14, min = 21}}
write = {{median = {CREATE_MS}, sigma = 0.14, min = 43}}
cas = {{median = {CREATE_MS}, sigma = 0.14, min = 43}}
"""
COMMITTERS = (1, 4, 16, 64, 256)
SECONDS = 8.0


class SlowFileIO(PyArrowFileIO):
    """Files in a directory that take as long as objects on S3, and appear as a whole like them."""

    files_appear_whole = True

    def new_input(self, location: str) -> PyArrowFile:
        """Return a file to read, after the time of a read."""
        time.sleep(READ_MS / 1000)
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write, after the time of a write."""
        time.sleep(CREATE_MS / 1000)
        return super().new_output(location)


class SlowObjectFileIO(ObjectFileIO):
    """Files in a bucket of a server nearby that take as long as objects on S3."""

    def new_input(self, location: str) -> PyArrowFile:
        """Return a file to read, after the time of a read."""
        time.sleep(READ_MS / 1000)
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to write, after the time of a write."""
        time.sleep(CREATE_MS / 1000)
        return super().new_output(location)


@contextmanager
def slow_catalog(mode: str, writer: str) -> Iterator[EndiveCatalog]:
    delay = delay_of(parse_profiles("S3", PROFILE)["s3"])
    properties = {"endive.metadata-json": mode, "py-io-impl": f"{__name__}.{SlowFileIO.__name__}"}
    with (
        TemporaryDirectory(prefix="endive-bench-") as directory,
        Store(
            FaultInjectingStore(MemoryStore(), 1, FaultProbabilities(), delay),
            "exclusive" if writer == EXCLUSIVE else "shared",
            OPTIONS,
        ) as store,
        KVCatalog(store, Path(directory).as_uri(), properties, create=True) as kv,
    ):
        kv.create_namespace("db")
        yield EndiveCatalog.on(kv)


def through_pyiceberg(mode: str, writer: str, committers: int, tables: str) -> Figures:
    with slow_catalog(mode, writer) as catalog:
        before = _counters(catalog)
        names = [f"db.t{0 if tables == 'one' else place}" for place in range(committers)]
        found = run(catalog, METADATA, names, SECONDS)
        return found | _sharing(catalog, before)


def directly(mode: str, writer: str, committers: int) -> Figures:
    """Commit through `KVCatalog.commit`, without PyIceberg's transactions, each committer to a table of its own."""
    with slow_catalog(mode, writer) as catalog:
        kv = catalog.kv
        names = [f"db.t{place}" for place in range(committers)]
        tables = dict.fromkeys(names, UUID(int=0))

        def create(name: str) -> None:
            tables[name] = kv.create_table(name, SCHEMA).uuid

        together([lambda name=name: create(name) for name in names])  # type: ignore[misc]
        writers = [Writer() for _ in names]
        before = _counters(catalog)
        cpu_s, window = time.process_time(), Window.of(SECONDS)

        def one(place: int) -> None:
            number, requirement = 0, AssertTableUUID(uuid=tables[names[place]])
            while not window.is_over:
                number += 1
                start_s = time.perf_counter()
                kv.commit(names[place], (requirement,), (SetPropertiesUpdate(updates={"number": str(number)}),))
                writers[place].answered(number, start_s, window)

        together([lambda place=place: one(place) for place in range(committers)])  # type: ignore[misc]
        cpu_s = time.process_time() - cpu_s
        held = [int(kv.load_table(name).metadata.properties["number"]) for name in names]
        lost = sum(1 for writer, number in zip(writers, held, strict=True) if writer.acknowledged[-1] > number)
        return figures(writers, window, cpu_s) | {"lost": lost} | _sharing(catalog, before)


def _counters(catalog: EndiveCatalog) -> dict[str, int]:
    counters: dict[str, int] = catalog.kv.store.stats()  # type: ignore[attr-defined]
    return counters


def _sharing(catalog: EndiveCatalog, before: dict[str, int]) -> Figures:
    after = _counters(catalog)
    groups = after["batches"] - before["batches"]
    return {"commits_per_put": round((after["transactions"] - before["transactions"]) / max(groups, 1), 1)}


def measure() -> list[Figures]:
    """Return a row for each way to commit and each number of committers."""
    rows: list[Figures] = []
    for committers in COMMITTERS:
        for mode, writer in (("background", EXCLUSIVE), ("background", SHARED), ("before-acknowledgement", SHARED)):
            cases: list[tuple[str, str]] = [("PyIceberg", "distinct"), ("PyIceberg", "one"), ("KVCatalog", "distinct")]
            for through, tables in cases:
                found = (
                    directly(mode, writer, committers)
                    if through == "KVCatalog"
                    else through_pyiceberg(mode, writer, committers, tables)
                )
                row: Figures = {
                    "through": through,
                    "mode": mode,
                    "writer": writer,
                    "tables": tables,
                    "committers": committers,
                    **found,
                }
                print(row, flush=True)
                rows.append(row)
    return rows
