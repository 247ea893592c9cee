"""Two-phase create: a writer that crashes after any step leaves an object that is durable and visible, or none."""

import sqlite3
from itertools import count
from pathlib import Path

import pytest

from endive.errors import CorruptObjectError, OutcomeUnknownError, StorageUnavailableError
from endive.kv import Store, StoreOptions
from endive.kv.maintenance.check import check_store
from endive.objects import MemoryStore, TwoPhaseStore
from endive.objects.records import SqlRecords
from endive.protocol.requests import Put, Request, Steps
from endive.protocol.two_phase import (
    GetRecord,
    InsertRecord,
    TransferRecord,
    create_in_two_phases,
    destination_of,
    recover,
    source_of,
)

DAY_MS = 24 * 3600 * 1000


class NoConditions(MemoryStore):
    """An object store without conditional writes."""

    def put_if_absent(self, path: str, body: bytes) -> bool:
        raise NotImplementedError


class Setting:
    """An object store, a record store and a clock that a test sets."""

    def __init__(self, directory: Path) -> None:
        self.now_ms = 0
        numbers = count(1)
        self.objects = NoConditions(clock=lambda: self.now_ms)
        self.records = SqlRecords(
            lambda: sqlite3.connect(directory / "records.db", check_same_thread=False), sqlite3, "?"
        )
        self.store = TwoPhaseStore(self.objects, self.records, lambda: f"{next(numbers):032x}", lambda: self.now_ms)

    def stopped_after(self, steps: Steps[object], requests: int) -> list[Request[object]]:
        """Execute the first requests of a protocol, then crash it."""
        done: list[Request[object]] = []
        request = next(steps)
        for _ in range(requests):
            reply = self.store._answer(request)
            done.append(request)
            try:
                request = steps.send(reply)
            except StopIteration:
                break
        return done


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


STEPS = 6  # new id, source, record, copy, commit, delete the source


@pytest.mark.parametrize("steps", range(1, STEPS + 1))
def test_a_writer_that_crashes_anywhere_leaves_all_or_nothing(setting: Setting, steps: int) -> None:
    done = setting.stopped_after(create_in_two_phases("wal/1", b"body", 7), steps)
    happened = any(isinstance(request, InsertRecord) for request in done)

    # Before any recovery, the object is visible, and another create refused, if and only if the record exists.
    assert setting.store.get("wal/1") == (b"body" if happened else None)
    assert setting.store.get_range("wal/1", 1, 2) == (b"od" if happened else None)
    assert [info.path for info in setting.store.list("wal/")] == (["wal/1"] if happened else [])
    setting.now_ms += 2 * DAY_MS
    recovered = setting.store.recover()

    assert recovered.lost == ()
    assert setting.store.get("wal/1") == (b"body" if happened else None)
    assert setting.store.put_if_absent("wal/1", b"rival") is not happened
    assert all(destination_of(info.path) is None for info in setting.objects.list(""))


@pytest.mark.parametrize("steps", range(1, 12))
def test_a_recovery_that_crashes_anywhere_can_be_repeated(setting: Setting, steps: int) -> None:
    setting.stopped_after(create_in_two_phases("wal/1", b"one", 7), 3)
    setting.stopped_after(create_in_two_phases("wal/2", b"two", 7), 3)
    setting.stopped_after(recover(), steps)

    setting.store.recover()

    assert [setting.objects.get(f"wal/{number}") for number in (1, 2)] == [b"one", b"two"]
    assert setting.records.open_records("") == ()


def test_recovery_copies_an_old_source_that_an_open_record_names(setting: Setting) -> None:
    setting.stopped_after(create_in_two_phases("wal/1", b"body", 7), 3)
    setting.now_ms += 2 * DAY_MS

    recovered = setting.store.recover()

    assert recovered.copied == ("wal/1",)
    assert setting.store.get("wal/1") == b"body"


def test_a_source_without_a_record_is_deleted_after_a_day(setting: Setting) -> None:
    setting.stopped_after(create_in_two_phases("wal/1", b"body", 7), 2)

    assert setting.store.recover().orphans == ()
    setting.now_ms += 2 * DAY_MS
    assert len(setting.store.recover().orphans) == 1
    assert setting.objects.list("") == ()


def test_a_record_without_a_source_is_reported_and_its_name_stays_taken(setting: Setting) -> None:
    setting.records.insert("wal/1", source_of("wal/1", "0" * 32, 7))

    assert setting.store.recover().lost == ("wal/1",)
    with pytest.raises(CorruptObjectError, match=r"wal/1: .*endive kv recover URL --records RECORDS --release-lost"):
        setting.store.put_if_absent("wal/1", b"other")
    assert all(destination_of(info.path) is None for info in setting.objects.list(""))


