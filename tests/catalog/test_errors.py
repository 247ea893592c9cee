"""What is wrong is said clearly, by an error of its own, and nothing is changed."""

import pickle
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    ValidationError,
)
from pyiceberg.types import IntegerType

from endive import errors
from endive.catalog import KVCatalog
from endive.catalog.model.names import table_of
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import (
    CatalogNotFoundError,
    CommitRetriesExhaustedError,
    ConfigurationError,
    NamespaceNotEmptyError,
    NotInCatalogError,
)
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NUMBERS, SIMPLE, simple_row

PLUG_IN = "endive.catalog.pyiceberg.EndiveCatalog"


def test_a_url_without_a_catalog(tmp_path: Path) -> None:
    with pytest.raises(CatalogNotFoundError, match=r"no catalog here.*endive catalog init.*endive\.create"):
        KVCatalog.open(str(tmp_path / "nothing"))
    with pytest.raises(CatalogNotFoundError):
        load_catalog("x", **{"py-catalog-impl": PLUG_IN, "uri": str(tmp_path), "endive.create": "false"})
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_no_catalog() -> None:
    store = DictStore()
    store.rows[b"somebody"] = b"else's"

    with pytest.raises(CatalogNotFoundError):
        KVCatalog(store)


def test_a_catalog_of_a_newer_format() -> None:
    store = DictStore()
    store.rows[b"__catalog"] = b'{"format_version": 99, "created_unix_ms": 0}'

    with pytest.raises(ConfigurationError, match="format 99"):
        KVCatalog(store)


def test_a_catalog_is_created_once_and_opened_again(tmp_path: Path) -> None:
    with KVCatalog.create(str(tmp_path / "lake")) as first:
        first.create_namespace("db")
    with KVCatalog.open(str(tmp_path / "lake")) as second:
        assert second.list_namespaces() == [("db",)]


def test_catalogs_of_one_process_share_a_store(tmp_path: Path) -> None:
    first = EndiveCatalog("a", uri=str(tmp_path))
    second = EndiveCatalog("b", uri=f"file://{tmp_path}/")
    first.create_namespace("db")

    assert first.kv.store is second.kv.store
    assert second.namespace_exists("db")
    first.close()
    first.close()
    assert second.list_namespaces() == [("db",)]
    second.close()


def test_the_plug_in_can_be_pickled(tmp_path: Path) -> None:
    catalog = EndiveCatalog("a", uri=str(tmp_path))
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", NUMBERS)

    copy = pickle.loads(pickle.dumps(catalog))  # noqa: S301 - our own
    assert copy.load_table("db.t") == table
    copy.close()
    catalog.close()


def test_a_catalog_in_memory_is_a_new_one_unless_it_has_a_name() -> None:
    first, second = EndiveCatalog("a", uri="memory://"), EndiveCatalog("a", uri="memory://")
    first.create_namespace("db")
    copy = pickle.loads(pickle.dumps(first))  # noqa: S301 - our own

    assert second.list_namespaces() == []
    assert copy.list_namespaces() == [("db",)]
    for one in (first, copy, second):
        one.close()
    with KVCatalog.create(first.properties["uri"]) as later:  # what it held went with those who used it
        assert later.list_namespaces() == []


def test_a_catalog_in_memory_with_a_name_is_one_for_the_process(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}"
    with KVCatalog.create(url) as first:
        first.create_namespace("db")
    with KVCatalog.open(url) as second:
        assert second.list_namespaces() == [("db",)]


def test_tables_of_a_catalog_in_memory_need_a_place(tmp_path: Path) -> None:
    catalog = EndiveCatalog("a", uri="memory://")
    catalog.create_namespace("db")

    with pytest.raises(ValueError, match=r"no location.*warehouse"):
        catalog.create_table("db.t", SIMPLE)
    assert catalog.create_table("db.t", SIMPLE, str(tmp_path / "t")).scan().to_arrow().num_rows == 0
    catalog.close()


