"""Views: by REST and in the catalog."""

import copy
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from endive.catalog import KVCatalog
from endive.cli.app import app
from endive.errors import AlreadyInCatalogError, CommitConflictError, ConfigurationError, NotInCatalogError
from endive.server.application import Application
from tests.server.calls import SCHEMA, VERSION, answer, create_table, error, send

PATH = "namespaces/db/views/recent"


def create_view(application: Application, name: str = "recent") -> Any:
    body = {"name": name, "schema": SCHEMA, "view-version": VERSION, "properties": {"a": "1"}}
    status, found = answer(application, "POST", "namespaces/db/views", body)
    assert status == 200, found
    return found


def new_version(sql: str, **changes: object) -> list[dict[str, object]]:
    version = {**VERSION, "version-id": 2, "timestamp-ms": 2, **changes}
    version["representations"] = [{"type": "sql", "sql": sql, "dialect": "spark"}]
    return [
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]


def test_a_view_is_created_replaced_renamed_and_dropped(application: Application) -> None:
    created = create_view(application)
    assert answer(application, "GET", PATH) == (200, created)
    assert created["metadata"]["current-version-id"] == 1

    requirement = {"type": "assert-view-uuid", "uuid": created["metadata"]["view-uuid"]}
    commit = {"requirements": [requirement], "updates": new_version("select 2")}
    status, replaced = answer(application, "POST", PATH, commit)
    assert status == 200, replaced
    assert replaced["metadata"]["current-version-id"] == 2
    assert [one["version-id"] for one in replaced["metadata"]["version-log"]] == [1, 2]
    rename = {"source": {"namespace": ["db"], "name": "recent"}, "destination": {"namespace": ["db"], "name": "new"}}
    assert send(application, "POST", "views/rename", rename).status == 204
    assert answer(application, "GET", "namespaces/db/views")[1]["identifiers"] == [{"namespace": ["db"], "name": "new"}]
    assert error(application, "DELETE", "namespaces/db") == (409, "NamespaceNotEmptyException")
    assert send(application, "DELETE", "namespaces/db/views/new").status == 204
    assert error(application, "GET", "namespaces/db/views/new") == (404, "NoSuchViewException")
    register = {"name": "back", "metadata-location": replaced["metadata-location"]}
    assert answer(application, "POST", "namespaces/db/register-view", register)[1] == replaced


def test_tables_and_views_share_their_names(application: Application) -> None:
    create_view(application)
    create_table(application)

    body = {"name": "events", "schema": SCHEMA, "view-version": VERSION}
    assert error(application, "POST", "namespaces/db/views", body) == (409, "AlreadyExistsException")
    assert error(application, "POST", "namespaces/db/tables", {"name": "recent", "schema": SCHEMA})[0] == 409
    assert error(application, "GET", "namespaces/db/tables/recent") == (404, "NoSuchTableException")
    for path, source, target in (("tables", "events", "recent"), ("views", "recent", "events")):
        rename = {"source": {"namespace": ["db"], "name": source}, "destination": {"namespace": ["db"], "name": target}}
        assert error(application, "POST", f"{path}/rename", rename) == (409, "AlreadyExistsException")


def test_errors_of_views(application: Application) -> None:
    create_view(application)

    other = {"requirements": [{"type": "assert-view-uuid", "uuid": "none"}], "updates": new_version("select 2")}
    assert error(application, "POST", PATH, other) == (409, "CommitFailedException")
    assert error(application, "POST", PATH, {"updates": [{"action": "set-default-spec", "spec-id": 0}]})[0] == 400
    assert error(application, "POST", PATH, {"requirements": [{"type": "assert-create"}]})[0] == 400
    assert error(application, "POST", "namespaces/db/views/none", {"updates": []}) == (404, "NoSuchViewException")
    twice = copy.deepcopy(VERSION)
    twice["representations"] = [*VERSION["representations"], *VERSION["representations"]]  # type: ignore[misc]
    body = {"name": "other", "schema": SCHEMA, "view-version": twice}
    assert error(application, "POST", "namespaces/db/views", body)[0] == 400


