"""The table of operations: method and path of Iceberg's specification, and the function that answers.

`endpoints` of the configuration is made from this table, so that the server announces what it has and nothing else.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from endive.catalog.catalog import KVCatalog
from endive.catalog.model.names import LEVELS_MAX, Identifier
from endive.catalog.operations.requests import digest_of
from endive.server.access.guard import Guard
from endive.server.errors import HttpError, bad_request, not_acceptable
from endive.server.http import SEPARATOR, Request, Response
from endive.server.names import uuid_of
from endive.server.storage.delegation import NO_DELEGATION, Delegation

ROOTS = frozenset({"config", "oauth", "namespaces", "tables", "views", "transactions"})
"""What may follow `/v1/` without a prefix; no warehouse has one of these names."""


@dataclass(frozen=True)
class Call:
    """A request to an operation, with the catalog and the names in its path."""

    catalog: KVCatalog
    request: Request
    path: Mapping[str, str]
    guard: Guard
    delegation: Delegation = NO_DELEGATION
    """How clients reach files."""
    warehouse: str = ""
    """The catalog's name."""

    @property
    def namespace(self) -> Identifier:
        """The namespace in the path."""
        return levels_of(self.path["namespace"])

    @property
    def table(self) -> Identifier:
        """The table or view in the path."""
        name = self.path.get("table") or self.path["view"]
        if SEPARATOR in name:
            raise bad_request(f"A name does not hold the separator of levels: {name!r}")
        return (*self.namespace, name)

    @property
    def request_id(self) -> str | None:
        """The id of a request under the client's idempotency key; None without a key.

        It belongs to the caller: the same key of another caller is another id.
        """
        key = self.request.headers.get("idempotency-key")
        if not key:
            return None
        uuid_of(key)
        return self.guard.principal.request_id(key)

    @property
    def digest(self) -> str:
        """A digest of the JSON in the body, to be stored with the idempotency key; empty without a key."""
        return digest_of(self.request.decoded(dict)) if self.request_id is not None else ""


Handler = Callable[[Call], Response]


def refused(what: str) -> Handler:
    """Return the handler of an operation that the server does not have."""

    def handler(_call: Call) -> Response:
        raise not_acceptable(what)

    return handler


def levels_of(text: str) -> Identifier:
    """Return the levels of a namespace in a path or a parameter."""
    levels = tuple(text.split(SEPARATOR))
    if len(levels) > LEVELS_MAX:
        raise bad_request(f"A namespace has at most {LEVELS_MAX} levels, and not {len(levels)}")
    if not all(level.strip() for level in levels):
        raise bad_request(f"A namespace has no empty level: {'.'.join(levels)!r}")
    return levels


@dataclass(frozen=True)
class Route:
    """An operation."""

    method: str
    template: str
    """The path after `/v1/{prefix}/`."""
    handler: Handler
    changes: bool
    """Whether it may change something: then an error of unknown kind means an unknown outcome."""
    needs: Callable[[Call], None]
    """Refuses callers without the privileges that the operation needs: one of `endive.server.access.rules`."""

    @property
    def endpoint(self) -> str:
        """The operation in the configuration's list."""
        return f"{self.method} /v1/{{prefix}}/{self.template}"


class Router:
    """Finds the operation of a request."""

    def __init__(self, routes: list[Route]) -> None:
        self._tree: dict[tuple[int, str], list[tuple[tuple[str, ...], Route]]] = {}
        for route in routes:
            parts = tuple(route.template.split("/"))
            self._tree.setdefault((len(parts), route.method), []).append((parts, route))
        self._lengths = {length for length, _ in self._tree}

    def find(self, method: str, segments: tuple[str, ...]) -> tuple[Route, dict[str, str]]:
        """Return the operation and the names in its path; 404 or 405 if there is none."""
        for parts, route in self._tree.get((len(segments), method), ()):
            names = _matched(parts, segments)
            if names is not None:
                return route, names
        others = [
            each
            for (length, each), found in self._tree.items()
            if length == len(segments) and any(_matched(parts, segments) is not None for parts, _ in found)
        ]
        if others:
            allowed = {"allow": ", ".join(sorted(set(others)))}
            raise HttpError(405, "UnsupportedOperationException", f"{method} is not an operation here", allowed)
        raise HttpError(404, "NotFoundException", "No such path: it is none of Iceberg's REST catalog")


def _matched(parts: tuple[str, ...], segments: tuple[str, ...]) -> dict[str, str] | None:
    names = {}
    for part, segment in zip(parts, segments, strict=True):
        if part.startswith("{"):
            if not segment:
                return None
            names[part[1:-1]] = segment
        elif part != segment:
            return None
    return names