def test_the_plug_in_refuses_a_missing_uri_and_invalid_values(tmp_path: Path) -> None:
    with pytest.raises(NoSuchPropertyException, match="uri"):
        load_catalog("x", **{"py-catalog-impl": PLUG_IN})
    with pytest.raises(ValueError, match="neither 'true' nor 'false'"):
        EndiveCatalog("x", uri=str(tmp_path), **{"endive.create": "perhaps"})


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("t", "needs a namespace"),
        ("", "a level is empty"),
        (("db", " "), "a level is empty"),
        (("db", "x" * 2000), "more than 1024 bytes"),
        (("db",) * 40, "40 levels"),
        (("db", "\ud800"), "UTF-8"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_names_that_cannot_be(kv: KVCatalog, name: str | tuple[str, ...], fault: str) -> None:
    with pytest.raises(ConfigurationError, match=fault):
        kv.load_table(name)


@pytest.mark.parametrize("level", ["a.b", "a/b", "%2E", "ä ö", "..", "\x00", "💧"])
def test_names_of_any_character(kv: KVCatalog, level: str) -> None:
    kv.create_namespace((level,))
    kv.create_table((level, level), NUMBERS)

    assert kv.list_namespaces() == [(level,)]
    assert kv.list_tables((level,)) == [(level, level)]
    assert kv.check() == []
    assert table_of((level, level)) == (level, level)


def test_missing_things(endive: EndiveCatalog) -> None:
    with pytest.raises(NoSuchNamespaceError, match="Namespace does not exist: db"):
        endive.create_table("db.t", SIMPLE)
    endive.create_namespace("db")
    with pytest.raises(NoSuchTableError, match=r"Table does not exist: db\.t"):
        endive.load_table("db.t")
    with pytest.raises(NoSuchTableError, match=r"name has a namespace, as in `namespace\.t`"):
        endive.load_table("t")
    with pytest.raises(NoSuchTableError, match="no empty level"):
        endive.load_table("db.")
    with pytest.raises(NotInCatalogError):
        endive.kv.plan_files("db.t")
    endive.create_table("db.t", SIMPLE)
    with pytest.raises(NotInCatalogError, match="Snapshot does not exist: 7"):
        endive.kv.plan_files("db.t", snapshot_id=7)


def test_type_changes_that_iceberg_forbids(endive: EndiveCatalog) -> None:
    endive.create_namespace("db")
    table = endive.create_table("db.t", NUMBERS)

    with pytest.raises(ValidationError, match="Cannot change column type"), table.update_schema() as update:
        update.update_column("n", IntegerType())
    assert endive.load_table("db.t").metadata == table.metadata


def test_rows_that_do_not_fit(endive: EndiveCatalog) -> None:
    endive.create_namespace("db")
    table = endive.create_table("db.t", NUMBERS)

    with pytest.raises(ValueError, match="PyArrow table contains more columns"):
        table.append(simple_row())
    with pytest.raises(ValueError, match="Mismatch in fields"):
        table.append(pa.table({"n": ["text"]}))
    assert endive.load_table("db.t").metadata.snapshots == []


def test_no_place_for_a_table(store: DictStore) -> None:
    kv = KVCatalog(store, create=True)
    kv.create_namespace("db")

    with pytest.raises(ConfigurationError, match="no location"):
        kv.create_table("db.t", NUMBERS)


def test_a_uuid_is_in_a_catalog_once(endive: EndiveCatalog) -> None:
    endive.create_namespace("db")
    table = endive.create_table("db.t", NUMBERS)

    with pytest.raises(errors.AlreadyInCatalogError, match="the same uuid"):
        endive.kv.register_table("db.u", table.metadata_location)


def test_several_tables_each_once(kv: KVCatalog) -> None:
    with pytest.raises(ConfigurationError, match="at least one table"):
        kv.commit_many([])


@pytest.mark.parametrize(
    "error",
    [
        CatalogNotFoundError("url"),
        NotInCatalogError("Table", "t", "hint"),
        errors.AlreadyInCatalogError("Table", "t"),
        NamespaceNotEmptyError("db", 1, 2),
        errors.CommitConflictError("t", "problem"),
        CommitRetriesExhaustedError("t", "problem", 3, "option"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_travel(error: errors.EndiveError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own

    assert (type(copy), str(copy), copy.args) == (type(error), str(error), error.args)


def test_an_unknown_mode_is_refused_at_creation_and_can_be_removed(kv: KVCatalog) -> None:
    kv.create_namespace("db")
    with pytest.raises(ConfigurationError, match="'backgroun' is neither"):
        kv.create_table("db.t", NUMBERS, properties={"endive.metadata-json": "backgroun"})
    assert not kv.table_exists("db.t")

    kv.create_table("db.t", NUMBERS)
    with pytest.raises(ConfigurationError, match="'backgroun' is neither"):
        kv.update_properties("db.t", {"endive.metadata-json": "backgroun"})
    registered = kv.create_table("db.u", NUMBERS, properties={"endive.metadata-json": "background"})
    spoilt = registered.metadata.model_copy(
        update={"table_uuid": UUID(int=7), "properties": {"endive.metadata-json": "backgroun"}}
    )
    place = f"{registered.metadata.location}/spoilt.metadata.json"
    kv.files.write(spoilt, place)
    kv.register_table("db.spoilt", place)
    kv.update_properties("db.spoilt", removals=["endive.metadata-json"])
    assert kv.load_table("db.spoilt").metadata.properties == {}
