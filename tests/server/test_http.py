"""The server over HTTP: tokens, limits, embedding, and PyIceberg's client."""

import http.client
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from endive.catalog import KVCatalog
from endive.errors import ConfigurationError
from endive.logs import ROOT, LogForm, show_logs
from endive.server import Limits, RunningServer, serve_in_background
from endive.server.access import Callers, new_token
from endive.server.running import is_loopback, listen
from tests.server.calls import SCHEMA, VERSION


@pytest.fixture
def server(catalog: KVCatalog) -> Iterator[RunningServer]:
    with serve_in_background(catalog, Limits(body_bytes_max=10_000, threads=8)) as running:
        yield running


def ask(
    server: RunningServer, method: str, path: str, body: bytes | None = None, token: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=30)
    headers = {"Authorization": f"Bearer {token if token is not None else server.token}"}
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    found = response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()
    connection.close()
    return found


def test_it_listens_on_loopback_only(server: RunningServer) -> None:
    assert is_loopback(urlsplit(server.url).hostname or "")


def test_without_the_token_nothing_is_answered(server: RunningServer) -> None:
    status, headers, body = ask(server, "GET", "/v1/config", token="guessed")  # noqa: S106

    assert status == 401
    assert headers["www-authenticate"].startswith("Bearer")
    assert json.loads(body)["error"]["type"] == "NotAuthorizedException"
    assert ask(server, "GET", "/v1/config")[0] == 200
    assert ask(server, "GET", "/health", token="")[0] == 200


def test_every_answer_has_a_request_id(server: RunningServer) -> None:
    ids = {ask(server, "GET", path)[1]["x-request-id"] for path in ("/v1/config", "/v1/config", "/nothing")}

    assert len(ids) == 3


def test_every_request_is_in_the_log(server: RunningServer) -> None:
    stream = io.StringIO()
    handler = show_logs(LogForm.JSON, stream)
    try:
        request_id = ask(server, "GET", "/v1/config?warehouse=lake")[1]["x-request-id"]
        assert ask(server, "GET", "/v1/namespaces/none%20such")[0] == 404
        assert ask(server, "GET", "/v1/config", token="wrong-token")[0] == 401  # noqa: S106
        assert ask(server, "GET", "/health")[0] == 200
    finally:
        logging.getLogger(ROOT).removeHandler(handler)
        logging.getLogger(ROOT).setLevel(logging.NOTSET)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    answered = [one for one in lines if one["event"] == "answered"]

    assert [(one["method"], one["path"], one["status"]) for one in answered] == [
        ("GET", "/v1/config", 200),
        ("GET", "/v1/namespaces/none%20such", 404),
        ("GET", "/v1/config", 401),
    ]
    assert answered[0]["request_id"] == request_id
    assert [one["principal"] for one in answered] == ["owner", "owner", ""]
    assert all(one["ms"] > 0 and one["client"] == "127.0.0.1" and one["level"] == "info" for one in answered)
    assert server.token not in stream.getvalue()
    assert "wrong-token" not in stream.getvalue()


def test_a_body_that_is_too_large_is_refused(server: RunningServer) -> None:
    status, _, body = ask(server, "POST", "/v1/namespaces", b" " * 10_001)

    assert (status, json.loads(body)["error"]["code"]) == (413, 413)


def test_deeply_nested_json_is_refused(server: RunningServer) -> None:
    assert ask(server, "POST", "/v1/namespaces", b'{"namespace":' + b"[" * 5_000)[0] == 400


def test_names_keep_their_slashes_and_dots(server: RunningServer, catalog: KVCatalog) -> None:
    catalog.create_namespace(("a/b", "c.d"))

    status, _, body = ask(server, "GET", "/v1/namespaces/a%2Fb%1Fc.d")
    assert (status, json.loads(body)["namespace"]) == (200, ["a/b", "c.d"])


def test_pyiceberg_reads_and_writes_through_it(server: RunningServer, catalog: KVCatalog) -> None:
    client = load_catalog("lake", type="rest", **server.client_properties)
    rows = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})
    client.create_namespace("db")
    table = client.create_table("db.events", rows.schema)
    table.append(rows)
    table.append(rows)
    table.delete("id = 2")

    assert client.load_table("db.events").scan().to_arrow().num_rows == 4
    assert sorted(one.file.record_count for one in catalog.plan_files("db.events")) == [2, 2]
    catalog.create_view("db.v", SCHEMA, {**VERSION, "default-namespace": ["db"]})
    assert client.list_views("db") == [("db", "v")]
    client.drop_view("db.v")
    assert catalog.check() == []


def test_a_closed_server_answers_nobody(catalog: KVCatalog) -> None:
    with serve_in_background(catalog) as running:
        assert ask(running, "GET", "/v1/config")[0] == 200
    running.close()

    with pytest.raises(OSError, match="refused"):
        ask(running, "GET", "/v1/config")


def test_a_taken_port_is_reported() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(ConfigurationError, match="cannot listen there"):
        listen("127.0.0.1", taken.getsockname()[1])


def test_tokens_come_from_a_file(tmp_path: Path) -> None:
    token, line = new_token("ada")
    file = tmp_path / "tokens.toml"
    file.write_text(f"[tokens]\n{line}\n")

    assert Callers.load(file).principal({"authorization": f"Bearer {token}"}).name == "ada"
    assert token not in file.read_text()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "no table"),
        ("[tokens]\n", "no table"),
        ('[tokens]\nada = "secret"\n', "ada: not"),
        ('[tokens]\nada = "sha256:' + "0" * 64 + '"\n[grant]\n', "grant: no such"),
        ("[tokens", "cannot be read"),
    ],
)
def test_a_wrong_tokens_file_is_reported(tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(content)

    with pytest.raises(ConfigurationError, match=problem):
        Callers.load(file)
