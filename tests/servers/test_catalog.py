"""The plug-in on an S3 server: tables and catalog in one bucket, and nothing else running."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

from endive.catalog.pyiceberg.catalog import EndiveCatalog
from tests.catalog.tables import NUMBERS, numbers

_numbers = count()
pytestmark = pytest.mark.slow


@pytest.fixture
def properties(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    # PyArrow's SDK would send bodies in chunks with a checksum behind, which SeaweedFS stores as they come.
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    return {
        "py-catalog-impl": "endive.catalog.pyiceberg.EndiveCatalog",
        "uri": f"s3://bucket/lake/{next(_numbers)}",
        "s3.endpoint": s3_endpoint,
        "s3.region": "us-east-1",
        "s3.anonymous": "true",  # the server knows no keys, and takes PyArrow's signed chunks for those of a stranger
    }


def test_tables_on_s3(properties: dict[str, str]) -> None:
    catalog = load_catalog("lake", **properties)
    assert isinstance(catalog, EndiveCatalog)
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", NUMBERS)

    def append(writer: int) -> None:
        catalog.load_table("db.t").append(numbers(writer))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(4)))
    table.refresh().delete("n = 2")
    catalog.close()

    again = EndiveCatalog("again", **properties)
    loaded = again.load_table("db.t")
    assert loaded.location().startswith(properties["uri"])
    assert sorted(loaded.scan().to_arrow()["n"].to_pylist()) == [0, 1, 3]
    static = StaticTable.from_metadata(loaded.metadata_location, properties)
    assert static.scan().to_arrow().sort_by("n") == pa.table({"n": pa.array([0, 1, 3], pa.int64())})
    assert again.kv.check() == []
    assert again.kv.remove_orphan_files("db.t", 2**62, dry_run=True) == []
    again.kv.expire_snapshots("db.t", 2**62)
    again.purge_table("db.t")
    assert again.list_tables("db") == []
    again.close()


def test_credentials_of_the_properties_are_used(properties: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)

    keys = {"s3.access-key-id": "any", "s3.secret-access-key": "any"}
    catalog = EndiveCatalog("lake", **properties, **keys)
    catalog.create_namespace("db")
    assert catalog.list_namespaces() == [("db",)]
    catalog.close()
