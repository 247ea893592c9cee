"""Expiry, orphans, purge, check; branches, tags and time travel."""

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable, Table

from endive.catalog import KVCatalog
from endive.catalog.model.keys import snapshots_of, table_key
from endive.catalog.model.transaction import TransactionFunction
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import AlreadyInCatalogError, CommitConflictError, ConfigurationError, NotInCatalogError
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME, NUMBERS, numbers

FAR = 2**62


@pytest.fixture
def table(catalog: EndiveCatalog) -> Table:
    table = catalog.create_table(NAME, NUMBERS)
    for number in (1, 2, 3):
        table.append(numbers(number))
    return table


def folder_of(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


def rows_of(table: Table, snapshot_id: int | None = None) -> list[int]:
    values: list[int] = table.refresh().scan(snapshot_id=snapshot_id).to_arrow()["n"].to_pylist()
    return sorted(values)


# The past.


def test_time_travel_by_id_and_by_time(kv: KVCatalog, table: Table) -> None:
    snapshots = kv.snapshots(NAME)
    assert [rows_of(table, one.snapshot_id) for one in snapshots] == [[1], [1, 2], [1, 2, 3]]
    for one in snapshots:
        assert kv.snapshot_at(NAME, one.timestamp_ms).timestamp_ms == one.timestamp_ms
    assert kv.snapshot_at(NAME, FAR) == snapshots[-1]
    with pytest.raises(NotInCatalogError, match="begins later"):
        kv.snapshot_at(NAME, snapshots[0].timestamp_ms - 1)


def test_roll_back(kv: KVCatalog, table: Table) -> None:
    first, second, third = kv.snapshots(NAME)
    kv.roll_back(NAME, second.snapshot_id)
    assert rows_of(table) == [1, 2]
    kv.roll_back(NAME, unix_ms=first.timestamp_ms)
    assert rows_of(table)[0] == 1
    kv.set_current_snapshot(NAME, first.snapshot_id)
    assert [one.snapshot_id for one in kv.history(NAME)][-1] == first.snapshot_id

    with pytest.raises(ConfigurationError, match="is not an ancestor of the current snapshot"):
        kv.roll_back(NAME, third.snapshot_id)
    with pytest.raises(NotInCatalogError, match="Snapshot does not exist: 7"):
        kv.roll_back(NAME, 7)
    with pytest.raises(ConfigurationError, match="either"):
        kv.roll_back(NAME)
    kv.set_current_snapshot(NAME, third.snapshot_id)
    assert rows_of(table) == [1, 2, 3]


def test_branches_and_tags(kv: KVCatalog, table: Table) -> None:
    first = kv.snapshots(NAME)[0]
    kv.create_tag(NAME, "v1", first.snapshot_id)
    kv.create_branch(NAME, "dev")
    table.refresh().append(numbers(9), branch="dev")

    assert sorted(table.scan().use_ref("dev").to_arrow()["n"].to_pylist()) == [1, 2, 3, 9]
    assert table.scan().use_ref("v1").to_arrow()["n"].to_pylist() == [1]
    assert rows_of(table) == [1, 2, 3]
    with pytest.raises(AlreadyInCatalogError):
        kv.create_branch(NAME, "v1")
    with pytest.raises(NotInCatalogError):
        kv.remove_ref(NAME, "v2")
    with pytest.raises(ConfigurationError, match="main branch"):
        kv.remove_ref(NAME, "main")
    kv.remove_ref(NAME, "v1")
    assert set(kv.load_table(NAME).metadata.refs) == {"main", "dev"}


def test_an_empty_table_has_nothing_to_tag(kv: KVCatalog) -> None:
    kv.create_namespace("db")
    kv.create_table(NAME, NUMBERS)

    with pytest.raises(NotInCatalogError, match="the table is empty"):
        kv.create_tag(NAME, "v1")


# Expiry.


def test_expiry_deletes_only_what_nothing_needs(kv: KVCatalog, table: Table) -> None:
    first = kv.snapshots(NAME)[0]
    kv.create_tag(NAME, "keep", first.snapshot_id)
    table.refresh().overwrite(numbers(7))  # the three files are needed by older snapshots only

    gone = kv.expire_snapshots(NAME, FAR)

    assert first.snapshot_id not in gone.snapshot_ids
    assert rows_of(table) == [7]
    assert table.scan(snapshot_id=first.snapshot_id).to_arrow()["n"].to_pylist() == [1]
    deleted = [path for path in gone.deleted_files if path.endswith(".parquet")]
    assert len(deleted) == 2
    assert len(list(folder_of(table).rglob("*.parquet"))) == 2
    assert kv.check() == []
    assert kv.remove_orphan_files(NAME, FAR) == []


def test_the_last_snapshots_of_a_branch_can_be_kept(kv: KVCatalog, table: Table) -> None:
    ids = [one.snapshot_id for one in kv.snapshots(NAME)]

    assert kv.expire_snapshots(NAME, FAR, keep_last=2).snapshot_ids == (ids[0],)
    assert [one.snapshot_id for one in kv.snapshots(NAME)] == ids[1:]
    assert kv.expire_snapshots(NAME, 0).snapshot_ids == ()


def test_files_of_expired_snapshots_are_still_planned(kv: KVCatalog, table: Table) -> None:
    table.delete("n = 2")
    kv.expire_snapshots(NAME, FAR)
    table.refresh().append(numbers(4))

    planned = sorted(one.file.file_path for one in kv.plan_files(NAME))
    assert planned == sorted(one.file.file_path for one in table.scan().plan_files())
    assert kv.check() == []


def test_a_snapshot_that_is_tagged_meanwhile_is_not_removed(kv: KVCatalog, table: Table) -> None:
    stale = table.refresh()
    first = kv.snapshots(NAME)[0]
    kv.create_tag(NAME, "precious", first.snapshot_id)

    change = stale.maintenance.expire_snapshots().by_id(first.snapshot_id)
    with pytest.raises(CommitConflictError, match="tag precious points to it"):
        kv.commit(NAME, (), change._commit()[0])
    assert first.snapshot_id in {one.snapshot_id for one in kv.snapshots(NAME)}


def test_gc_enabled_false_forbids_deleting(kv: KVCatalog, table: Table) -> None:
    kv.update_properties(NAME, {"gc.enabled": "false"})

    for forbidden in (
        lambda: kv.expire_snapshots(NAME, FAR),
        lambda: kv.remove_orphan_files(NAME, FAR),
        lambda: kv.drop_table(NAME, purge=True),
    ):
        with pytest.raises(ConfigurationError, match=r"gc\.enabled"):
            forbidden()
    assert kv.table_exists(NAME)


# Orphans.


def test_orphans_are_found_and_deleted(kv: KVCatalog, table: Table) -> None:
    orphan = folder_of(table) / "data" / "lost.parquet"
    orphan.write_bytes(b"rows of a writer that died")

    assert kv.remove_orphan_files(NAME, 0) == []  # too young
    assert kv.remove_orphan_files(NAME, FAR, dry_run=True) == [f"file://{orphan}"]
    assert orphan.exists()
    assert kv.remove_orphan_files(NAME, FAR) == [f"file://{orphan}"]
    assert not orphan.exists()
    assert rows_of(table) == [1, 2, 3]
    assert kv.check() == []


def test_the_files_of_the_catalog_itself_are_no_orphans(tmp_path: Path) -> None:
    with KVCatalog.create(str(tmp_path / "lake")) as kv:
        kv.create_namespace("db")
        table = EndiveCatalog.on(kv).create_table(NAME, NUMBERS, location=f"file://{tmp_path}/lake")
        table.append(numbers(1))

        assert kv.remove_orphan_files(NAME, FAR) == []
    with KVCatalog.open(str(tmp_path / "lake")) as kv:
        assert rows_of(EndiveCatalog.on(kv).load_table(NAME)) == [1]


def test_nothing_is_an_orphan_where_two_tables_live(kv: KVCatalog, table: Table) -> None:
    kv.create_table("db.inner", NUMBERS, location=f"{table.location()}/inner")

    with pytest.raises(ConfigurationError, match=r"db\.inner is in the same location"):
        kv.remove_orphan_files(NAME, FAR)


@pytest.mark.parametrize("end", ["", "/"])
def test_two_tables_in_one_place_do_each_other_no_harm(
    catalog: EndiveCatalog, kv: KVCatalog, table: Table, end: str
) -> None:
    """No file has a name that another could have. Only orphans cannot be distinguished from files of the other."""
    other = catalog.create_table("db.other", NUMBERS, location=table.location() + end)
    other.append(numbers(7))
    other.overwrite(numbers(8))
    kv.expire_snapshots("db.other", FAR)
    assert other.location() == table.location()

    for name, neighbour in ((NAME, r"db\.other"), ("db.other", r"db\.t")):
        with pytest.raises(ConfigurationError, match=f"{neighbour} is in the same location"):
            kv.remove_orphan_files(name, FAR)
    assert (rows_of(table), rows_of(other)) == ([1, 2, 3], [8])
    assert kv.check() == []
    catalog.purge_table("db.other")

    assert rows_of(table) == [1, 2, 3]
    assert kv.remove_orphan_files(NAME, FAR) == []
    assert kv.check() == []


# Purge and check.


def test_a_dropped_table_leaves_no_rows(kv: KVCatalog, table: Table, store: DictStore) -> None:
    kv.drop_table(NAME, purge=True)

    assert sorted(key.split(b"/")[0] for key in store.rows) == [b"__catalog", b"__namespaces"]
    assert [path for path in folder_of(table).rglob("*") if path.is_file()] == []


def test_check_finds_damage(kv: KVCatalog, table: Table, store: DictStore) -> None:
    assert kv.check() == kv.check(NAME) == []
    rows = dict(store.rows)

    del store.rows[next(key for key in rows if key.startswith(snapshots_of(table.metadata.table_uuid)))]
    assert kv.check() != []
    store.rows = dict(rows)
    del store.rows[table_key(NAME)]
    assert any("rows of a table that is not there" in line for line in kv.check())
    store.rows = dict(rows)
    files = [key for key in rows if key.startswith(b"__files/")]
    del store.rows[files[0]]
    assert any("__files lacks" in line for line in kv.check())
    store.rows = dict(rows)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()
    assert any("manifest list" in line for line in kv.check())
    Path(table.metadata_location.removeprefix("file://")).unlink()
    assert any("metadata file cannot be read" in line for line in kv.check())


# Metadata files.


def test_by_default_the_file_exists_before_the_record_refers_to_it(
    kv: KVCatalog, table: Table, store: DictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: list[bool] = []
    original = store.transact

    def look(work: TransactionFunction[Any]) -> Any:
        result = original(work)
        location = kv.load_table(NAME).metadata_location
        named.append(Path(location.removeprefix("file://")).exists())
        return result

    monkeypatch.setattr(store, "transact", look)
    table.append(numbers(4))
    table.overwrite(numbers(5))
    assert len(named) == 2
    assert all(named)


def test_a_crash_before_the_commit_leaves_an_orphan_and_nothing_else(
    kv: KVCatalog, table: Table, store: DictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = dict(store.rows)

    class Died(BaseException):
        pass

    def die(_: object) -> None:
        raise Died

    monkeypatch.setattr(kv._committer._loop, "_discard", lambda _: None)  # the dead delete nothing
    with monkeypatch.context() as patch:
        patch.setattr(store, "transact", die)
        with pytest.raises(Died):
            kv.update_properties(NAME, {"a": "b"})

    assert store.rows == before
    assert kv.check() == []
    assert len(kv.remove_orphan_files(NAME, FAR)) == 1


def test_in_the_background_the_record_names_the_file_before_until_the_next_is_there(
    kv: KVCatalog, catalog: EndiveCatalog, store: DictStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": "background"})
    first = table.metadata_location
    monkeypatch.setattr(kv._publisher, "remind", lambda *_, **__: None)  # the thread never ran: a crash

    table.append(numbers(1))
    assert kv.load_table(NAME).metadata_location == first
    assert StaticTable.from_metadata(first).scan().to_arrow().num_rows == 0

    with KVCatalog(store, kv.warehouse) as another:
        another.load_table(NAME)  # sees that the file is behind; closing writes it
    loaded = kv.load_table(NAME)
    assert loaded.metadata_location != first
    shown = StaticTable.from_metadata(loaded.metadata_location)
    assert shown.metadata == loaded.metadata
    assert [one.metadata_file for one in shown.metadata.metadata_log] == [first]
    assert kv.check() == []


def test_the_mode_can_be_changed(kv: KVCatalog, catalog: EndiveCatalog, table: Table) -> None:
    kv.update_properties(NAME, {"endive.metadata-json": "background"})
    table.refresh().append(numbers(4))
    assert kv.export_metadata(NAME) == kv.export_metadata(NAME) == kv.load_table(NAME).metadata_location
    table.refresh().append(numbers(5))
    kv.update_properties(NAME, {"endive.metadata-json": "before-acknowledgement"})

    loaded = kv.load_table(NAME)
    assert StaticTable.from_metadata(loaded.metadata_location).metadata == loaded.metadata
    logged = [one.metadata_file for one in loaded.metadata.metadata_log]
    assert all(Path(one.removeprefix("file://")).exists() for one in logged)
    with pytest.raises(ConfigurationError, match="sometimes"):
        kv.update_properties(NAME, {"endive.metadata-json": "sometimes"})
