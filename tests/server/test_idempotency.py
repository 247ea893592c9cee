"""Idempotency keys of operations that are not commits, and tables that are registered in place of others."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endive.catalog import KVCatalog
from endive.catalog.model.keys import REQUESTS
from endive.catalog.operations import requests
from endive.errors import NotInCatalogError
from endive.server.application import Application
from tests.server.calls import KEY, OTHER_KEY, SCHEMA, VERSION, answer, create_table, error, set_property

TABLE = "namespaces/db/tables/events"


def name(text: str) -> dict[str, object]:
    return {"namespace": ["db"], "name": text}


def twice(application: Application, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Send a request under a key twice; return the answer, which must be the same."""
    first = answer(application, method, path, body, idempotency_key=KEY)
    assert answer(application, method, path, body, idempotency_key=KEY) == first
    return first


def rows(catalog: KVCatalog) -> int:
    return len(catalog.store.read(lambda tx: tx.scan(REQUESTS.encode())))


def test_a_repeated_drop_is_no_error(application: Application, catalog: KVCatalog) -> None:
    create_table(application)

    assert twice(application, "DELETE", TABLE) == (204, None)
    assert error(application, "DELETE", TABLE) == (404, "NoSuchTableException")  # without the key
    assert catalog.check() == []


def test_a_repeated_drop_does_not_drop_the_next_table(application: Application) -> None:
    create_table(application)
    assert answer(application, "DELETE", f"{TABLE}?purgeRequested=true", idempotency_key=KEY)[0] == 204
    create_table(application)

    assert answer(application, "DELETE", f"{TABLE}?purgeRequested=true", idempotency_key=KEY)[0] == 204

    assert answer(application, "HEAD", TABLE)[0] == 204


def test_a_repeated_rename_is_no_error(application: Application) -> None:
    create_table(application)
    rename = {"source": name("events"), "destination": name("moved")}

    assert twice(application, "POST", "tables/rename", rename) == (204, None)
    assert error(application, "POST", "tables/rename", rename) == (404, "NoSuchTableException")


def test_repeated_operations_on_namespaces(application: Application) -> None:
    update = {"removals": ["gone"], "updates": {"a": "1"}}

    status, changed = twice(application, "POST", "namespaces/db/properties", update)
    assert (status, changed["updated"], changed["missing"]) == (200, ["a"], ["gone"])
    assert answer(application, "DELETE", "namespaces/db", idempotency_key=OTHER_KEY)[0] == 204
    assert answer(application, "DELETE", "namespaces/db", idempotency_key=OTHER_KEY)[0] == 204


def test_repeated_operations_on_views(application: Application) -> None:
    view = {"name": "v", "schema": SCHEMA, "view-version": VERSION}
    assert answer(application, "POST", "namespaces/db/views", view)[0] == 200

    rename = {"source": name("v"), "destination": name("w")}
    assert twice(application, "POST", "views/rename", rename) == (204, None)
    assert answer(application, "DELETE", "namespaces/db/views/w", idempotency_key=OTHER_KEY)[0] == 204
    assert answer(application, "DELETE", "namespaces/db/views/w", idempotency_key=OTHER_KEY)[0] == 204


def test_a_repeated_registration_and_its_opposite(application: Application) -> None:
    create_table(application)

    status, gone = twice(application, "POST", f"{TABLE}/unregister")
    assert status == 200
    again = {"name": "again", "metadata-location": gone["metadata-location"]}
    sent = ("POST", "namespaces/db/register", again)
    first = answer(application, *sent, idempotency_key=OTHER_KEY)
    assert first[0] == 200
    assert answer(application, *sent, idempotency_key=OTHER_KEY) == first
    assert error(application, *sent) == (409, "AlreadyExistsException")


def test_a_key_belongs_to_one_request(application: Application) -> None:
    create_table(application)
    create_table(application, "other")
    assert answer(application, "DELETE", TABLE, idempotency_key=KEY)[0] == 204

    refused = error(application, "DELETE", "namespaces/db/tables/other", idempotency_key=KEY)
    assert refused == (422, "UnprocessableEntityException")

    assert answer(application, "HEAD", "namespaces/db/tables/other")[0] == 204


def test_a_refused_request_stores_nothing(application: Application, catalog: KVCatalog) -> None:
    assert error(application, "DELETE", TABLE, idempotency_key=KEY) == (404, "NoSuchTableException")
    create_table(application)

    assert rows(catalog) == 0
    assert answer(application, "DELETE", TABLE, idempotency_key=KEY)[0] == 204


