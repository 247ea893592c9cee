"""Checkpoints of a whole catalog: what they keep, how they are opened, and restoring all tables to one."""

from collections.abc import Callable
from pathlib import Path
from time import sleep

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import LongType

from endive.catalog import KVCatalog, MaintenanceOptions
from endive.catalog.checkpoints import PREFIX, UNDO_MS
from endive.catalog.connection import FOLDER
from endive.catalog.model.catalog_records import CatalogRecord
from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.model.keys import CATALOG, checkpoint_key
from endive.catalog.operations.checkpoint_rows import begin_checkpoint
from endive.catalog.operations.restore import load_state
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import AlreadyInCatalogError, AtCheckpointError, ConfigurationError, NotInCatalogError
from endive.kv import Reader
from endive.objects import open_objects
from tests.catalog.commits.interrupted import files_of, rows_of
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME, NUMBERS, numbers

FAR = 2**62
EVERYTHING = MaintenanceOptions(orphan_age_ms=-(10**15))
AGED = {"history.expire.max-snapshot-age-ms": "0"}


@pytest.fixture
def table(catalog: EndiveCatalog) -> Table:
    table = catalog.create_table(NAME, NUMBERS, properties=AGED)
    table.append(numbers(1))
    table.append(numbers(2))
    return table


def at(kv: KVCatalog, name: str) -> EndiveCatalog:
    """The catalog at a checkpoint, on the store in memory."""
    store: DictStore = kv.store  # type: ignore[assignment]
    past = store.at(next(one for one in kv.checkpoints() if one.name == name).store_checkpoint)
    return EndiveCatalog.on(KVCatalog(past))


def rows_at(kv: KVCatalog, name: str, table: str = "db.t") -> list[int]:
    values: list[int] = at(kv, name).load_table(table).scan().to_arrow()["n"].to_pylist()
    return sorted(values)


def by_metadata_file(kv: KVCatalog, name: str) -> list[int]:
    """The rows of a table as a reader finds them that has only its metadata file."""
    location = at(kv, name).load_table(NAME).metadata_location
    return sorted(StaticTable.from_metadata(location).scan().to_arrow()["n"].to_pylist())


# Names and times.


def test_checkpoints_have_names_and_expire(kv: KVCatalog, table: Table) -> None:
    kv.create_checkpoint("monday")
    kv.create_checkpoint("an hour", lifetime_ms=3_600_000)
    with pytest.raises(AlreadyInCatalogError, match="monday"):
        kv.create_checkpoint("monday")
    with pytest.raises(ConfigurationError, match="printable"):
        kv.create_checkpoint(" ")

    kv._checkpoints._clock = lambda: kv.now_ms() + 3_600_001
    assert [one.name for one in kv.checkpoints()] == ["monday"]
    kv.create_checkpoint("an hour")  # the name is free again
    kv.delete_checkpoint("monday")
    with pytest.raises(NotInCatalogError, match="monday"):
        kv.delete_checkpoint("monday")


def test_deleted_and_expired_checkpoints_leave_nothing_in_the_store(
    kv: KVCatalog, table: Table, store: DictStore
) -> None:
    kv.create_checkpoint("gone")
    kv.create_checkpoint("expired", lifetime_ms=1)
    kv.delete_checkpoint("gone")
    kv._checkpoints._clock = lambda: kv.now_ms() + 1000

    kv.maintain()

    assert store.copies == {}
    assert checkpoint_key("expired") not in store.rows


def test_an_older_endive_refuses_a_catalog_with_checkpoints(kv: KVCatalog, table: Table, store: DictStore) -> None:
    assert CatalogRecord.decoded(store.rows[CATALOG]).format_version == 1
    kv.create_checkpoint("c")
    assert CatalogRecord.decoded(store.rows[CATALOG]).format_version == 2


# What a checkpoint keeps.


