"""Credentials of the clouds, and `gs://` against a fake server.

There is no emulator with Google's preconditions that a test could start. These tests cover the requests that Endive
sends and how it handles the responses; that the service serialises conditional writes is taken from its documentation.
The contract is the same suite as for all other object stores.
"""

import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Lock, Thread
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from obstore.exceptions import GenericError

from endive.errors import ConfigurationError, StorageAccessError, StorageUnavailableError
from endive.kv import Reader, Store, StoreOptions
from endive.objects import ObjectStore, open_objects
from endive.objects.remote import RemoteStore, credentials_of_aws
from tests.contract.test_object_stores import (  # noqa: F401 - the contract, run on `objects` as it is here
    test_a_create_on_a_taken_name_changes_nothing,
    test_a_listing_is_sorted_and_starts_after_a_path,
    test_delete_is_idempotent,
    test_get_returns_the_bytes_that_were_put,
    test_of_many_threads_one_wins,
    test_paths_outside_of_the_store_are_refused,
    test_put_replaces_an_object,
    test_ranges_end_where_the_object_ends,
    test_two_creates_of_equal_empty_objects_have_one_winner,
)

BUCKET = "/bucket/"
_numbers = count()


class FakeGoogleStorage(BaseHTTPRequestHandler):
    """The requests of Google's XML API that Endive uses, on a dictionary."""

    protocol_version = "HTTP/1.1"
    objects: ClassVar[dict[str, bytes]] = {}
    lock = Lock()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if "list-type" in parts.query:
            self._list(parse_qs(parts.query))
            return
        body = self.objects.get(self._name())
        if body is None:
            self._answer(404)
        elif wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", "")):
            start, end = int(wanted[1]), min(int(wanted[2]), len(body) - 1)
            self._answer(206, body[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{len(body)}"})
        else:
            self._answer(200, body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.lock:
            if self.headers.get("x-goog-if-generation-match") == "0" and self._name() in self.objects:
                self._answer(412)
                return
            self.objects[self._name()] = body
        self._answer(200)

    def do_DELETE(self) -> None:
        self._answer(404 if self.objects.pop(self._name(), None) is None else 204)

    def _name(self) -> str:
        path = unquote(urlsplit(self.path).path)
        if not path.startswith(BUCKET):
            return ""
        return path.removeprefix(BUCKET)

    def _list(self, query: dict[str, list[str]]) -> None:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        found = sorted(name for name in self.objects if name.startswith(prefix) and name > after)
        date = "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>1</ETag>"
        items = (
            f"<Contents><Key>{name}</Key><Size>{len(self.objects[name])}</Size>{date}</Contents>" for name in found
        )
        self._answer(200, f"<ListBucketResult>{''.join(items)}</ListBucketResult>".encode())

    def _answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        if not self.path.startswith(BUCKET.rstrip("/")):
            status, body = 404, b"<Error><Code>NoSuchBucket</Code></Error>"
        if self.headers.get("Authorization") == "Bearer wrong":
            status, body = 403, b"<Error><Code>AccessDenied</Code></Error>"
        self.send_response(status)
        known = {"ETag": '"1"', "x-goog-generation": "1", "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        for name, value in (known | (headers or {})).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if status != 204 else b"")

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name there
        pass


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeGoogleStorage) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "right")


@pytest.fixture
def objects(endpoint: str) -> ObjectStore:
    return open_objects(f"gs://bucket/prefix/{next(_numbers)}", endpoint=endpoint)


def test_the_store_runs_on_it(objects: ObjectStore) -> None:
    with Store(objects, options=StoreOptions(compact_here=False, retention_ms=0)) as store:
        store.write([(b"%d" % number, b"v" * 100) for number in range(500)])
        store.compact()
        store.put(b"last", b"1")
        store.collect()
    with Reader(objects) as reader:
        assert len(list(reader.scan())) == 501


def test_a_missing_bucket_is_named(endpoint: str) -> None:
    with pytest.raises(StorageAccessError, match=r"gs://nowhere/store/manifest/.*NoSuchBucket"):
        Store(open_objects("gs://nowhere/store", endpoint=endpoint))


def test_a_missing_permission_is_reported(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "wrong")
    objects = open_objects("gs://bucket/forbidden", endpoint=endpoint)

    for use in (lambda: objects.get("a"), lambda: objects.put_if_absent("a", b""), lambda: objects.list("a/")):
        with pytest.raises(StorageAccessError, match="gs://bucket/forbidden/a"):
            use()


# Credentials, of all clouds.


def without_credentials(url: str) -> str:
    """Return obstore's message if neither the environment nor the machine has credentials."""
    return f"Generic error: Error performing token request: Error performing GET {url} in 5ms - error sending request"


@pytest.mark.parametrize(
    ("scheme", "asked", "remedy"),
    [
        ("s3", "http://169.254.169.254/latest/api/token", "AWS_ACCESS_KEY_ID"),
        ("gs", "http://metadata.google.internal/computeMetadata/v1", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("az", "http://169.254.169.254/metadata/identity/oauth2/token", "AZURE_STORAGE_ACCOUNT_KEY"),
    ],
)
def test_missing_credentials_are_reported_with_a_remedy(
    scheme: str, asked: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(*_: object) -> None:
        raise GenericError(without_credentials(asked))

    monkeypatch.setattr("endive.objects.remote.obstore.get", get)
    objects = RemoteStore(None, None, f"{scheme}://bucket/store")

    with pytest.raises(StorageAccessError, match=f"{scheme}://bucket/store/a: no credentials were found; .*{remedy}"):
        objects.get("a")


def test_a_failure_to_renew_credentials_is_temporary(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def put(*_: object, **__: object) -> None:
        raise GenericError(without_credentials("http://169.254.169.254/latest/api/token"))

    objects.put("a", b"")
    monkeypatch.setattr("endive.objects.remote.obstore.put", put)

    with pytest.raises(StorageUnavailableError, match="token"):  # not `OutcomeUnknownError`
        objects.put_if_absent("b", b"")


def test_a_missing_azure_account_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)

    with pytest.raises(ConfigurationError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        open_objects("az://container/store")


def test_an_aws_profile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    file.write_text("[default]\naws_access_key_id = one\n[other]\naws_access_key_id = two\naws_secret_access_key = x\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert credentials_of_aws("s3://bucket")()["access_key_id"] == "two"

    monkeypatch.setenv("AWS_PROFILE", "unknown")
    with pytest.raises(ConfigurationError, match="unknown"):
        open_objects("s3://bucket/store")

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from the environment")
    assert credentials_of_aws("s3://bucket") is None
