"""Tables: what PyIceberg's catalogs do, done by the plug-in as by its SQL catalog."""

import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic_core import ValidationError
from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    NoSuchViewError,
    TableAlreadyExistsError,
    ValidationException,
    ViewAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.update import AddSchemaUpdate, SetCurrentSchemaUpdate
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField
from pyiceberg.view.metadata import SQLViewRepresentation, ViewVersion

from tests.catalog.tables import NUMBERS, SIMPLE, numbers, simple_row

NAME = ("db", "ns", "table")
OTHER = ("other", "another")


@pytest.fixture(autouse=True)
def _namespaces(catalog: Catalog) -> None:
    catalog.create_namespace(NAME[:-1])
    catalog.create_namespace(OTHER[:-1])


def file_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


# Create.


def test_a_created_table_is_loaded_as_it_was_made(catalog: Catalog) -> None:
    made = catalog.create_table(NAME, SIMPLE)
    loaded = catalog.load_table(NAME)

    assert made == loaded
    assert loaded.name() == NAME
    assert catalog.load_table(loaded.name()) == loaded
    assert file_of(loaded.metadata_location).exists()
    assert MetastoreCatalog._parse_metadata_version(loaded.metadata_location) == 0


def test_a_name_is_taken_once(catalog: Catalog) -> None:
    made = catalog.create_table(NAME, SIMPLE)

    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(NAME, SIMPLE)
    assert catalog.create_table_if_not_exists(NAME, SIMPLE) == made


def test_a_table_needs_a_namespace_that_exists(catalog: Catalog) -> None:
    with pytest.raises(NoSuchNamespaceError, match=r"Namespace does not exist: .*nowhere"):
        catalog.create_table("nowhere.t", SIMPLE)
    with pytest.raises(NoSuchNamespaceError):
        catalog.create_table("t", SIMPLE)
    with pytest.raises((NoSuchTableError, ValueError), match="Empty namespace identifier"):
        catalog.load_table("t")


def test_tables_exist_or_not(catalog: Catalog) -> None:
    catalog.create_table(NAME, SIMPLE)

    assert catalog.table_exists(NAME)
    assert not catalog.table_exists(OTHER)
    assert not catalog.table_exists(("nowhere", "t"))
    with pytest.raises(NoSuchTableError, match=r"Table does not exist: other\.another"):
        catalog.load_table(OTHER)


def test_sort_orders(catalog: Catalog) -> None:
    order = SortOrder(SortField(source_id=2, transform=IdentityTransform(), null_order=NullOrder.NULLS_FIRST))
    plain = catalog.create_table(NAME, SIMPLE).sort_order()
    sorted_by_bar = catalog.create_table(OTHER, SIMPLE, sort_order=order).sort_order()

    assert (plain.order_id, plain.is_unsorted) == (0, True)
    assert sorted_by_bar.order_id == 1
    assert [(one.direction, one.null_order) for one in sorted_by_bar.fields] == [
        (SortDirection.ASC, NullOrder.NULLS_FIRST)
    ]


def test_format_version_1(catalog: Catalog) -> None:
    table = catalog.create_table(NAME, SIMPLE, properties={"format-version": "1"})

    assert table.format_version == 1
    assert table.spec() == UNPARTITIONED_PARTITION_SPEC
    table.append(simple_row())
    assert catalog.load_table(NAME).metadata == table.metadata


def test_a_location_can_be_given(catalog: Catalog, tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(name="x", transform=IdentityTransform(), source_id=1, field_id=1000))

    table = catalog.create_table(NAME, SIMPLE, f"file://{tmp_path}/place/", spec, properties={"key": "value"})

    assert table.location() == f"file://{tmp_path}/place"
    assert catalog.load_table(NAME) == table


def test_the_default_location_is_in_the_warehouse(catalog: Catalog, warehouse: str) -> None:
    assert catalog.create_table(NAME, SIMPLE).location().startswith(f"{warehouse}/db")


def test_a_namespace_can_say_where_its_tables_are(catalog: Catalog, tmp_path: Path) -> None:
    catalog.create_namespace("placed", {"location": f"file://{tmp_path}/placed/"})

    assert catalog.create_table("placed.t", SIMPLE).location().startswith(f"file://{tmp_path}/placed/t")


def test_arrow_schemas(catalog: Catalog) -> None:
    rows = simple_row()
    table = catalog.create_table(NAME, rows.schema)
    table.append(rows)

    assert catalog.load_table(NAME).scan().to_arrow() == rows


