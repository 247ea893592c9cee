"""A pytest plug-in for PyIceberg's own test suite: its tests get Endive's catalog, and its files stay as they are.

    cd pyiceberg-0.12.0
    PYTHONPATH=…/tests/catalog/pyiceberg_suite python -P -m pytest -p plugged_in tests/catalog/test_catalog_behaviors.py

Three ways lead from the suite's tests to a catalog, and each is taken over where it begins:

* the fixtures `catalog` and `catalog_with_warehouse` of its conftest, for every catalog without a server;
* `InMemoryCatalog`, which many files make for themselves: a fresh catalog each time;
* `load_catalog` with `type=rest`, the server of its integration tests: one catalog for the whole run.

Tests that use none of them are left out, and those that also need a server of their own: Spark, Hive, REST's views.
Tests that cannot pass are in `differences.toml`, with the reason. They are run all the same, and one that passes fails
the run.
"""

import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyiceberg.catalog
import pyiceberg.catalog.memory
import pytest
from pyiceberg.catalog import Catalog, CatalogType, load_catalog
from pyiceberg.catalog.rest import RestCatalog

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.server import serve_in_background

MODES = {
    "directory": {"uri": "{place}/directory"},
    "memory": {"uri": "memory://"},
    "background": {"uri": "{place}/background", "endive.metadata-json": "background"},
}
REST = "rest"
"""PyIceberg's own client of a REST catalog, on a server of ours, instead of the plug-in."""
CHOSEN = [REST] if os.environ.get("ENDIVE_SUITE") == REST else list(MODES)

OURS = {"catalog", "catalog_with_warehouse", "memory_catalog", "session_catalog"}
SERVERS = {"spark", "hive_catalog", "rest_catalog", "rest_test_catalog", "session_catalog_hive"}
SERVERS |= {"sqlite_catalog_memory", "sqlite_catalog_file"}

SNAPSHOTS = "default.test_table_snapshot_operations"
"""The suite's server comes with tables; this one is easily made."""


class StandIn(EndiveCatalog):
    """What the suite makes instead of PyIceberg's `InMemoryCatalog`: each is a new one, with a place for its tables."""

    def __init__(self, name: str, warehouse: str | None = None, **properties: str) -> None:
        self._warehouse_location = warehouse or tempfile.mkdtemp()
        super().__init__(name, **{"uri": "memory://", "warehouse": self._warehouse_location, **properties})


def _rest(name: str, properties: Any) -> Catalog:
    catalog = EndiveCatalog(name, uri="memory://rest", warehouse=_rest_warehouse)
    catalog.create_namespace_if_not_exists("default")
    if not catalog.table_exists(SNAPSHOTS):
        table = catalog.create_table(SNAPSHOTS, pa.schema({"number": pa.int32()}))
        for number in range(4):
            table.append(pa.table({"number": pa.array([number], pa.int32())}))
    return catalog


_rest_warehouse = tempfile.mkdtemp()
pyiceberg.catalog.memory.InMemoryCatalog = StandIn  # type: ignore[misc, assignment]
pyiceberg.catalog.AVAILABLE_CATALOGS[CatalogType.REST] = _rest
pyiceberg.catalog.AVAILABLE_CATALOGS[CatalogType.SQL] = lambda name, properties: StandIn(name, properties["warehouse"])


def _served(place: Path) -> Iterator[Catalog]:
    with KVCatalog.create(f"{place}/{REST}", f"file://{place}") as kv, serve_in_background(kv) as server:
        yield RestCatalog("test_catalog", **server.client_properties)


def _made(mode: str, place: Path) -> Iterator[Catalog]:
    if mode == REST:
        yield from _served(place)
        return
    properties = {key: value.format(place=place) for key, value in MODES[mode].items()}
    plug_in = {"py-catalog-impl": "endive.catalog.pyiceberg.EndiveCatalog", "warehouse": f"file://{place}"}
    catalog = load_catalog("test_catalog", **plug_in, **properties)
    yield catalog
    catalog.close()


@pytest.fixture(params=CHOSEN)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    yield from _made(request.param, tmp_path)


@pytest.fixture(params=CHOSEN)
def catalog_with_warehouse(request: pytest.FixtureRequest, warehouse: Path) -> Iterator[Catalog]:
    yield from _made(request.param, warehouse)


def pytest_configure(config: pytest.Config) -> None:
    """Put our fixtures into the suite's conftest before they are looked for, and its `tests` before ours."""
    for plugin in config.pluginmanager.get_plugins():
        if hasattr(plugin, "_CATALOG_FACTORIES"):
            plugin.catalog, plugin.catalog_with_warehouse = catalog, catalog_with_warehouse
    theirs = ModuleType("tests")
    theirs.__path__ = [str(config.rootpath / "tests")]
    sys.modules["tests"] = theirs


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not reach a catalog of ours, and mark what cannot pass."""
    chosen = [item for item in items if _names(item) & OURS and not _names(item) & SERVERS]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
    file = "differences_rest.toml" if CHOSEN == [REST] else "differences.toml"
    for difference in tomllib.loads(Path(__file__).with_name(file).read_text())["difference"]:
        for pattern in difference["tests"]:
            _mark(items, re.compile(pattern), difference["reason"])


def _mark(items: list[pytest.Item], pattern: re.Pattern[str], reason: str) -> None:
    marked = [item for item in items if pattern.fullmatch(item.nodeid)]
    for item in marked:
        item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    path = pattern.pattern.partition("::")[0].replace("\\", "")
    if not marked and any(item.nodeid.startswith(path) for item in items):
        raise pytest.UsageError(f"differences.toml: no test is called {pattern.pattern}")


def _names(item: pytest.Item) -> set[str]:
    """Return the fixtures that a test uses, those that its parameters name included."""
    parameters = getattr(item, "callspec", None)
    named = {getattr(value, "name", "") for value in parameters.params.values()} if parameters else set()
    return set(getattr(item, "fixturenames", ())) | named
