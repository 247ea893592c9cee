"""Object stores and record stores on real servers: the contract, races, and processes that are killed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from endive.errors import OutcomeUnknownError, StorageAccessError, StorageUnavailableError
from endive.kv import Reader, Store, StoreOptions
from endive.kv.maintenance.check import check_store
from endive.objects import MemoryStore, ObjectStore, TwoPhaseStore, open_objects
from endive.objects.records import RecordStore, open_records
from tests.contract.test_object_stores import (  # noqa: F401 - the contract, run on `objects` as it is here
    test_a_create_on_a_taken_name_changes_nothing,
    test_a_listing_is_sorted_and_starts_after_a_path,
    test_a_listing_says_when_objects_were_written,
    test_delete_is_idempotent,
    test_get_returns_the_bytes_that_were_put,
    test_of_many_threads_one_wins,
    test_put_replaces_an_object,
    test_ranges_end_where_the_object_ends,
    test_two_creates_of_equal_empty_objects_have_one_winner,
)
from tests.contract.test_record_stores import (  # noqa: F401 - the same, on `records`
    test_a_destination_has_one_record,
    test_of_many_inserts_one_wins,
)
from tests.store.test_shared_processes import shared_by_processes
from tests.store.test_short_lived_processes import lives

ROOT = Path(__file__).resolve().parents[2]
_numbers = count()
pytestmark = pytest.mark.slow


@pytest.fixture(params=["s3", "azure"])
def place(request: pytest.FixtureRequest) -> tuple[str, str]:
    """A URL that was not used before, and the server's address."""
    if request.param == "s3":
        return f"s3://bucket/prefix/{next(_numbers)}", request.getfixturevalue("s3_endpoint")
    return f"az://container/prefix/{next(_numbers)}", request.getfixturevalue("azure_endpoint")


@pytest.fixture
def objects(place: tuple[str, str]) -> ObjectStore:
    return open_objects(place[0], endpoint=place[1])


def test_the_store_runs_on_it(objects: ObjectStore) -> None:
    options = StoreOptions(compact_here=False, retention_ms=0, max_parallel_writes=2)
    for life in range(2):
        with Store(objects, options=options) as store:
            store.write([(b"%d/%d" % (life, number), b"v" * 100) for number in range(2000)])
            store.compact()
            store.put(b"last", b"%d" % life)
            store.collect()
            assert store.driver.run(check_store()).findings == ()
    with Reader(objects) as reader:
        assert len(list(reader.scan())) == 4001
        assert reader.get(b"last") == b"1"


def test_a_missing_bucket_is_named(s3_endpoint: str) -> None:
    with pytest.raises(StorageAccessError, match="s3://nowhere"):
        Store(open_objects("s3://nowhere/store", endpoint=s3_endpoint))


def test_a_missing_container_is_named(azure_endpoint: str) -> None:
    with pytest.raises(StorageAccessError, match="az://nowhere"):
        Store(open_objects("az://nowhere/store", endpoint=azure_endpoint))


def with_keys(monkeypatch: pytest.MonkeyPatch, key: str, secret: str) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "any"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("key", "secret"), [("unknown", "secret"), ("known", "wrong")])
def test_a_missing_permission_is_reported(
    locked_s3_endpoint: str, key: str, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_keys(monkeypatch, key, secret)
    objects = open_objects("s3://bucket/store", endpoint=locked_s3_endpoint)

    for use in (lambda: objects.get("a"), lambda: objects.put_if_absent("a", b""), lambda: objects.list("a/")):
        with pytest.raises(StorageAccessError, match="s3://bucket/store/a"):
            use()
    with pytest.raises(StorageAccessError, match="s3://bucket/store/manifest"):
        Store(objects)


def test_valid_keys_are_accepted(locked_s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_keys(monkeypatch, "known", "secret")

    with pytest.raises(StorageAccessError, match="s3://bucket/store/manifest/: NoSuchBucket: "):
        Store(open_objects("s3://bucket/store", endpoint=locked_s3_endpoint))


def test_a_wrong_azure_key_is_reported(azure_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "bm90IHRoZSBrZXk=")

    with pytest.raises(StorageAccessError, match="az://container/store/manifest"):
        Store(open_objects("az://container/store", endpoint=azure_endpoint))


@pytest.mark.parametrize("kills", [30, pytest.param(100, marks=pytest.mark.campaign)])
def test_killed_processes_lose_nothing(place: tuple[str, str], kills: int) -> None:
    command = [sys.executable, "-m", "tests.store.killing", place[0], str(kills), "1", place[1]]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=1800, check=False)
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


@pytest.mark.campaign
def test_two_thousand_processes_with_one_commit_each(s3_endpoint: str) -> None:
    lives("s3://bucket/short-lived", processes=2000, kills=100, endpoint=s3_endpoint)


# Record stores.


@pytest.fixture(params=["postgres_url", "mariadb_url", "dynamo_url"])
def records(request: pytest.FixtureRequest) -> Iterator[RecordStore]:
    opened = open_records(request.getfixturevalue(request.param))
    for left in opened.open_records(""):
        opened.delete(left.destination)
    yield opened
    opened.close()


def test_a_missing_table_is_named(dynamo_url: str) -> None:
    records = open_records(dynamo_url.replace("records?", "elsewhere?"))

    for ask in (lambda: records.get("wal/1"), lambda: records.insert("wal/1", "source")):
        with pytest.raises(StorageAccessError, match="wal/1: the record store 'elsewhere'"):
            ask()


def test_a_record_store_that_does_not_answer_leaves_inserts_unknown() -> None:
    records = open_records("dynamodb://records?region=us-east-1&endpoint=http://127.0.0.1:9")

    with pytest.raises(OutcomeUnknownError):
        records.insert("wal/1", "source")
    with pytest.raises(StorageUnavailableError, match="wal/1"):
        records.get("wal/1")


def test_two_phase_create_runs_on_it(records: RecordStore) -> None:
    ids = (f"{number:032x}" for number in count(1))
    objects = TwoPhaseStore(MemoryStore(), records, ids.__next__, lambda: 0)
    with Store(objects, options=StoreOptions(compact_here=False, retention_ms=0)) as store:
        for number in range(20):
            store.put(b"%d" % number, b"value")
        store.compact()
        store.collect()
        assert store.driver.run(check_store()).findings == ()
        assert len(list(store.scan())) == 20
    for path in [info.path for info in objects.list("")]:
        objects.delete(path)
