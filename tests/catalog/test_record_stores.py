"""A catalog whose creates are decided by a record store; storage properties that are misspelt."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg import EndiveCatalog

ROWS = pa.table({"id": [1, 2, 3]})


def opened(directory: Path, **properties: str) -> Any:
    impl = "endive.catalog.pyiceberg.EndiveCatalog"
    return load_catalog("lake", **{"py-catalog-impl": impl, "uri": str(directory / "lake"), **properties})


def records(directory: Path, name: str = "records") -> dict[str, str]:
    return {"endive.records": f"sqlite://{directory}/{name}.db"}


def test_a_catalog_commits_with_a_record_store(tmp_path: Path) -> None:
    for number in range(3):
        catalog = opened(tmp_path, **records(tmp_path))
        if number == 0:
            catalog.create_namespace("db")
            catalog.create_table("db.t", ROWS.schema)
        catalog.load_table("db.t").append(ROWS)
        catalog.close()

    catalog = opened(tmp_path, **records(tmp_path))
    assert catalog.load_table("db.t").scan().to_arrow().num_rows == 9
    assert catalog.kv.check() == []
    catalog.close()


def test_a_catalog_with_a_record_store_is_not_opened_without_it(tmp_path: Path) -> None:
    opened(tmp_path, **records(tmp_path)).close()

    with pytest.raises(ValueError, match=r"written with a record store; .* endive.records"):
        opened(tmp_path)
    with pytest.raises(ValueError, match="written with another record store"):
        opened(tmp_path, **records(tmp_path, "others"))


def test_a_catalog_without_a_record_store_is_not_opened_with_one(tmp_path: Path) -> None:
    opened(tmp_path).close()

    with pytest.raises(ValueError, match="written without a record store"):
        opened(tmp_path, **records(tmp_path))


def test_one_process_has_a_catalog_open_with_one_record_store(tmp_path: Path) -> None:
    catalog = opened(tmp_path, **records(tmp_path))

    with pytest.raises(ValueError, match="open with another value"):
        opened(tmp_path)
    catalog.close()


def test_a_catalog_in_memory_has_no_record_store(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs no record store"):
        EndiveCatalog("lake", uri="memory://", **records(tmp_path))


@pytest.mark.parametrize(
    ("given", "meant"),
    [("s3.endpont", "s3.endpoint"), ("s3.access_key_id", "s3.access-key-id"), ("gcs.projectid", "gcs.project-id")],
)
def test_a_misspelt_storage_property_is_refused(tmp_path: Path, given: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"{given}: no such property; did you mean '{meant}'"):
        opened(tmp_path, **{given: "x"})
    with pytest.raises(ValueError, match=meant):
        KVCatalog.create(str(tmp_path / "lake"), properties={given: "x"})
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize("name", ["s3.path-style-access", "s3.session-token-expires-at-ms", "adls.auth.shared-key"])
def test_storage_properties_of_other_engines_are_accepted(tmp_path: Path, name: str) -> None:
    opened(tmp_path, **{name: "x"}).close()


def test_a_url_that_names_no_object_store_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not the URL of an object store"):
        EndiveCatalog("lake", uri="http://somewhere")
