"""The application: from a request to a response, in one blocking call. `endive.server.asgi` connects it to HTTP."""

import logging
from collections.abc import Mapping

from endive.catalog.catalog import KVCatalog
from endive.logs import log_event
from endive.server import namespaces, tables, views
from endive.server.access import Tokens
from endive.server.configuration import configuration
from endive.server.errors import HttpError, as_http
from endive.server.http import Request, Response, error_response, json_response
from endive.server.routes import ROOTS, Call, Route, Router

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

    def answer(self, request: Request) -> Response:
        """Return the response to a request; errors become Iceberg's error model."""
        changes = request.method not in {"GET", "HEAD"}
        try:
            return self._answer(request)
        except Exception as error:  # whatever it is, the client gets an answer
            answered = as_http(error, changes)
            if answered.status >= 500:
                log_event(
                    log, "failed", level=logging.ERROR, method=request.method, path=request.path, error=str(error)
                )
                log.debug("the error", exc_info=True)
            return error_response(answered)

    def _answer(self, request: Request) -> Response:
        root, *segments = request.segments
        if root in PROBES and not segments:
            return self._probe(root)
        if self._tokens is not None:
            self._tokens.principal(request.headers)
        if root != "v1" or not segments:
            raise HttpError(404, "NotFoundException", "Iceberg's REST catalog begins with /v1/")
        if segments == ["config"]:
            return self._config(request)
        catalog = self.warehouses[self._default]
        if segments[0] not in ROOTS:
            catalog = self._warehouse(segments.pop(0))
        route, names = self._router.find(request.method, tuple(segments))
        return route.handler(Call(catalog, request, names))

    def _probe(self, name: str) -> Response:
        """Answer `/health` while the process works, and `/ready` while every catalog can be read."""
        if name == "ready":
            for catalog in self.warehouses.values():
                catalog.list_namespaces()
        return json_response({"status": "ok"})

    def _config(self, request: Request) -> Response:
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
