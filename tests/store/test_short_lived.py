"""Processes that live for one commit: the log stays short, and opening costs the same at any age."""

import subprocess
import sys
from dataclasses import replace
from hashlib import sha512
from pathlib import Path

import pytest

from endive.errors import StorageUnavailableError
from endive.kv import Reader, Store, StoreOptions
from endive.kv.log.wal import WAL
from endive.kv.maintenance.check import check_store
from endive.kv.maintenance.claim import CLAIM, claim_maintenance, is_claimed, maintain, release_maintenance
from endive.kv.maintenance.compactor import compact_wal
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.reading import WHOLE_BYTES
from endive.kv.store import WriterKind
from endive.kv.transaction import Transaction
from endive.kv.views import create_checkpoint
from endive.objects import MemoryStore, ObjectStore, open_objects
from endive.protocol.requests import Steps
from endive.protocol.sequenced import newest
from tests.races.processes import driver_of
from tests.store.functions import QUIET, add_one

ENTRIES = 16
SHORT = StoreOptions(compact_entries=ENTRIES, poll_interval_ms=3_600_000)
"""Nothing happens in the background, as in a process that ends at once."""


def one_commit(objects: ObjectStore, options: StoreOptions = SHORT, writer: WriterKind = "shared") -> None:
    is_new = not objects.list(MANIFESTS.prefix)
    with Store(objects, writer, options) as store:
        opened = (store.driver.requests.sequential, store.driver.requests.total)
        store.transact(add_one(b"n"))
        store.put(b"row %d" % store.wal_end, b"")
    if not is_new:
        assert opened[0] <= (5 if writer == "shared" else 12), opened
        assert opened[1] <= 12 + 3 * ENTRIES, opened


def value(objects: ObjectStore, key: bytes = b"n") -> bytes | None:
    with Reader(objects) as reader:
        return reader.get(key)


@pytest.mark.parametrize("writer", ["shared", "exclusive"])
def test_the_log_stays_short_and_opening_flat_over_hundreds_of_processes(writer: WriterKind) -> None:
    objects = MemoryStore()
    for _ in range(150):
        one_commit(objects, SHORT, writer)

    assert len(objects.list(WAL.prefix)) <= 2 * ENTRIES + 1  # fences among them
    assert objects.list("levels/")
    assert value(objects) == b"150"
    assert driver_of(objects).run(check_store()).findings == ()


def test_the_number_of_files_in_the_levels_grows_with_the_logarithm() -> None:
    objects = MemoryStore()
    for _ in range(200):
        one_commit(objects, replace(SHORT, compact_entries=4, retention_ms=0))

    with Reader(objects) as reader:
        runs = reader.manifest.value.runs
        assert len(runs) <= 3 * 4
        assert len(objects.list("levels/")) <= 2 * len(runs) + 4
    assert len(objects.list(MANIFESTS.prefix)) < 20


def test_reading_at_any_age_opens_with_five_round_trips() -> None:
    objects = MemoryStore()
    for _ in range(40):
        one_commit(objects)
        with Reader(objects) as reader:
            assert reader.driver.requests.sequential <= 5


