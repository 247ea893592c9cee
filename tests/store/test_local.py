"""A local directory that fails in the middle of a create, and what becomes of commits."""

import errno
import os
from pathlib import Path

import pytest

from endive.errors import OutcomeUnknownError
from endive.kv import Store
from endive.kv.transaction import Transaction
from endive.objects import LocalStore
from endive.protocol.requests import Steps


def add_one(tx: Transaction) -> Steps[int]:
    count = int((yield from tx.get(b"count")) or b"0") + 1
    tx.put(b"count", str(count).encode())
    return count


def out_of_descriptors(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """Let the next directory that is synced fail: the object has its name by then."""
    sync, failures = LocalStore._sync_directory, iter([True])

    def fail_once(self: LocalStore, directory: Path) -> None:
        if next(failures, False):
            raise OSError(error, os.strerror(error))
        sync(self, directory)

    monkeypatch.setattr(LocalStore, "_sync_directory", fail_once)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_a_commit_whose_directory_could_not_be_synced_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    with Store(LocalStore(tmp_path), "shared") as store:
        store.transact(add_one)
        out_of_descriptors(monkeypatch, error)

        assert store.transact(add_one) == 2

        assert store.transact(add_one) == 3


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_a_create_whose_directory_could_not_be_synced_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    objects = LocalStore(tmp_path)
    objects.put_if_absent("first", b"")  # the directory is there
    out_of_descriptors(monkeypatch, error)

    with pytest.raises(OutcomeUnknownError):
        objects.put_if_absent("path", b"body")

    assert objects.get("path") == b"body"
