"""Background maintenance: nothing ends it but closing the store, and the end of the program quietly."""

import subprocess
import sys
from itertools import islice
from threading import Event

import pytest

from endive.kv import Store, StoreOptions
from endive.kv.maintenance.background import compactions
from endive.objects import MemoryStore
from tests.store.functions import QUIET, add_one
from tests.store_protocols import claim_compactor

EAGER = StoreOptions(compact_entries=5, poll_interval_ms=1, collect_interval_ms=1, retention_ms=0)

NEVER_CLOSED = """
from threading import Thread
from time import sleep
from endive.kv import Store, StoreOptions
from endive.objects import MemoryStore

store = Store(MemoryStore(), "shared", StoreOptions(poll_interval_ms=1, collect_interval_ms=1))
Thread(target=sleep, args=(0.5,)).start()
"""
"""Collects all the time; the program's end waits for a thread, and has closed all pools by then."""


def test_an_unforeseen_error_does_not_end_background_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    went_on = Event()
    errors = iter([ValueError("a defect")])

    def poll(_: Store) -> None:
        for error in errors:
            raise error
        went_on.set()

    monkeypatch.setattr(Store, "poll", poll)
    with Store(MemoryStore(), "shared", EAGER):
        assert went_on.wait(30)


def test_a_compactor_ends_though_somebody_writes_all_the_time() -> None:
    with Store(MemoryStore(), "shared", QUIET) as store:
        store.transact(add_one(b"n"))
        passes = 0
        for _ in islice(compactions(store.driver, store.driver.run(claim_compactor())), 100):
            store.transact(add_one(b"n"))
            passes += 1

        assert 0 < passes < 10


def test_a_store_that_is_never_closed_lets_the_program_end_without_a_word() -> None:
    ended = subprocess.run([sys.executable, "-c", NEVER_CLOSED], capture_output=True, text=True, timeout=60, check=True)

    assert ended.stderr == ""
