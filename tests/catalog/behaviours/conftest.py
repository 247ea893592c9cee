"""Every kind of catalog, for behaviours that all of them share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from endive.catalog.pyiceberg.catalog import EndiveCatalog


@pytest.fixture(params=["sql", "endive in memory", "endive in a directory", "endive in memory, exclusive"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path, warehouse: str) -> Iterator[Catalog]:
    """The same behaviour is expected of each."""
    made: Catalog
    if request.param == "sql":
        made = SqlCatalog("test", uri="sqlite:///:memory:", warehouse=warehouse)
    else:
        uri = f"memory://{tmp_path.name}" if "memory" in request.param else str(tmp_path / "catalog")
        writer = "exclusive" if "exclusive" in request.param else "shared"
        made = EndiveCatalog("test", uri=uri, warehouse=warehouse, **{"endive.writer": writer})
    yield made
    made.close()
