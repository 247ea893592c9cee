"""Clones: a store that starts from another one's state, shares its files and is written independently."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from endive.drivers.blocking import BlockingDriver, unix_ms
from endive.errors import CheckpointGoneError, ConfigurationError, EndiveError, StorageUnavailableError
from endive.kv import Reader, Store, clone
from endive.kv.clones import CLONE
from endive.kv.maintenance.check import check_store
from endive.kv.maintenance.garbage_collector import collect_garbage
from endive.kv.manifest import StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.objects import MemoryStore, ObjectStore, open_objects
from tests.store.functions import QUIET, add_one

Places = dict[str, ObjectStore]


def places(*names: str) -> list[MemoryStore]:
    """Return stores in memory that can share files."""
    neighbours: Places = {}
    stores = [MemoryStore(url=f"memory://{name}", neighbours=neighbours) for name in names]
    neighbours.update({store.url: store for store in stores})
    return stores


def filled(objects: ObjectStore, rows: int = 50) -> None:
    """Write rows, half of them into the levels."""
    with Store(objects, "shared", QUIET) as store:
        for number in range(rows):
            store.put(b"%04d" % number, b"old", await_durable=False)
            if number == rows // 2:
                store.delete(b"0001")
                store.compact()
        store.delete(b"0002")


def rows_of(objects: ObjectStore, checkpoint: str | None = None) -> dict[bytes, bytes]:
    with Reader(objects, checkpoint=checkpoint) as reader:
        return dict(reader.scan())


def manifest_of(objects: ObjectStore) -> StoreManifest:
    with Reader(objects) as reader:
        return reader.manifest.value


def checkpoints_of(objects: ObjectStore) -> list[str]:
    return [each.name for each in manifest_of(objects).checkpoints if each.name.startswith(CLONE)]


def is_clean(objects: ObjectStore) -> bool:
    with Reader(objects) as reader:
        return reader.driver.run(check_store()).findings == ()


def tidy(objects: ObjectStore) -> None:
    """Merge everything and collect all garbage, when the checkpoints of openings have expired."""
    with Store(objects, "shared", QUIET) as store:
        store.put(b"tidy", b"")
        store.compact(everything=True)
    later = BlockingDriver(objects, clock=lambda: unix_ms() + 3_600_000)
    later.run(collect_garbage(retention_ms=0))
    later.close()


def test_a_clone_holds_the_same_rows_and_copies_no_file() -> None:
    source, copy = places("source", "copy")
    filled(source)
    before = rows_of(source)
    clone(source, copy)

    assert rows_of(copy) == before == rows_of(source)
    assert len(copy.list("levels/")) == 1  # the rows of the source's WAL
    assert checkpoints_of(source) == [f"{CLONE}memory://copy"]
    assert is_clean(copy)
    assert is_clean(source)


def test_both_are_written_independently() -> None:
    source, copy = places("source", "copy")
    filled(source)
    clone(source, copy)
    with Store(source, "shared", QUIET) as one, Store(copy, "shared", QUIET) as other:
        one.put(b"0000", b"source")
        other.put(b"0000", b"copy")
        other.transact(add_one(b"count"))

    assert rows_of(source)[b"0000"] == b"source"
    assert rows_of(copy)[b"0000"] == b"copy"
    assert b"count" not in rows_of(source)


def test_maintenance_of_the_source_keeps_what_the_clone_needs() -> None:
    source, copy = places("source", "copy")
    filled(source)
    before = rows_of(source)
    clone(source, copy)
    with Store(source, "shared", QUIET) as store:
        for number in range(50):
            store.delete(b"%04d" % number, await_durable=False)
    tidy(source)

    assert rows_of(copy) == before
    assert is_clean(copy)


def test_a_clone_that_has_rewritten_its_files_lets_the_source_go() -> None:
    source, copy = places("source", "copy")
    filled(source)
    clone(source, copy)
    before = rows_of(copy)
    tidy(copy)

    assert checkpoints_of(source) == []
    assert manifest_of(copy).parents == ()
    tidy(source)
    for info in source.list(""):
        source.delete(info.path)
    assert rows_of(copy) == before | {b"tidy": b""}
    assert is_clean(copy)


def test_a_checkpoint_of_the_clone_keeps_the_sources_files() -> None:
    source, copy = places("source", "copy")
    filled(source)
    clone(source, copy)
    before = rows_of(copy)
    with Store(copy, "shared", QUIET) as store:
        store.checkpoint(0, "kept")
    tidy(copy)
    tidy(source)

    assert checkpoints_of(source)
    assert rows_of(copy, "kept") == before
    assert is_clean(copy)


def test_a_clone_of_a_checkpoint_has_its_rows() -> None:
    source, copy = places("source", "copy")
    filled(source)
    before = rows_of(source)
    with Store(source, "shared", QUIET) as store:
        store.checkpoint(0, "then")
        store.put(b"0000", b"new")
    clone(source, copy, "then")

    assert rows_of(copy) == before


def test_a_clone_of_a_clone_needs_only_its_own_checkpoints() -> None:
    first, second, third = places("first", "second", "third")
    filled(first)
    clone(first, second)
    with Store(second, "shared", QUIET) as store:
        store.put(b"second", b"")
        store.compact()
    before = rows_of(second)
    clone(second, third)
    tidy(second)
    tidy(first)
    tidy(second)

    assert rows_of(third) == before
    assert is_clean(third)
    assert f"{CLONE}memory://third" in checkpoints_of(first)  # its own: the second may let its own go
    tidy(third)
    assert checkpoints_of(second) == []
    tidy(second)
    assert checkpoints_of(first) == []


def test_there_must_be_no_store_at_the_destination() -> None:
    source, copy, other = places("source", "copy", "other")
    filled(source)
    filled(copy)
    with pytest.raises(ConfigurationError, match="already"):
        clone(source, copy)
    with pytest.raises(CheckpointGoneError):
        clone(source, other, "never")

    assert checkpoints_of(source) == []


def test_a_clone_in_a_directory_shares_files_through_its_url(tmp_path: Path) -> None:
    source, copy = open_objects(str(tmp_path / "a store")), open_objects((tmp_path / "copy").as_uri())
    filled(source)
    clone(source, copy)

    assert rows_of(copy) == rows_of(source)
    tidy(copy)
    assert checkpoints_of(source) == []


class Failing(MemoryStore):
    """A store that refuses all creates after a number of them."""

    left = 10**9

    def put_if_absent(self, path: str, body: bytes) -> bool:
        self.left -= 1
        if self.left < 0:
            raise StorageUnavailableError(path, "crashed")
        return super().put_if_absent(path, body)


@pytest.mark.parametrize("creates", range(5))
def test_an_interrupted_clone_can_be_made_again(creates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endive.drivers.blocking.PAUSES_MS", ())
    neighbours: Places = {}
    source = Failing(url="memory://source", neighbours=neighbours)
    copy = Failing(url="memory://copy", neighbours=neighbours)
    neighbours.update({"memory://source": source, "memory://copy": copy})
    filled(source)
    before = rows_of(source)
    source.left, copy.left = (creates, 0) if creates < 3 else (10**9, creates - 3)
    with suppress(EndiveError):
        clone(source, copy)
    source.left = copy.left = 10**9
    if not copy.list(MANIFESTS.prefix):
        clone(source, copy)
    tidy(source)

    assert rows_of(copy) == before
    assert is_clean(copy)


def test_a_checkpoint_of_a_checkpoint_outlives_it() -> None:
    (objects,) = places("source")
    filled(objects)
    before = rows_of(objects)
    with Store(objects, "shared", replace(QUIET)) as store:
        first = store.checkpoint(0, "first")
        second = store.checkpoint(0, "second", source="first")
        assert second.manifest_id == first.manifest_id
        with Reader(objects) as reader:
            reader.delete_checkpoint(first.id)
        store.put(b"0000", b"new")
    tidy(objects)

    assert rows_of(objects, "second") == before
    with pytest.raises(CheckpointGoneError), Store(objects, "shared", QUIET) as store:
        store.checkpoint(0, "third", source="first")
