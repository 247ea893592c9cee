"""Limits of requests, and the audit log."""

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from endive.catalog import KVCatalog
from endive.catalog.model.grants import Grantee, Privilege
from endive.errors import ConfigurationError
from endive.server import Limits, RunningServer, connections, serve_in_background
from endive.server.access import Principal, Tokens, hashed
from endive.server.application import Application
from endive.server.audit import audit, audit_to
from endive.server.http import is_deeper
from tests.server.calls import SCHEMA, answer, create_table, error


@pytest.fixture
def server(catalog: KVCatalog) -> Iterator[RunningServer]:
    with serve_in_background(catalog, Limits(threads=4)) as running:
        yield running


def talk(server: RunningServer, *parts: bytes) -> bytes:
    """Return what a server answers to raw bytes until it closes the connection."""
    place = urlsplit(server.url)
    with socket.create_connection((place.hostname or "", place.port or 0), timeout=30) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except ConnectionError:
            pass
        received = b""
        try:
            while part := connection.recv(65536):
                received += part
        except ConnectionError:
            pass
        return received


def test_headers_that_are_too_large_are_refused(server: RunningServer) -> None:
    answered = talk(server, b"GET /health HTTP/1.1\r\nhost: x\r\n", *[b"x: " + b"a" * 1000 + b"\r\n"] * 100)

    assert answered.startswith(b"HTTP/1.1 431 ")
    assert json.loads(answered.partition(b"\r\n\r\n")[2])["error"]["code"] == 431


def test_a_head_that_never_ends_is_cut_off(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_TIMEOUT_S", 0.2)

    assert talk(server) == b""
    assert talk(server, b"GET /health HTTP/1.1\r\nhost: x\r\nx: ") == b""
    again = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    assert talk(server, again, b"GET /he").count(b"200 OK") == 1


def test_a_request_that_waited_too_long_for_a_thread_is_refused(catalog: KVCatalog) -> None:
    with serve_in_background(catalog, Limits(threads=1, waiting_timeout_s=-1.0)) as running:
        answered = talk(running, b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")

    assert answered.startswith(b"HTTP/1.1 429 ")
    assert b"retry-after: 1" in answered


@pytest.mark.parametrize(
    ("body", "is_too_deep"),
    [
        (b"[" * 201 + b"]" * 201, True),
        (b"[" * 200 + b"]" * 200, False),
        (b"[[]," * 300 + b"1", True),
        (b"[" + b"[]," * 300 + b"1]", False),
        (b'["' + b"[" * 300 + b'"]', False),
        (b'["\\"' + b"[" * 300 + b'"]', False),
    ],
)
def test_the_depth_of_json_is_counted_outside_of_strings(body: bytes, is_too_deep: bool) -> None:
    assert is_deeper(body, 200) is is_too_deep


def test_a_schema_that_is_nested_too_deep_is_refused(application: Application) -> None:
    kind: object = "long"
    for number in range(300):
        kind = {"type": "struct", "fields": [{"id": number + 1, "name": "a", "type": kind, "required": False}]}

    assert error(application, "POST", "namespaces/db/tables", {"name": "deep", "schema": kind}) == (
        400,
        "BadRequestException",
    )


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "audit.log"
    handler = audit_to(path)
    yield path
    audit.removeHandler(handler)
    audit.setLevel(logging.NOTSET)
    handler.close()


def test_the_audit_log_has_changes_and_refusals(catalog: KVCatalog, log: Path) -> None:
    catalog.create_namespace("db")
    catalog.grants.grant(Grantee("user", "ada"), [Privilege.CREATE], catalog.grants.place("db"))
    application = Application({"lake": catalog}, Tokens({hashed("s3cret-token"): Principal("ada")}))
    bearer = "Bearer s3cret-token"

    answer(application, "POST", "namespaces/db/tables", {"name": "t", "schema": SCHEMA}, authorization=bearer)
    answer(application, "GET", "namespaces/db/tables/t", authorization=bearer)
    answer(application, "DELETE", "namespaces/db", authorization=bearer)
    answer(application, "GET", "namespaces/db", authorization="Bearer wrong")
    lines = [json.loads(line) for line in log.read_text().splitlines()]

    assert [(one["event"], one["principal"], one["on"], one["status"]) for one in lines] == [
        ("changed", "ada", "db, db.t", 200),
        ("refused", "ada", "db", 403),
        ("refused", "", "", 401),
    ]
    assert lines[0]["operation"] == "POST /v1/{prefix}/namespaces/{namespace}/tables"
    assert "s3cret" not in log.read_text()


def test_no_name_looks_like_two_in_the_audit_log(application: Application, log: Path) -> None:
    for name in ("x, db.payroll", "a.b"):
        create_table(application, name)

    names = [json.loads(line)["on"] for line in log.read_text().splitlines()]
    assert names == ["db, db.x%2C%20db%2Epayroll", "db, db.a%2Eb"]


def test_both_names_of_a_rename_are_in_the_audit_log(application: Application, log: Path) -> None:
    create_table(application)
    names = {
        each: {"namespace": ["db"], "name": name} for each, name in (("source", "events"), ("destination", "moved"))
    }
    assert answer(application, "POST", "tables/rename", names)[0] == 204

    assert json.loads(log.read_text().splitlines()[-1])["on"] == "db.events, db.moved"


def test_requests_have_one_id_in_the_answer_and_in_the_audit_log(server: RunningServer, log: Path) -> None:
    lines = ("GET /v1/namespaces/x HTTP/1.1", "host: x", "connection: close", "authorization: Bearer x", "", "")
    answered = talk(server, "\r\n".join(lines).encode())

    (line,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert line["request_id"]
    assert line["request_id"].encode() in answered
    assert line["client"] == "127.0.0.1"


def test_an_audit_log_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="audit log cannot be written"):
        audit_to(tmp_path / "missing" / "audit.log")
