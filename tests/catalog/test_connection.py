"""Opening catalogs: concurrent opens, properties that a catalog stores for all processes, caches of a process."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from pyiceberg.table.snapshots import Snapshot, SnapshotLogEntry
from pyiceberg.table.update import SetPropertiesUpdate

from endive.catalog import KVCatalog
from endive.catalog import connection as opening
from endive.catalog.model import catalog_records as records
from endive.catalog.model.catalog_records import CatalogRecord, SnapshotRecord
from endive.catalog.model.keys import CATALOG
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import ConfigurationError
from endive.kv import Store, StoreOptions
from endive.objects import MemoryStore
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NUMBERS

PATIENCE_S = 30


# Who waits for whom.


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Event, Event, list[str]]]:
    """Opening `memory://slow` begins, and goes on when it may; with the URLs that were opened."""
    begun, may_go_on, opened = Event(), Event(), list[str]()
    original = opening._open

    def slowly(url: str, *arguments: object) -> object:
        opened.append(url)
        if url == "memory://slow":
            begun.set()
            assert may_go_on.wait(PATIENCE_S)
        return original(url, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(opening, "_open", slowly)
    yield begun, may_go_on, opened
    may_go_on.set()


def test_a_catalog_opens_while_another_is_being_opened(slow: tuple[Event, Event, list[str]]) -> None:
    begun, may_go_on, _ = slow
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(KVCatalog.create, "memory://slow")
        assert begun.wait(PATIENCE_S)
        try:
            pool.submit(KVCatalog.create, "memory://quick").result(PATIENCE_S).close()
            assert not waiting.done()
        finally:
            may_go_on.set()
        waiting.result(PATIENCE_S).close()


def test_a_catalog_that_many_open_at_once_is_opened_once(slow: tuple[Event, Event, list[str]]) -> None:
    begun, may_go_on, opened = slow
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(KVCatalog.create, "memory://slow") for _ in range(4)]
        assert begun.wait(PATIENCE_S)
        may_go_on.set()
        catalogs = [one.result(PATIENCE_S) for one in waiting]

    assert len({id(one.store) for one in catalogs}) == 1
    assert opened == ["memory://slow"]
    for one in catalogs:
        one.close()


# Who may write.


def lists(catalog: KVCatalog) -> int:
    count: int = catalog.store.stats().get("requests_List", 0)  # type: ignore[attr-defined]
    return count


def test_a_commit_of_an_exclusive_writer_looks_at_nothing(warehouse: str) -> None:
    properties = {"endive.writer": "exclusive", "endive.metadata-json": "background"}
    with KVCatalog.create("memory://exclusive", warehouse, properties) as catalog:
        catalog.create_namespace("db")
        catalog.create_table("db.t", NUMBERS)
        catalog.commit("db.t", (), (SetPropertiesUpdate(updates={"a": "0"}),))
        catalog._publisher.close()
        before = lists(catalog)
        catalog.commit("db.t", (), (SetPropertiesUpdate(updates={"a": "1"}),))

        assert lists(catalog) == before
        assert catalog.load_table("db.t").metadata.properties["a"] == "1"


def test_loading_a_table_whose_file_is_behind_does_not_disturb_an_exclusive_writer(warehouse: str) -> None:
    objects, later = MemoryStore(), {"endive.metadata-json": "background"}
    with (
        Store(objects, options=StoreOptions(reopen=True)) as own,
        Store(objects, "shared") as other,
        KVCatalog(own, warehouse, later, create=True) as owner,
        KVCatalog(other, warehouse, later, create=True) as reader,
    ):
        owner.create_namespace("db")
        owner.create_table("db.t", NUMBERS)
        owner._publisher.close()
        owner.commit("db.t", (), (SetPropertiesUpdate(updates={"a": "0"}),))
        epoch = own.stats()["epoch"]

        assert reader.load_table("db.t").metadata.properties["a"] == "0"
        reader._publisher.close()  # it would write what is behind
        own.refresh()
        assert own.stats()["epoch"] == epoch


def test_a_writer_of_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"endive\.writer: 'sole' is neither 'shared' nor 'exclusive'"):
        KVCatalog.create("memory://sole", properties={"endive.writer": "sole"})


def test_a_process_has_a_catalog_open_in_one_way(warehouse: str) -> None:
    with KVCatalog.create("memory://one-way", warehouse, {"endive.writer": "exclusive"}) as first:
        with pytest.raises(ConfigurationError, match="has the catalog open as exclusive: close it first"):
            KVCatalog.open("memory://one-way", properties={"endive.writer": "shared"})
        with KVCatalog.open("memory://one-way") as second:  # who does not say takes what there is
            assert second.store is first.store
    with KVCatalog.open("memory://one-way", properties={"endive.writer": "shared"}) as third:
        assert third.list_namespaces() == []


# The warehouse.


def test_a_catalog_opened_without_a_warehouse_has_the_one_it_was_created_with(tmp_path: Path) -> None:
    place, warehouse, own = str(tmp_path / "lake"), f"file://{tmp_path}/tables", f"file://{tmp_path}/mine"
    with KVCatalog.create(place, warehouse) as catalog:
        catalog.create_namespace("db")
    with KVCatalog.open(place) as catalog:
        assert catalog.create_table("db.a", NUMBERS).metadata.location.startswith(f"{warehouse}/db/a-")
    with KVCatalog.open(place, own) as catalog:  # what the caller says comes first, and for its own tables only
        assert catalog.create_table("db.b", NUMBERS).metadata.location.startswith(f"{own}/db/b-")
    plug_in = EndiveCatalog("test", uri=place)
    assert plug_in.create_table("db.c", NUMBERS).location().startswith(f"{warehouse}/db/c-")
    plug_in.close()


def test_a_catalog_without_a_warehouse_has_its_tables_beside_it(tmp_path: Path) -> None:
    place = str(tmp_path / "lake")
    with KVCatalog.create(place) as catalog:
        assert catalog.warehouse == f"file://{place}"
    with KVCatalog.open(place) as catalog:
        assert catalog.warehouse == f"file://{place}"


def test_a_catalog_of_before_there_was_a_warehouse_in_it_is_read(store: DictStore) -> None:
    store.rows[CATALOG] = b'{"format_version":1,"created_unix_ms":5}'

    assert CatalogRecord.decoded(store.rows[CATALOG]) == CatalogRecord(1, 5, "")
    assert KVCatalog(store).warehouse == ""
    assert KVCatalog(store, "file:///w").warehouse == "file:///w"


# Memory.


def test_decoded_snapshots_are_bounded(kv: KVCatalog) -> None:
    kv.create_namespace("db")
    uuid = kv.create_table("db.t", NUMBERS).uuid
    for number in range(records.HISTORY_CACHED + 10):
        snapshot = Snapshot(
            snapshot_id=number, timestamp_ms=number, manifest_list="x" * 1000 + str(number), schema_id=0
        )
        SnapshotRecord.decoded(SnapshotRecord(uuid, number, snapshot, "none").encoded())
        records.decoded_history(records.encoded_history(SnapshotLogEntry(snapshot_id=number, timestamp_ms=number)))

    held = records.decoded_snapshot._records
    assert 0 < sum(map(len, held)) == records.decoded_snapshot.bytes_held <= records.SNAPSHOTS_BYTES_CACHED
    assert records.decoded_history.cache_info().currsize <= records.HISTORY_CACHED
