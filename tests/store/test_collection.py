"""What the garbage collector deletes beside old versions, and what the check finds of entries that checkpoints need."""

import os
from pathlib import Path
from threading import Thread

import pytest

from endive.drivers.blocking import BlockingDriver, unix_ms
from endive.kv import Store, StoreOptions
from endive.kv.log.epochs import open_shared
from endive.kv.log.intentions import PREFIX as INTENTIONS
from endive.kv.log.opening import require_newest
from endive.kv.log.wal import WAL
from endive.kv.maintenance.background import collect_now
from endive.kv.maintenance.check import check_store
from endive.kv.maintenance.garbage_collector import FOREIGN_AGE_MS, collect_garbage, foreign_in
from endive.kv.manifest_format import MANIFESTS
from endive.kv.views import create_checkpoint
from endive.objects import MemoryStore
from endive.objects.local import TEMPORARY, LocalStore
from endive.protocol.requests import ObjectInfo
from endive.protocol.two_phase import MARKER
from tests.store.functions import QUIET, Paused

DAY_MS = FOREIGN_AGE_MS


def test_foreign_objects_are_deleted_when_they_are_older_than_a_day() -> None:
    now_ms = [0]
    objects = MemoryStore(lambda: now_ms[0])
    with Store(objects, "shared", QUIET) as store:
        store.put(b"k", b"v")
    strange = ["wal/notes.txt", "manifest/copy of 1.manifest", "levels/part.sst.partial", "wal/sub/x"]
    for path in strange:
        objects.put(path, b"?")
    now_ms[0] = DAY_MS - 1
    objects.put("wal/young", b"?")
    driver = BlockingDriver(objects, clock=lambda: now_ms[0])

    assert driver.run(collect_garbage(0)).foreign == ()
    now_ms[0] = DAY_MS + 1
    assert sorted(driver.run(collect_garbage(0)).foreign) == sorted(strange)
    assert objects.get("wal/young") == b"?"
    with Store(objects, "shared", QUIET) as store:
        assert store.get(b"k") == b"v"


@pytest.mark.parametrize(
    "path",
    [
        f"{MARKER}{'a' * 32}",
        f"{INTENTIONS}whatever",
        "manifest/00000000000000000001.manifest",
        "wal/00000000000000000001.sst",
        "levels/00000000000000000001.sst",
        f"wal/00000000000000000001.sst.{'a' * 32}.{'b' * 8}",
    ],
)
def test_objects_of_the_store_are_never_foreign(path: str) -> None:
    assert foreign_in([ObjectInfo(path, 1, 0)], now_ms=10 * DAY_MS) == ()


def test_temporary_files_of_crashed_processes_are_deleted_after_a_day(tmp_path: Path) -> None:
    objects = LocalStore(tmp_path, fsync=False)
    with Store(objects, "shared", QUIET) as store:
        store.put(b"k", b"v")
        old, young = tmp_path / "wal" / f"{TEMPORARY}1-2-3", tmp_path / "levels" / f"{TEMPORARY}4-5-6"
        for file in (old, young):
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(b"half")
        os.utime(old, ns=(0, (unix_ms() - DAY_MS - 60_000) * 1_000_000))
        collect_now(store.driver, 0)

        assert not old.exists()
        assert young.exists()
        assert store.get(b"k") == b"v"


def checkpointed() -> tuple[MemoryStore, int]:
    """Return a store whose newest entry with rows is in the levels, but needed by a checkpoint; and that entry."""
    objects = MemoryStore()
    with Store(objects, "shared", QUIET) as store:
        store.put(b"k", b"v")
        store.checkpoint(0, "kept")
        entry = store.wal_end
        for number in range(3):
            store.put(b"%d" % number, b"")
        store.compact()
        store.collect()
        assert store.driver.run(check_store()).findings == ()
    return objects, entry


def findings(objects: MemoryStore) -> list[str]:
    driver = BlockingDriver(objects)
    found = [str(finding) for finding in driver.run(check_store()).findings]
    driver.close()
    return found


def test_check_finds_a_missing_entry_that_only_a_checkpoint_needs() -> None:
    objects, entry = checkpointed()
    objects.delete(WAL.path_of(entry))

    assert findings(objects) == [f"{WAL.path_of(entry)}: missing, though a checkpoint needs it"]


def test_check_finds_a_damaged_entry_that_only_a_checkpoint_needs() -> None:
    objects, entry = checkpointed()
    body = bytearray(objects.get(WAL.path_of(entry)) or b"")
    body[3] ^= 1
    objects.put(WAL.path_of(entry), bytes(body))

    assert len(findings(objects)) == 1
    assert WAL.path_of(entry) in findings(objects)[0]


def test_a_large_write_is_not_held_back() -> None:
    options = StoreOptions(flush_interval_ms=3_600_000, skip_memtable_bytes=1000, compact_here=False)
    with Store(MemoryStore(), options=options) as store:
        small = store.put(b"small", b"", await_durable=False)
        assert not small.is_durable
        large = store.put(b"large", b"x" * 1000, await_durable=False)
        large.wait()

        assert small.is_durable


def test_all_that_wait_for_a_durable_batch_get_the_same_answer_though_the_writer_halts() -> None:
    class Landed(Paused):
        """The entry is created, and the reply is late."""

        def put_if_absent(self, path: str, body: bytes) -> bool:
            is_created = MemoryStore.put_if_absent(self, path, body)
            if self.pauses and path.startswith("wal/"):
                self.pauses = False
                self.waits.set()
                assert self.may_go_on.wait(30)
            return is_created

    objects = Landed()
    answers: dict[str, object] = {}
    options = StoreOptions(max_parallel_writes=4, compact_here=False, poll_interval_ms=3_600_000)
    store = Store(objects, options=options)

    def answer(name: str, ticket_of: str) -> None:
        try:
            tickets[ticket_of].wait()
            answers[name] = "durable"
        except Exception as error:  # noqa: BLE001 - any answer
            answers[name] = type(error).__name__

    objects.pauses = True
    tickets = {"first": store.put(b"a", b"", await_durable=False), "second": store.put(b"b", b"", await_durable=False)}
    waiting = [Thread(target=answer, args=(f"{name} {number}", name)) for name in tickets for number in range(3)]
    for thread in waiting:
        thread.start()
    assert objects.waits.wait(30)
    Store(objects, options=options).close()  # fences the writer
    store.refresh()  # which halts
    objects.may_go_on.set()
    for thread in waiting:
        thread.join(30)

    assert set(answers.values()) == {"durable"}
    assert len(answers) == 6
    store.close()


def test_retention_counts_from_the_manifest_that_supersedes_not_from_its_own_writing() -> None:
    now_ms = [0]
    objects = MemoryStore(lambda: now_ms[0])
    driver = BlockingDriver(objects, clock=lambda: now_ms[0])
    driver.run(open_shared())
    old = driver.run(require_newest()).number
    now_ms[0] = 10 * DAY_MS  # long afterwards it is superseded
    driver.run(create_checkpoint(0, "later"))
    now_ms[0] += 60_000
    driver.run(collect_garbage(retention_ms=100_000))
    assert objects.get(MANIFESTS.path_of(old)) is not None

    now_ms[0] += 60_000
    driver.run(collect_garbage(retention_ms=100_000))
    assert objects.get(MANIFESTS.path_of(old)) is None
    driver.close()
