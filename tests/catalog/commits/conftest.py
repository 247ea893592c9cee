"""The catalog that others interrupt, and one of the others."""

import pytest
from pyiceberg.table import Table

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg import EndiveCatalog
from tests.catalog.commits.interrupted import NAME, Interrupted
from tests.catalog.tables import NUMBERS


@pytest.fixture
def store() -> Interrupted:
    return Interrupted()


@pytest.fixture
def catalog(kv: KVCatalog) -> EndiveCatalog:
    kv.create_namespace("db")
    return EndiveCatalog.on(kv)


@pytest.fixture
def rival(store: Interrupted, warehouse: str, catalog: EndiveCatalog) -> EndiveCatalog:
    """Another process, as far as the store can tell."""
    return EndiveCatalog.on(KVCatalog(store, warehouse))


@pytest.fixture
def table(catalog: EndiveCatalog) -> Table:
    return catalog.create_table(NAME, NUMBERS)
