"""Fixtures for the tests of the store."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from endive.kv import Store
from endive.objects import MemoryStore, ObjectStore
from tests.store.functions import KINDS

Open = Callable[..., Store]


@pytest.fixture(params=KINDS, ids=list(KINDS))
def open_store(request: pytest.FixtureRequest) -> Open:
    """Open a store with each kind of writer; options can be changed by name."""
    writer, options = KINDS[request.param]

    def opened(objects: ObjectStore | None = None, create: bool = True, **changes: Any) -> Store:
        return Store(MemoryStore() if objects is None else objects, writer, replace(options, **changes), create)

    return opened