def test_a_commit_is_acknowledged_before_maintenance_and_does_not_depend_on_it() -> None:
    class Full(MemoryStore):
        is_full = False

        def put_if_absent(self, path: str, body: bytes) -> bool:
            if self.is_full and not path.startswith(WAL.prefix):
                raise StorageUnavailableError(path, "no room")
            return super().put_if_absent(path, body)

    objects = Full()
    for _ in range(ENTRIES // 2):
        one_commit(objects)
    objects.is_full = True
    store = Store(objects, "shared", replace(SHORT, compact_entries=1))
    store.driver._sleep = lambda _: None  # repeats without pauses
    store.put(b"k", b"v")
    store.close()

    assert value(objects, b"k") == b"v"


def test_one_process_at_a_time_has_the_claim() -> None:
    objects = MemoryStore()
    with Store(objects, "shared", QUIET) as store:
        store.put(b"k", b"v")
    first, second = driver_of(objects), driver_of(objects)
    claim = first.run(claim_maintenance())

    assert claim is not None
    assert second.run(claim_maintenance()) is None
    assert second.run(maintain(budget_ms=1)) is None
    first.run(release_maintenance(claim))
    first.run(release_maintenance(claim))
    again = second.run(claim_maintenance())
    assert again is not None
    assert again.epoch == claim.epoch + 1


def test_a_crashed_owner_is_followed_when_its_lease_has_expired() -> None:
    objects = MemoryStore(lambda: 0)
    with Store(objects, "shared", QUIET) as store:
        store.put(b"k", b"v")
    crashed = driver_of(objects).run(claim_maintenance(lease_s=60))
    soon, later = driver_of(objects, clock_ms=59_000), driver_of(objects, clock_ms=61_000)

    assert soon.run(maintain(budget_ms=1e9)) is None
    done = later.run(maintain(budget_ms=1e9))

    assert crashed is not None
    assert done is not None
    assert done.compactions[0].entries == 2
    now = later.run(newest(MANIFESTS))
    assert now is not None
    assert not any(each.name == CLAIM for each in now.value.checkpoints)


def test_a_claim_by_a_clock_that_is_years_ahead_blocks_no_other_process() -> None:
    objects = MemoryStore(lambda: 0)
    with Store(objects, "shared", QUIET) as store:
        store.put(b"k", b"v")
    driver_of(objects, clock_ms=10**12).run(claim_maintenance())

    assert driver_of(objects).run(maintain(budget_ms=1e9)) is not None


def test_a_claim_taken_by_force_stops_the_owner_before_it_publishes() -> None:
    objects = MemoryStore(lambda: 0)
    with Store(objects, "shared", QUIET) as store:
        store.put(b"k", b"v")
    driver = driver_of(objects)
    claim = driver.run(claim_maintenance())
    assert claim is not None
    driver.run(claim_maintenance(is_forced=True))

    with pytest.raises(Exception, match="fenced"):
        driver.run(compact_wal(claim.epoch))


def test_a_share_ends_after_its_budget() -> None:
    objects = MemoryStore(lambda: 0)
    with Store(objects, "shared", QUIET) as store:
        store.put(b"k", b"v")
    done = driver_of(objects).run(maintain(budget_ms=0))

    assert done is not None
    assert len(done.compactions) == 1
    assert done.collected is None


def test_a_merge_too_large_for_a_process_that_ends_is_left_to_others() -> None:
    objects = MemoryStore()
    for _ in range(5):
        one_commit(objects, replace(SHORT, compact_entries=1))
    driver = driver_of(objects)
    before = driver.run(newest(MANIFESTS))
    done = driver.run(maintain(budget_ms=1e9, merge_bytes_max=1))

    assert before is not None
    assert done is not None
    assert all(not one.runs for one in done.compactions)


def test_the_name_of_the_claim_cannot_be_given_to_a_checkpoint() -> None:
    objects = MemoryStore()
    with Store(objects, "shared", QUIET) as store, pytest.raises(ValueError, match="reserved"):
        store.checkpoint(0, CLAIM)
    found = driver_of(objects).run(newest(MANIFESTS))
    assert found is not None
    assert not is_claimed(found.value, 0)


NEVER_CLOSED = """
import sys
from endive.kv import Store, StoreOptions
from endive.objects import open_objects

store = Store(open_objects(sys.argv[1]), "shared", StoreOptions(compact_entries=4, poll_interval_ms=3_600_000))
store.put(b"last", b"")
"""


def test_a_program_that_never_closes_its_store_does_its_share_at_its_end(tmp_path: Path) -> None:
    url = (tmp_path / "store").as_uri()
    with Store(open_objects(url), "shared", QUIET) as store:
        for number in range(4):
            store.put(b"%d" % number, b"")
    ended = subprocess.run([sys.executable, "-c", NEVER_CLOSED, url], capture_output=True, text=True, check=True)

    assert ended.stderr == ""
    with Reader(open_objects(url)) as reader:
        assert reader.manifest.value.wal_id_last_compacted == 6
        assert all(each.name != CLAIM for each in reader.manifest.value.checkpoints)
        assert reader.get(b"last") == b""


def test_a_store_with_compact_here_off_does_not_compact() -> None:
    objects = MemoryStore()
    for _ in range(5):
        one_commit(objects, replace(SHORT, compact_entries=1, compact_here=False))

    assert not objects.list("levels/")


def test_checkpoints_are_not_harmed_by_a_share() -> None:
    objects = MemoryStore()
    one_commit(objects)
    kept = driver_of(objects).run(create_checkpoint(0, "kept"))
    for _ in range(40):
        one_commit(objects, replace(SHORT, compact_entries=4, retention_ms=0))

    with Reader(objects, checkpoint=kept.id) as reader:
        assert reader.get(b"n") == b"1"


def aged(rows: int) -> MemoryStore:
    """Return a store with many rows under one prefix and some beside, written by short-lived processes."""
    objects = MemoryStore()
    for start in range(0, rows, 50):
        with Store(objects, "shared", replace(SHORT, compact_entries=2)) as store:
            rows_of_it = [(b"table/%06d" % number, random_bytes(number)) for number in range(start, start + 50)]
            store.write([*rows_of_it, (b"zone/%06d" % start, b"")])
    return objects


def test_a_cold_transaction_reads_thousands_of_rows_in_three_round_trips() -> None:
    objects = aged(2000)
    with Store(objects, "shared", QUIET) as store:
        assert store.driver.requests.sequential <= 5
        assert len(store.manifest.value.runs) >= 2
        assert max(run.size_bytes for run in store.manifest.value.runs) > WHOLE_BYTES
        before = store.driver.requests.sequential

        def load(tx: Transaction) -> Steps[tuple[int, bytes | None]]:
            record = yield from tx.get(b"zone/000000")
            rows = yield from tx.scan_many((b"table/", b"zone/"))
            return len(rows[0]) + len(rows[1]), record

        assert store.read_cached(load) == (2040, b"")
        assert store.driver.requests.sequential - before <= 3
        again = store.driver.requests.total
        assert store.read_cached(load) == (2040, b"")
        assert store.driver.requests.total == again  # all of it is cached


def test_many_keys_are_found_in_two_round_trips() -> None:
    objects = aged(1000)
    with Store(objects, "shared", QUIET) as store:
        before = store.driver.requests.sequential
        keys = [b"table/%06d" % number for number in range(0, 1000, 7)] + [b"nowhere", b"table/000007"]

        def load(tx: Transaction) -> Steps[tuple[bytes | None, ...]]:
            tx.rows[b"table/000007"] = b"own"
            return (yield from tx.get_many(keys))

        found = store.read_cached(load)
        assert store.driver.requests.sequential - before <= 2
        assert found[0] == random_bytes(0)
        assert found[-2:] == (None, b"own")
        assert None not in found[:-2]


def test_a_cold_scan_reads_ahead() -> None:
    objects = MemoryStore()
    with Store(objects, options=QUIET) as store:
        for start in range(0, 40_000, 1000):
            store.write([(b"%08d" % number, random_bytes(number)) for number in range(start, start + 1000)])
        store.compact(everything=True)
    with Reader(objects) as reader:
        before = reader.driver.requests.sequential
        assert sum(1 for _ in reader.scan()) == 40_000
        assert reader.driver.requests.sequential - before <= 6


def random_bytes(number: int) -> bytes:
    """Return bytes that cannot be compressed."""
    return b"".join(sha512(b"%d/%d" % (number, part)).digest() for part in range(4))
