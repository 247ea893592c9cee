"""The store as its users see it: one contract for every kind of writer."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from endive.errors import (
    CheckpointGoneError,
    CorruptObjectError,
    FencedError,
    MissingObjectError,
    StoreClosedError,
    StoreNotFoundError,
)
from endive.kv import Reader, Store
from endive.kv.log.wal import WAL
from endive.kv.maintenance.check import check_store
from endive.kv.manifest_format import MANIFESTS
from endive.kv.store import WriterKind
from endive.objects import LocalStore, MemoryStore
from tests.store.conftest import Open
from tests.store.functions import QUIET


def rows(count: int, size: int = 20) -> list[tuple[bytes, bytes | None]]:
    return [(f"key{number:06d}".encode(), bytes([number % 251]) * size) for number in range(count)]


def faults(store: Store) -> tuple[str, ...]:
    return tuple(map(str, store.driver.run(check_store()).findings))


def test_stored_rows_are_read_after_reopening(open_store: Open) -> None:
    objects = MemoryStore()
    with open_store(objects) as store:
        store.put(b"a", b"1")
        store.put(b"b", b"2")
        store.delete(b"a")

    with open_store(objects) as store:
        assert store.get(b"a") is None
        assert store.get(b"b") == b"2"
        assert list(store.scan()) == [(b"b", b"2")]


@pytest.mark.parametrize(("writer", "requests"), [("exclusive", 1), ("shared", 2)])
def test_a_durable_put_is_one_request_and_a_look_for_shared_writers(writer: WriterKind, requests: int) -> None:
    with Store(MemoryStore(), writer, QUIET) as store:
        before = dict(store.driver.requests.by_kind)
        for number in range(3):
            store.put(b"%d" % number, b"value")
        sent = {kind: count - before.get(kind, 0) for kind, count in store.driver.requests.by_kind.items()}

    assert sent["PutIfAbsent"] == 3
    assert sum(sent.values()) == 3 * requests


def test_puts_that_arrive_while_one_is_under_way_share_the_next(open_store: Open) -> None:
    class Slow(MemoryStore):
        gate = threading.Event()

        def put_if_absent(self, path: str, body: bytes) -> bool:
            if path.startswith(WAL.prefix):
                self.gate.wait()
            return super().put_if_absent(path, body)

    objects = Slow()
    objects.gate.set()
    with open_store(objects, max_parallel_writes=1) as store:
        before = len(objects.list(WAL.prefix))
        objects.gate.clear()
        first = threading.Thread(target=store.put, args=(b"first", b""))
        first.start()
        while not store._pipeline.under_way:
            pass
        others = [threading.Thread(target=store.put, args=(b"%d" % number, b"")) for number in range(30)]
        for thread in others:
            thread.start()
        while len(store._pipeline.waiting.rows) < 30:
            pass
        objects.gate.set()
        for thread in (first, *others):
            thread.join()
        written = len(objects.list(WAL.prefix)) - before

    assert written == 2  # the first, and all others


def test_a_batch_is_one_object_and_the_last_row_of_a_key_counts(open_store: Open) -> None:
    objects = MemoryStore()
    with open_store(objects) as store:
        before = len(objects.list(WAL.prefix))
        store.write([(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"c", b"3"), (b"a", b"4")])

        assert list(store.scan()) == [(b"a", b"4"), (b"b", b"2"), (b"c", b"3")]
        assert len(objects.list(WAL.prefix)) == before + 1


@pytest.mark.parametrize("row", [("text", b""), (b"key", "text"), (bytearray(b"k"), b""), (b"k" * 70_000, b"")])
def test_a_row_that_cannot_be_stored_is_refused_alone(open_store: Open, row: tuple[bytes, bytes]) -> None:
    with open_store() as store:
        with pytest.raises((TypeError, ValueError)):
            store.write([(b"good", b"1"), row])
        store.put(b"other", b"2")

        assert list(store.scan()) == [(b"other", b"2")]


def test_rows_that_no_thread_waits_for_become_durable(open_store: Open) -> None:
    with open_store(flush_interval_ms=1) as store:
        ticket = store.put(b"a", b"1", await_durable=False)
        while not ticket.is_durable:
            pass
        ticket.wait()


def test_a_durable_read_leaves_out_what_a_crash_could_undo(open_store: Open) -> None:
    with open_store(flush_interval_ms=3_600_000) as store:
        store.put(b"a", b"1")
        store.put(b"a", b"2", await_durable=False)

        assert store.get(b"a") == b"2"
        assert store.get(b"a", durable=True) == b"1"
        assert list(store.scan(durable=True)) == [(b"a", b"1")]


def test_buffered_and_waiting_writes_of_many_threads_are_all_there(open_store: Open) -> None:
    objects = MemoryStore()
    with open_store(objects, flush_interval_ms=1) as store:

        def work(name: int) -> None:
            for number in range(50):
                store.put(b"%d/%d" % (name, number), b"v", await_durable=number % 3 == 0)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with open_store(objects) as again:
        assert again.stats()["uncompacted_entries"] > 4
        assert len(list(again.scan())) == 400
        assert faults(again) == ()


# Fencing.


def test_opening_fences_the_writer_before() -> None:
    objects = MemoryStore()
    old = Store(objects, options=QUIET)
    old.put(b"a", b"1")
    new = Store(objects, options=QUIET)

    with pytest.raises(FencedError) as fenced:
        old.put(b"b", b"2")
    with pytest.raises(FencedError):
        old.get(b"a")
    new.put(b"c", b"3")

    assert (fenced.value.own_epoch, fenced.value.found_epoch) == (1, 2)
    assert list(new.scan()) == [(b"a", b"1"), (b"c", b"3")]
    old.close()
    new.close()


def test_a_closed_store_says_so(open_store: Open) -> None:
    store = open_store()
    store.close()
    store.close()

    with pytest.raises(StoreClosedError):
        store.put(b"a", b"")


# Compaction and collection.


def test_compaction_moves_rows_into_the_levels_and_forgets_them_in_memory(open_store: Open) -> None:
    with open_store() as store:
        store.write(rows(3000))
        store.delete(b"key000005")
        store.compact()

        assert store.uncompacted_bytes == 0
        assert len(store.manifest.value.runs) == 1
        assert store.get(b"key000005") is None
        assert store.get(b"key000006") == bytes([6]) * 20
        assert len(list(store.scan())) == 2999
        assert list(store.scan(start=b"key000003", end=b"key000007")) == [
            (key, value) for key, value in rows(7)[3:] if key != b"key000005"
        ]
        assert [key for key, _ in store.scan(prefix=b"key00001")] == [key for key, _ in rows(20)[10:]]
        assert faults(store) == ()


def test_levels_are_merged_when_there_are_four_and_tombstones_go_with_the_last_run(open_store: Open) -> None:
    with open_store() as store:
        for number in range(8):
            store.write(rows(200))
            store.delete(b"key%06d" % number)
            store.compact()

        assert [run.level for run in store.manifest.value.runs] in ([1, 1], [1])
        store.compact(everything=True)
        (run,) = store.manifest.value.runs
        assert sum(sst.rows for sst in run.ssts) == 199
        assert len(list(store.scan())) == 199
        assert faults(store) == ()


def test_a_large_merge_is_cut_into_files_that_do_not_overlap(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endive.kv.maintenance.compactor.SST_BYTES", 20_000)
    monkeypatch.setattr("endive.kv.maintenance.compactor.RANGE_BYTES", 50_000)
    with open_store() as store:
        for part in range(4):
            store.write([(key, bytes([part]) * 100) for key, _ in rows(2000) if key[-1] % 4 != part])
            store.compact()

        (run,) = store.manifest.value.runs
        assert len(run.ssts) > 5
        assert all(before.last_key < after.first_key for before, after in zip(run.ssts, run.ssts[1:], strict=False))
        expected = {key: bytes([2 if key[-1] % 4 == 3 else 3]) * 100 for key, _ in rows(2000)}
        assert dict(store.scan()) == expected
        assert faults(store) == ()


def test_collection_leaves_what_is_needed_and_keeps_fences(open_store: Open) -> None:
    objects = MemoryStore()
    with open_store(objects) as store:
        for number in range(5):
            store.write(rows(10))
            store.compact()
            store.put(b"%d" % number, b"")
        store.compact(everything=True)
        before = len(objects.list(""))
        store.collect()

        assert len(objects.list("")) < before
        assert len(objects.list("levels/")) == 1
        assert len(objects.list(MANIFESTS.prefix)) == 2  # the newest, and the one of the checkpoint made on opening
        assert objects.list(WAL.prefix)[0].path == WAL.path_of(1)  # a fence
        assert len(list(store.scan())) == 15
        assert faults(store) == ()
    with open_store(objects) as again:
        assert len(list(again.scan())) == 15


def test_backpressure_waits_for_compaction(open_store: Open) -> None:
    with open_store(uncompacted_bytes_max=20_000, compact_bytes=1, poll_interval_ms=5, compact_here=True) as store:
        for key, value in rows(1000):
            store.put(key, value or b"", await_durable=False)
            assert store.uncompacted_bytes < 200_000
        store.flush()

        assert len(list(store.scan())) == 1000


def test_the_cache_keeps_to_its_limit(open_store: Open) -> None:
    with open_store(cache_bytes=100_000) as store:
        store.write(rows(5000, size=200))
        store.compact()
        assert all(store.get(key) == value for key, value in rows(5000, size=200))

        assert 0 < store.cache.bytes_held <= 100_000
        assert store.stats()["cache_hits"] > 4000


# Readers.


def test_a_reader_sees_what_was_there_when_it_last_looked(open_store: Open) -> None:
    objects = MemoryStore()
    with open_store(objects) as store, pytest.raises(StoreNotFoundError):
        Reader(MemoryStore())
    with open_store(objects) as store:
        store.put(b"a", b"1")
        reader = Reader(objects)
        store.put(b"a", b"2")

        assert reader.get(b"a") == b"1"
        reader.refresh()
        assert reader.get(b"a") == b"2"
        store.compact()
        store.put(b"b", b"3")
        reader.refresh()
        assert list(reader.scan()) == [(b"a", b"2"), (b"b", b"3")]
        reader.close()


def test_a_reader_waits_at_a_gap() -> None:
    objects = MemoryStore()
    with Store(objects, options=replace(QUIET, max_parallel_writes=2)) as store:
        store.put(b"a", b"1")
        body = objects.get(WAL.path_of(store.wal_end)) or b""
        objects.put(WAL.path_of(store.wal_end + 2), body)
        reader = Reader(objects)

        assert reader.wal_end == store.wal_end
        reader.close()


def test_a_checkpoint_can_be_read_whatever_happens_later(open_store: Open) -> None:
    objects = MemoryStore()
    with open_store(objects) as store:
        store.put(b"a", b"1")
        store.compact()
        store.put(b"b", b"2")
        checkpoint = store.checkpoint(0, name="before")
        for _ in range(3):
            store.put(b"a", b"later")
            store.delete(b"b")
            store.compact(everything=True)
            store.collect()

        for name in (checkpoint.id, "before"):
            with Reader(objects, checkpoint=name) as reader:
                assert list(reader.scan()) == [(b"a", b"1"), (b"b", b"2")]
        with Reader(objects) as reader:
            assert list(reader.scan()) == [(b"a", b"later")]
            reader.delete_checkpoint(checkpoint.id)
        store.collect()
        with pytest.raises(CheckpointGoneError):
            Reader(objects, checkpoint="before")
        assert faults(store) == ()


def test_a_missing_file_means_refresh(open_store: Open) -> None:
    objects = MemoryStore()
    with open_store(objects) as store:
        store.write(rows(10))
        store.compact()
        reader = Reader(objects)
        store.put(b"key000005", b"new")
        store.compact(everything=True)
        store.collect()

        assert reader.get(b"key000005") == b"new"  # the file that the reader knew is gone
        reader.close()


# Damage.


def test_a_damaged_file_is_named_and_everything_else_can_be_read(open_store: Open, tmp_path: Path) -> None:
    objects = LocalStore(tmp_path, fsync=False)
    with open_store(objects) as store:
        store.write(rows(100))
        store.compact()
        store.put(b"z", b"1")
        (path,) = (tmp_path / "levels").iterdir()
        body = bytearray(path.read_bytes())
        body[10] ^= 1
        path.write_bytes(bytes(body))

        with pytest.raises(CorruptObjectError, match=r"levels/.*sst.*damaged"):
            store.get(b"key000001")
        assert store.get(b"z") == b"1"
        (fault,) = faults(store)
        assert "levels/" in fault
        assert "block at byte 0 is damaged" in fault


def test_a_missing_file_that_is_needed_is_named(open_store: Open, tmp_path: Path) -> None:
    objects = LocalStore(tmp_path, fsync=False)
    with open_store(objects) as store:
        store.write(rows(100))
        store.compact()
        (path,) = (tmp_path / "levels").iterdir()
        path.unlink()

        with pytest.raises(MissingObjectError, match="levels/"):
            store.get(b"key000001")
        assert "missing, though a manifest names it" in faults(store)[0]


def test_a_foreign_object_in_the_place_of_a_manifest_stops_opening_and_is_left_alone(open_store: Open) -> None:
    objects = MemoryStore()
    objects.put_if_absent(MANIFESTS.path_of(1), b"somebody's notes")

    with pytest.raises(CorruptObjectError, match="not a manifest of an Endive store"):
        open_store(objects)
    assert [info.path for info in objects.list("")] == [MANIFESTS.path_of(1)]
