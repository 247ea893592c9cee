"""An application on a new catalog."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from endive.catalog import KVCatalog
from endive.server.application import Application
from tests.server.calls import answer


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[KVCatalog]:
    with KVCatalog.create(str(tmp_path / "lake")) as created:
        yield created


@pytest.fixture
def application(catalog: KVCatalog) -> Application:
    """An application with the namespace `db`."""
    made = Application({"lake": catalog})
    assert answer(made, "POST", "namespaces", {"namespace": ["db"]})[0] == 200
    return made