def change_everything(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    table.refresh().overwrite(numbers(7))
    kv.expire_snapshots(NAME, FAR)


def drop_it(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    catalog.purge_table(NAME)


def maintain_it(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    kv.update_properties(NAME, {"commit.manifest.min-count-to-merge": "2"})
    table.refresh().delete("n = 1")


def rewrite_metadata(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    short = {"write.metadata.previous-versions-max": "1", "write.metadata.delete-after-commit.enabled": "true"}
    kv.update_properties(NAME, {**short, "endive.metadata-json": "background"})
    for number in range(4):
        kv.update_properties(NAME, {"k": str(number)})
        kv.export_metadata(NAME)


@pytest.mark.parametrize("change", [change_everything, drop_it, maintain_it, rewrite_metadata])
def test_a_checkpoint_keeps_every_file_of_every_table(
    kv: KVCatalog, catalog: EndiveCatalog, table: Table, change: Callable[[KVCatalog, EndiveCatalog, Table], None]
) -> None:
    kv.create_checkpoint("c")

    change(kv, catalog, table)
    for _ in range(2):
        kv.maintain(EVERYTHING)

    assert rows_at(kv, "c") == by_metadata_file(kv, "c") == [1, 2]
    assert at(kv, "c").kv.check() == []
    assert kv.check() == []


def test_files_go_once_no_checkpoint_needs_them(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    kv.create_checkpoint("c")
    change_everything(kv, catalog, table)
    kv.maintain(EVERYTHING)
    before = files_of(table)

    kv.delete_checkpoint("c")
    kv.maintain(EVERYTHING)

    assert len([path for path in files_of(table) if path.endswith(".parquet")]) == 1
    assert files_of(table) < before
    assert rows_of(table) == [7]


def test_a_purged_table_goes_once_no_checkpoint_has_it(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    kv.create_checkpoint("c")
    catalog.purge_table(NAME)
    assert not catalog.table_exists(NAME)
    assert len(files_of(table)) > 0
    kv.clear_dropped()
    assert rows_at(kv, "c") == [1, 2]

    kv.delete_checkpoint("c")
    assert kv.clear_dropped() == 1
    assert files_of(table) == set()


def test_a_location_of_a_table_at_a_checkpoint_is_not_searched_for_orphans(
    kv: KVCatalog, catalog: EndiveCatalog, table: Table
) -> None:
    inner = catalog.create_table("db.inner", NUMBERS, location=f"{table.location()}/inner")
    inner.append(numbers(5))
    kv.create_checkpoint("c")
    catalog.drop_table("db.inner")

    with pytest.raises(ConfigurationError, match=r"db\.inner is in the same location"):
        kv.remove_orphan_files(NAME, FAR)

    assert rows_at(kv, "c", "db.inner") == [5]


# Creating one beside maintenance.


def test_maintenance_abandons_a_checkpoint_in_progress_which_is_created_again(
    kv: KVCatalog, catalog: EndiveCatalog, table: Table, store: DictStore
) -> None:
    """The store's checkpoint has the state before the expiry, whose files are deleted: it must not be finished."""
    pin, calls = store.checkpoint, []

    def slow(lifetime_s: int, name: str = "") -> object:
        pinned = pin(lifetime_s, name)
        calls.append(name)
        if len(calls) == 1:
            change_everything(kv, catalog, table)
        return pinned

    store.checkpoint = slow  # type: ignore[method-assign, assignment]
    kv.create_checkpoint("c")

    assert len(calls) == 2
    assert len(store.copies) == 1
    assert rows_at(kv, "c") == [7]
    assert at(kv, "c").kv.check() == []


def test_a_creation_that_died_holds_nothing_and_is_cleared(kv: KVCatalog, table: Table, store: DictStore) -> None:
    begun = CheckpointRecord("half", "id", 1)
    store.transact(lambda tx: begin_checkpoint(tx, begun, 1))
    store.checkpoint(0, "catalog-id")  # and no more than that

    with pytest.raises(NotInCatalogError):
        kv.restore("half")
    assert kv.checkpoints() == []
    kv.maintain()

    assert store.copies == {}
    assert checkpoint_key("half") not in store.rows


# Opening one.


def test_a_checkpoint_is_opened_read_only_from_pyiceberg(tmp_path: Path) -> None:
    properties = {"py-catalog-impl": "endive.catalog.pyiceberg.EndiveCatalog", "uri": str(tmp_path / "lake")}
    catalog = load_catalog("now", **properties)
    assert isinstance(catalog, EndiveCatalog)
    catalog.create_namespace("db")
    table = catalog.create_table(NAME, NUMBERS)
    table.append(numbers(1))
    catalog.kv.create_checkpoint("c", 3_600_000)
    table.append(numbers(2))
    catalog.create_table("db.later", NUMBERS)
    objects = sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file())

    past = load_catalog("then", **properties, **{"endive.at": "c"})
    assert isinstance(past, EndiveCatalog)
    then = past.load_table(NAME)
    assert rows_of(then) == [1]
    assert past.list_tables("db") == [NAME]
    assert [one.file.record_count for one in past.kv.plan_files(NAME)] == [1]
    for write in (
        lambda: then.append(numbers(3)),
        lambda: then.overwrite(numbers(3)),
        lambda: past.create_table("db.new", NUMBERS),
        lambda: past.drop_table(NAME),
        lambda: past.create_namespace("new"),
        lambda: past.kv.create_checkpoint("d"),
    ):
        with pytest.raises((ValueError, AtCheckpointError), match="checkpoint c, which is read-only"):
            write()
    assert sorted(path for path in (tmp_path / "lake").rglob("*") if path.is_file()) == objects

    catalog.kv.create_checkpoint("short", 1)
    sleep(0.01)
    with pytest.raises(NotInCatalogError, match="short; it has expired"):
        load_catalog("then", **properties, **{"endive.at": "short"})
    with pytest.raises(NotInCatalogError, match="Checkpoint does not exist: d"):
        load_catalog("then", **properties, **{"endive.at": "d"})
    past.close()
    catalog.close()


def test_the_store_keeps_the_rows_of_a_checkpoint(tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    with KVCatalog.create(url) as kv:
        kv.create_namespace("db")
        table = EndiveCatalog.on(kv).create_table(NAME, NUMBERS, properties=AGED)
        for number in range(3):
            table.append(numbers(number))
        kv.create_checkpoint("c")
        table.append(numbers(9))
        kv.maintain(EVERYTHING)
        with KVCatalog.open(url, properties={"endive.at": "c"}) as past:
            assert rows_of(EndiveCatalog.on(past).load_table(NAME)) == [0, 1, 2]
            assert past.check() == []
        kv.delete_checkpoint("c")
    with Reader(open_objects(f"{url}/{FOLDER}")) as reader:
        assert [one for one in reader.manifest.value.checkpoints if one.name.startswith(PREFIX)] == []


# Restore.


def test_a_restore_brings_back_data_schema_properties_and_refs(kv: KVCatalog, table: Table) -> None:
    kv.create_tag(NAME, "then")
    kv.create_checkpoint("c")
    before = table.refresh().metadata
    table.overwrite(numbers(7))
    with table.update_schema() as update:
        update.add_column("more", LongType())
    kv.update_properties(NAME, {"k": "new"})
    kv.remove_ref(NAME, "then")
    kv.create_branch(NAME, "later")

    report = kv.restore("c")

    assert (report.changed, report.created, report.dropped, report.renamed) == (("db.t",), (), (), ())
    after = table.refresh().metadata
    assert rows_of(table) == [1, 2]
    assert after.schema() == before.schema()
    assert after.properties == before.properties
    assert after.refs == before.refs
    assert after.current_snapshot_id == before.current_snapshot_id
    assert len(after.snapshots) == 4  # later ones stay until they expire
    assert {one.schema_id for one in after.snapshots} <= {one.schema_id for one in after.schemas}
    assert [len(one.fields) for one in after.schemas] == [1, 2]  # with their schemas
    assert sorted(StaticTable.from_metadata(table.metadata_location).scan().to_arrow()["n"].to_pylist()) == [1, 2]
    assert kv.check() == []
    with table.update_schema() as update:
        update.add_column("other", LongType())
    assert table.schema().find_field("other").field_id == 3  # 2 is a column of a later snapshot
    table.append(numbers(3).append_column("other", [[1]]))
    assert rows_of(table) == [1, 2, 3]
    assert kv.check() == []


def test_a_restore_is_undone_by_another(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    kv.create_checkpoint("c")
    table.append(numbers(3))
    catalog.create_table("db.later", NUMBERS).append(numbers(9))
    catalog.create_namespace("new")

    done = kv.restore("c")
    assert done.dropped == ("db.later",)
    assert done.namespaces == ("new",)
    assert rows_of(table) == [1, 2]
    assert not catalog.table_exists("db.later")
    assert not catalog.namespace_exists("new")

    undone = kv.restore(done.undo)
    assert undone.created == ("db.later",)
    assert rows_of(table) == [1, 2, 3]
    assert rows_of(catalog.load_table("db.later")) == [9]
    assert catalog.namespace_exists("new")
    assert kv.check() == []
    (undo,) = [one for one in kv.checkpoints() if one.name == done.undo]
    assert undo.expire_unix_ms - undo.created_unix_ms == UNDO_MS


def test_snapshots_that_have_expired_come_back(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    ids = [one.snapshot_id for one in kv.snapshots(NAME)]
    kv.create_checkpoint("c")
    change_everything(kv, catalog, table)
    kv.maintain(EVERYTHING)
    assert len(kv.snapshots(NAME)) == 1

    kv.restore("c")

    assert [one.snapshot_id for one in kv.snapshots(NAME)][:2] == ids
    assert rows_of(table) == [1, 2]
    assert table.scan(snapshot_id=ids[0]).to_arrow()["n"].to_pylist() == [1]
    assert kv.check() == []
    kv.delete_checkpoint("c")
    for one in kv.checkpoints():
        kv.delete_checkpoint(one.name)
    kv.maintain(EVERYTHING)
    assert rows_of(table) == [1, 2]
    assert kv.check() == []


@pytest.mark.parametrize("purge", [False, True])
def test_a_dropped_table_comes_back(kv: KVCatalog, catalog: EndiveCatalog, table: Table, purge: bool) -> None:
    kv.create_tag(NAME, "then")
    kv.create_checkpoint("c")
    before = kv.load_table(NAME)
    kv.drop_table(NAME, purge=purge)
    other = catalog.create_table(NAME, NUMBERS)  # takes its name
    other.append(numbers(8))

    report = kv.restore("c")

    assert (report.created, report.dropped) == (("db.t",), ("db.t",))
    back = kv.load_table(NAME)
    assert (back.uuid, back.metadata.refs) == (before.uuid, before.metadata.refs)
    assert back.version > before.version
    assert rows_of(catalog.load_table(NAME)) == [1, 2]
    catalog.load_table(NAME).append(numbers(3))
    assert rows_of(catalog.load_table(NAME)) == [1, 2, 3]
    kv.maintain(EVERYTHING)
    assert rows_of(catalog.load_table(NAME)) == [1, 2, 3]
    assert kv.check() == []


def test_a_restored_table_has_one_name(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    kv.create_checkpoint("c")
    version = kv.load_table(NAME).version
    catalog.rename_table(NAME, "db.other")

    assert kv.restore("c").renamed == ("db.other to db.t",)

    assert catalog.list_tables("db") == [NAME]
    assert kv.load_table(NAME).version == version  # nothing but its name has changed
    assert kv.check() == []


def test_a_renamed_table_has_its_name_again(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    catalog.create_table("db.u", NUMBERS).append(numbers(8))
    kv.create_checkpoint("c")
    for source, target in (("db.t", "db.x"), ("db.u", "db.t"), ("db.x", "db.u")):
        catalog.rename_table(source, target)

    report = kv.restore("c")

    assert sorted(report.renamed) == ["db.t to db.u", "db.u to db.t"]
    assert rows_of(catalog.load_table("db.t")) == [1, 2]
    assert rows_of(catalog.load_table("db.u")) == [8]
    assert kv.check() == []


def test_a_dry_run_of_a_restore_changes_nothing(kv: KVCatalog, table: Table, store: DictStore) -> None:
    kv.create_checkpoint("c")
    assert not kv.restore("c", dry_run=True)
    table.append(numbers(3))
    rows = dict(store.rows)

    assert kv.restore("c", dry_run=True).changed == ("db.t",)
    assert store.rows == rows


def test_a_restore_of_the_present_state_changes_no_table(kv: KVCatalog, table: Table) -> None:
    kv.create_checkpoint("c")
    version = kv.load_table(NAME).version

    assert not kv.restore("c")
    assert kv.load_table(NAME).version == version


def test_an_append_that_is_under_way_goes_on_top_of_the_restored_state(
    kv: KVCatalog, catalog: EndiveCatalog, table: Table
) -> None:
    kv.create_checkpoint("c")
    table.append(numbers(3))
    late = catalog.load_table(NAME).transaction()
    late.append(numbers(4))

    kv.restore("c")
    late.commit_transaction()

    assert rows_of(table) == [1, 2, 4]
    assert kv.check() == []


def test_a_checkpoint_that_is_deleted_meanwhile_is_not_restored(kv: KVCatalog, table: Table, store: DictStore) -> None:
    kv.create_checkpoint("c")
    table.append(numbers(3))
    record = kv._checkpoints.find("c")
    state = store.at(record.store_checkpoint).read(load_state)
    kv.delete_checkpoint("c")

    with pytest.raises(NotInCatalogError, match="deleted or has expired meanwhile"):
        kv._checkpoints._restore(state, record)
    assert rows_of(table) == [1, 2, 3]


VIEW_SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "n", "type": "long", "required": False}]}


def view_version(sql: str) -> dict[str, object]:
    return {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["db"],
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
    }


def test_views_are_restored_too(kv: KVCatalog, table: Table) -> None:
    kv.create_view("db.v", VIEW_SCHEMA, view_version("select 1"))
    kv.create_checkpoint("c")
    before = kv.load_view("db.v")
    kv.drop_view("db.v")
    kv.create_view("db.w", VIEW_SCHEMA, view_version("select 2"))

    report = kv.restore("c")

    assert sorted(report.views) == ["db.v", "db.w"]
    assert kv.list_views("db") == [("db", "v")]
    assert kv.load_view("db.v") == before
    assert kv.restore(report.undo).views
    assert kv.list_views("db") == [("db", "w")]
    assert kv.check() == []
