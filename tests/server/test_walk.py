"""Every operation for every role: a caller without the privilege gets nothing and changes nothing.

`NEEDS` says by itself what each operation needs, without the code's rules. The walk is over the server's own table of
routes, so an operation that is added without a line here fails.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from endive.catalog import KVCatalog
from endive.catalog.model.grants import Grantee, Place, Privilege
from endive.server.access import Tokens, hashed
from endive.server.access.principals import Principal
from endive.server.application import ROUTES, Application
from endive.server.http import Response
from endive.server.routes import Route, Router
from tests.server.calls import SCHEMA, VERSION, answer, create_table, send, set_property

READ, WRITE, CREATE, MANAGE = Privilege

TABLE = {"namespace": ["db"], "name": "events"}
VIEW = {"namespace": ["db"], "name": "recent"}


@dataclass(frozen=True)
class Asked:
    """An operation with a request, and what it needs."""

    needs: Privilege | None
    """None: any privilege in the namespace shows it."""
    on: str
    """The smallest place that a grant can be on: `table`, `view`, `namespace`, `warehouse`."""
    body: object = None


def asked_of(route: Route) -> Asked:
    return NEEDS[f"{route.method} {route.template}"]


NS, T, V = "namespaces/{namespace}", "namespaces/{namespace}/tables/{table}", "namespaces/{namespace}/views/{view}"
COMMIT = {"updates": [set_property("a", "1")]}
NEEDS = {
    "GET namespaces": Asked(None, "anything"),
    "POST namespaces": Asked(CREATE, "namespace", {"namespace": ["db", "inner"]}),
    f"GET {NS}": Asked(None, "anything"),
    f"HEAD {NS}": Asked(None, "anything"),
    f"DELETE {NS}": Asked(MANAGE, "namespace"),
    f"POST {NS}/properties": Asked(MANAGE, "namespace", {"updates": {"a": "1"}}),
    f"GET {NS}/tables": Asked(None, "anything"),
    f"POST {NS}/tables": Asked(CREATE, "namespace", {"name": "new", "schema": SCHEMA}),
    f"POST {NS}/register": Asked(MANAGE, "warehouse", {"name": "r", "metadata-location": "file:///none.json"}),
    f"GET {T}": Asked(READ, "table"),
    f"HEAD {T}": Asked(READ, "table"),
    f"POST {T}": Asked(WRITE, "table", COMMIT),
    f"DELETE {T}": Asked(MANAGE, "table"),
    f"POST {T}/unregister": Asked(MANAGE, "table"),
    f"POST {T}/metrics": Asked(READ, "table", {"report-type": "scan-report"}),
    f"POST {T}/plan": Asked(READ, "table", {}),
    f"GET {T}/plan/{{plan}}": Asked(READ, "table"),
    f"DELETE {T}/plan/{{plan}}": Asked(READ, "table"),
    f"POST {T}/tasks": Asked(READ, "table", {"plan-task": "t"}),
    f"GET {T}/credentials": Asked(READ, "table"),
    f"POST {T}/sign": Asked(READ, "table", {"method": "GET", "uri": "s3://b/k", "region": "r", "headers": {}}),
    "POST tables/rename": Asked(MANAGE, "table", {"source": TABLE, "destination": {"namespace": ["db"], "name": "e"}}),
    f"GET {NS}/views": Asked(None, "anything"),
    f"POST {NS}/views": Asked(CREATE, "namespace", {"name": "v", "schema": SCHEMA, "view-version": VERSION}),
    f"POST {NS}/register-view": Asked(MANAGE, "warehouse", {"name": "r", "metadata-location": "file:///none.json"}),
    f"GET {V}": Asked(READ, "view"),
    f"HEAD {V}": Asked(READ, "view"),
    f"POST {V}": Asked(WRITE, "view", COMMIT),
    f"DELETE {V}": Asked(MANAGE, "view"),
    "POST views/rename": Asked(MANAGE, "view", {"source": VIEW, "destination": {"namespace": ["db"], "name": "e"}}),
    "POST transactions/commit": Asked(WRITE, "table", {"table-changes": [{"identifier": TABLE, **COMMIT}]}),
}

INCLUDES = {READ: {READ}, WRITE: {READ, WRITE}, CREATE: {CREATE}, MANAGE: {READ, WRITE, CREATE, MANAGE}}
PLACES = ("warehouse", "namespace", "outer", "table", "view", "elsewhere", "nowhere")
"""Where a role's one grant is; `outer`: on the table's namespace by a group, `nowhere`: it has none."""
ROLES = [(place, privilege) for place in PLACES for privilege in Privilege]
HELD_ON = {
    "warehouse": {"warehouse", "namespace", "table", "view"},
    "namespace": {"namespace", "table", "view"},
    "outer": {"namespace", "table", "view"},
    "table": {"table"},
    "view": {"view"},
    "elsewhere": set(),
    "nowhere": set(),
}


def is_allowed(asked: Asked, place: str, privilege: Privilege) -> bool:
    if asked.needs is None:
        return place not in {"elsewhere", "nowhere"}
    return asked.on in HELD_ON[place] and asked.needs in INCLUDES[privilege]


def name_of(place: str, privilege: Privilege) -> str:
    return f"{place}-{privilege}"


def role_tokens() -> Tokens:
    return Tokens(
        {
            hashed(name_of(place, privilege)): Principal(
                name_of(place, privilege), (f"team-{privilege}",) if place == "outer" else ()
            )
            for place, privilege in ROLES
        }
    )


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KVCatalog]:
    with KVCatalog.create(str(tmp_path_factory.mktemp("walk") / "lake")) as created:
        owner = Application({"lake": created})
        for namespace in ("db", "other"):
            answer(owner, "POST", "namespaces", {"namespace": [namespace], "properties": {"secret": "s3cret"}})
        create_table(owner, properties={"secret": "s3cret"})
        created.create_view("db.recent", SCHEMA, VERSION)
        grants = created.grants
        places = {
            "warehouse": grants.place(),
            "namespace": grants.place("db"),
            "table": grants.place(table="db.events"),
            "view": grants.place(view="db.recent"),
            "elsewhere": grants.place("other"),
        }
        for place, privilege in ROLES:
            if place in places:
                grants.grant(Grantee("user", name_of(place, privilege)), [privilege], places[place])
            elif place == "outer":
                grants.grant(Grantee("group", f"team-{privilege}"), [privilege], places["namespace"])
        yield created


def path_of(route: Route) -> str:
    return route.template.format(namespace="db", table="events", view="recent", plan="p")


def rows(catalog: KVCatalog) -> object:
    return catalog.store.read(lambda tx: tx.scan(b"__"))


def test_the_walk_has_every_operation() -> None:
    assert {f"{route.method} {route.template}" for route in ROUTES} == NEEDS.keys()


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: one.endpoint)
def test_only_callers_with_the_privilege_reach_the_operation(catalog: KVCatalog, route: Route) -> None:
    def reached(_call: object) -> Response:
        return Response(299)

    application = Application({"lake": catalog}, role_tokens())
    application._router = Router([replace(route, handler=reached)])
    asked = asked_of(route)
    for place, privilege in ROLES:
        bearer = {"authorization": f"Bearer {name_of(place, privilege)}"}
        status = send(application, route.method, path_of(route), asked.body, bearer).status
        is_list = route.template == "namespaces" and route.method == "GET"
        expected = 299 if is_list or is_allowed(asked, place, privilege) else 403
        assert status == expected, (place, privilege)


@pytest.mark.parametrize("route", ROUTES, ids=lambda one: one.endpoint)
def test_a_refused_caller_gets_nothing_and_changes_nothing(catalog: KVCatalog, route: Route) -> None:
    application = Application({"lake": catalog}, role_tokens())
    before, asked = rows(catalog), asked_of(route)
    refused = [
        f"Bearer {name_of(place, privilege)}" for place, privilege in ROLES if not is_allowed(asked, place, privilege)
    ]
    for bearer in (*refused, "Bearer guessed", "Basic YWRhOmFkYQ==", "Bearer", ""):
        response = send(application, route.method, path_of(route), asked.body, {"authorization": bearer})
        if route.template == "namespaces" and route.method == "GET" and response.status == 200:
            shown = b'[["other"]]' if "elsewhere" in bearer else b"[]"
            assert b'"namespaces":' + shown in response.body
        else:
            assert response.status == (403 if "-" in bearer else 401), bearer
        assert b"s3cret" not in response.body
        assert b"uuid" not in response.body
    assert rows(catalog) == before


def test_a_missing_table_is_refused_like_an_existing_one(catalog: KVCatalog) -> None:
    application = Application({"lake": catalog}, role_tokens())
    for place in ("elsewhere", "nowhere"):
        bearer = {"authorization": f"Bearer {name_of(place, READ)}"}
        there = send(application, "GET", "namespaces/db/tables/events", None, bearer)
        missing = send(application, "GET", "namespaces/db/tables/absent", None, bearer)
        assert there.status == missing.status == 403
        assert there.body.replace(b"events", b"absent") == missing.body


@pytest.mark.parametrize("path", ["config", "config?warehouse=lake"])
def test_a_caller_without_grants_gets_no_configuration(catalog: KVCatalog, path: str) -> None:
    application = Application({"lake": catalog}, role_tokens())

    assert answer(application, "GET", path, authorization=f"Bearer {name_of('nowhere', READ)}")[0] == 403
    assert answer(application, "GET", path, authorization=f"Bearer {name_of('table', READ)}")[0] == 200


def test_places_of_the_walk_differ(tmp_path: Path) -> None:
    assert len({Place("table", uuid="u"), Place("view", uuid="u"), Place("warehouse"), Place("namespace", ("u",))}) == 4
