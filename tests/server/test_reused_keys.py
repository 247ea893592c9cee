"""An idempotency key belongs to one request of one caller, for as long as the server announces."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table.update import SetPropertiesUpdate

from endive.catalog import KVCatalog, TableChange
from endive.catalog.commit import stored_results
from endive.catalog.model.catalog_records import CommitRecord
from endive.catalog.model.keys import COMMITS, REQUESTS, commit_key
from endive.catalog.operations import requests
from endive.server.access import GrantReader, Guard, Principal
from endive.server.application import Application
from endive.server.configuration import IDEMPOTENCY_LIFETIME
from endive.server.http import Request
from endive.server.routes import Call
from tests.server.calls import KEY, SCHEMA, VERSION, answer, create_table, error, set_property

TABLE = "namespaces/db/tables/events"
REUSED = (422, "UnprocessableEntityException")


def commit_of(value: str) -> dict[str, object]:
    return {"requirements": [], "updates": [set_property("a", value)]}


def properties_of(catalog: KVCatalog, name: str = "db.events") -> dict[str, str]:
    return dict(catalog.load_table(name).metadata.properties)


def test_a_commit_under_a_used_key_with_another_body_is_refused(application: Application, catalog: KVCatalog) -> None:
    create_table(application)
    assert answer(application, "POST", TABLE, commit_of("1"), idempotency_key=KEY)[0] == 200

    assert error(application, "POST", TABLE, commit_of("2"), idempotency_key=KEY) == REUSED

    assert properties_of(catalog)["a"] == "1"
    assert answer(application, "POST", TABLE, commit_of("1"), idempotency_key=KEY)[0] == 200
    assert catalog.load_table("db.events").version == 1


def test_the_order_of_fields_and_white_space_make_no_other_request(application: Application) -> None:
    create_table(application)
    first = b'{"requirements": [], "updates": [{"action": "set-properties", "updates": {"a": "1"}}]}'
    same = b'{"updates":[{"updates":{"a":"1"},"action":"set-properties"}],"requirements":[]}'

    assert answer(application, "POST", TABLE, first, idempotency_key=KEY)[0] == 200
    assert answer(application, "POST", TABLE, same, idempotency_key=KEY)[0] == 200


def test_two_commits_under_one_key_at_the_same_time(application: Application, catalog: KVCatalog) -> None:
    create_table(application)
    statuses: list[int] = []
    start = threading.Barrier(8)

    def send(value: str) -> None:
        start.wait(30)
        statuses.append(answer(application, "POST", TABLE, commit_of(value), idempotency_key=KEY)[0])

    threads = [threading.Thread(target=send, args=(str(number),)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)

    assert sorted(statuses) == [200] + [422] * 7
    assert catalog.load_table("db.events").version == 1


def test_a_result_of_an_older_version_has_no_digest(application: Application, catalog: KVCatalog) -> None:
    create_table(application)
    uuid = catalog.load_table("db.events").uuid
    old = b'{"commit_id":"%s","version":1,"snapshot_id":null,"metadata_location":""}' % KEY.encode()
    assert CommitRecord.decoded(old).digest == ""

    def put(tx: Any) -> Any:
        tx.put(commit_key(uuid, KEY), old)
        yield from ()

    catalog.store.transact(put)

    assert answer(application, "POST", TABLE, commit_of("2"), idempotency_key=KEY)[0] == 200
    assert "a" not in properties_of(catalog)  # it is the retry of that commit


def test_a_library_commit_without_a_digest_is_recognised_by_its_id(
    application: Application, catalog: KVCatalog
) -> None:
    """A restarted job repeats its commit with other files under the same id."""
    create_table(application)
    first = catalog.commit_many([TableChange(("db", "events"), (), updates("1"))], "batch 7")

    assert catalog.commit_many([TableChange(("db", "events"), (), updates("2"))], "batch 7") == first


def updates(value: str) -> tuple[Any, ...]:
    return (SetPropertiesUpdate(updates={"a": value}),)


def test_a_transaction_under_a_used_key_with_another_body_is_refused(
    application: Application, catalog: KVCatalog
) -> None:
    for name in ("events", "other"):
        create_table(application, name)

    def body(value: str, *names: str) -> dict[str, object]:
        named = [{"namespace": ["db"], "name": name} for name in names]
        return {"table-changes": [{"identifier": one, **commit_of(value)} for one in named]}

    path = "transactions/commit"
    assert answer(application, "POST", path, body("1", "events", "other"), idempotency_key=KEY)[0] == 204

    assert error(application, "POST", path, body("2", "events", "other"), idempotency_key=KEY) == REUSED
    assert error(application, "POST", path, body("1", "events"), idempotency_key=KEY) == REUSED
    assert error(application, "POST", TABLE, commit_of("1"), idempotency_key=KEY) == REUSED

    assert answer(application, "POST", path, body("1", "events", "other"), idempotency_key=KEY)[0] == 204
    assert [properties_of(catalog, f"db.{name}")["a"] for name in ("events", "other")] == ["1", "1"]


VIEW = {"name": "v", "schema": SCHEMA, "view-version": VERSION}
TWICE: list[tuple[str, str, object, object]] = [
    (
        "POST",
        "namespaces/db/tables",
        {"name": "new", "schema": SCHEMA},
        {"name": "new", "schema": SCHEMA, "properties": {"a": "1"}},
    ),
    ("POST", "namespaces/db/tables", {"name": "new", "schema": SCHEMA}, {"name": "newer", "schema": SCHEMA}),
    ("POST", "namespaces", {"namespace": ["n"]}, {"namespace": ["n"], "properties": {"a": "1"}}),
    ("POST", "namespaces", {"namespace": ["n"]}, {"namespace": ["m"]}),
    ("POST", "namespaces/db/properties", {"updates": {"a": "1"}}, {"updates": {"a": "2"}}),
    ("POST", "namespaces/db/views", VIEW, {**VIEW, "properties": {"a": "1"}}),
    ("POST", "namespaces/db/views/there", commit_of("1"), commit_of("2")),
]


@pytest.mark.parametrize(("method", "path", "first", "second"), TWICE)
def test_a_used_key_with_another_body_is_refused(
    application: Application, method: str, path: str, first: object, second: object
) -> None:
    assert answer(application, "POST", "namespaces/db/views", {**VIEW, "name": "there"})[0] == 200
    status, found = answer(application, method, path, first, idempotency_key=KEY)
    assert status == 200, found

    assert error(application, method, path, second, idempotency_key=KEY) == REUSED

    assert answer(application, method, path, first, idempotency_key=KEY) == (200, found)


def test_a_view_recognises_a_commit_after_many_others(application: Application, catalog: KVCatalog) -> None:
    assert answer(application, "POST", "namespaces/db/views", VIEW)[0] == 200
    path = "namespaces/db/views/v"
    assert answer(application, "POST", path, commit_of("first"), idempotency_key=KEY)[0] == 200
    for number in range(25):
        assert answer(application, "POST", path, commit_of(str(number)))[0] == 200

    assert answer(application, "POST", path, commit_of("first"), idempotency_key=KEY)[0] == 200

    assert catalog.load_view("db.v").metadata["properties"]["a"] == "24"


def test_the_same_key_of_another_caller_is_another_key(catalog: KVCatalog) -> None:
    def id_of(name: str) -> str | None:
        guard = Guard(GrantReader(catalog), Principal(name))
        return Call(catalog, Request("POST", "/v1/x", {}, {"idempotency-key": KEY}, b"{}"), {}, guard).request_id

    assert id_of("ada") == id_of("ada")
    assert id_of("ada") != id_of("bob")
    assert KEY not in (id_of("ada"), id_of("bob"))


def test_a_key_is_a_uuid(application: Application) -> None:
    create_table(application)

    assert error(application, "POST", TABLE, commit_of("1"), idempotency_key="once")[0] == 400


@pytest.mark.parametrize("kind", ["tables", "views"])
def test_a_repeated_creation_does_not_return_another_of_the_same_name(application: Application, kind: str) -> None:
    body = {**VIEW, "name": "new"} if kind == "views" else {"name": "new", "schema": SCHEMA}
    path = f"namespaces/db/{kind}"
    assert answer(application, "POST", path, body, idempotency_key=KEY)[0] == 200
    assert answer(application, "DELETE", f"{path}/new")[0] == 204

    assert error(application, "POST", path, body, idempotency_key=KEY)[0] == 404
    assert answer(application, "POST", path, body)[0] == 200
    assert error(application, "POST", path, body, idempotency_key=KEY)[0] == 404


# Lifetime.


def result_rows(catalog: KVCatalog) -> int:
    rows = catalog.store.read(lambda tx: tx.scan(COMMITS.encode()))
    return len([key for key, _ in rows if b"/id/" in key])


def test_the_announced_lifetime_is_that_of_results(application: Application) -> None:
    assert answer(application, "GET", "config")[1]["idempotency-key-lifetime"] == IDEMPOTENCY_LIFETIME == "PT30M"
    assert requests.LIFETIME_MS == 30 * 60 * 1000


def test_a_retry_is_recognised_after_more_commits_than_a_table_keeps_results(
    application: Application, catalog: KVCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_results, "RESULTS_STORED", 3)
    create_table(application)
    assert answer(application, "POST", TABLE, commit_of("first"), idempotency_key=KEY)[0] == 200
    for number in range(10):
        assert answer(application, "POST", TABLE, commit_of(str(number)))[0] == 200

    assert answer(application, "POST", TABLE, commit_of("first"), idempotency_key=KEY)[0] == 200

    assert properties_of(catalog)["a"] == "9"
    assert result_rows(catalog) == 11


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let results expire when it is called."""
    return lambda: monkeypatch.setattr(requests, "LIFETIME_MS", -1 - requests.CLOCKS_DIFFER_MS)


