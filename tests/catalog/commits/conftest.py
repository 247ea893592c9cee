"""The catalog that others interrupt, and one of the others."""

import pytest

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from tests.catalog.commits.interrupted import Interrupted


@pytest.fixture
def store() -> Interrupted:
    return Interrupted()


@pytest.fixture
def rival(store: Interrupted, warehouse: str, catalog: EndiveCatalog) -> EndiveCatalog:
    """Another process, as far as the store can tell."""
    return EndiveCatalog.on(KVCatalog(store, warehouse))