def test_a_version_that_is_there_is_found_again(application: Application) -> None:
    create_view(application)
    answer(application, "POST", PATH, {"updates": new_version("select 2")})

    sql = VERSION["representations"][0]["sql"]  # type: ignore[index]
    _, found = answer(application, "POST", PATH, {"updates": new_version(sql)})
    assert found["metadata"]["current-version-id"] == 1
    assert len(found["metadata"]["versions"]) == 2


def test_old_versions_are_removed(application: Application) -> None:
    create_view(application)
    limit = {"action": "set-properties", "updates": {"version.history.num-entries": "2"}}
    answer(application, "POST", PATH, {"updates": [limit]})
    for number in range(2, 6):
        _, found = answer(application, "POST", PATH, {"updates": new_version(f"select {number}")})

    assert [one["version-id"] for one in found["metadata"]["versions"]] == [4, 5]
    assert [one["version-id"] for one in found["metadata"]["version-log"]] == [4, 5]


def test_a_dialect_is_not_lost_by_accident(catalog: KVCatalog) -> None:
    catalog.create_namespace("db")
    catalog.create_view("db.v", SCHEMA, VERSION)
    updates = new_version("select 2")
    updates[0]["view-version"]["representations"][0]["dialect"] = "trino"  # type: ignore[index]

    with pytest.raises(ConfigurationError, match="loss of view dialects"):
        catalog.commit_view("db.v", [], updates)
    allow = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "true"}}
    assert catalog.commit_view("db.v", [], [allow, *updates]).metadata["current-version-id"] == 2


def test_a_repeated_commit_changes_a_view_once(catalog: KVCatalog) -> None:
    catalog.create_namespace("db")
    catalog.create_view("db.v", SCHEMA, VERSION)

    first = catalog.commit_view("db.v", [], new_version("select 2"), commit_id="once")
    catalog.commit_view("db.v", [], new_version("select 3"))
    assert (
        catalog.commit_view("db.v", [], new_version("select 2"), commit_id="once").metadata["current-version-id"] == 3
    )
    assert first.metadata["current-version-id"] == 2


def test_the_catalog_has_views(catalog: KVCatalog) -> None:
    catalog.create_namespace("db")
    made = catalog.create_view("db.v", SCHEMA, VERSION)

    assert catalog.load_view("db.v") == made
    assert catalog.view_exists("db.v")
    assert catalog.list_views("db") == [("db", "v")]
    assert catalog.check() == []
    with pytest.raises(AlreadyInCatalogError):
        catalog.create_view("db.v", SCHEMA, VERSION)
    with pytest.raises(CommitConflictError):
        catalog.commit_view("db.v", [{"type": "assert-view-uuid", "uuid": "x"}], [])
    catalog.drop_view("db.v")
    with pytest.raises(NotInCatalogError, match="View does not exist"):
        catalog.drop_view("db.v")
    assert catalog.check() == []


def test_the_command_line_lists_shows_and_drops_views(catalog: KVCatalog) -> None:
    catalog.create_namespace("db")
    catalog.create_view("db.v", SCHEMA, VERSION)

    def run(*words: str) -> str:
        result = CliRunner().invoke(app, ["catalog", "views", catalog.url.removeprefix("file://"), *words])
        assert result.exception is None or isinstance(result.exception, NotInCatalogError), result.exception
        return result.output if result.exception is None else str(result.exception)

    assert "db.v" in run()
    assert json.loads(run("db", "--json"))[0]["dialects"] == ["spark"]
    assert "select * from events" in run("--show", "db.v")
    assert "dropped the view db.v" in run("--drop", "db.v")
    assert "lists what there is" in run("--drop", "db.v")
