"""The operations of Iceberg's REST protocol, request by request."""

import json
from pathlib import Path

import pytest

from endive.catalog import KVCatalog
from endive.server.application import ENDPOINTS, Application
from tests.server.calls import KEY, OTHER_KEY, SCHEMA, answer, create_table, error, send, set_property


def test_the_configuration_lists_the_operations(application: Application) -> None:
    status, found = answer(application, "GET", "config")

    assert status == 200
    assert found["endpoints"] == ENDPOINTS
    assert "POST /v1/{prefix}/transactions/commit" in ENDPOINTS
    assert found["idempotency-key-lifetime"]


def test_an_unknown_warehouse_is_named(application: Application) -> None:
    assert error(application, "GET", "config?warehouse=elsewhere") == (404, "NoSuchWarehouseException")
    assert answer(application, "GET", "config?warehouse=lake")[0] == 200


def test_several_warehouses_have_a_prefix_each(tmp_path: Path) -> None:
    with KVCatalog.create(str(tmp_path / "a")) as one, KVCatalog.create(str(tmp_path / "b")) as other:
        application = Application({"a": one, "b": other})

        _, found = answer(application, "GET", "config?warehouse=b")
        assert found["overrides"] == {"prefix": "b"}
        assert answer(application, "POST", "b/namespaces", {"namespace": ["db"]})[0] == 200
        assert other.list_namespaces() == [("db",)]
        assert one.list_namespaces() == []
        assert error(application, "GET", "c/namespaces") == (404, "NotFoundException")


def test_unknown_paths_and_methods_are_refused(application: Application) -> None:
    assert error(application, "GET", "namespaces/db/nothing/here") == (404, "NotFoundException")
    assert error(application, "PUT", "namespaces") == (405, "UnsupportedOperationException")
    assert error(application, "POST", "config") == (405, "UnsupportedOperationException")


# Namespaces.


def test_namespaces_are_nested_and_have_properties(application: Application) -> None:
    nested = {"namespace": ["db", "a.b", "c/d"], "properties": {"owner": "ada"}}
    path = "namespaces/db%1Fa.b%1Fc%2Fd"

    assert answer(application, "POST", "namespaces", nested) == (200, nested)
    assert answer(application, "GET", path) == (200, nested)
    assert answer(application, "GET", "namespaces?parent=db%1Fa.b")[1]["namespaces"] == [["db", "a.b", "c/d"]]
    change = {"removals": ["owner", "gone"], "updates": {"team": "x"}}
    assert answer(application, "POST", f"{path}/properties", change) == (
        200,
        {"updated": ["team"], "removed": ["owner"], "missing": ["gone"]},
    )
    assert send(application, "HEAD", path).status == 204
    assert send(application, "DELETE", path).status == 204
    assert send(application, "HEAD", path).status == 404


def test_a_property_cannot_be_both_set_and_removed(application: Application) -> None:
    change = {"removals": ["a"], "updates": {"a": "1"}}

    assert error(application, "POST", "namespaces/db/properties", change) == (422, "UnprocessableEntityException")


def test_errors_of_namespaces(application: Application) -> None:
    create_table(application)

    assert error(application, "POST", "namespaces", {"namespace": ["db"]}) == (409, "AlreadyExistsException")
    assert error(application, "DELETE", "namespaces/db") == (409, "NamespaceNotEmptyException")
    assert error(application, "GET", "namespaces/no") == (404, "NoSuchNamespaceException")
    assert error(application, "POST", "namespaces", {"namespace": []})[0] == 400
    assert error(application, "POST", "namespaces", {"name": "db"}) == (400, "BadRequestException")
    assert error(application, "POST", "namespaces", b"{not json") == (400, "BadRequestException")


def test_lists_come_in_pages(application: Application) -> None:
    for name in ("a", "b", "c", "d", "e"):
        create_table(application, name)

    pages: list[list[str]] = []
    token: str | None = ""
    while token is not None:
        _, found = answer(application, "GET", f"namespaces/db/tables?pageSize=2&pageToken={token}")
        pages.append([one["name"] for one in found["identifiers"]])
        token = found["next-page-token"] and found["next-page-token"].replace("\x1f", "%1F")
        if len(pages) == 1:
            create_table(application, "aa")  # before the second page: neither shown twice nor hiding another

    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert len(answer(application, "GET", "namespaces/db/tables")[1]["identifiers"]) == 6
    assert error(application, "GET", "namespaces/db/tables?pageSize=0&pageToken=")[0] == 400


# Tables.


def test_a_table_is_created_loaded_renamed_and_dropped(application: Application) -> None:
    created = create_table(application, properties={"a": "1"})
    status, loaded = answer(application, "GET", "namespaces/db/tables/events")

    assert status == 200
    assert loaded == created
    assert loaded["metadata"]["properties"] == {"a": "1"}
    assert Path(loaded["metadata-location"].removeprefix("file://")).exists()
    rename = {
        "source": {"namespace": ["db"], "name": "events"},
        "destination": {"namespace": ["db"], "name": "x.y"},
    }
    assert send(application, "POST", "tables/rename", rename).status == 204
    assert send(application, "HEAD", "namespaces/db/tables/events").status == 404
    assert send(application, "HEAD", "namespaces/db/tables/x.y").status == 204
    assert send(application, "DELETE", "namespaces/db/tables/x.y?purgeRequested=true").status == 204
    assert not Path(loaded["metadata-location"].removeprefix("file://")).exists()
    assert error(application, "DELETE", "namespaces/db/tables/x.y") == (404, "NoSuchTableException")


