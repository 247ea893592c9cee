"""Catalogs to test: the plug-in on real stores, the bare catalog on one in fifty lines, PyIceberg's SQL catalog."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME, NUMBERS


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


@pytest.fixture
def catalog(kv: KVCatalog) -> EndiveCatalog:
    """The plug-in on the bare catalog, with a namespace."""
    kv.create_namespace("db")
    return EndiveCatalog.on(kv)


@pytest.fixture
def table(catalog: EndiveCatalog) -> Table:
    """A table of numbers, without any."""
    return catalog.create_table(NAME, NUMBERS)