def test_expired_results_are_deleted_in_small_steps(
    application: Application, catalog: KVCatalog, monkeypatch: pytest.MonkeyPatch, later: Callable[[], None]
) -> None:
    monkeypatch.setattr(stored_results, "RESULTS_STORED", 3)
    create_table(application)

    def rows_after_a_commit(number: int) -> int:
        assert answer(application, "POST", TABLE, commit_of(str(number)))[0] == 200
        return result_rows(catalog)

    assert [rows_after_a_commit(number) for number in range(10)] == list(range(1, 11))
    later()
    assert [rows_after_a_commit(number) for number in range(10, 20)] == [9, 8, 7, 6, 5, 4, 3, 3, 3, 3]
    assert catalog.check() == []


def test_stored_requests_are_deleted_in_small_steps(
    application: Application, catalog: KVCatalog, later: Callable[[], None]
) -> None:
    def rows_after_a_request(number: int) -> int:
        key = f"01890a5d-ac96-774b-bcce-{number:012d}"
        body = {"updates": {"a": str(number)}}
        assert answer(application, "POST", "namespaces/db/properties", body, idempotency_key=key)[0] == 200
        return len(catalog.store.read(lambda tx: tx.scan(REQUESTS.encode())))

    assert [rows_after_a_request(number) for number in range(5)] == [1, 2, 3, 4, 5]
    later()
    assert [rows_after_a_request(number) for number in range(5, 12)] == [4, 3, 2, 1, 1, 1, 1]
    assert catalog.check() == []


def test_results_of_an_older_version_are_queued(application: Application, catalog: KVCatalog) -> None:
    def put(tx: Any) -> Any:
        for number in range(3):
            old = b'{"operation":"drop table db.t%d","result":{},"unix_ms":1}' % number
            tx.put(REQUESTS.encode() + str(number).encode(), old)
        yield from ()

    catalog.store.transact(put)
    for number in range(3):
        key = f"01890a5d-ac96-774b-bcce-{number:012d}"
        body = {"updates": {"a": str(number)}}
        assert answer(application, "POST", "namespaces/db/properties", body, idempotency_key=key)[0] == 200

    assert len(catalog.store.read(lambda tx: tx.scan(REQUESTS.encode()))) == 3
