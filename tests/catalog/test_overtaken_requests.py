"""Requests with an idempotency key whose retry overtakes the first try: they take effect once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from endive.catalog import KVCatalog
from endive.catalog.pyiceberg import EndiveCatalog
from tests.catalog.stand_in import DictStore
from tests.catalog.tables import NAME, NUMBERS, numbers

KEY = "key"


class Overtaken(DictStore):
    """A store in which other calls come before the next one of a kind."""

    def __init__(self) -> None:
        super().__init__()
        self.kind, self.skipped = "", 0
        self.meanwhile: list[Callable[[], object]] = []

    def overtake(self, kind: str, skipped: int, *calls: Callable[[], object]) -> None:
        """Run these calls before the next read or transaction, after some others of its kind."""
        self.kind, self.skipped, self.meanwhile = kind, skipped, list(calls)

    def _come(self, kind: str) -> None:
        if kind != self.kind:
            return
        if self.skipped:
            self.skipped -= 1
            return
        self.kind = ""
        for call in self.meanwhile:
            call()

    def read(self, function: Any) -> Any:
        self._come("read")
        return super().read(function)

    def transact(self, function: Any) -> Any:
        self._come("transact")
        return super().transact(function)


def opened(store: DictStore, directory: Path) -> KVCatalog:
    kv = KVCatalog(store, directory.as_uri(), create=True)
    kv.create_namespace("db")
    return kv


def test_properties_of_a_namespace_are_not_set_again(tmp_path: Path) -> None:
    store = Overtaken()
    with opened(store, tmp_path) as kv:

        def first() -> object:
            return kv.update_namespace_properties("db", None, {"a": "1"}, request_id=KEY)

        store.overtake("transact", 0, first, lambda: kv.update_namespace_properties("db", None, {"a": "2"}))

        assert first() == first()
        assert kv.namespace_properties("db")["a"] == "2"


def test_a_table_of_the_same_name_that_was_created_since_is_not_dropped(tmp_path: Path) -> None:
    store = Overtaken()
    with opened(store, tmp_path) as kv:
        catalog = EndiveCatalog.on(kv)
        catalog.create_table(NAME, NUMBERS)

        def drop() -> None:
            kv.drop_table(NAME, purge=True, request_id=KEY)

        store.overtake("read", 1, drop, lambda: catalog.create_table(NAME, NUMBERS).append(numbers(1)))
        drop()

        assert catalog.load_table(NAME).scan().to_arrow()["n"].to_pylist() == [1]


def test_a_view_of_the_same_name_that_was_created_since_is_not_dropped(tmp_path: Path) -> None:
    store = Overtaken()
    schema = {"type": "struct", "fields": [{"id": 1, "name": "n", "type": "long", "required": False}]}
    version = {
        "version-id": 1,
        "timestamp-ms": 0,
        "schema-id": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "select 1 as n", "dialect": "spark"}],
        "default-namespace": ["db"],
    }
    with opened(store, tmp_path) as kv:
        kv.create_view("db.v", schema, version)
        store.overtake(
            "transact",
            0,
            lambda: kv.drop_view("db.v", request_id=KEY),
            lambda: kv.create_view("db.v", schema, version),
        )
        kv.drop_view("db.v", request_id=KEY)

        assert kv.view_exists("db.v")
