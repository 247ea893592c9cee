"""Waiting for what others do: readers that refresh by themselves, writers that wait for compaction elsewhere."""

from dataclasses import replace
from threading import Event, Thread

import pytest

from endive.errors import CheckpointGoneError
from endive.kv import Reader, Store
from endive.kv.store import WriterKind
from endive.objects import MemoryStore
from endive.objects.api import unix_ms
from tests.store.functions import QUIET


def test_a_reader_refreshes_in_the_background() -> None:
    objects = MemoryStore()
    with Store(objects, "shared", QUIET) as store, Reader(objects, refresh_interval_ms=1) as reader:
        store.put(b"k", b"v")
        seen = Event()
        for _ in range(10_000):
            if reader.get(b"k") == b"v" or seen.wait(0.005):
                break

        assert reader.get(b"k") == b"v"


def test_a_reader_without_an_interval_does_not_refresh() -> None:
    objects = MemoryStore()
    with Store(objects, "shared", QUIET) as store, Reader(objects) as reader:
        store.put(b"k", b"v")

        assert reader.get(b"k") is None
        reader.refresh()
        assert reader.get(b"k") == b"v"


def test_a_reader_refreshes_its_own_checkpoint_while_it_is_open() -> None:
    objects = MemoryStore()
    with Store(objects, "shared", QUIET) as store:
        store.put(b"k", b"v")
        with Reader(objects) as reader:
            kept = reader.create_checkpoint(lifetime_s=1)
            refreshed = Event()
            for _ in range(2000):
                store.refresh()
                if store.manifest.value.checkpoint(kept.id).expire_unix_s > kept.expire_unix_s or refreshed.wait(0.005):
                    break
            assert store.manifest.value.checkpoint(kept.id).expire_unix_s > kept.expire_unix_s
            assert reader.get(b"k") == b"v"
        store.driver._clock = lambda: unix_ms() + 10_000
        store.collect()
        store.refresh()
        with pytest.raises(CheckpointGoneError):
            store.manifest.value.checkpoint(kept.id)


@pytest.mark.parametrize("writer", ["shared", "exclusive"])
def test_a_writer_waits_until_another_process_has_compacted(writer: WriterKind) -> None:
    objects = MemoryStore()
    ended = Event()
    with Store(objects, writer, replace(QUIET, uncompacted_entries_max=6)) as store:
        for number in range(6):  # and a fence
            store.put(b"%d" % number, b"")

        def one_more() -> None:
            store.put(b"last", b"")
            ended.set()

        waiting = Thread(target=one_more)
        waiting.start()
        assert not ended.wait(0.2)
        assert store.get(b"last") is None
        store.compact() if writer == "exclusive" else _compact_elsewhere(objects)
        assert ended.wait(30)
        waiting.join()
        assert store.get(b"last") == b""


def _compact_elsewhere(objects: MemoryStore) -> None:
    with Store(objects, "shared", QUIET) as other:
        other.compact()
