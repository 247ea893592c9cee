"""Catalogs to test: the plug-in on a store in memory, and PyIceberg's SQL catalog beside it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from endive.catalog import KVCatalog, opening
from endive.catalog.pyiceberg import EndiveCatalog
from tests.catalog.stand_in import DictStore


@pytest.fixture
def store() -> DictStore:
    return DictStore()


@pytest.fixture
def kv(store: DictStore, tmp_path: Path) -> KVCatalog:
    return KVCatalog(store, f"file://{tmp_path}/warehouse", create=True)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let catalogs that are opened by URL stand on stores in memory."""
    stores: dict[str, DictStore] = {}

    def open_stand_in(url: str, *_: object) -> DictStore:
        return stores.setdefault(url, DictStore())

    monkeypatch.setattr(opening, "_open", open_stand_in)


@pytest.fixture
def endive(stand_in: None, tmp_path: Path) -> Iterator[EndiveCatalog]:
    catalog = EndiveCatalog("test", uri=f"{tmp_path}/catalog")
    yield catalog
    catalog.close()
