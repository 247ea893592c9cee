"""Requests that are made to break the server: endless parts, ambiguous headers, unusual names and numbers."""

import http.client
import json
import socket
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest

from endive.catalog import KVCatalog
from endive.server import Limits, RunningServer, serve_in_background
from endive.server.access import Principal, Tokens, hashed
from endive.server.application import Application
from endive.server.asgi import UNKNOWN_BODY_BYTES_MAX
from endive.server.configuration import client_properties
from endive.server.connections import HEAD_BYTES_MAX
from endive.server.http import BRACKETS_MAX, Page, Request, is_deeper
from endive.server.scan_tokens import PlanToken
from tests.server.calls import SCHEMA, answer, create_table, error, send

CREATE = json.dumps({"namespace": ["cut"]}).encode()


@pytest.fixture
def server(catalog: KVCatalog) -> Iterator[RunningServer]:
    with serve_in_background(catalog, Limits(threads=4)) as running:
        yield running


def connected(server: RunningServer) -> socket.socket:
    place = urlsplit(server.url)
    return socket.create_connection((place.hostname or "", place.port or 0), timeout=30)


def head(server: RunningServer, *more: str, line: str = "POST /v1/namespaces HTTP/1.1", token: str = "") -> bytes:
    lines = (line, "host: x", f"authorization: Bearer {token or server.token}", *more, "", "")
    return "\r\n".join(lines).encode()


def status(connection: socket.socket) -> int:
    answered = http.client.HTTPResponse(connection)
    answered.begin()
    return answered.status


# JSON.


@pytest.mark.parametrize("strings", [b'\\"' * 1_000_000, b'"' + b"a" * 2_000_000, b'"a\\\\",' * 300_000])
def test_the_depth_of_json_takes_time_in_proportion_to_its_length(strings: bytes) -> None:
    """Before, 40 kB of the first kind took a minute, during which the whole server stood still."""
    assert not is_deeper(b"[]" * 201 + strings, 200)


