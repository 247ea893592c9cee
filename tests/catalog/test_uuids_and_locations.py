"""A table's uuid belongs to one table for ever, and its files never go into the catalog's own folder."""

from pathlib import Path
from uuid import RFC_4122, UUID

import pytest
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.update import AssertCreate, AssignUUIDUpdate, SetLocationUpdate, SetPropertiesUpdate

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import AlreadyInCatalogError, CommitConflictError, ConfigurationError
from endive.kv import Store
from endive.objects import MemoryStore
from tests.catalog.commits.interrupted import rows_of
from tests.catalog.tables import NAME, NUMBERS, numbers

MODES = ("before-acknowledgement", "background")


@pytest.mark.parametrize("mode", MODES)
def test_the_uuid_of_a_table_cannot_be_changed(catalog: EndiveCatalog, mode: str) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": mode})
    table.append(numbers(1))

    with pytest.raises(CommitConflictError, match="cannot be changed"):
        catalog.kv.commit(NAME, (), (AssignUUIDUpdate(uuid=UUID(int=7)),))

    catalog.kv.commit(
        NAME, (), (AssignUUIDUpdate(uuid=table.metadata.table_uuid), SetPropertiesUpdate(updates={"a": "1"}))
    )
    assert rows_of(table) == [1]
    assert len(table.metadata.snapshots) == 1
    assert catalog.kv.check() == []


def test_a_table_cannot_be_created_with_the_uuid_of_another(catalog: EndiveCatalog, table: Table) -> None:
    table.append(numbers(1))
    twin = catalog.create_table_transaction("db.twin", NUMBERS)
    updates = tuple(
        AssignUUIDUpdate(uuid=table.metadata.table_uuid) if isinstance(one, AssignUUIDUpdate) else one
        for one in twin._updates
    )

    with pytest.raises(AlreadyInCatalogError, match="with the same uuid"):
        catalog.kv.commit("db.twin", (AssertCreate(),), updates)

    assert not catalog.table_exists("db.twin")
    assert rows_of(table) == [1]


def test_a_table_that_was_replaced_by_another_of_its_name_does_not_exist_for_its_writers(
    catalog: EndiveCatalog, table: Table
) -> None:
    late = catalog.load_table(NAME)
    catalog.drop_table(NAME)
    catalog.create_table(NAME, NUMBERS)

    for use in (late.refresh, lambda: late.append(numbers(1))):
        with pytest.raises(NoSuchTableError, match="another table has this name now"):
            use()
    assert rows_of(catalog.load_table(NAME)) == []


@pytest.mark.parametrize("location", ["{}/_endive/t", "{}/_endive", "{}/t/../../other"])
def test_a_location_in_the_folder_of_the_catalog_or_outside_its_own_is_refused(
    catalog: EndiveCatalog, table: Table, tmp_path: Path, location: str
) -> None:
    place = location.format(tmp_path.as_uri())

    with pytest.raises(ConfigurationError, match=place):
        catalog.kv.create_table("db.other", NUMBERS, place)
    with pytest.raises(ValueError, match=place):
        catalog.create_table_transaction("db.other", NUMBERS, place)
    with pytest.raises(ConfigurationError, match=place):
        catalog.kv.commit(NAME, (), (SetLocationUpdate(location=place),))
    assert catalog.list_tables("db") == [NAME]


def test_uuids_of_tables_are_random_ones_of_rfc_4122(catalog: EndiveCatalog) -> None:
    staged = catalog.create_table_transaction("db.staged", NUMBERS).table_metadata.table_uuid
    found = [catalog.create_table(f"db.t{number}", NUMBERS).metadata.table_uuid for number in range(5)]

    assert {(uuid.version, uuid.variant) for uuid in [staged, *found]} == {(4, RFC_4122)}


def test_a_commit_is_on_the_newest_state_of_a_table_that_was_registered_again_meanwhile(warehouse: str) -> None:
    """The versions of such a table begin again: the version alone does not tell two states apart."""
    objects = MemoryStore()
    with (
        Store(objects, "shared") as here,
        Store(objects, "shared") as there,
        KVCatalog(here, warehouse, create=True) as kv,
        KVCatalog(there, warehouse, create=True) as elsewhere,
    ):
        kv.create_namespace("db")
        catalog = EndiveCatalog.on(kv)
        table = catalog.create_table(NAME, NUMBERS)
        assert elsewhere.load_table(NAME).version == 0
        table.append(numbers(1))
        kv.register_table(NAME, kv.unregister_table(NAME).metadata_location)
        assert kv.load_table(NAME).version == 0

        elsewhere.commit(NAME, (), (SetPropertiesUpdate(updates={"a": "1"}),))

        table = catalog.load_table(NAME)
        assert rows_of(table) == [1]
        assert table.properties["a"] == "1"