def test_old_results_are_deleted_by_the_next_one(
    application: Application, catalog: KVCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(application)
    assert answer(application, "DELETE", TABLE, idempotency_key=KEY)[0] == 204
    create_table(application)
    assert rows(catalog) == 1
    monkeypatch.setattr(requests, "LIFETIME_MS", -1 - requests.CLOCKS_DIFFER_MS)

    assert answer(application, "DELETE", TABLE, idempotency_key=OTHER_KEY)[0] == 204

    assert rows(catalog) == 1


def test_a_retry_that_overtakes_its_first_try(catalog: KVCatalog, application: Application) -> None:
    """The first try has looked for a stored result and found none, when its retry drops the table."""
    create_table(application)
    looked, dropped = threading.Event(), threading.Event()

    class Slow:
        """The store, as a process sees it that stops after its first read."""

        def __init__(self) -> None:
            self._reads = 0

        def read(self, function: Callable[..., Any]) -> Any:
            found = catalog.store.read(function)
            self._reads += 1
            if self._reads == 1:
                looked.set()
                assert dropped.wait(10)
            return found

    request = requests.keyed(KEY, "drop table db.events", catalog.now_ms())
    assert request is not None
    outcome: list[str] = []

    def run() -> str:
        raise NotInCatalogError("Table", "db.events")

    store: Any = Slow()
    first = threading.Thread(
        target=lambda: outcome.append(requests.once(store, request, run, lambda _: "stored result"))
    )
    first.start()
    assert looked.wait(10)
    assert answer(application, "DELETE", TABLE, idempotency_key=KEY)[0] == 204
    dropped.set()
    first.join(10)

    assert outcome == ["stored result"]


# Registration in place of another table.


def test_a_table_is_registered_in_place_of_another(application: Application, catalog: KVCatalog) -> None:
    first = create_table(application)
    create_table(application, "other")
    _, gone = answer(application, "POST", "namespaces/db/tables/other/unregister")
    body = {"name": "events", "metadata-location": gone["metadata-location"]}

    assert error(application, "POST", "namespaces/db/register", body) == (409, "AlreadyExistsException")
    status, found = answer(application, "POST", "namespaces/db/register", {**body, "overwrite": True})

    assert status == 200
    assert found["metadata"]["table-uuid"] == gone["metadata"]["table-uuid"]
    assert answer(application, "GET", TABLE)[1]["metadata"] == found["metadata"]
    assert Path(first["metadata-location"].removeprefix("file://")).exists()  # the files of the other one stay
    assert catalog.check() == []


def test_a_table_goes_back_to_an_older_metadata_file(application: Application, catalog: KVCatalog) -> None:
    created = create_table(application)
    tag = catalog.load_table("db.events").version
    for value in ("1", "2"):
        assert answer(application, "POST", TABLE, {"updates": [set_property("a", value)]})[0] == 200
    body = {"name": "events", "metadata-location": created["metadata-location"], "overwrite": True}

    status, found = answer(application, "POST", "namespaces/db/register", body)

    assert status == 200
    assert found["metadata"] == created["metadata"]
    assert catalog.load_table("db.events").version == tag + 3  # no state has the version of another one
    assert answer(application, "POST", TABLE, {"updates": [set_property("a", "3")]})[0] == 200
    assert catalog.check() == []


def test_overwriting_nothing_is_a_registration(application: Application) -> None:
    create_table(application)
    _, gone = answer(application, "POST", f"{TABLE}/unregister")

    body = {"name": "events", "metadata-location": gone["metadata-location"], "overwrite": True}

    assert answer(application, "POST", "namespaces/db/register", body)[0] == 200


def test_operations_that_the_server_lacks_are_refused_by_name(application: Application) -> None:
    for path in ("namespaces/db/functions", "namespaces/db/functions/f"):
        status, found = answer(application, "GET", path)
        assert (status, found["error"]["type"]) == (406, "UnsupportedOperationException")
        assert "functions" in found["error"]["message"]
    assert error(application, "POST", "oauth/tokens", b"grant_type=x") == (406, "UnsupportedOperationException")
    assert not [one for one in answer(application, "GET", "config")[1]["endpoints"] if "functions" in one]
