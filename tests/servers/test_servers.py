"""Object stores and record stores on real servers: the contract, races, and processes that are killed."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from endive.errors import StorageAccessError
from endive.kv import Reader, Store, StoreOptions
from endive.kv.check import check_store
from endive.objects import MemoryStore, ObjectStore, TwoPhaseStore, open_objects
from endive.objects.records import RecordStore, open_records
from endive.protocol.two_phase import TransferRecord
from tests.store.test_shared_processes import shared_by_processes

ROOT = Path(__file__).resolve().parents[2]
_numbers = count()
pytestmark = pytest.mark.slow


@pytest.fixture(params=["s3", "azure"])
def place(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A URL that nobody has used, and the server's address."""
    if request.param == "s3":
        return f"s3://bucket/prefix/{next(_numbers)}", request.getfixturevalue("s3_endpoint")
    return f"az://container/prefix/{next(_numbers)}", request.getfixturevalue("azure_endpoint")


@pytest.fixture
def objects(place: tuple[str, str]) -> ObjectStore:
    return open_objects(place[0], endpoint=place[1])


def test_an_object_store_does_what_the_contract_says(objects: ObjectStore) -> None:
    assert objects.put_if_absent("wal/2", b"0123456789")
    assert not objects.put_if_absent("wal/2", b"other")
    assert objects.put_if_absent("wal/1", b"")
    assert objects.put_if_absent("wal-boundary/1", b"")

    assert objects.get("wal/2") == b"0123456789"
    assert objects.get("wal/3") is None
    assert objects.get_range("wal/2", 8, 10) == b"89"
    assert objects.get_range("wal/3", 0, 1) is None
    assert [info.path for info in objects.list("wal/")] == ["wal/1", "wal/2"]
    assert [info.path for info in objects.list("wal/", "wal/1")] == ["wal/2"]
    assert [info.size_bytes for info in objects.list("")] == [0, 0, 10]
    assert all(info.modified_unix_ms > 10**12 for info in objects.list(""))
    objects.delete("wal/2")
    objects.delete("wal/2")
    assert objects.get("wal/2") is None
    objects.put("a", b"1")
    objects.put("a", b"2")
    assert objects.get("a") == b"2"


def test_of_many_threads_one_creates(objects: ObjectStore) -> None:
    for attempt in range(10):
        won: list[int] = []
        start = threading.Barrier(6)

        def create(
            number: int, path: str = f"{attempt}", won: list[int] = won, start: threading.Barrier = start
        ) -> None:
            start.wait()
            if objects.put_if_absent(path, b"%d" % number):
                won.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert objects.get(f"{attempt}") == b"%d" % won[0]


def test_the_store_runs_on_it(objects: ObjectStore) -> None:
    options = StoreOptions(compact_here=False, retention_ms=0, max_parallel_writes=2)
    for life in range(2):
        with Store(objects, options) as store:
            store.write([(b"%d/%d" % (life, number), b"v" * 100) for number in range(2000)])
            store.compact()
            store.put(b"last", b"%d" % life)
            store.collect()
            assert store.driver.run(check_store()).faults == ()
    with Reader(objects) as reader:
        assert len(list(reader.scan())) == 4001
        assert reader.get(b"last") == b"1"


def test_a_bucket_that_is_not_there_is_named(s3_endpoint: str) -> None:
    with pytest.raises(StorageAccessError, match="s3://nowhere"):
        Store(open_objects("s3://nowhere/store", endpoint=s3_endpoint))


def test_killed_processes_lose_nothing(place: tuple[str, str]) -> None:
    command = [sys.executable, "-m", "tests.store.killing", place[0], "30", "1", place[1]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(found)  # noqa: T201 - how much was tried is a result

    assert (found["missing"], found["torn"], found["faults"]) == ([], [], [])
    assert found["acknowledged"] > 5


def test_processes_share_a_store(place: tuple[str, str]) -> None:
    found = shared_by_processes(place[0], processes=4, kills=8, endpoint=place[1])

    assert (found["wrong"], found["faults"]) == ([], [])
    assert found["total"] == found["sum"]
    assert int(str(found["acknowledged"])) > 5


# Record stores.


@pytest.fixture(params=["postgres_url", "mariadb_url"])
def records(request: pytest.FixtureRequest) -> Iterator[RecordStore]:
    opened = open_records(request.getfixturevalue(request.param))
    yield opened
    opened.close()


def test_a_record_store_accepts_one_record_for_each_destination(records: RecordStore) -> None:
    name = f"wal/{next(_numbers)}"
    assert records.insert(name, "source")
    assert not records.insert(name, "other")
    assert records.get(name) == TransferRecord(name, "source", False)
    assert records.open_records(name) == (TransferRecord(name, "source", False),)
    records.commit(name)
    assert records.get(name) == TransferRecord(name, "source", True)
    assert records.open_records(name) == ()
    records.delete(name)
    assert records.get(name) is None


def test_of_many_inserts_one_wins(records: RecordStore) -> None:
    for attempt in range(10):
        name = f"race/{next(_numbers)}/{attempt}"
        won: list[int] = []
        start = threading.Barrier(6)

        def insert(number: int, name: str = name, won: list[int] = won, start: threading.Barrier = start) -> None:
            start.wait()
            if records.insert(name, f"source {number}"):
                won.append(number)

        threads = [threading.Thread(target=insert, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        record = records.get(name)
        assert record is not None
        assert record.source == f"source {won[0]}"


def test_two_phase_create_runs_on_it(records: RecordStore) -> None:
    ids = (f"{number:032x}" for number in count(1))
    objects = TwoPhaseStore(MemoryStore(), records, ids.__next__, lambda: 0)
    for info in records.open_records(""):
        records.delete(info.destination)
    with Store(objects, StoreOptions(compact_here=False, retention_ms=0)) as store:
        for number in range(20):
            store.put(b"%d" % number, b"value")
        store.compact()
        store.collect()
        assert store.driver.run(check_store()).faults == ()
        assert len(list(store.scan())) == 20
    for path in [info.path for info in objects.list("")]:
        objects.delete(path)
