"""Catalogs to test: the plug-in on real stores, the bare catalog on one in forty lines, PyIceberg's SQL catalog."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg import EndiveCatalog
from tests.catalog.stand_in import DictStore


@pytest.fixture
def store() -> DictStore:
    return DictStore()


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    return f"file://{tmp_path}/warehouse"


@pytest.fixture
def kv(store: DictStore, warehouse: str) -> Iterator[KVCatalog]:
    with KVCatalog(store, warehouse, create=True) as catalog:
        yield catalog


@pytest.fixture
def endive(tmp_path: Path, warehouse: str) -> Iterator[EndiveCatalog]:
    catalog = EndiveCatalog("test", uri=f"memory://{tmp_path.name}", warehouse=warehouse)
    yield catalog
    catalog.close()


@pytest.fixture(params=["sql", "endive in memory", "endive in a directory"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, warehouse: str) -> Iterator[Catalog]:
    """The same behaviour is expected of each."""
    made: Catalog
    if request.param == "sql":
        made = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=warehouse)
    else:
        uri = f"memory://{tmp_path.name}" if "memory" in request.param else str(tmp_path / "catalog")
        made = EndiveCatalog("test", uri=uri, warehouse=warehouse)
    yield made
    made.close()
