"""Clones: a catalog that shares every file with its source, and neither side deletes what the other needs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable, Table
from pyiceberg.types import LongType

from endive.catalog import KVCatalog, MaintenanceOptions, clones
from endive.catalog.model.checkpoint_records import NEVER, CloneSource
from endive.catalog.model.keys import CATALOG, CLONING
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import CatalogNotFoundError, ConfigurationError, NotInCatalogError
from endive.kv import Store
from endive.objects import open_objects
from tests.catalog.commits.interrupted import rows_of
from tests.catalog.stand_in import Counting, Died
from tests.catalog.tables import NAME, NUMBERS, numbers
from tests.catalog.test_checkpoints import VIEW_SCHEMA, view_version
from tests.catalog.test_table_parts import COLUMNS, WIDE, forget

FAR = 2**62
EVERYTHING = MaintenanceOptions(orphan_age_ms=-(10**15))
AGED = {"history.expire.max-snapshot-age-ms": "0", "commit.manifest.min-count-to-merge": "2"}


@pytest.fixture
def source(tmp_path: Path) -> Iterator[KVCatalog]:
    """A catalog in a directory with two tables."""
    with KVCatalog.create(str(tmp_path / "source")) as kv:
        kv.create_namespace("db", {"location": f"file://{tmp_path}/source/elsewhere"})
        catalog = EndiveCatalog.on(kv)
        for name in ("db.t", "db.u"):
            table = catalog.create_table(name, NUMBERS, properties=AGED)
            for number in (1, 2):
                table.append(numbers(number))
        yield kv


def tables_of(kv: KVCatalog) -> dict[str, list[int]]:
    catalog = EndiveCatalog.on(kv)
    return {name[-1]: rows_of(catalog.load_table(name)) for name in catalog.list_tables("db")}


def table_of(kv: KVCatalog, name: str = "db.t") -> Table:
    return EndiveCatalog.on(kv).load_table(name)


def parquet_below(folder: Path) -> int:
    return len(list(folder.rglob("*.parquet")))


def test_a_clone_shares_every_data_file_and_is_written_by_itself(source: KVCatalog, tmp_path: Path) -> None:
    done = source.clone(str(tmp_path / "clone"))
    assert done.tables == 2
    assert parquet_below(tmp_path / "clone") == 0

    with KVCatalog.open(str(tmp_path / "clone")) as clone:
        assert tables_of(clone) == {"t": [1, 2], "u": [1, 2]}
        assert clone.check() == []
        table_of(clone).append(numbers(3))
        table_of(clone, "db.u").delete("n = 1")
        EndiveCatalog.on(clone).create_table("db.new", NUMBERS).append(numbers(9))
        assert tables_of(clone) == {"new": [9], "t": [1, 2, 3], "u": [2]}
        assert len(table_of(clone).metadata.snapshots) == 3
        by_file = StaticTable.from_metadata(table_of(clone).metadata_location)
        assert sorted(by_file.scan().to_arrow()["n"].to_pylist()) == [1, 2, 3]
        assert clone.check() == []
    assert tables_of(source) == {"t": [1, 2], "u": [1, 2]}
    assert parquet_below(tmp_path / "clone") == 2
    assert source.check() == []


def test_maintenance_on_either_side_deletes_nothing_that_the_other_needs(source: KVCatalog, tmp_path: Path) -> None:
    source.clone(str(tmp_path / "clone"))
    with KVCatalog.open(str(tmp_path / "clone")) as clone:
        table_of(source).overwrite(numbers(7))
        source.drop_table("db.u", purge=True)
        for _ in range(2):
            source.maintain(EVERYTHING)
        assert tables_of(clone) == {"t": [1, 2], "u": [1, 2]}

        table_of(clone).overwrite(numbers(8))
        clone.drop_table("db.u", purge=True)
        for _ in range(2):
            clone.maintain(EVERYTHING)
        assert tables_of(clone) == {"t": [8]}
        assert (clone.check(), source.check()) == ([], [])
    assert tables_of(source) == {"t": [7]}
    with pytest.raises(ConfigurationError, match="was cloned from it"):
        source.delete_checkpoint(source.checkpoints()[0].name)
    source.delete_checkpoint(source.checkpoints()[0].name, force=True)
    source.maintain(EVERYTHING)
    assert parquet_below(tmp_path / "source") == 1


def test_a_clone_expires_its_own_files(source: KVCatalog, tmp_path: Path) -> None:
    source.clone(str(tmp_path / "clone"))
    with KVCatalog.open(str(tmp_path / "clone")) as clone:
        table_of(clone).append(numbers(3))
        table_of(clone).overwrite(numbers(4))
        clone.maintain(EVERYTHING)
        assert parquet_below(tmp_path / "clone") == 1
        clone.drop_table("db.t", purge=True)
        assert parquet_below(tmp_path / "clone") == 0
    assert tables_of(source) == {"t": [1, 2], "u": [1, 2]}


def test_a_clone_of_a_checkpoint(source: KVCatalog, tmp_path: Path) -> None:
    source.create_checkpoint("c", lifetime_ms=3_600_000)
    table_of(source).overwrite(numbers(7))
    source.clone(str(tmp_path / "clone"), checkpoint="c")
    source.delete_checkpoint("c")
    source.maintain(EVERYTHING)

    with KVCatalog.open(str(tmp_path / "clone")) as clone:
        assert tables_of(clone) == {"t": [1, 2], "u": [1, 2]}
        assert clone.check() == []
    with pytest.raises(NotInCatalogError, match="Checkpoint does not exist: c"):
        source.clone(str(tmp_path / "other"), checkpoint="c")


def test_a_clone_of_a_clone(source: KVCatalog, tmp_path: Path) -> None:
    source.clone(str(tmp_path / "clone"))
    with KVCatalog.open(str(tmp_path / "clone")) as clone:
        table_of(clone).append(numbers(3))
        clone.clone(str(tmp_path / "second"))
        for kv in (source, clone):
            table_of(kv).overwrite(numbers(9))
            kv.maintain(EVERYTHING)
    with KVCatalog.open(str(tmp_path / "second")) as second:
        assert tables_of(second) == {"t": [1, 2, 3], "u": [1, 2]}
        table_of(second).overwrite(numbers(5))
        second.maintain(EVERYTHING)
        assert second.check() == []
    with KVCatalog.open(str(tmp_path / "clone")) as clone:
        assert tables_of(clone) == {"t": [9], "u": [1, 2]}


def test_new_tables_of_a_clone_are_not_among_those_of_the_source(source: KVCatalog, tmp_path: Path) -> None:
    source.update_properties(NAME, {"write.data.path": f"file://{tmp_path}/source/data"})
    source.clone(str(tmp_path / "clone"))

    with KVCatalog.open(str(tmp_path / "clone")) as clone:
        made = EndiveCatalog.on(clone).create_table("db.new", NUMBERS)
        table_of(clone).append(numbers(3))
        assert {made.location(), table_of(clone).location()} == {
            location
            for location in (made.location(), table_of(clone).location())
            if location.startswith(f"file://{tmp_path}/clone/")
        }
        assert parquet_below(tmp_path / "clone") == 1


def test_views_are_cloned(source: KVCatalog, tmp_path: Path) -> None:
    source.create_view("db.v", VIEW_SCHEMA, view_version("select 1"))
    source.clone(str(tmp_path / "clone"))

    with KVCatalog.open(str(tmp_path / "clone")) as clone:
        view = clone.load_view("db.v")
        assert view.metadata["view-uuid"] == source.load_view("db.v").metadata["view-uuid"]
        assert view.metadata["location"].startswith(f"file://{tmp_path}/clone/")
        assert clone.check() == []


def test_places_where_no_clone_can_be(source: KVCatalog, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the catalog itself"):
        source.clone(source.url)
    with pytest.raises(ConfigurationError, match=r"in the location of the table db\.t"):
        source.clone(f"{table_of(source).location()}/clone")
    KVCatalog.create(str(tmp_path / "taken")).close()
    with pytest.raises(ConfigurationError, match="there is a catalog already"):
        source.clone(str(tmp_path / "taken"))
    with pytest.raises(ConfigurationError, match="needs a warehouse"):
        source.clone("memory://nowhere")
    assert source.checkpoints() == []


# Crashes.


def test_a_clone_that_was_interrupted_cannot_be_opened_and_is_finished_by_another_call(
    source: KVCatalog, tmp_path: Path
) -> None:
    """After every transaction at the target, and after every one at the source."""
    target = Counting()
    steps = 0
    while True:
        target.left = steps
        try:
            _clone(source, target, tmp_path)
            break
        except Died:
            target.left = None
            assert CATALOG not in target.rows
            with pytest.raises((ConfigurationError, CatalogNotFoundError)):
                KVCatalog(target, create=CLONING in target.rows)
        steps += 1
    assert steps >= 5
    assert [one.expire_unix_ms for one in source.checkpoints()].count(NEVER) == 1
    with KVCatalog(target) as clone:
        assert tables_of(clone) == {"t": [1, 2], "u": [1, 2]}
        assert clone.check() == []
    with pytest.raises(ConfigurationError, match="there is a catalog already"):
        _clone(source, target, tmp_path)


def test_a_clone_that_never_began_leaves_a_checkpoint_that_expires_and_the_next_one_has_the_newest_state(
    source: KVCatalog, tmp_path: Path
) -> None:
    target = Counting()
    target.left = 0
    with pytest.raises(Died):
        _clone(source, target, tmp_path)
    target.left = None
    (abandoned,) = source.checkpoints()
    table_of(source).append(numbers(3))

    kept = _clone(source, target, tmp_path).checkpoint

    with KVCatalog(target) as clone:
        assert tables_of(clone) == {"t": [1, 2, 3], "u": [1, 2]}
    assert abandoned.expire_unix_ms - abandoned.created_unix_ms == clones.UNFINISHED_MS
    assert {one.name for one in source.checkpoints() if one.expire_unix_ms == NEVER} == {kept}


def test_clones_of_a_checkpoint_to_places_of_one_name_have_checkpoints_of_their_own(
    source: KVCatalog, tmp_path: Path
) -> None:
    for name in ("first", "now"):
        source.create_checkpoint(name)
    source.clone(str(tmp_path / "a" / "lab"), checkpoint="now")
    source.delete_checkpoint("first")

    source.clone(str(tmp_path / "b" / "lab"), checkpoint="now")

    assert len([one for one in source.checkpoints() if one.clone_url]) == 2


def _clone(source: KVCatalog, target: Counting, tmp_path: Path) -> clones.Cloned:
    place = f"file://{tmp_path}/clone"
    arguments = (source._checkpoints, source.url, target, place, place, source.files, None, source.now_ms)
    return clones.clone(*arguments)


def test_a_slow_process_cannot_write_into_a_clone_that_is_finished(source: KVCatalog, tmp_path: Path) -> None:
    target = Counting()
    put, stalled = clones._Copier._put, list[object]()

    def stall(self: clones._Copier, rows: object) -> None:
        if not stalled:
            stalled.append(rows)
            _clone(source, target, tmp_path)
            with KVCatalog(target) as clone:
                table_of(clone).append(numbers(3))
        put(self, rows)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clones._Copier, "_put", stall)
        with pytest.raises(NotInCatalogError, match="another process has finished it"):
            _clone(source, target, tmp_path)

    with KVCatalog(target) as clone:
        assert tables_of(clone) == {"t": [1, 2, 3], "u": [1, 2]}
        assert clone.check() == []


def test_a_second_clone_to_the_same_place_is_refused(source: KVCatalog, tmp_path: Path) -> None:
    with Store(open_objects(f"{tmp_path}/clone/_endive"), "shared") as store:
        mark = CloneSource("somewhere", "clone-x", "another id")
        store.put(CLONING, mark.encoded())

    with pytest.raises(ConfigurationError, match="a clone of somewhere was interrupted here"):
        source.clone(str(tmp_path / "clone"))


def test_a_wide_table_is_cloned_with_the_parts_of_its_record(
    source: KVCatalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its schemas have rows of their own, which the clone needs for itself."""
    wide = EndiveCatalog.on(source).create_table("db.wide", WIDE)
    with wide.update_schema() as update:
        update.add_column("added", LongType())
    forget(monkeypatch)
    source.clone(str(tmp_path / "clone"))
    source.drop_table("db.wide")

    forget(monkeypatch)
    with KVCatalog.open(str(tmp_path / "clone")) as clone:
        assert [len(one.fields) for one in table_of(clone, "db.wide").metadata.schemas] == [COLUMNS, COLUMNS + 1]
        with table_of(clone, "db.wide").update_schema() as update:
            update.delete_column("added")
        forget(monkeypatch)
        assert [len(one.fields) for one in table_of(clone, "db.wide").metadata.schemas][-1] == COLUMNS + 1
        assert len(table_of(clone, "db.wide").schema().fields) == COLUMNS
        assert clone.check() == []
