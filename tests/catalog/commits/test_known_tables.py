"""Commits to a table that this process knows: its past is not loaded again."""

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotRefUpdate, SetPropertiesUpdate

from endive.catalog.commit.change import TableChange
from endive.catalog.commit.known_tables import TABLES_KEPT, KnownTables
from endive.catalog.model.keys import HISTORY, SNAPSHOTS
from endive.catalog.model.transaction import KeyValue
from endive.catalog.operations.table_rows import find_table
from endive.catalog.pyiceberg import EndiveCatalog
from endive.protocol.requests import Steps
from tests.catalog.stand_in import DictStore, DictTransaction
from tests.catalog.tables import NAME, NUMBERS, numbers

BACKGROUND = {"endive.metadata-json": "background"}


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Prefixes of the table's past that were scanned."""
    prefixes: list[bytes] = []
    scan = DictTransaction.scan

    def scanning(self: DictTransaction, prefix: bytes) -> Steps[tuple[KeyValue, ...]]:
        if prefix.startswith((SNAPSHOTS.encode(), HISTORY.encode())):
            prefixes.append(prefix)
        return scan(self, prefix)

    monkeypatch.setattr(DictTransaction, "scan", scanning)
    monkeypatch.setattr("endive.catalog.commit.publisher.Publisher.remind", lambda *_, **__: None)  # it loads the table
    return prefixes


@pytest.fixture
def background(catalog: EndiveCatalog, scanned: list[bytes]) -> Table:
    table = catalog.create_table(NAME, NUMBERS, properties=BACKGROUND)
    for n in range(3):
        table.append(numbers(n))
    scanned.clear()
    return table


def test_commits_do_not_scan_the_tables_past(catalog: EndiveCatalog, background: Table, scanned: list[bytes]) -> None:
    for n in range(3, 6):
        background.append(numbers(n))
        with background.transaction() as transaction:
            transaction.set_properties({"n": str(n)})
    assert scanned == []
    loaded = catalog.load_table(NAME)
    assert scanned != []
    assert background.metadata == loaded.metadata
    assert background.properties["n"] == "5"
    assert sorted(background.scan().to_arrow()["n"].to_pylist()) == list(range(6))


@pytest.fixture
def before(catalog: EndiveCatalog, scanned: list[bytes]) -> Table:
    """A table of the default mode."""
    table = catalog.create_table(NAME, NUMBERS)
    for n in range(3):
        table.append(numbers(n))
    scanned.clear()
    return table


def test_commits_of_the_default_mode_and_their_answers_do_not_scan_the_past(
    catalog: EndiveCatalog, before: Table, scanned: list[bytes]
) -> None:
    before.append(numbers(3))
    with before.transaction() as transaction:
        transaction.set_properties({"n": "1"})
    answer = catalog.kv.update_properties(NAME, {"n": "2"})
    assert scanned == []
    assert answer == catalog.kv.load_table(NAME)
    assert len(answer.metadata.snapshots) == 4
    assert answer.metadata.properties["n"] == "2"


def test_commits_to_several_tables_do_not_scan_the_past(
    catalog: EndiveCatalog, before: Table, scanned: list[bytes]
) -> None:
    catalog.create_table("db.other", NUMBERS).append(numbers(0))
    for n in range(3):
        update = SetPropertiesUpdate(updates={"n": str(n)})
        changes = [TableChange(name, (), (update,)) for name in (NAME, ("db", "other"))]
        answers = catalog.kv.commit_and_load(changes)
    assert scanned == []
    assert answers == [catalog.kv.load_table(NAME), catalog.kv.load_table("db.other")]
    assert [len(one.metadata.snapshots) for one in answers] == [3, 1]


def test_changes_of_properties_do_not_scan_the_past_of_a_table_without_branches(
    catalog: EndiveCatalog, before: Table, scanned: list[bytes]
) -> None:
    catalog.kv.commit(NAME, (), (RemoveSnapshotRefUpdate(ref_name="main"),))
    catalog.kv.update_properties(NAME, {"n": "0"})
    scanned.clear()
    answer = catalog.kv.update_properties(NAME, {"n": "1"})
    assert scanned == []
    assert answer == catalog.kv.load_table(NAME)
    assert len(answer.metadata.snapshots) == 3


def test_a_commit_after_another_process_loads_the_table(
    catalog: EndiveCatalog, background: Table, store: DictStore, warehouse: str, scanned: list[bytes]
) -> None:
    from endive.catalog import KVCatalog

    other = EndiveCatalog.on(KVCatalog(store, warehouse)).load_table(NAME)
    other.append(numbers(3))
    scanned.clear()
    background.refresh()
    background.append(numbers(4))
    assert scanned != []
    assert background.metadata == catalog.load_table(NAME).metadata
    assert sorted(background.scan().to_arrow()["n"].to_pylist()) == list(range(5))


def test_snapshots_that_are_removed_are_not_kept(catalog: EndiveCatalog, background: Table) -> None:
    catalog.kv.expire_snapshots(NAME, older_than_unix_ms=2**53, keep_last=1)
    background.refresh()
    background.append(numbers(3))
    assert background.metadata == catalog.load_table(NAME).metadata
    assert len(background.metadata.snapshots) == 2


def test_a_table_that_is_registered_again_is_not_taken_for_the_one_that_was_dropped(
    catalog: EndiveCatalog, background: Table
) -> None:
    """It has the same uuid, and would reach the versions that it had before."""
    location = catalog.kv.export_metadata(NAME)
    for n in range(3):
        background.append(numbers(100 + n))
    versions = catalog.kv.load_table(NAME).version
    catalog.drop_table(NAME)
    table = catalog.register_table(NAME, location)
    for n in range(versions + 2):
        table.append(numbers(n + 3))
        assert table.metadata == catalog.load_table(NAME).metadata
    assert catalog.kv.load_table(NAME).version > versions
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == list(range(versions + 5))


def test_few_tables_are_kept(catalog: EndiveCatalog, background: Table) -> None:
    known = KnownTables()
    record = catalog.kv.store.read_cached(lambda tx: find_table(tx, NAME))
    assert record is not None
    known.keep(record.version, background.metadata)
    assert known.at(record) is background.metadata
    for number in range(TABLES_KEPT + 10):
        known.keep(0, background.metadata.model_copy(update={"table_uuid": number}))
    assert len(known._held) == TABLES_KEPT
    assert known.at(record) is None
