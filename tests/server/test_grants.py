"""Grants: lists, renames, transactions, ownership, refresh, groups, and the commands."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from typer.testing import CliRunner

from endive.catalog import KVCatalog
from endive.catalog.model.grants import Grantee, Privilege
from endive.catalog.model.keys import REQUESTS
from endive.catalog.model.transaction import StoreTransaction
from endive.cli.app import app
from endive.errors import ConfigurationError, NotInCatalogError
from endive.protocol.requests import Steps
from endive.server.access import Principal, Tokens, hashed
from endive.server.application import Application
from tests.server.calls import KEY, OTHER_KEY, SCHEMA, VERSION, answer, create_table, send, set_property

READ, WRITE, CREATE, MANAGE = Privilege
ADA, BOB = Grantee("user", "ada"), Grantee("user", "bob")


@pytest.fixture
def guarded(catalog: KVCatalog, application: Application) -> Application:
    """A server with the callers `ada` and `bob`, who have no grants, and the tables `db.events` and `db.other`."""
    create_table(application)
    create_table(application, "other")
    tokens = {hashed(name): Principal(name, ("analysts",) if name == "ada" else ()) for name in ("ada", "bob")}
    return Application({"lake": catalog}, Tokens(tokens))


def ask(application: Application, who: str, method: str, path: str, body: object = None, **headers: str) -> int:
    return answer(application, method, path, body, authorization=f"Bearer {who}", **headers)[0]


def listed(application: Application, who: str, path: str) -> list[object]:
    found = answer(application, "GET", path, authorization=f"Bearer {who}")[1]
    return [one["name"] for one in found["identifiers"]] if "identifiers" in found else found["namespaces"]


def test_lists_show_only_what_the_caller_may_see(guarded: Application, catalog: KVCatalog) -> None:
    catalog.create_namespace(("db", "inner", "deep"))
    catalog.create_namespace("hidden")
    catalog.create_view("db.recent", SCHEMA, VERSION)
    catalog.grants.grant(ADA, [READ], catalog.grants.place(table="db.events"))
    catalog.grants.grant(BOB, [CREATE], catalog.grants.place(("db", "inner", "deep")))

    assert listed(guarded, "ada", "namespaces") == [["db"]]
    assert listed(guarded, "ada", "namespaces/db/tables") == ["events"]
    assert listed(guarded, "ada", "namespaces/db/views") == []
    assert listed(guarded, "ada", "namespaces?parent=db") == []
    assert listed(guarded, "bob", "namespaces?parent=db") == [["db", "inner"]]
    assert listed(guarded, "bob", "namespaces/db/tables") == []
    assert ask(guarded, "bob", "GET", "namespaces?parent=hidden") == 403
    catalog.grants.grant(ADA, [READ], catalog.grants.place(view="db.recent"))
    assert listed(guarded, "ada", "namespaces/db/views") == ["recent"]


def test_pages_are_cut_after_the_filter(guarded: Application, catalog: KVCatalog) -> None:
    catalog.grants.grant(ADA, [READ], catalog.grants.place(table="db.other"))

    _, page = answer(guarded, "GET", "namespaces/db/tables?pageSize=1&pageToken=", authorization="Bearer ada")
    assert [one["name"] for one in page["identifiers"]] == ["other"]
    assert page["next-page-token"] is None


def test_grants_follow_a_table_and_its_current_namespace(guarded: Application, catalog: KVCatalog) -> None:
    catalog.create_namespace("archive")
    catalog.grants.grant(ADA, [READ], catalog.grants.place("db"))
    catalog.grants.grant(BOB, [WRITE], catalog.grants.place(table="db.events"))
    catalog.rename_table("db.events", "archive.events")

    assert ask(guarded, "ada", "GET", "namespaces/archive/tables/events") == 403
    assert ask(guarded, "bob", "GET", "namespaces/archive/tables/events") == 200
    create = {"name": "events", "schema": SCHEMA}
    answer(Application({"lake": catalog}), "POST", "namespaces/db/tables", create)
    assert ask(guarded, "ada", "GET", "namespaces/db/tables/events") == 200
    assert ask(guarded, "bob", "GET", "namespaces/db/tables/events") == 403  # another table under the old name


def test_dropped_things_leave_no_grants(guarded: Application, catalog: KVCatalog) -> None:
    catalog.create_namespace("short")
    catalog.create_view("db.recent", SCHEMA, VERSION)
    for place in (catalog.grants.place("short"), catalog.grants.place(table="db.events")):
        catalog.grants.grant(ADA, [MANAGE], place)
    catalog.grants.grant(BOB, [MANAGE], catalog.grants.place(view="db.recent"))
    catalog.drop_namespace("short")
    catalog.drop_table("db.events")
    catalog.drop_view("db.recent")

    assert catalog.grants.list() == []
    catalog.create_namespace("short")
    assert ask(guarded, "ada", "GET", "namespaces/short") == 403


def test_every_table_of_a_transaction_is_checked(guarded: Application, catalog: KVCatalog) -> None:
    catalog.grants.grant(ADA, [WRITE], catalog.grants.place(table="db.events"))
    changes = [
        {"identifier": {"namespace": ["db"], "name": name}, "updates": [set_property("a", "1")]}
        for name in ("events", "other")
    ]

    assert ask(guarded, "ada", "POST", "transactions/commit", {"table-changes": changes}) == 403
    assert "a" not in catalog.load_table("db.events").metadata.properties
    assert ask(guarded, "ada", "POST", "transactions/commit", {"table-changes": changes[:1]}) == 204
    catalog.grants.grant(ADA, [WRITE], catalog.grants.place(table="db.other"))
    assert ask(guarded, "ada", "POST", "transactions/commit", {"table-changes": changes}) == 204


def test_a_commit_that_creates_needs_create_in_each_namespace(guarded: Application, catalog: KVCatalog) -> None:
    catalog.grants.grant(ADA, [WRITE], catalog.grants.place("db"))
    staged = {"requirements": [{"type": "assert-create"}], "updates": [set_property("a", "1")]}
    change = {"identifier": {"namespace": ["db"], "name": "new"}, **staged}

    assert ask(guarded, "ada", "POST", "namespaces/db/tables/new", staged) == 403
    assert ask(guarded, "ada", "POST", "transactions/commit", {"table-changes": [change]}) == 403


def test_a_creator_manages_what_it_has_created(guarded: Application, catalog: KVCatalog) -> None:
    catalog.grants.grant(ADA, [CREATE], catalog.grants.place("db"))
    create = {"name": "own", "schema": SCHEMA}

    assert ask(guarded, "ada", "POST", "namespaces/db/tables", create) == 200
    assert ask(guarded, "ada", "POST", "namespaces/db/tables/own", {"updates": [set_property("a", "1")]}) == 200
    assert ask(guarded, "ada", "GET", "namespaces/db/tables/events") == 403
    assert ask(guarded, "ada", "POST", "namespaces", {"namespace": ["db", "mine"]}) == 200
    assert ask(guarded, "ada", "DELETE", "namespaces/db%1Fmine") == 204
    view = {"name": "v", "schema": SCHEMA, "view-version": VERSION}
    assert ask(guarded, "ada", "POST", "namespaces/db/views", view) == 200
    assert ask(guarded, "ada", "DELETE", "namespaces/db/views/v") == 204
    assert ask(guarded, "ada", "DELETE", "namespaces/db/tables/own?purgeRequested=true") == 204
    assert ask(guarded, "bob", "POST", "namespaces/db/tables", create) == 403


def test_an_idempotency_key_gives_no_access_to_another_table(guarded: Application, catalog: KVCatalog) -> None:
    """With another table's uuid as its key, a create must not be answered as the retry of that table's creation."""
    catalog.grants.grant(ADA, [CREATE], catalog.grants.place("db"))
    uuid = str(catalog.load_table("db.events").uuid)
    create = {"name": "events", "schema": SCHEMA}

    assert ask(guarded, "ada", "POST", "namespaces/db/tables", create, idempotency_key=uuid) == 409
    assert ask(guarded, "ada", "GET", "namespaces/db/tables/events") == 403
    own = {"name": "own", "schema": SCHEMA}
    assert ask(guarded, "ada", "POST", "namespaces/db/tables", own, idempotency_key=KEY) == 200
    assert ask(guarded, "ada", "POST", "namespaces/db/tables", own, idempotency_key=KEY) == 200


def test_a_create_with_the_uuid_of_another_table_gives_no_access(guarded: Application, catalog: KVCatalog) -> None:
    catalog.grants.grant(ADA, [CREATE], catalog.grants.place("db"))
    loaded = catalog.load_table("db.events")
    staged = answer(
        guarded,
        "POST",
        "namespaces/db/tables",
        {"name": "x", "schema": SCHEMA, "stage-create": True},
        authorization="Bearer ada",
    )[1]["metadata"]
    updates = [
        {"action": "assign-uuid", "uuid": str(loaded.uuid)},
        {"action": "add-schema", "schema": staged["schemas"][0]},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": staged["partition-specs"][0]},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": staged["sort-orders"][0]},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": staged["location"]},
    ]
    commit = {"requirements": [{"type": "assert-create"}], "updates": updates}

    assert ask(guarded, "ada", "POST", "namespaces/db/tables/x", commit) in (400, 403, 409)
    assert ask(guarded, "ada", "GET", "namespaces/db/tables/events") == 403


def forget_requests(catalog: KVCatalog) -> None:
    """Delete the stored results of idempotency keys."""

    def delete(tx: StoreTransaction) -> Steps[None]:
        rows = yield from tx.scan(REQUESTS.encode())
        for key, _ in rows:
            tx.delete(key)

    catalog.store.transact(delete)


def test_views_cannot_share_a_uuid(catalog: KVCatalog, application: Application) -> None:
    body = {"schema": SCHEMA, "view-version": VERSION}
    assert answer(application, "POST", "namespaces/db/views", {"name": "a", **body}, idempotency_key=KEY)[0] == 200
    forget_requests(catalog)  # as after the lifetime of the key
    assert answer(application, "POST", "namespaces/db/views", {"name": "b", **body}, idempotency_key=KEY)[0] == 409


@pytest.mark.parametrize("is_later", [False, True])
def test_a_repeated_creation_does_not_bring_back_a_revoked_grant(
    guarded: Application, catalog: KVCatalog, is_later: bool
) -> None:
    """Creations are recognised by their key for ever: it must not be a key to the table."""
    catalog.grants.grant(ADA, [CREATE], catalog.grants.place("db"))
    creations: list[tuple[str, object, str]] = [
        ("namespaces/db/tables", {"name": "own", "schema": SCHEMA}, KEY),
        ("namespaces/db/views", {"name": "seen", "schema": SCHEMA, "view-version": VERSION}, OTHER_KEY),
        ("namespaces", {"namespace": ["db", "mine"]}, str(UUID(int=1))),
    ]
    for path, body, key in creations:
        assert ask(guarded, "ada", "POST", path, body, idempotency_key=key) == 200
    places = (
        catalog.grants.place(table="db.own"),
        catalog.grants.place(view="db.seen"),
        catalog.grants.place(("db", "mine")),
    )
    for place in places:
        assert catalog.grants.revoke(ADA, [MANAGE], place) == [MANAGE]

    if is_later:
        forget_requests(catalog)
    statuses = [ask(guarded, "ada", "POST", path, body, idempotency_key=key) for path, body, key in creations]
    assert statuses == [403, 403, 200]  # the answer about a namespace holds what was sent
    assert ask(guarded, "ada", "GET", "namespaces/db/tables/own") == 403
    assert ask(guarded, "ada", "DELETE", "namespaces/db/views/seen") == 403
    assert ask(guarded, "ada", "DELETE", "namespaces/db%1Fmine") == 403


def test_a_creation_and_its_grant_are_one_transaction(guarded: Application, catalog: KVCatalog) -> None:
    catalog.grants.grant(ADA, [CREATE], catalog.grants.place("db"))

    def transactions() -> float:
        return catalog.store.stats()["transactions"]  # type: ignore[attr-defined,no-any-return]

    before = transactions()
    assert ask(guarded, "ada", "POST", "namespaces/db/tables", {"name": "own", "schema": SCHEMA}) == 200
    assert transactions() - before == 1


def test_a_new_namespace_has_no_grants_of_one_that_vanished(guarded: Application, catalog: KVCatalog) -> None:
    """`outer` exists because of `outer.inner`, and goes with it: no drop of its own deletes its grants."""
    catalog.create_namespace(("outer", "inner"))
    catalog.grants.grant(ADA, [READ], catalog.grants.place("outer"))
    catalog.drop_namespace(("outer", "inner"))
    catalog.create_namespace(("outer", "other"))

    assert ask(guarded, "ada", "GET", "namespaces/outer%1Fother") == 403
    assert catalog.grants.list() == []
    catalog.grants.grant(ADA, [READ], catalog.grants.place("outer"))
    catalog.create_namespace(("outer", "third"))
    assert ask(guarded, "ada", "GET", "namespaces/outer%1Fthird") == 200  # `outer` existed


def test_an_idempotency_key_of_another_caller_is_another_key(guarded: Application, catalog: KVCatalog) -> None:
    for grantee in (ADA, BOB):
        catalog.grants.grant(grantee, [MANAGE])
    assert ask(guarded, "ada", "DELETE", "namespaces/db/tables/events", idempotency_key=KEY) == 204

    assert ask(guarded, "ada", "DELETE", "namespaces/db/tables/events", idempotency_key=KEY) == 204
    assert ask(guarded, "bob", "DELETE", "namespaces/db/tables/events", idempotency_key=KEY) == 404
    assert ask(guarded, "bob", "DELETE", "namespaces/db/tables/other", idempotency_key=KEY) == 204


def test_a_grant_on_a_view_does_not_reach_another_one_of_its_name(
    guarded: Application, catalog: KVCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.create_view("db.recent", SCHEMA, VERSION)
    catalog.grants.grant(ADA, [WRITE], catalog.grants.place(view="db.recent"))
    commit = catalog.commit_view

    def overtaken(*arguments: Any) -> object:
        catalog.drop_view("db.recent")
        catalog.create_view("db.recent", SCHEMA, VERSION)
        return commit(*arguments)

    monkeypatch.setattr(catalog, "commit_view", overtaken)
    change = {"updates": [set_property("a", "1")]}

    assert ask(guarded, "ada", "POST", "namespaces/db/views/recent", change) == 409
    assert "a" not in catalog.load_view("db.recent").metadata.get("properties", {})


def test_an_empty_commit_does_not_show_another_table_of_the_name(
    guarded: Application, catalog: KVCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.grants.grant(ADA, [WRITE], catalog.grants.place(table="db.events"))
    load = catalog.load_table

    def overtaken(name: Any) -> object:
        monkeypatch.undo()
        catalog.drop_table("db.events")
        catalog.rename_table("db.other", "db.events")
        return load(name)

    monkeypatch.setattr(catalog, "load_table", overtaken)
    assert ask(guarded, "ada", "POST", "namespaces/db/tables/events", {"updates": []}) == 403


def test_groups_have_grants(guarded: Application, catalog: KVCatalog) -> None:
    catalog.grants.grant(Grantee.parsed("group:analysts"), [READ])
    catalog.grants.grant(Grantee.parsed("analysts"), [MANAGE])  # a user of that name

    assert ask(guarded, "ada", "GET", "namespaces/db/tables/events") == 200
    assert ask(guarded, "ada", "DELETE", "namespaces/db/tables/events") == 403
    assert ask(guarded, "bob", "GET", "namespaces/db/tables/events") == 403


def test_a_revoked_privilege_ends_when_grants_are_refreshed(catalog: KVCatalog, guarded: Application) -> None:
    other = KVCatalog.open(catalog.url)
    catalog.grants.grant(ADA, [READ])
    strict = Application({"lake": catalog}, guarded._tokens, refresh_s=0.0)
    assert ask(strict, "ada", "GET", "namespaces/db/tables/events") == 200

    assert other.grants.revoke(ADA, [READ]) == [READ]
    assert other.grants.revoke(ADA, [READ]) == []
    assert ask(strict, "ada", "GET", "namespaces/db/tables/events") == 403
    other.close()


def test_metrics_name_tables_only_to_readers_of_the_warehouse(guarded: Application, catalog: KVCatalog) -> None:
    from endive.server.http import Request

    guarded.metrics.conflict("lake", "db.events")

    def text() -> str:
        return guarded.answer(Request("GET", "/metrics", headers={"authorization": "Bearer ada"})).body.decode()

    assert "endive_requests_total" in text()
    assert "db.events" not in text()
    catalog.grants.grant(ADA, [READ])
    assert "db.events" in text()


def test_a_namespace_shows_its_properties_to_readers_only(guarded: Application, catalog: KVCatalog) -> None:
    catalog.update_namespace_properties("db", updates={"owner": "x"})
    catalog.grants.grant(ADA, [READ], catalog.grants.place(table="db.events"))
    path = "namespaces/db"

    assert answer(guarded, "GET", path, authorization="Bearer ada")[1]["properties"] == {}
    catalog.grants.grant(ADA, [READ], catalog.grants.place("db"))
    assert answer(guarded, "GET", path, authorization="Bearer ada")[1]["properties"] == {"owner": "x"}
    assert send(guarded, "HEAD", path, headers={"authorization": "Bearer bob"}).status == 403


def test_the_check_reads_grants(catalog: KVCatalog) -> None:
    catalog.grants.grant(ADA, [READ])
    assert catalog.check() == []
    catalog.store.transact(_damage)
    assert any("__grants/user/ada" in one for one in catalog.check())


def _damage(tx: StoreTransaction) -> Steps[None]:
    yield from tx.get(b"__grants/user/ada")
    tx.put(b"__grants/user/ada", b"{}")


def test_places_must_exist(catalog: KVCatalog) -> None:
    for place in ({"namespace": "no"}, {"table": "no.table"}, {"view": "no.view"}):
        with pytest.raises(NotInCatalogError):
            catalog.grants.place(**place)
    with pytest.raises(ConfigurationError, match="empty"):
        Grantee.parsed("group:")


def test_the_commands_grant_list_and_revoke(tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    with KVCatalog.create(url) as catalog:
        catalog.create_namespace("db")

    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["catalog", *arguments])
        assert result.exception is None, result.exception
        return result.output

    assert "granted create, read" in run("grant", url, "ada", "read", "create", "--namespace", "db")
    assert "already" in run("grant", url, "ada", "read", "--namespace", "db")
    run("grant", url, "group:ops", "manage")
    assert json.loads(run("grants", url, "--json")) == [
        {"grantee": "group:ops", "privileges": ["manage"], "on": "warehouse", "name": ""},
        {"grantee": "ada", "privileges": ["create", "read"], "on": "namespace", "name": "db"},
    ]
    assert "ada" not in run("grants", url, "group:ops")
    assert "revoked create" in run("revoke", url, "ada", "create", "--namespace", "db")
    assert "nothing of that" in run("revoke", url, "ada", "create", "--namespace", "db")
    both = CliRunner().invoke(app, ["catalog", "grant", url, "ada", "read", "--namespace", "db", "--table", "db.t"])
    assert "only one of" in str(both.exception)


def test_a_creating_commit_shows_nothing_of_a_table_that_exists(guarded: Application, catalog: KVCatalog) -> None:
    """`create` allows commits that create: an empty one, or a retry under a known id, must not load the table."""
    catalog.grants.grant(ADA, [CREATE], catalog.grants.place("db"))
    owner = Application({"lake": catalog})
    answer(owner, "POST", "namespaces/db/tables/events", {"updates": [set_property("a", "1")]}, idempotency_key=KEY)
    path = "namespaces/db/tables/events"

    for updates in ([], [set_property("a", "1")]):
        body = {"requirements": [{"type": "assert-create"}], "updates": updates}
        for headers in ({}, {"idempotency_key": KEY}):
            status, found = answer(guarded, "POST", path, body, authorization="Bearer ada", **headers)
            assert status == 409
            assert "metadata" not in found


def test_a_writer_cannot_change_a_uuid(guarded: Application, catalog: KVCatalog) -> None:
    """Grants belong to uuids: with another one a table, or a view, would get another's grants."""
    catalog.create_view("db.recent", SCHEMA, VERSION)
    other = catalog.load_table("db.other").uuid
    catalog.grants.grant(ADA, [WRITE], catalog.grants.place("db"))
    before = catalog.load_table("db.events").uuid, catalog.load_view("db.recent").metadata["view-uuid"]
    body = {"updates": [{"action": "assign-uuid", "uuid": str(other)}]}

    for path in ("tables/events", "views/recent"):
        assert ask(guarded, "ada", "POST", f"namespaces/db/{path}", body) >= 400
    assert before == (catalog.load_table("db.events").uuid, catalog.load_view("db.recent").metadata["view-uuid"])


def test_a_table_cannot_be_created_without_a_location(guarded: Application, catalog: KVCatalog) -> None:
    catalog.grants.grant(ADA, [CREATE], catalog.grants.place("db"))
    updates = [{"action": "assign-uuid", "uuid": "01890a5d-ac96-4747-bcce-b302099a8057"}]
    body = {"requirements": [{"type": "assert-create"}], "updates": updates}

    assert 400 <= ask(guarded, "ada", "POST", "namespaces/db/tables/new", body) < 500
    assert not catalog.table_exists("db.new")
