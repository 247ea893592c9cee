"""The page at `/`: a catalog browser in plain HTML, CSS and JavaScript, and the description of the API.

The page has no data of its own. It asks the REST protocol with the token of its reader, so that it shows what
the caller may see; the files themselves are the same for everybody and need no token.
"""

from functools import cache
from importlib.resources import files
from typing import Any

from endive import __version__
from endive.server.errors import HttpError
from endive.server.http import Response, json_response
from endive.server.routes import Route

FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page/page.css": ("page.css", "text/css; charset=utf-8"),
    "page/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "page/parts.js": ("parts.js", "text/javascript; charset=utf-8"),
    "page/snapshots.js": ("snapshots.js", "text/javascript; charset=utf-8"),
}
"""Paths of the page, with their files and media types."""
OPENAPI = "openapi.json"

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
"""A page that runs only its own code, in no other page, even if a name in the catalog were HTML."""


def is_of_page(path: str) -> bool:
    """Whether a path belongs to the page, and needs no token."""
    return path.strip("/") in FILES or path.strip("/") == OPENAPI


def page_file(method: str, path: str, routes: list[Route]) -> Response:
    """Return a file of the page, or the description of the API."""
    if method not in ("GET", "HEAD"):
        raise HttpError(405, "UnsupportedOperationException", "The page can only be read", {"allow": "GET, HEAD"})
    if path.strip("/") == OPENAPI:
        return json_response(openapi(tuple(routes)), headers=HEADERS)
    name, media_type = FILES[path.strip("/")]
    return Response(200, _content(name), HEADERS, media_type)


@cache
def _content(name: str) -> bytes:
    return (files(__package__) / name).read_bytes()


@cache
def openapi(routes: tuple[Route, ...]) -> dict[str, Any]:
    """Return the description of the operations by OpenAPI: their paths and parameters, from the table of routes.

    The bodies are those of Iceberg's own specification, which it names.
    """
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        names = ["prefix", *(part[1:-1] for part in route.template.split("/") if part.startswith("{"))]
        words = (route.handler.__doc__ or "").strip().splitlines()[0]
        paths.setdefault(f"/v1/{{prefix}}/{route.template}", {})[route.method.lower()] = {
            "operationId": route.handler.__name__,
            "summary": words,
            "tags": [route.template.split("/")[0]],
            "parameters": [
                {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
            ],
            "responses": {"default": {"description": "As in Iceberg's specification of the REST catalog."}},
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Endive",
            "version": __version__,
            "description": "Iceberg's REST catalog on a bucket. Bodies are those of Iceberg's specification "
            "(open-api/rest-catalog-open-api.yaml in apache/iceberg). Without `prefix` a path is that of the first "
            "warehouse.",
        },
        "components": {"securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}}},
        "security": [{"bearer": []}],
        "paths": paths,
    }