def test_property_values_become_text_and_must_be_there(catalog: Catalog) -> None:
    assert catalog.create_table(NAME, SIMPLE, properties={"number": 42}).properties["number"] == "42"
    with pytest.raises(ValidationError, match="None type is not a supported value in properties: missing"):
        catalog.create_table(OTHER, SIMPLE, properties={"missing": None})


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_table_can_be_created_with_its_first_rows(catalog: Catalog, version: str) -> None:
    with catalog.create_table_transaction(
        OTHER, pa.schema([pa.field("n", pa.int64())]), properties={"format-version": version}
    ) as transaction:
        transaction.append(numbers(1, 2))
        with transaction.update_schema() as update:
            update.add_column("m", LongType())
        transaction.append(pa.table({"n": pa.array([3]), "m": pa.array([4])}))

    table = catalog.load_table(OTHER)
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [1, 2, 3]
    assert table.format_version == int(version)


def test_two_that_create_the_same_table_do_not_both_succeed(catalog: Catalog) -> None:
    first = catalog.create_table_transaction(OTHER, NUMBERS)
    second = catalog.create_table_transaction(OTHER, NUMBERS)
    first.commit_transaction()

    with pytest.raises(CommitFailedException):
        second.commit_transaction()


# Register, rename, drop, list.


def test_register(catalog: Catalog) -> None:
    original = catalog.create_table(NAME, NUMBERS)
    original.append(numbers(1, 2))
    catalog.drop_table(NAME)

    registered = catalog.register_table(OTHER, original.metadata_location)

    assert registered.metadata == original.metadata
    assert registered.metadata_location == original.metadata_location
    assert registered.scan().to_arrow() == numbers(1, 2)
    with pytest.raises(TableAlreadyExistsError):
        catalog.register_table(OTHER, original.metadata_location)
    with pytest.raises(NoSuchNamespaceError):
        catalog.register_table(("nowhere", "t"), original.metadata_location)


def test_rename(catalog: Catalog) -> None:
    table = catalog.create_table(NAME, SIMPLE)

    renamed = catalog.rename_table(table.name(), OTHER)

    assert (renamed.name(), renamed.metadata_location) == (OTHER, table.metadata_location)
    assert catalog.load_table(OTHER) == renamed
    with pytest.raises(NoSuchTableError):
        catalog.load_table(NAME)
    catalog.create_table(NAME, SIMPLE)  # the name is free


def test_renames_that_are_refused(catalog: Catalog) -> None:
    catalog.create_table(NAME, SIMPLE)
    with pytest.raises(NoSuchTableError, match=r"Table does not exist: another$"):
        catalog.rename_table(OTHER, ("db", "ns", "new"))
    with pytest.raises(NoSuchNamespaceError, match=r"Namespace does not exist: no\.where"):
        catalog.rename_table(NAME, ("no", "where", "t"))
    catalog.create_table(OTHER, SIMPLE)
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table(NAME, OTHER)
    assert catalog.table_exists(NAME)


def test_drop(catalog: Catalog) -> None:
    table = catalog.create_table(NAME, SIMPLE)
    catalog.drop_table(table.name())

    assert not catalog.table_exists(NAME)
    assert file_of(table.metadata_location).exists()
    with pytest.raises(NoSuchTableError):
        catalog.drop_table(NAME)


def test_purge_deletes_the_files(catalog: Catalog) -> None:
    table = catalog.create_table(NAME, NUMBERS)
    table.append(numbers(1))
    table.overwrite(numbers(2))

    catalog.purge_table(NAME)

    with pytest.raises(NoSuchTableError, match=r"Table does not exist: db\.ns\.table"):
        catalog.load_table(NAME)
    assert [path for path in file_of(table.location()).rglob("*") if path.is_file()] == []


def test_tables_are_listed_by_namespace(catalog: Catalog) -> None:
    catalog.create_table(NAME, SIMPLE)
    catalog.create_table(OTHER, SIMPLE)
    catalog.create_namespace(("db", "ns", "inner"))
    catalog.create_table(("db", "ns", "inner", "t"), SIMPLE)

    assert catalog.list_tables(NAME[:-1]) == [NAME]
    assert catalog.list_tables("other") == [OTHER]
    catalog.create_namespace("empty")
    assert catalog.list_tables("empty") == []


# Commits.


