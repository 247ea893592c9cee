"""The contract of object stores: one suite for all stores that need no server."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from endive.errors import ConfigurationError, StorageAccessError
from endive.kv import Store, StoreOptions
from endive.objects import LocalStore, MemoryStore, ObjectStore, open_objects
from endive.objects.api import execute_request, unix_ms
from endive.objects.local import TEMPORARY
from endive.protocol.requests import Put
from endive.testing import FaultInjectingStore, FaultProbabilities
from tests.threads import winners

Make = Callable[[Path], ObjectStore]
STORES: dict[str, Make] = {
    "memory": lambda _: MemoryStore(),
    "local": lambda path: LocalStore(path / "store"),
    "local, not synced": lambda path: LocalStore(path / "store", fsync=False),
    "two-phase": lambda path: open_objects((path / "store").as_uri(), records=f"sqlite://{path}/records.db"),
    "fault injection, no faults": lambda _: FaultInjectingStore(MemoryStore(), 1, FaultProbabilities()),
    "by URL": lambda path: open_objects((path / "a b" / "store").as_uri()),
}


@pytest.fixture(params=list(STORES.values()), ids=list(STORES))
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    make: Make = request.param
    return make(tmp_path)


def test_get_returns_the_bytes_that_were_put(objects: ObjectStore) -> None:
    assert objects.put_if_absent("a/b", b"body")

    assert objects.get("a/b") == b"body"
    assert objects.get("a/c") is None


def test_a_create_on_a_taken_name_changes_nothing(objects: ObjectStore) -> None:
    objects.put_if_absent("a/b", b"first")

    assert not objects.put_if_absent("a/b", b"second")
    assert objects.get("a/b") == b"first"


def test_two_creates_of_equal_empty_objects_have_one_winner(objects: ObjectStore) -> None:
    assert objects.put_if_absent("fence", b"")
    assert not objects.put_if_absent("fence", b"")


def test_of_many_threads_one_wins(objects: ObjectStore) -> None:
    for attempt in range(10):
        path = f"race/{attempt}"
        (won,) = winners(6, lambda number, path=path: objects.put_if_absent(path, b"%d" % number))  # type: ignore[misc]

        assert objects.get(path) == b"%d" % won


def test_ranges_end_where_the_object_ends(objects: ObjectStore) -> None:
    objects.put_if_absent("object", b"0123456789")

    assert objects.get_range("object", 2, 3) == b"234"
    assert objects.get_range("object", 8, 10) == b"89"
    assert objects.get_range("nothing", 0, 1) is None


def test_a_listing_is_sorted_and_starts_after_a_path(objects: ObjectStore) -> None:
    for name in ("wal/3", "wal/1", "wal-boundary/9", "manifest/1", "wal/2"):
        objects.put_if_absent(name, b"123")

    assert [info.path for info in objects.list("wal/")] == ["wal/1", "wal/2", "wal/3"]
    assert [info.path for info in objects.list("wal/", "wal/1")] == ["wal/2", "wal/3"]
    assert [info.path for info in objects.list("")] == ["manifest/1", "wal-boundary/9", "wal/1", "wal/2", "wal/3"]
    assert objects.list("nothing/") == ()
    assert {info.size_bytes for info in objects.list("")} == {3}


def test_a_listing_says_when_objects_were_written(objects: ObjectStore) -> None:
    before_ms = unix_ms()
    objects.put_if_absent("wal/1", b"")

    (info,) = objects.list("")
    assert before_ms - 1000 <= info.modified_unix_ms <= unix_ms() + 1000


def test_delete_is_idempotent(objects: ObjectStore) -> None:
    objects.put_if_absent("a", b"1")

    objects.delete("a")
    objects.delete("a")

    assert objects.get("a") is None
    assert objects.list("") == ()
    assert objects.put_if_absent("a", b"2")


def test_put_replaces_an_object(objects: ObjectStore) -> None:
    objects.put("a", b"1")
    objects.put("a", b"2")

    assert objects.get("a") == b"2"


@pytest.mark.parametrize("path", ["", "/a", "a//b", "../a", "a/..", "."])
def test_paths_outside_of_the_store_are_refused(objects: ObjectStore, path: str) -> None:
    with pytest.raises(ValueError, match="not an object path"):
        objects.put_if_absent(path, b"")


# A directory.


def test_half_written_files_are_not_objects(tmp_path: Path) -> None:
    objects = LocalStore(tmp_path)
    objects.put_if_absent("wal/1", b"1")
    (tmp_path / "wal" / f"{TEMPORARY}1-1-1").write_bytes(b"half")

    assert [info.path for info in objects.list("wal/")] == ["wal/1"]


def test_a_file_in_place_of_a_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StorageAccessError, match="a file is where a directory should be") as raised:
        LocalStore(tmp_path / "file").put_if_absent("a", b"")
    assert "file/a" in raised.value.path


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    objects = LocalStore(tmp_path)

    with pytest.raises(StorageAccessError, match="No space left"):
        objects.put_if_absent("a", b"1")
    monkeypatch.undo()
    assert objects.list("") == ()
    assert list(tmp_path.iterdir()) == []


def test_an_object_that_need_not_be_durable_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = LocalStore(tmp_path)
    objects.put("a", b"1")  # the directory is known from now on
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)

    execute_request(objects, Put("b", b"2", is_durable=False))

    assert objects.get("b") == b"2"
    assert synced == []
    execute_request(objects, Put("b", b"3"))
    assert len(synced) == 2
    execute_request(MemoryStore(), Put("b", b"4", is_durable=False))


def test_capabilities_are_known(tmp_path: Path) -> None:
    assert LocalStore(tmp_path).capabilities.survives_power_loss
    assert not LocalStore(tmp_path, fsync=False).capabilities.survives_power_loss
    assert not MemoryStore().capabilities.shared


def test_garbage_collection_in_memory_respects_retention() -> None:
    with Store(open_objects("memory://"), options=StoreOptions(compact_here=False, retention_ms=3_600_000)) as store:
        store.put(b"a", b"1")
        scan = store.scan()
        store.compact()
        before = store.driver.objects.list("")
        store.collect()

        assert store.driver.objects.list("") == before
        assert list(scan) == [(b"a", b"1")]


@pytest.mark.parametrize("url", ["", "http://bucket/x", "s3://"])
def test_a_url_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        open_objects(url)
    assert isinstance(raised.value, ValueError)  # as users of PyIceberg expect it
