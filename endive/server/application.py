"""The application: from a request to a response, in one blocking call. `endive.server.asgi` connects it to HTTP."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter

from endive.catalog.catalog import KVCatalog
from endive.catalog.model.grants import Privilege
from endive.errors import CommitConflictError
from endive.logs import log_error
from endive.server import audit, namespaces, scans, tables, views
from endive.server.access import ANYBODY, OWNER, Authenticator, GrantReader, Guard, Principal, rules
from endive.server.access.browsers import require_own_page
from endive.server.access.guard import REFRESH_S
from endive.server.configuration import configuration
from endive.server.errors import HttpError, as_http
from endive.server.http import Request, Response, error_response, json_response
from endive.server.metrics import MEDIA_TYPE, OTHER, Metrics
from endive.server.operation_stage import report_operation
from endive.server.page import is_of_page, page_file
from endive.server.routes import ROOTS, Call, Handler, Route, Router, refused
from endive.server.storage.delegation import NO_DELEGATION, Delegation
from endive.server.store_metrics import store_lines

log = logging.getLogger(__name__)

READ, MANAGE = Privilege.READ, Privilege.MANAGE

NAMESPACE = "namespaces/{namespace}"
TABLE = "namespaces/{namespace}/tables/{table}"
VIEW = "namespaces/{namespace}/views/{view}"

ROUTES = [
    Route("GET", "namespaces", namespaces.list_namespaces, changes=False, needs=rules.filtered),
    Route("POST", "namespaces", namespaces.create_namespace, changes=True, needs=rules.creating_namespace),
    Route("GET", NAMESPACE, namespaces.load_namespace, changes=False, needs=rules.sees_namespace),
    Route("HEAD", NAMESPACE, namespaces.namespace_exists, changes=False, needs=rules.sees_namespace),
    Route("DELETE", NAMESPACE, namespaces.drop_namespace, changes=True, needs=rules.on_namespace(MANAGE)),
    Route(
        "POST", f"{NAMESPACE}/properties", namespaces.update_properties, changes=True, needs=rules.changing_namespace
    ),
    Route("GET", f"{NAMESPACE}/tables", tables.list_tables, changes=False, needs=rules.sees_namespace),
    Route("POST", f"{NAMESPACE}/tables", tables.create_table, changes=True, needs=rules.creating_table),
    Route("POST", f"{NAMESPACE}/register", tables.register_table, changes=True, needs=rules.registering),
    Route("GET", TABLE, tables.load_table, changes=False, needs=rules.on_table(READ)),
    Route("HEAD", TABLE, tables.table_exists, changes=False, needs=rules.on_table(READ)),
    Route("POST", TABLE, tables.update_table, changes=True, needs=rules.committing),
    Route("DELETE", TABLE, tables.drop_table, changes=True, needs=rules.on_table(MANAGE)),
    Route("POST", f"{TABLE}/unregister", tables.unregister_table, changes=True, needs=rules.on_table(MANAGE)),
    Route("POST", f"{TABLE}/metrics", tables.report_metrics, changes=False, needs=rules.on_table(READ)),
    Route("POST", f"{TABLE}/plan", scans.plan_scan, changes=False, needs=rules.on_table(READ)),
    Route("GET", f"{TABLE}/plan/{{plan}}", scans.poll_plan, changes=False, needs=rules.on_table(READ)),
    Route("DELETE", f"{TABLE}/plan/{{plan}}", scans.cancel_plan, changes=False, needs=rules.on_table(READ)),
    Route("POST", f"{TABLE}/tasks", scans.fetch_tasks, changes=False, needs=rules.on_table(READ)),
    Route("GET", f"{TABLE}/credentials", tables.load_credentials, changes=False, needs=rules.on_table(READ)),
    Route("POST", f"{TABLE}/sign", tables.sign_request, changes=False, needs=rules.on_table(READ)),
    Route("POST", "tables/rename", tables.rename_table, changes=True, needs=rules.renaming("table")),
    Route("GET", f"{NAMESPACE}/views", views.list_views, changes=False, needs=rules.sees_namespace),
    Route("POST", f"{NAMESPACE}/views", views.create_view, changes=True, needs=rules.creating_view),
    Route("POST", f"{NAMESPACE}/register-view", views.register_view, changes=True, needs=rules.registering),
    Route("GET", VIEW, views.load_view, changes=False, needs=rules.on_view(READ)),
    Route("HEAD", VIEW, views.view_exists, changes=False, needs=rules.on_view(READ)),
    Route("POST", VIEW, views.replace_view, changes=True, needs=rules.replacing_view),
    Route("DELETE", VIEW, views.drop_view, changes=True, needs=rules.on_view(MANAGE)),
    Route("POST", "views/rename", views.rename_view, changes=True, needs=rules.renaming("view")),
    Route("POST", "transactions/commit", tables.commit_transaction, changes=True, needs=rules.committing_all),
]

REFUSED = [
    Route("GET", f"{NAMESPACE}/functions", refused("functions"), changes=False, needs=rules.nothing),
    Route("GET", f"{NAMESPACE}/functions/{{function}}", refused("functions"), changes=False, needs=rules.nothing),
    Route(
        "POST",
        "oauth/tokens",
        refused("the deprecated endpoint for tokens: give clients a token"),
        changes=False,
        needs=rules.nothing,
    ),
]
"""Operations of the specification that are refused by name. They are not announced."""

PROBES = ("health", "ready")
"""Paths for load balancers, which have no token."""

ENDPOINTS = [route.endpoint for route in ROUTES]


@dataclass(frozen=True)
class _Found:
    """An operation, and the call of it."""

    operation: str
    """Its name in metrics."""
    handler: Handler
    call: Call
    changes: bool = False
    """Whether it may change something: then an error of unknown kind means an unknown outcome."""
    needs: Callable[[Call], None] = rules.nothing


def _ok(_call: Call) -> Response:
    """Answer while the process works."""
    return json_response({"status": "ok"})


class Application:
    """Answers requests on one or more catalogs. Safe to use from many threads.

    `warehouses`: catalogs by name. The first one also answers paths without a prefix. `tokens`: None: anybody may do
    everything.
    """

    def __init__(
        self,
        warehouses: Mapping[str, KVCatalog],
        tokens: Authenticator | None = None,
        refresh_s: float = REFRESH_S,
        delegation: Delegation = NO_DELEGATION,
    ) -> None:
        if not warehouses:
            raise ValueError("a server needs at least one warehouse")
        self._tokens = tokens
        self._delegation = delegation
        self.warehouses = dict(warehouses)
        self._default = next(iter(warehouses))
        self._readers = {name: GrantReader(catalog, refresh_s) for name, catalog in warehouses.items()}
        self._router = Router([*ROUTES, *REFUSED])
        self.metrics = Metrics()

    def warm_up(self) -> None:
        """Load what the first commit needs, before the server listens: PyArrow takes seconds to import."""
        for catalog in self.warehouses.values():
            catalog.files.io(catalog.warehouse)

    def knows(self, headers: Mapping[str, str]) -> bool:
        """Whether a request has a valid token. Without authentication every request has."""
        try:
            return self._tokens is None or bool(self._tokens.principal(headers))
        except HttpError:
            return False

    def answer(self, request: Request) -> Response:
        """Return the response to a request; errors become Iceberg's error model."""
        began_s = perf_counter()
        found: _Found | None = None
        is_allowed = False
        try:
            found = self._find(request)
            found.needs(found.call)
            is_allowed = True
            response = found.handler(found.call)
            if not found.changes:
                found.call.guard.require_same_tables()
        except Exception as error:  # whatever it is, the client gets an answer
            if isinstance(error, CommitConflictError):
                self.metrics.conflict(found.call.warehouse if found is not None else self._default, error.table)
            answered = as_http(error, found is not None and is_allowed and found.changes)
            if answered.status >= 500:
                log_error(
                    log, "failed", error, logging.ERROR, request_id=request.id, method=request.method, path=request.path
                )
                log.debug("the error", exc_info=True)
            response = error_response(answered)
        operation = found.operation if found is not None else OTHER
        self.metrics.count(operation, response.status, perf_counter() - began_s)
        call, changes = (None, False) if found is None else (found.call, found.changes)
        audit.record(operation, call, request, response, changes)
        report_operation(operation, call)
        return response if call is None else replace(response, caller=call.guard.principal.name)

    def _find(self, request: Request) -> "_Found":
        """Return the operation of a request, if its caller may use it."""
        root, *segments = request.segments
        if root in PROBES and not segments:
            probe = self._ready if root == "ready" else _ok
            return _Found(f"GET /{root}", probe, self._call(self._default, request, OWNER))
        require_own_page(request, is_open=self._tokens is None)
        if is_of_page(request.path):
            return _Found("GET /", self._page, self._call(self._default, request, ANYBODY))
        principal = ANYBODY if self._tokens is None else self._tokens.principal(request.headers)
        if (root, segments) == ("page", ["warehouses"]):
            return _Found("GET /page/warehouses", self._names, self._call(self._default, request, principal))
        if root == "metrics" and not segments:
            return _Found("GET /metrics", self._metrics, self._call(self._default, request, principal))
        if root != "v1" or not segments:
            raise HttpError(404, "NotFoundException", "Iceberg's REST catalog begins with /v1/")
        if segments == ["config"]:
            return _Found("GET /v1/config", self._config, self._call(self._default, request, principal))
        warehouse = self._default if segments[0] in ROOTS else self._warehouse(segments.pop(0))
        route, names = self._router.find(request.method, tuple(segments))
        call = self._call(warehouse, request, principal, names)
        return _Found(route.endpoint, route.handler, call, route.changes, route.needs)

    def _call(
        self, warehouse: str, request: Request, principal: Principal, names: Mapping[str, str] | None = None
    ) -> Call:
        guard = Guard(self._readers[warehouse], principal)
        return Call(self.warehouses[warehouse], request, names or {}, guard, self._delegation, warehouse)

    def _ready(self, call: Call) -> Response:
        """Answer while every catalog can be read."""
        for catalog in self.warehouses.values():
            catalog.list_namespaces()
        return _ok(call)

    def _metrics(self, call: Call) -> Response:
        principal = call.guard.principal
        guards = [Guard(reader, principal) for reader in self._readers.values()]
        sees_names = all(guard.may(READ) for guard in guards)
        text = self.metrics.text(with_tables=sees_names) + "\n".join((*store_lines(self.warehouses), ""))
        return Response(body=text.encode(), media_type=MEDIA_TYPE)

    def _page(self, call: Call) -> Response:
        return page_file(call.request.method, call.request.path, ROUTES)

    def _names(self, call: Call) -> Response:
        """Return the warehouses in which the caller has a grant, for the page."""
        guards = {name: Guard(reader, call.guard.principal) for name, reader in self._readers.items()}
        return json_response({"warehouses": [name for name, guard in guards.items() if guard.has_some()]})

    def _config(self, call: Call) -> Response:
        request = call.request
        if request.method != "GET":
            raise HttpError(
                405, "UnsupportedOperationException", "The configuration can only be read", {"allow": "GET"}
            )
        asked = request.query.get("warehouse", "")
        name = self._name_of(asked) if asked else self._default
        Guard(self._readers[name], call.guard.principal).require_some()
        prefix = name if len(self.warehouses) > 1 else ""
        return json_response(configuration(self.warehouses[name], prefix, ENDPOINTS))

    def _name_of(self, asked: str) -> str:
        """Return the name of a warehouse that is asked for by its name, its URL or the location of its tables."""
        for name, catalog in self.warehouses.items():
            if asked.rstrip("/") in (name, catalog.url, catalog.warehouse):
                return name
        raise HttpError(404, "NoSuchWarehouseException", f"Warehouse does not exist: {asked}")

    def _warehouse(self, prefix: str) -> str:
        if prefix not in self.warehouses:
            raise HttpError(404, "NotFoundException", f"No such path or prefix: {prefix}")
        return prefix
