"""A local directory whose syncs fail, and the outcome of commits."""

import errno
import os
from pathlib import Path

import pytest

from endive.errors import OutcomeUnknownError, StorageAccessError
from endive.kv import Store
from endive.kv.transaction import Transaction
from endive.objects import LocalStore, local
from endive.objects.api import execute_request
from endive.protocol.requests import Steps, create, drive


def add_one(tx: Transaction) -> Steps[int]:
    count = int((yield from tx.get(b"count")) or b"0") + 1
    tx.put(b"count", str(count).encode())
    return count


class Syncs:
    """Notes each directory that is synced. Fails the next `failures` syncs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: list[Path] = []
        self.failures = 0
        self.error = errno.EIO
        self._sync = local.sync
        monkeypatch.setattr(local, "sync", self)

    def __call__(self, path: Path) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise OSError(self.error, os.strerror(self.error))
        self._sync(path)
        self.synced.append(path)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    return Syncs(monkeypatch)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_a_commit_whose_directory_could_not_be_synced_counts_once(tmp_path: Path, syncs: Syncs, error: int) -> None:
    with Store(LocalStore(tmp_path), "shared") as store:
        store.transact(add_one)
        syncs.failures, syncs.error = 1, error

        assert store.transact(add_one) == 2

        assert store.transact(add_one) == 3


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_a_create_whose_directory_could_not_be_synced_is_unknown(tmp_path: Path, syncs: Syncs, error: int) -> None:
    objects = LocalStore(tmp_path)
    objects.put_if_absent("first", b"")  # the directory is there
    syncs.failures, syncs.error = 1, error

    with pytest.raises(OutcomeUnknownError):
        objects.put_if_absent("path", b"body")

    assert objects.get("path") == b"body"


def test_a_create_is_acknowledged_only_after_its_directory_was_synced(tmp_path: Path, syncs: Syncs) -> None:
    objects = LocalStore(tmp_path)
    objects.put_if_absent("first", b"")
    syncs.synced.clear()
    syncs.failures = 1

    assert drive(create("path", b"body"), lambda request: execute_request(objects, request))

    assert syncs.synced == [tmp_path]


def test_a_create_whose_directory_is_never_synced_is_not_acknowledged(tmp_path: Path, syncs: Syncs) -> None:
    objects = LocalStore(tmp_path)
    objects.put_if_absent("first", b"")
    syncs.failures = 100

    with pytest.raises(OutcomeUnknownError):
        drive(create("path", b"body"), lambda request: execute_request(objects, request))


def test_a_taken_name_is_reported_only_after_it_is_durable(tmp_path: Path, syncs: Syncs) -> None:
    LocalStore(tmp_path, fsync=False).put_if_absent("path", b"of a process that has not synced it yet")

    assert not LocalStore(tmp_path).put_if_absent("path", b"")

    assert tmp_path in syncs.synced


def test_every_parent_of_a_new_directory_is_synced(tmp_path: Path, syncs: Syncs) -> None:
    LocalStore(tmp_path / "new" / "store").put_if_absent("wal/1", b"")

    assert {tmp_path, tmp_path / "new", tmp_path / "new" / "store"} <= set(syncs.synced[:-1])
    assert syncs.synced[-1] == tmp_path / "new" / "store" / "wal"


def test_the_second_of_two_processes_that_create_a_store_syncs_the_parents_too(tmp_path: Path, syncs: Syncs) -> None:
    (tmp_path / "new" / "store" / "wal").mkdir(parents=True)  # by the first process, which has not synced them yet

    LocalStore(tmp_path / "new" / "store").put_if_absent("wal/1", b"")

    assert {tmp_path, tmp_path / "new", tmp_path / "new" / "store"} <= set(syncs.synced[:-1])


def test_parents_whose_sync_failed_are_synced_by_the_next_write(tmp_path: Path, syncs: Syncs) -> None:
    objects = LocalStore(tmp_path / "store")
    syncs.failures = 1
    with pytest.raises(StorageAccessError):
        objects.put_if_absent("wal/1", b"")

    objects.put_if_absent("wal/1", b"")

    assert {tmp_path, tmp_path / "store"} <= set(syncs.synced[:-1])


def test_parents_are_synced_once_for_each_directory(tmp_path: Path, syncs: Syncs) -> None:
    objects = LocalStore(tmp_path / "store")
    objects.put_if_absent("wal/1", b"")
    syncs.synced.clear()

    objects.put_if_absent("wal/2", b"")

    assert syncs.synced == [tmp_path / "store" / "wal"]
