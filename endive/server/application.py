"""The application: from a request to a response, in one blocking call. `endive.server.asgi` connects it to HTTP."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

from endive.catalog.catalog import KVCatalog
from endive.errors import CommitConflictError
from endive.logs import log_error
from endive.server import namespaces, scans, tables, views
from endive.server.access import Tokens
from endive.server.configuration import configuration
from endive.server.errors import HttpError, as_http
from endive.server.http import Request, Response, error_response, json_response
from endive.server.metrics import MEDIA_TYPE, OTHER, Metrics
from endive.server.routes import ROOTS, Call, Handler, Route, Router

log = logging.getLogger(__name__)

NAMESPACE = "namespaces/{namespace}"
TABLE = "namespaces/{namespace}/tables/{table}"
VIEW = "namespaces/{namespace}/views/{view}"

ROUTES = [
    Route("GET", "namespaces", namespaces.list_namespaces, changes=False),
    Route("POST", "namespaces", namespaces.create_namespace, changes=True),
    Route("GET", NAMESPACE, namespaces.load_namespace, changes=False),
    Route("HEAD", NAMESPACE, namespaces.namespace_exists, changes=False),
    Route("DELETE", NAMESPACE, namespaces.drop_namespace, changes=True),
    Route("POST", f"{NAMESPACE}/properties", namespaces.update_properties, changes=True),
    Route("GET", f"{NAMESPACE}/tables", tables.list_tables, changes=False),
    Route("POST", f"{NAMESPACE}/tables", tables.create_table, changes=True),
    Route("POST", f"{NAMESPACE}/register", tables.register_table, changes=True),
    Route("GET", TABLE, tables.load_table, changes=False),
    Route("HEAD", TABLE, tables.table_exists, changes=False),
    Route("POST", TABLE, tables.update_table, changes=True),
    Route("DELETE", TABLE, tables.drop_table, changes=True),
    Route("POST", f"{TABLE}/unregister", tables.unregister_table, changes=True),
    Route("POST", f"{TABLE}/metrics", tables.report_metrics, changes=False),
    Route("POST", f"{TABLE}/plan", scans.plan_scan, changes=False),
    Route("GET", f"{TABLE}/plan/{{plan}}", scans.poll_plan, changes=False),
    Route("DELETE", f"{TABLE}/plan/{{plan}}", scans.cancel_plan, changes=False),
    Route("POST", f"{TABLE}/tasks", scans.fetch_tasks, changes=False),
    Route("POST", "tables/rename", tables.rename_table, changes=True),
    Route("GET", f"{NAMESPACE}/views", views.list_views, changes=False),
    Route("POST", f"{NAMESPACE}/views", views.create_view, changes=True),
    Route("POST", f"{NAMESPACE}/register-view", views.register_view, changes=True),
    Route("GET", VIEW, views.load_view, changes=False),
    Route("HEAD", VIEW, views.view_exists, changes=False),
    Route("POST", VIEW, views.replace_view, changes=True),
    Route("DELETE", VIEW, views.drop_view, changes=True),
    Route("POST", "views/rename", views.rename_view, changes=True),
    Route("POST", "transactions/commit", tables.commit_transaction, changes=True),
]

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


def _ok(_call: Call) -> Response:
    """Answer while the process works."""
    return json_response({"status": "ok"})


class Application:
    """Answers requests on one or more catalogs. Safe to use from many threads.

    `warehouses`: catalogs by name. The first one also answers paths without a prefix. `tokens`: None: anybody may do
    everything.
    """

    def __init__(self, warehouses: Mapping[str, KVCatalog], tokens: Tokens | None = None) -> None:
        if not warehouses:
            raise ValueError("a server needs at least one warehouse")
        self._tokens = tokens
        self.warehouses = dict(warehouses)
        self._default = next(iter(warehouses))
        self._router = Router(ROUTES)
        self.metrics = Metrics()

    def answer(self, request: Request) -> Response:
        """Return the response to a request; errors become Iceberg's error model."""
        began_s = perf_counter()
        found: _Found | None = None
        try:
            found = self._find(request)
            response = found.handler(found.call)
        except Exception as error:  # whatever it is, the client gets an answer
            if isinstance(error, CommitConflictError):
                self.metrics.conflict(error.table)
            answered = as_http(error, found is not None and found.changes)
            if answered.status >= 500:
                log_error(log, "failed", error, logging.ERROR, method=request.method, path=request.path)
                log.debug("the error", exc_info=True)
            response = error_response(answered)
        self.metrics.count(found.operation if found is not None else OTHER, response.status, perf_counter() - began_s)
        return response

    def _find(self, request: Request) -> "_Found":
        """Return the operation of a request, if its caller may use it."""
        root, *segments = request.segments
        catalog = self.warehouses[self._default]
        if root in PROBES and not segments:
            return _Found(f"GET /{root}", self._ready if root == "ready" else _ok, Call(catalog, request, {}))
        if self._tokens is not None:
            self._tokens.principal(request.headers)
        if root == "metrics" and not segments:
            return _Found("GET /metrics", self._metrics, Call(catalog, request, {}))
        if root != "v1" or not segments:
            raise HttpError(404, "NotFoundException", "Iceberg's REST catalog begins with /v1/")
        if segments == ["config"]:
            return _Found("GET /v1/config", self._config, Call(catalog, request, {}))
        if segments[0] not in ROOTS:
            catalog = self._warehouse(segments.pop(0))
        route, names = self._router.find(request.method, tuple(segments))
        return _Found(route.endpoint, route.handler, Call(catalog, request, names), route.changes)

    def _ready(self, call: Call) -> Response:
        """Answer while every catalog can be read."""
        for catalog in self.warehouses.values():
            catalog.list_namespaces()
        return _ok(call)

    def _metrics(self, _call: Call) -> Response:
        return Response(body=self.metrics.text().encode(), media_type=MEDIA_TYPE)

    def _config(self, call: Call) -> Response:
        request = call.request
        if request.method != "GET":
            raise HttpError(
                405, "UnsupportedOperationException", "The configuration can only be read", {"allow": "GET"}
            )
        asked = request.query.get("warehouse", "")
        name = self._name_of(asked) if asked else self._default
        prefix = name if len(self.warehouses) > 1 else ""
        return json_response(configuration(self.warehouses[name], prefix, ENDPOINTS))

    def _name_of(self, asked: str) -> str:
        """Return the name of a warehouse that is asked for by its name, its URL or the location of its tables."""
        for name, catalog in self.warehouses.items():
            if asked.rstrip("/") in (name, catalog.url, catalog.warehouse):
                return name
        known = ", ".join(self.warehouses)
        raise HttpError(404, "NoSuchWarehouseException", f"Warehouse does not exist: {asked}; known: {known}")

    def _warehouse(self, prefix: str) -> KVCatalog:
        found = self.warehouses.get(prefix)
        if found is None:
            raise HttpError(404, "NotFoundException", f"No such path or prefix: {prefix}")
        return found
