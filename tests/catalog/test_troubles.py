"""Threads that append through PyIceberg while the object store delays, refuses and loses replies.

The catalog's records are on a store with injected faults. The tables' own files are in a plain directory: faults of
those files are PyIceberg's to handle, and only records name them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.kv import Store, StoreOptions
from endive.kv.maintenance.check import check_store
from endive.objects import MemoryStore, ObjectStore
from endive.sim.config.profiles import load_profile_set
from endive.sim.delays import delay_of
from endive.testing import FaultInjectingStore, FaultProbabilities
from tests.catalog.load import APPEND, SCHEMA, attempt, judge, rows_of, write

BAD = FaultProbabilities(refusal=0.03, failure=0.04, lost_reply=0.08, stall=0.02, stall_ms=150)
BUSY = StoreOptions(compact_entries=8, poll_interval_ms=20, collect_interval_ms=100, retention_ms=50)
"""Compacts and collects all the time, so that lost replies meet compacted slots."""


@contextmanager
def catalog_on(objects: ObjectStore, warehouse: str, mode: str = "background") -> Iterator[EndiveCatalog]:
    with (
        Store(objects, "shared", BUSY) as store,
        KVCatalog(store, warehouse, {"endive.metadata-json": mode}, create=True) as kv,
    ):
        yield EndiveCatalog.on(kv, "troubled")


def prepared(objects: ObjectStore, warehouse: str, tables: int) -> None:
    with catalog_on(objects, warehouse) as catalog:
        catalog.create_namespace("db")
        for number in range(tables):
            catalog.create_table(f"db.t{number}", SCHEMA)


def run(
    objects: MemoryStore, warehouse: str, seed: int, mode: str, threads: int, tables: int, attempts: int, members: int
) -> list[str]:
    """Let threads write through members of one store, each with troubles of its own; return what they noted."""
    prepared(objects, warehouse, tables)
    journal: list[str] = []
    failures: list[BaseException] = []

    def work(member: int) -> None:
        delay = delay_of(load_profile_set("measured")["s3x"])
        troubled = FaultInjectingStore(objects, seed * 100 + member, BAD, delay)
        with catalog_on(troubled, warehouse, mode) as catalog:

            def one(number: int) -> None:
                try:
                    writer, name = f"{member}-{number}", f"db.t{(member * threads + number) % tables}"
                    write(catalog, name, writer, journal.append, range(1, attempts + 1))
                except BaseException as error:  # noqa: BLE001 - of another thread
                    failures.append(error)

            _together([Thread(target=one, args=(number,)) for number in range(threads)])

    _together([Thread(target=work, args=(member,)) for member in range(members)])
    assert failures == []
    return journal


def _together(threads: list[Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def expect_nothing_lost(objects: MemoryStore, warehouse: str, journal: list[str]) -> dict[str, int]:
    with catalog_on(objects, warehouse) as catalog:
        verdict = judge(catalog, journal)
    with Store(objects, "shared", StoreOptions(compact_here=False)) as store:
        assert store.driver.run(check_store()).findings == ()
    assert verdict.faults == []
    return verdict.answers


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
@pytest.mark.parametrize("tables", [1, 4])
def test_lost_replies_lose_no_row(mode: str, tables: int, tmp_path: Path) -> None:
    objects = MemoryStore()
    journal = run(objects, str(tmp_path), 7, mode, threads=2, tables=tables, attempts=5, members=2)
    answers = expect_nothing_lost(objects, str(tmp_path), journal)

    assert answers["acknowledged"] >= 10


@pytest.mark.campaign
@pytest.mark.parametrize("mode", ["before-acknowledgement", "background"])
@pytest.mark.parametrize(("members", "threads"), [(1, 1), (1, 4), (2, 4), (4, 4), (1, 16)])
@pytest.mark.parametrize("tables", ["one", "distinct"])
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_under_many_faults(
    mode: str, members: int, threads: int, tables: str, seed: int, tmp_path: Path
) -> None:
    objects = MemoryStore()
    number = 1 if tables == "one" else members * threads
    journal = run(objects, str(tmp_path), seed, mode, threads, number, attempts=30, members=members)
    answers = expect_nothing_lost(objects, str(tmp_path), journal)

    assert answers["acknowledged"] >= 10


# The judge.


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[EndiveCatalog]:
    objects = MemoryStore()
    prepared(objects, str(tmp_path), 1)
    with catalog_on(objects, str(tmp_path)) as catalog:
        yield catalog


def test_a_run_without_injected_faults_passes_the_check(catalog: EndiveCatalog) -> None:
    journal: list[str] = []
    write(catalog, "db.t0", "a", journal.append, range(1, 6))
    verdict = judge(catalog, [*journal, "tried db.t0 append never", "refused db.t0 append no"])

    assert verdict.faults == []
    assert verdict.answers == {"acknowledged": 5, "tried": 1, "refused": 1}


@pytest.mark.parametrize(
    ("journal", "fault"),
    [
        (["acknowledged db.t0 append lost"], "missing"),
        (["acknowledged db.t0 set lost"], "missing"),
        (["acknowledged db.t0 append twice"], "missing"),
        (["tried db.t0 append twice"], "torn"),
        (["refused db.t0 append once"], "refused_but_there"),
    ],
)
def test_the_judge_sees(catalog: EndiveCatalog, journal: list[str], fault: str) -> None:
    table = catalog.load_table("db.t0")
    for key in ("once", "twice", "twice"):
        attempt(table, APPEND, key)
    known = ["acknowledged db.t0 append once", "tried db.t0 append twice"]
    journal = [*(line for line in known if line.split()[-1] != journal[0].split()[-1]), *journal]
    faults = [one for one in judge(catalog, journal).faults if journal[-1].split()[-1] in one]

    assert [one.partition(":")[0] for one in faults] == [fault]


def test_the_judge_misses_a_file_that_only_an_old_snapshot_needs(catalog: EndiveCatalog) -> None:
    table = catalog.load_table("db.t0")
    attempt(table, APPEND, "gone")
    (task,) = table.scan().plan_files()
    table.overwrite(rows_of("there"))
    journal = ["acknowledged db.t0 append there"]
    assert judge(catalog, journal).faults == []
    Path(urlsplit(task.file.file_path).path).unlink()

    assert judge(catalog, journal).faults == [f"missing_files: {task.file.file_path}"]