def test_a_lost_source_is_an_error_of_the_opening_until_its_record_is_released(setting: Setting) -> None:
    options = StoreOptions(compact_here=False)
    with Store(setting.store, options=options) as store:
        store.put(b"a", b"1")
    newest = max(info.path for info in setting.store.list("manifest/"))
    following = newest.replace(".manifest", "")[:-1] + str(int(newest.replace(".manifest", "")[-1]) + 1) + ".manifest"
    setting.records.insert(following, source_of(following, "0" * 32, 7))

    with pytest.raises(CorruptObjectError, match="--release-lost"):
        Store(setting.store, options=options)
    assert setting.store.recover(release_lost=True).lost == (following,)

    with Store(setting.store, options=options) as store:
        assert store.get(b"a") == b"1"


def test_after_a_lost_reply_of_the_record_store_the_record_is_read(setting: Setting) -> None:
    steps = create_in_two_phases("wal/1", b"body", 7)
    request = next(steps)
    while not isinstance(request, InsertRecord):
        request = steps.send(setting.store._answer(request))
    setting.store._answer(request)  # inserted, but the reply is lost
    request = steps.throw(OutcomeUnknownError("wal/1"))
    with pytest.raises(StopIteration) as ended:  # noqa: PT012
        while True:
            request = steps.send(setting.store._answer(request))

    assert ended.value.value is True


def test_an_insert_that_a_client_has_retried_does_not_lose_to_itself(setting: Setting) -> None:
    steps = create_in_two_phases("wal/1", b"body", 7)
    request = next(steps)
    while not isinstance(request, InsertRecord):
        request = steps.send(setting.store._answer(request))
    setting.store._answer(request)
    reply: object = False  # the reply to the retry
    with pytest.raises(StopIteration) as ended:  # noqa: PT012
        while True:
            request = steps.send(reply)
            reply = setting.store._answer(request)

    assert ended.value.value is True
    assert setting.store.get("wal/1") == b"body"


def test_an_insert_that_conflicts_with_a_deleted_record_is_unknown(setting: Setting) -> None:
    steps = create_in_two_phases("wal/1", b"body", 7)
    request = next(steps)
    while not isinstance(request, InsertRecord):
        request = steps.send(setting.store._answer(request))
    assert isinstance(steps.send(False), GetRecord)

    with pytest.raises(OutcomeUnknownError):
        steps.send(None)


def test_a_copy_that_fails_is_not_acknowledged(setting: Setting) -> None:
    steps = create_in_two_phases("wal/1", b"body", 7)
    request = next(steps)
    while not (isinstance(request, Put) and request.path == "wal/1"):
        request = steps.send(setting.store._answer(request))

    with pytest.raises(OutcomeUnknownError):
        steps.throw(StorageUnavailableError("wal/1", "throttled"))


def test_an_object_is_deleted_before_its_record(setting: Setting) -> None:
    setting.store.put_if_absent("wal/1", b"body")
    from endive.protocol.two_phase import delete_in_two_phases

    done = setting.stopped_after(delete_in_two_phases("wal/1"), 10)
    kinds = [type(request).__name__ for request in done]

    assert kinds.index("Delete") < kinds.index("DeleteRecord")
    assert setting.store.put_if_absent("wal/1", b"again")


def test_records_are_inserted_committed_and_deleted(setting: Setting) -> None:
    assert setting.records.insert("a", "source")
    assert not setting.records.insert("a", "other")
    assert setting.records.get("a") == TransferRecord("a", "source", False)
    assert setting.records.open_records("b") == ()
    setting.records.commit("a")
    assert setting.records.get("a") == TransferRecord("a", "source", True)
    setting.records.delete("a")
    assert setting.records.get("a") is None


def test_the_store_runs_on_it(setting: Setting) -> None:
    options = StoreOptions(compact_here=False, retention_ms=0)
    for round_number in range(3):
        with Store(setting.store, options=options) as store:
            store.put(b"%d" % round_number, b"value")
            store.compact()
            store.collect()
            assert store.driver.run(check_store()).findings == ()
            assert len(list(store.scan())) == round_number + 1


def test_garbage_collection_finishes_the_creates_of_crashed_writers(setting: Setting) -> None:
    with Store(setting.store, options=StoreOptions(compact_here=False, retention_ms=0)) as store:
        store.put(b"a", b"1")
        setting.stopped_after(create_in_two_phases("left/1", b"left behind", 7), 3)
        setting.stopped_after(create_in_two_phases("left/2", b"abandoned", 7), 2)
        setting.now_ms += 2 * DAY_MS
        store.collect()

    assert setting.records.open_records("") == ()
    assert setting.objects.get("left/1") == b"left behind"
    assert all(destination_of(info.path) is None for info in setting.objects.list(""))
