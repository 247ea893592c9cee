"""Commits that a process has announced before it died, and what maintenance makes of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table.update import RemovePropertiesUpdate

from endive.catalog import KVCatalog
from endive.catalog.commit.published import NotePublished
from endive.catalog.commit.publisher import Publisher
from endive.catalog.model.transaction import TransactionFunction
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import CommitConflictError, OutcomeUnknownError
from endive.kv import Store
from endive.kv.log.helping import announce
from endive.kv.log.state import newest_state
from endive.kv.recorded import record_functions
from endive.kv.sst.reading import NoCache
from endive.objects import MemoryStore
from tests.catalog.commits.interrupted import rows_of
from tests.catalog.helped import HelpedStore
from tests.catalog.stand_in import Submitted
from tests.catalog.tables import NAME, NUMBERS, numbers
from tests.store.functions import QUIET

T = TypeVar("T")
LATER_MS = 4_000_000_000_000
"""Every file is older."""


class DyingStore(Store):
    """A store whose process dies after it has announced a transaction, if it is told to."""

    dies = False

    def submit(self, function: TransactionFunction[T]) -> Submitted[T]:  # type: ignore[override]
        return Submitted(lambda: self.transact(function))

    def transact(self, function: TransactionFunction[T]) -> T:  # type: ignore[override]
        if not self.dies:
            return Store.submit(self, function).wait()
        state = self.driver.run(newest_state())
        assert state is not None
        recorded = self.driver.run(record_functions((function,), state, NoCache(), {}))
        if recorded is not None:
            self.driver.run(announce(state, recorded.calls, "dead"))
        raise OutcomeUnknownError("the process is dead")


@pytest.fixture
def store() -> Iterator[DyingStore]:
    with DyingStore(MemoryStore(), "shared", QUIET) as opened:
        yield opened


@pytest.fixture
def catalog(store: DyingStore, tmp_path: Path) -> Iterator[EndiveCatalog]:
    with KVCatalog(store, f"file://{tmp_path}/warehouse", create=True) as kv:
        kv.create_namespace("db")
        yield EndiveCatalog.on(kv)


def test_files_of_an_announced_append_are_no_orphans(catalog: EndiveCatalog, store: DyingStore) -> None:
    table = catalog.create_table(NAME, NUMBERS)
    table.append(numbers(1))
    store.dies = True
    with pytest.raises(CommitStateUnknownException):
        table.append(numbers(2))
    store.dies = False

    catalog.kv.remove_orphan_files(NAME, LATER_MS)

    assert rows_of(catalog.load_table(NAME)) == [1, 2]
    assert catalog.kv.check() == []


def test_a_later_commit_carries_out_an_announced_one(catalog: EndiveCatalog, store: DyingStore) -> None:
    table = catalog.create_table(NAME, NUMBERS, properties={"endive.metadata-json": "background"})
    store.dies = True
    with pytest.raises(CommitStateUnknownException), table.transaction() as transaction:
        transaction.set_properties(dead="1")
    store.dies = False
    store.refresh()

    catalog.create_namespace("other")

    assert catalog.load_table(NAME).properties["dead"] == "1"


def test_an_announced_commit_is_refused_if_its_table_has_changed(catalog: EndiveCatalog, store: DyingStore) -> None:
    table = catalog.create_table(NAME, NUMBERS)
    store.dies = True
    with pytest.raises(CommitStateUnknownException), table.transaction() as transaction:
        transaction.set_properties(dead="1")
    store.dies = False

    catalog.load_table(NAME).transaction().set_properties(alive="1").commit_transaction()
    assert store.settle() == ()

    assert {"dead", "alive"} & catalog.load_table(NAME).properties.keys() == {"alive"}
    assert catalog.kv.check() == []


def test_property_changes_of_processes_are_applied_one_on_top_of_the_other(tmp_path: Path) -> None:
    with HelpedStore() as helped, KVCatalog(helped, f"file://{tmp_path}/warehouse", create=True) as kv:
        kv.create_namespace("db")
        kv.create_table(NAME, NUMBERS, properties={"endive.metadata-json": "background", "a": "1"})
        old = KVCatalog(helped._other, f"file://{tmp_path}/warehouse", create=False)
        helped._other.refresh()

        kv.update_properties(NAME, {"b": "2"})
        old.update_properties(NAME, {"c": "3"})
        kv.update_properties(NAME, {"d": "4"}, removals=("a",))

        assert helped.called >= 2
        found = kv.load_table(NAME).metadata.properties
        assert {name: found[name] for name in ("b", "c", "d")} == {"b": "2", "c": "3", "d": "4"}
        with pytest.raises(CommitConflictError, match="already"):
            kv.commit(NAME, (), (RemovePropertiesUpdate(removals=["a"]),))
        assert kv.check() == []
        old.close()


def test_another_process_notes_a_metadata_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publisher, "remind", lambda *_, **__: None)  # the file is written here, not by its thread
    with HelpedStore() as helped, KVCatalog(helped, f"file://{tmp_path}/warehouse", create=True) as kv:
        kv.create_namespace("db")
        kv.create_table(NAME, NUMBERS, properties={"endive.metadata-json": "background"})
        kv.update_properties(NAME, {"a": "1"})
        before = helped.called

        location = kv.export_metadata(NAME)

        assert helped.called > before
        assert kv.load_table(NAME).metadata_location == location
        assert kv.files.read(location).properties["a"] == "1"
        note = NotePublished(NAME, kv.load_table(NAME).uuid, 0, "an older file", (), 0)
        assert helped.transact(note) is False
        assert kv.check() == []
