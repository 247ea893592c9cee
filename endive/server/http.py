"""Requests and responses as values: handlers are functions from one to the other, and know nothing of sockets."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote

import msgspec

from endive.server.errors import HttpError, bad_request

T = TypeVar("T")

JSON = "application/json"
SEPARATOR = "\x1f"
"""Between the levels of a namespace in a path or parameter: the default of Iceberg's specification."""
PAGE_SIZE_MAX = 1000
"""Entries of a page, whatever the client asks for."""

DEPTH_MAX = 200
"""Levels of JSON in a body: a schema of structs has three for each of its own."""

BRACKETS_MAX = 1_000_000
"""Brackets in a body: a schema of 10,000 columns has 20,000. Each becomes an object of a hundred bytes."""

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
"""Strings, also one without an end. It never goes back, so that its time grows with the length only."""
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True)
class Request:
    """One HTTP request, read completely."""

    method: str
    path: str
    """The path as it was sent, still percent-encoded."""
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """By their names in lower case."""
    body: bytes = b""
    id: str = ""
    """The request's id in logs and in the answer's header `x-request-id`."""
    client: str = ""
    """The address that it came from."""

    @property
    def segments(self) -> tuple[str, ...]:
        """The decoded parts of the path. A `%2F` inside a part stays there as a slash."""
        return tuple(unquote(part) for part in self.path.strip("/").split("/"))

    def decoded(self, kind: type[T]) -> T:
        """Return the JSON body as a message; 400 with the place of the first error."""
        if is_deeper(self.body, DEPTH_MAX):
            raise bad_request(f"Malformed request: nested more than {DEPTH_MAX} levels deep")
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise bad_request(f"Malformed request: {error}") from error

    def flag(self, name: str) -> bool:
        """Return a parameter that is `true` or `false`."""
        value = self.query.get(name, "false").lower()
        if value not in ("true", "false"):
            raise bad_request(f"{name} is {value!r}, not true or false")
        return value == "true"


def is_deeper(body: bytes, levels: int) -> bool:
    """Whether JSON is nested more than so many levels deep. Code behind it recurses, and would fail halfway."""
    if body.count(b"[") + body.count(b"{") <= levels:
        return False
    brackets = _STRINGS.sub(b"", body).translate(None, _OTHERS)
    if len(brackets) > BRACKETS_MAX:
        raise bad_request(f"Malformed request: more than {BRACKETS_MAX} brackets")
    depth = 0
    for sign in brackets:
        depth += 1 if sign in b"[{" else -1
        if depth > levels:
            return True
    return False


def query_of(text: str) -> dict[str, str]:
    """Return the parameters of a query string."""
    return dict(parse_qsl(text, keep_blank_values=True))


@dataclass(frozen=True)
class Response:
    """One HTTP response."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = JSON
    caller: str = ""
    """The name of the request's caller, for the log; empty if it is not known."""


NO_CONTENT = Response(204)


@dataclass(frozen=True)
class Spliced:
    """JSON that is already encoded, in pieces. It may be megabytes: it is copied once, into the answer."""

    pieces: list[bytes]


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:  # noqa: ANN401
    """Return a response with a JSON body; fields of the outermost object that are `Spliced` are sent as they are."""
    if not isinstance(value, dict) or not any(isinstance(one, Spliced) for one in value.values()):
        return Response(status, _encoder.encode(value), headers or {})
    pieces: list[bytes] = []
    for name, one in value.items():
        pieces += (b"," if pieces else b"{", _encoder.encode(name), b":")
        pieces += one.pieces if isinstance(one, Spliced) else (_encoder.encode(one),)
    return Response(status, b"".join((*pieces, b"}")), headers or {})


def error_response(error: HttpError) -> Response:
    """Return Iceberg's error model."""
    body = {"error": {"message": error.message, "type": error.kind, "code": error.status, "stack": []}}
    return json_response(body, error.status, error.headers)


@dataclass(frozen=True)
class Page:
    """The part of a list that a client asked for."""

    token: str | None
    """The last name of the page before; empty: the first page; None: the client wants no pages."""
    size: int

    @staticmethod
    def of(request: Request) -> "Page":
        """Return the page of a request."""
        text = request.query.get("pageSize", str(PAGE_SIZE_MAX))
        if not (text.isascii() and text.isdigit()) or not text.strip("0"):
            raise bad_request(f"pageSize is {text[:20]!r}, not a whole number from 1 on")
        return Page(request.query.get("pageToken"), min(int(text.lstrip("0")[:9]), PAGE_SIZE_MAX))

    def cut(self, names: list[tuple[str, ...]]) -> tuple[list[tuple[str, ...]], str | None]:
        """Return the names of the page and the token of the next one; None if this is the last.

        The token is the last name of a page, so that names added or dropped meanwhile neither repeat nor hide others.
        """
        if self.token is None:
            return names, None
        # Sorted by the token itself: a name that holds the separator would else come after its own token, for ever.
        rest = [name for name in sorted(names, key=SEPARATOR.join) if SEPARATOR.join(name) > self.token]
        page = rest[: self.size]
        return page, SEPARATOR.join(page[-1]) if len(rest) > self.size else None
