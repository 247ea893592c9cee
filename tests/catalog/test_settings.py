"""Properties under `endive.`: each is known and possible, or refused where it is given."""

import ast
import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import CreateTableTransaction

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.catalog.settings import BY_NAME, SETTINGS, errors_in
from endive.errors import CatalogNotFoundError, ConfigurationError
from tests.catalog.tables import NAME, NUMBERS

SOURCES = Path(__file__).resolve().parent.parent.parent / "endive"
PLUG_IN = "endive.catalog.pyiceberg.EndiveCatalog"

WRONG_IN_A_CATALOG = {
    "endive.creat": ("false", "endive.creat: no such property; did you mean 'endive.create'?"),
    "endive.create": ("perhaps", "endive.create: 'perhaps' is neither 'true' nor 'false'"),
    "endive.writer": ("both", "endive.writer: 'both' is neither 'shared' nor 'exclusive'"),
    "endive.metadata_json": ("background", "no such property; did you mean 'endive.metadata-json'?"),
    "endive.quux": (
        "1",
        "no such property; known here: endive.create, endive.writer, endive.records, endive.metadata-json",
    ),
    "endive.commit.attempts": ("5", "this property is a table's, not given when a catalog is opened"),
}
WRONG_IN_A_TABLE = {
    "endive.commit.attempts": ("-5", "endive.commit.attempts: '-5' is not a whole number from 1 on"),
    "endive.commit.attempt": ("5", "no such property; did you mean 'endive.commit.attempts'?"),
    "endive.metadata-json": ("backgroun", "'backgroun' is neither 'before-acknowledgement' nor 'background'"),
    "endive.create": ("false", "this property is given when a catalog is opened, not a table's"),
    "endive.creat": ("false", "did you mean 'endive.create'? But that is given when a catalog is opened"),
    "endive.commit-id": ("batch 7", "this property is of a snapshot's summary, not a table's"),
}


def values_of(wrong: dict[str, tuple[str, str]]) -> dict[str, str]:
    return {key: value for key, (value, _) in wrong.items()}


def assert_all_are_reported(text: str, wrong: dict[str, tuple[str, str]]) -> None:
    assert f"{len(wrong)} errors" in text
    assert [message for _, message in wrong.values() if message not in text] == []


def test_a_catalog_is_not_opened_with_properties_that_do_not_exist_or_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="errors") as caught:
        load_catalog("x", **{"py-catalog-impl": PLUG_IN, "uri": str(tmp_path), **values_of(WRONG_IN_A_CATALOG)})
    assert_all_are_reported(str(caught.value), WRONG_IN_A_CATALOG)

    with pytest.raises(ConfigurationError, match="errors") as raised:
        KVCatalog.create(str(tmp_path), properties=values_of(WRONG_IN_A_CATALOG))
    assert_all_are_reported(str(raised.value), WRONG_IN_A_CATALOG)
    with pytest.raises(CatalogNotFoundError):  # nothing was made
        KVCatalog.open(str(tmp_path))


def test_a_table_does_not_get_properties_that_do_not_exist_or_cannot_be(kv: KVCatalog) -> None:
    kv.create_namespace("db")
    with pytest.raises(ConfigurationError, match="errors") as caught:
        kv.create_table(NAME, NUMBERS, properties={"owner": "ana", **values_of(WRONG_IN_A_TABLE)})
    assert_all_are_reported(str(caught.value), WRONG_IN_A_TABLE)
    assert not kv.table_exists(NAME)

    kv.create_table(NAME, NUMBERS)
    with pytest.raises(ConfigurationError, match="errors") as caught:
        kv.update_properties(NAME, values_of(WRONG_IN_A_TABLE))
    assert_all_are_reported(str(caught.value), WRONG_IN_A_TABLE)
    assert kv.load_table(NAME).metadata.properties == {}


def test_the_plug_in_refuses_them_too(kv: KVCatalog) -> None:
    catalog = EndiveCatalog.on(kv)
    catalog.create_namespace("db")
    for make in (catalog.create_table, catalog.create_table_transaction):
        with pytest.raises(ValueError, match="errors"):
            make(NAME, NUMBERS, properties=values_of(WRONG_IN_A_TABLE))

    table = catalog.create_table(NAME, NUMBERS)
    with pytest.raises(ValueError, match=r"did you mean 'endive\.commit\.attempts'"), table.transaction() as change:
        change.set_properties({"endive.comit.attempts": "5"})
    staged = catalog.create_table_transaction("db.staged", pa.schema([pa.field("n", pa.int64())]))
    assert isinstance(staged, CreateTableTransaction)
    staged.set_properties({"endive.commit.attempts": "none"})
    with pytest.raises(ValueError, match="'none' is not a whole number"):
        staged.commit_transaction()
    assert not catalog.table_exists("db.staged")


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "many", "", "٣"])  # the last: a digit, but not one of ours
def test_a_number_of_attempts_is_a_number(value: str) -> None:
    assert errors_in({"endive.commit.attempts": value}, "table")


def test_valid_properties_give_no_errors() -> None:
    catalog = {"endive.create": "False", "endive.writer": "exclusive", "endive.metadata-json": "background"}
    assert errors_in(catalog | {"s3.endpoint": "x", "warehouse": "y"}, "catalog") == []
    assert errors_in({"endive.commit.attempts": "1", "owner": "ana"}, "table") == []


def test_every_property_in_the_code_is_in_the_table() -> None:
    found = set()
    for path in [*(SOURCES / "catalog").rglob("*.py"), *(SOURCES / "spark" / "source").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and re.fullmatch(r"endive\.(?!catalog(?:\.|$))[a-z.-]+", value):
                found.add(value)

    assert "endive.commit.attempts" in found
    assert found <= BY_NAME.keys()
    assert all(setting.meaning and setting.takes for setting in SETTINGS)