def test_many_brackets_are_refused(application: Application) -> None:
    body = b'{"namespace":["x"],"properties":{},"more":[' + b"[]," * (BRACKETS_MAX // 2) + b"1]}"

    assert send(application, "POST", "namespaces", body).status == 400


# Names and numbers.


def test_a_namespace_of_many_levels_is_refused_before_grants_are_looked_up(catalog: KVCatalog) -> None:
    """The grants around each level are looked up: 20,000 levels took twenty seconds."""
    application = Application({"lake": catalog}, Tokens({hashed("ada"): Principal("ada")}))
    levels = ["a"] * 50_000
    change = {"identifier": {"namespace": levels, "name": "t"}, "updates": []}
    requests: list[tuple[str, str, object]] = [
        ("POST", "transactions/commit", {"table-changes": [change]}),
        ("POST", "namespaces", {"namespace": levels}),
        ("POST", "tables/rename", {"source": change["identifier"], "destination": change["identifier"]}),
        ("GET", f"namespaces/{'%1F'.join(levels)}", None),
        ("GET", f"namespaces?parent={'%1F'.join(levels)}", None),
    ]

    for method, path, body in requests:
        assert answer(application, method, path, body, authorization="Bearer ada")[0] == 400


def test_names_with_the_separator_of_levels_are_refused(application: Application) -> None:
    create_table(application)
    taken = {"namespace": ["db"], "name": "events"}
    requests: list[tuple[str, object]] = [
        ("namespaces", {"namespace": ["a\x1fb"]}),
        ("namespaces/db/tables", {"name": "a\x1fb", "schema": SCHEMA}),
        ("namespaces/db/tables/a%1Fb", {"requirements": [{"type": "assert-create"}], "updates": []}),
        ("tables/rename", {"source": taken, "destination": {"namespace": ["db"], "name": "a\x1fb"}}),
    ]

    for path, body in requests:
        assert error(application, "POST", path, body)[0] == 400


def test_pages_end_after_a_name_with_the_separator(application: Application, catalog: KVCatalog) -> None:
    """Another client, or an older server, may have created it: its page came again and again."""
    names: list[tuple[str, ...]] = [("db", "a\x1fb"), ("db", "a"), ("db", "b")]
    found, token = [], ""
    for _ in names:
        page, following = Page(token, 1).cut(names)
        found += page
        token = following or ""
    assert sorted(found) == sorted(names)
    assert following is None


@pytest.mark.parametrize("size", ["²", "٣", "9" * 5000, "0", "00", "-1", ""])
def test_page_sizes_are_numbers(application: Application, size: str) -> None:
    expected = 200 if size.startswith("9") else 400

    assert answer(application, "GET", f"namespaces?pageToken=&pageSize={quote(size)}")[0] == expected


def test_a_plan_with_a_filter_can_be_cancelled(application: Application, catalog: KVCatalog) -> None:
    create_table(application)
    table, condition = "namespaces/db/tables/events", {"type": "eq", "term": "id", "value": 1}
    plan = PlanToken(table=str(catalog.load_table("db.events").uuid), snapshot=1, filter=condition).text()
    answer(application, "GET", f"{table}/plan/{plan}")  # makes the cache of plans

    assert answer(application, "DELETE", f"{table}/plan/{plan}")[0] == 204


@pytest.mark.parametrize("headers", [{"host": "[::1"}, {"host": "127.0.0.1", "origin": "http://["}])
def test_malformed_hosts_and_origins_are_refused(catalog: KVCatalog, headers: dict[str, str]) -> None:
    assert Application({"lake": catalog}).answer(Request("GET", "/v1/config", headers=headers)).status == 403


# Bytes on a connection.


def test_trailers_without_end_are_cut_off(server: RunningServer) -> None:
    """They were kept as headers: 20 MB of them took half a gigabyte, without a token."""
    start = head(server, "transfer-encoding: chunked", token="wrong") + b"2\r\n{}\r\n0\r\n"  # noqa: S106
    for trailer in (b"x:\r\n" * HEAD_BYTES_MAX, b"x: " + b"a" * 4 * HEAD_BYTES_MAX):
        with connected(server) as connection:
            connection.sendall(start)
            _send_until_cut_off(connection, trailer)  # else it times out


def _send_until_cut_off(connection: socket.socket, sent: bytes) -> None:
    try:
        for first in range(0, len(sent), 8192):
            connection.sendall(sent[first : first + 8192])
        while connection.recv(65536):
            pass
    except ConnectionError:
        pass


def test_trailers_are_no_headers(server: RunningServer) -> None:
    with connected(server) as connection:
        start = head(server, "transfer-encoding: chunked", token="wrong")  # noqa: S106
        connection.sendall(start + b"2\r\n{}\r\n0\r\nauthorization: Bearer " + server.token.encode() + b"\r\n\r\n")
        assert status(connection) == 401


def test_a_long_body_in_small_parts_is_read(server: RunningServer, catalog: KVCatalog) -> None:
    body = CREATE + b" " * 3 * HEAD_BYTES_MAX
    with connected(server) as connection:
        connection.sendall(head(server, f"content-length: {len(body)}"))
        for first in range(0, len(body), 1000):
            connection.sendall(body[first : first + 1000])
        assert status(connection) == 200
    assert catalog.namespace_exists("cut")


def test_a_body_without_a_valid_token_is_not_read(server: RunningServer) -> None:
    """The answer comes before the end of the body: memory is not for everybody."""
    with connected(server) as connection:
        connection.sendall(head(server, "content-length: 30000000", token="wrong"))  # noqa: S106
        connection.sendall(b" " * (UNKNOWN_BODY_BYTES_MAX + 1))
        assert status(connection) == 401


def test_a_request_that_was_cut_off_is_not_carried_out(server: RunningServer, catalog: KVCatalog) -> None:
    """A body that ends with its connection is not a shorter body."""
    with connected(server) as connection:
        connection.sendall(head(server, f"content-length: {len(CREATE) + 10}") + CREATE)
    server.close()  # waits for requests in progress

    assert not catalog.namespace_exists("cut")


@pytest.mark.parametrize("repeated", ["authorization: Bearer x", "host: y", "idempotency-key: a\r\nidempotency-key: b"])
def test_headers_that_decide_are_there_once(server: RunningServer, repeated: str) -> None:
    with connected(server) as connection:
        connection.sendall(head(server, repeated, line="GET /v1/config HTTP/1.1"))
        assert status(connection) == 400


@pytest.mark.parametrize(
    "ambiguous",
    [
        "content-length: 6\r\ntransfer-encoding: chunked",
        "content-length: 2\r\ncontent-length: 5",
        "transfer-encoding: xchunked",
        "content-length : 5",
        "x: a\r\n b",
    ],
)
def test_requests_of_two_lengths_are_refused(server: RunningServer, ambiguous: str) -> None:
    """A proxy in front might see another end of the request, and the rest as another caller's."""
    with connected(server) as connection:
        connection.sendall(head(server, ambiguous) + b"0\r\n\r\n")
        assert status(connection) == 400


def test_websockets_are_no_error(server: RunningServer) -> None:
    upgrade = ("upgrade: websocket", "connection: upgrade", "sec-websocket-version: 13", "sec-websocket-key: eA==")
    with connected(server) as connection:
        connection.sendall(head(server, *upgrade, line="GET /v1/config HTTP/1.1"))
        assert status(connection) == 200


def test_the_configuration_has_no_secrets() -> None:
    secrets = {
        "adls.connection-string": "AccountKey=hunter2",
        "adls.account-key": "hunter2",
        "gcs.oauth2.token": "hunter2",
        "gcs.session-kwargs": '{"auth": "hunter2"}',
        "s3.proxy-uri": "http://me:hunter2@proxy",
        "s3.secret-access-key": "hunter2",
    }

    assert client_properties({**secrets, "s3.region": "eu", "adls.account-name": "lake"}).keys() == {
        "s3.region",
        "client.region",
        "adls.account-name",
    }