def test_a_schema_change_is_a_commit_with_a_metadata_file(catalog: Catalog) -> None:
    table = catalog.create_table(NAME, SIMPLE)
    before, location = table.metadata, table.metadata_location

    with table.update_schema() as update:
        update.add_column("b", IntegerType())

    assert MetastoreCatalog._parse_metadata_version(table.metadata_location) == 1
    assert table.metadata.current_schema_id == 1
    assert len(table.metadata.schemas) == 2
    assert table.schema().find_field("b").field_type == IntegerType()
    assert table.metadata.last_updated_ms > before.last_updated_ms
    assert [(one.metadata_file, one.timestamp_ms) for one in table.metadata.metadata_log] == [
        (location, before.last_updated_ms)
    ]
    assert catalog.load_table(NAME).metadata == table.metadata


def test_updates_can_be_committed_by_hand(catalog: Catalog) -> None:
    table = catalog.create_table(NAME, NUMBERS)
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "m", LongType()), schema_id=1)

    response = catalog.commit_table(table, (), (AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=-1)))

    assert response.metadata.table_uuid == table.metadata.table_uuid
    assert response.metadata.schemas[1] == schema
    assert response.metadata.current_schema_id == 1


def test_of_two_schema_changes_the_second_fails(catalog: Catalog) -> None:
    first, second = catalog.create_table(NAME, SIMPLE), catalog.load_table(NAME)
    with first.update_schema() as update:
        update.add_column("b", IntegerType())

    with (
        pytest.raises(CommitFailedException, match="current schema id has changed: expected 0, found 1"),
        second.update_schema() as update,
    ):
        update.add_column("c", IntegerType())


def test_of_two_spec_changes_the_second_fails(catalog: Catalog) -> None:
    first, second = catalog.create_table(NAME, SIMPLE), catalog.load_table(NAME)
    change = second.update_spec()
    change.add_field("foo", BucketTransform(4), "shard")
    with first.update_spec() as update:
        update.add_field("bar", BucketTransform(8), "bars")

    with pytest.raises(CommitFailedException, match="Requirement failed"):
        change.commit()
    assert [field.name for field in catalog.load_table(NAME).spec().fields] == ["bars"]


def test_metadata_files_are_deleted_after_a_commit_if_wanted(catalog: Catalog) -> None:
    table = catalog.create_table(NAME, SIMPLE)
    first = table.metadata_location
    for number in range(4):
        with table.update_schema() as update:
            update.add_column(f"c{number}", IntegerType())
    assert len(table.metadata.metadata_log) == 4
    assert file_of(first).exists()

    wanted = {
        TableProperties.METADATA_PREVIOUS_VERSIONS_MAX: "2",
        TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    }
    with table.transaction() as transaction:
        transaction.set_properties(wanted)
    older, newer = table.metadata.metadata_log
    with table.transaction() as transaction:
        transaction.set_properties({"another": "commit"})

    assert len(table.metadata.metadata_log) == 2
    assert not file_of(first).exists()
    assert not file_of(older.metadata_file).exists()
    assert file_of(newer.metadata_file).exists()


def test_an_append_is_a_snapshot(catalog: Catalog) -> None:
    table = catalog.create_table(NAME, SIMPLE)
    table.append(simple_row())

    (snapshot,) = table.metadata.snapshots
    assert snapshot.snapshot_id == table.metadata.current_snapshot_id
    assert (snapshot.parent_snapshot_id, snapshot.sequence_number) == (None, 1)
    assert snapshot.summary is not None
    assert snapshot.summary.operation == Operation.APPEND
    assert snapshot.summary["added-records"] == snapshot.summary["total-records"] == "1"
    assert len(table.metadata.metadata_log) == 1
    assert catalog.load_table(NAME).scan().to_arrow() == simple_row()


@pytest.mark.parametrize("table_is_empty", [True, False])
@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
def test_an_overwrite_that_found_nothing_to_delete_does_not_miss_what_came_between(
    catalog: Catalog, table_is_empty: bool
) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={TableProperties.COMMIT_MIN_RETRY_WAIT_MS: "1"})
    if not table_is_empty:
        table.append(numbers(7))
    overwrite = catalog.load_table(NAME).transaction()
    overwrite.overwrite(numbers(2), overwrite_filter="n == 1")

    table.append(numbers(1))

    with pytest.raises(ValidationException):
        overwrite.commit_transaction()
    assert 2 not in catalog.load_table(NAME).scan().to_arrow()["n"].to_pylist()


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records:UserWarning")
def test_an_overwrite_that_found_nothing_to_delete_commits_beside_rows_that_it_does_not_mean(catalog: Catalog) -> None:
    relaxed = {
        TableProperties.COMMIT_MIN_RETRY_WAIT_MS: "1",
        TableProperties.WRITE_DELETE_ISOLATION_LEVEL: "snapshot",
        TableProperties.WRITE_UPDATE_ISOLATION_LEVEL: "snapshot",
    }
    table = catalog.create_table(NAME, NUMBERS, properties=relaxed)
    overwrite = catalog.load_table(NAME).transaction()
    overwrite.overwrite(numbers(2), overwrite_filter="n == 1")

    table.append(numbers(3))
    overwrite.commit_transaction()

    assert sorted(catalog.load_table(NAME).scan().to_arrow()["n"].to_pylist()) == [2, 3]


