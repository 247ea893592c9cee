"""Closing a store whose background flush has failed."""

import time

import pytest

from endive.errors import FencedError
from endive.kv import Store, StoreOptions
from endive.objects import MemoryStore

OPTIONS = StoreOptions(compact_here=False)


def halted(store: Store) -> None:
    """Wait until the background flush has failed."""
    deadline = time.monotonic() + 10
    while store._group.halted is None and time.monotonic() < deadline:
        time.sleep(0.01)


def test_close_raises_the_error_of_rows_that_were_not_made_durable() -> None:
    objects = MemoryStore()
    store = Store(objects, options=OPTIONS)
    with Store(objects, options=OPTIONS):
        store.put(b"a", b"1", await_durable=False)
        halted(store)

        with pytest.raises(FencedError):
            store.close()
        store.close()  # idempotent


def test_close_does_not_repeat_an_error_that_a_caller_got() -> None:
    objects = MemoryStore()
    store = Store(objects, options=OPTIONS)
    with Store(objects, options=OPTIONS):
        with pytest.raises(FencedError):
            store.put(b"a", b"1")

        store.close()