def test_a_staged_table_exists_after_its_commit(application: Application) -> None:
    staged = create_table(application, "events", **{"stage-create": True})
    metadata = staged["metadata"]

    assert "metadata-location" not in staged
    assert send(application, "HEAD", "namespaces/db/tables/events").status == 404
    updates = [
        {"action": "assign-uuid", "uuid": metadata["table-uuid"]},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": metadata["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": metadata["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": metadata["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": metadata["location"]},
    ]
    commit = {"requirements": [{"type": "assert-create"}], "updates": updates}
    status, found = answer(application, "POST", "namespaces/db/tables/events", commit)
    assert status == 200, found
    assert found["metadata"]["table-uuid"] == metadata["table-uuid"]
    assert error(application, "POST", "namespaces/db/tables/events", commit) == (409, "CommitFailedException")


def test_an_etag_saves_the_body_until_the_table_changes(application: Application) -> None:
    create_table(application)
    path = "namespaces/db/tables/events"
    tag = send(application, "GET", path).headers["etag"]

    again = send(application, "GET", path, headers={"if-none-match": tag})
    assert (again.status, again.body) == (304, b"")
    assert send(application, "GET", f"{path}?snapshots=refs", headers={"if-none-match": tag}).status == 200
    committed = send(application, "POST", path, {"updates": [set_property("a", "1")]})
    assert committed.headers["etag"] != tag
    assert send(application, "GET", path, headers={"if-none-match": tag}).status == 200
    assert error(application, "GET", f"{path}?snapshots=some")[0] == 400


def test_a_table_leaves_the_catalog_with_its_newest_metadata_file(application: Application) -> None:
    created = create_table(application, properties={"endive.metadata-json": "background"})
    path = "namespaces/db/tables/events"
    assert answer(application, "POST", path, {"updates": [set_property("a", "1")]})[0] == 200

    status, found = answer(application, "POST", f"{path}/unregister")

    assert status == 200
    file = json.loads(Path(found["metadata-location"].removeprefix("file://")).read_text())
    assert file["properties"]["a"] == found["metadata"]["properties"]["a"] == "1"
    assert send(application, "HEAD", path).status == 404
    register = {"name": "again", "metadata-location": found["metadata-location"]}
    status, again = answer(application, "POST", "namespaces/db/register", register)
    assert status == 200
    assert again["metadata"]["table-uuid"] == created["metadata"]["table-uuid"]


def test_a_missing_metadata_file_is_reported(application: Application) -> None:
    created = create_table(application)
    Path(created["metadata-location"].removeprefix("file://")).unlink()

    assert error(application, "GET", "namespaces/db/tables/events") == (404, "NotFoundException")


def test_a_repeated_create_returns_the_table(application: Application) -> None:
    body = {"name": "events", "schema": SCHEMA}
    first = answer(application, "POST", "namespaces/db/tables", body, idempotency_key=KEY)

    assert first[0] == 200
    assert answer(application, "POST", "namespaces/db/tables", body, idempotency_key=KEY) == first
    assert error(application, "POST", "namespaces/db/tables", body) == (409, "AlreadyExistsException")
    namespace = {"namespace": ["other"]}
    for _ in range(2):
        assert answer(application, "POST", "namespaces", namespace, idempotency_key=OTHER_KEY)[0] == 200
    assert error(application, "POST", "namespaces", namespace) == (409, "AlreadyExistsException")


def test_metrics_are_accepted(application: Application) -> None:
    create_table(application)

    report = {"report-type": "scan-report", "table-name": "events"}
    assert send(application, "POST", "namespaces/db/tables/events/metrics", report).status == 204


@pytest.mark.parametrize("path", ["health", "ready"])
def test_probes_need_no_version_and_no_token(application: Application, path: str) -> None:
    from endive.server.http import Request

    assert application.answer(Request("GET", f"/{path}")).status == 200


def test_metrics_count_requests_and_conflicts(application: Application) -> None:
    from endive.server.http import Request

    create_table(application)
    stale = {"requirements": [{"type": "assert-create"}], "updates": [set_property("a", "1")]}
    error(application, "POST", "namespaces/db/tables/events", stale)

    text = application.answer(Request("GET", "/metrics")).body.decode()
    commit = "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}"
    assert f'endive_requests_total{{operation="{commit}",status="409"}} 1' in text
    assert f'endive_request_seconds_bucket{{operation="{commit}",le="+Inf"}} 1' in text
    assert 'endive_commit_conflicts_total{warehouse="lake",table="db.events"} 1' in text


def test_a_missing_file_cannot_be_registered(application: Application) -> None:
    for path in ("register", "register-view"):
        body = {"name": "t", "metadata-location": "file:///nowhere/v1.metadata.json"}
        assert error(application, "POST", f"namespaces/db/{path}", body) == (404, "NotFoundException")