def test_metadata_goes_where_the_table_says(catalog: Catalog, tmp_path: Path) -> None:
    place = f"file://{tmp_path}/custom/path"
    table = catalog.create_table(NAME, SIMPLE, properties={TableProperties.WRITE_METADATA_PATH: place})
    table.append(simple_row())

    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.manifests(table.io)[0].manifest_path.startswith(place)
    assert table.metadata_location.startswith(place)

    other = catalog.create_table(OTHER, SIMPLE)
    assert other.metadata_location.startswith(f"{other.location()}/metadata")
    other.transaction().set_properties({TableProperties.WRITE_METADATA_PATH: place}).commit_transaction()
    assert other.location_provider().new_metadata_location("x.json") == f"{place}/x.json"
    assert other.metadata_location.startswith(place)


@pytest.mark.parametrize("version", ["1", "2"])
def test_one_transaction_can_change_schema_append_overwrite_and_delete(catalog: Catalog, version: str) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"format-version": version})
    rows = pa.table({"n": pa.array([1, 2, 3]), "m": pa.array([19, None, 25], pa.int64())})
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.union_by_name(rows.schema)
        transaction.append(rows)
        transaction.overwrite(rows)
        transaction.delete("n = 1")

    assert sorted(catalog.load_table(NAME).scan().to_arrow()["n"].to_pylist()) == [2, 3]


@pytest.mark.parametrize("version", ["1", "2"])
def test_manifests_are_merged_if_wanted(catalog: Catalog, version: str) -> None:
    wanted = {
        "commit.manifest-merge.enabled": "true",
        "commit.manifest.min-count-to-merge": "2",
        "format-version": version,
    }
    table = catalog.create_table(NAME, NUMBERS, properties=wanted)
    for number in range(5):
        table.append(numbers(number))

    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(table.io)) == 1
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [0, 1, 2, 3, 4]


def test_a_commit_that_changes_nothing_leaves_no_trace(catalog: Catalog) -> None:
    table = catalog.create_table(NAME, SIMPLE, properties={"a": "b"})

    response = catalog.commit_table(table, (), ())

    assert response.metadata_location == table.metadata_location
    assert catalog.load_table(NAME) == table


def test_a_handle_of_a_dropped_table_cannot_write_to_its_successor(catalog: Catalog) -> None:
    old = catalog.create_table(NAME, NUMBERS)
    catalog.drop_table(NAME)
    new = catalog.create_table(NAME, NUMBERS)

    with pytest.raises((CommitFailedException, NoSuchTableError, ValueError), match="UUID does not match"):
        old.append(numbers(1))
    assert new.metadata.table_uuid != uuid.UUID(int=0)
    assert catalog.load_table(NAME).metadata.snapshots == []


def test_views_are_created_loaded_listed_and_dropped(catalog: Catalog) -> None:
    sql = SQLViewRepresentation(type="sql", sql="select 1", dialect="spark")
    version = ViewVersion(schema_id=0, representations=[sql], default_namespace=("db",))
    if isinstance(catalog, SqlCatalog):
        with pytest.raises(NotImplementedError):  # the only thing that PyIceberg's own catalog lacks here
            catalog.create_view("db.view", NUMBERS, version)
        return
    made = catalog.create_view("db.view", NUMBERS, version)

    assert catalog.load_view("db.view") == made
    assert made.sql_for("Spark") == sql
    assert catalog.list_views("db") == [("db", "view")]
    assert catalog.view_exists("db.view")
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_view("db.view", NUMBERS, version)
    with pytest.raises(ViewAlreadyExistsError):
        catalog.create_table("db.view", NUMBERS)
    catalog.drop_view("db.view")
    for method in ("load_view", "drop_view"):
        with pytest.raises(NoSuchViewError, match="View does not exist: db"):
            getattr(catalog, method)("db.view")
