"""Metrics of the stores, and events of commits."""

import hashlib
import hmac
import http.server
import json
import threading
from queue import Queue
from typing import Any, ClassVar

import pytest

from endive.catalog import KVCatalog
from endive.server.application import Application
from endive.server.events import KEPT, Webhook, posting, signature
from endive.server.http import Request
from tests.server.calls import answer, create_table, error, set_property


def text_of(application: Application) -> str:
    return application.answer(Request("GET", "/metrics")).body.decode()


def commit(application: Application, value: str = "1") -> None:
    body = {"updates": [set_property("a", value)]}
    assert answer(application, "POST", "namespaces/db/tables/events", body)[0] == 200


def test_the_time_of_commits_is_split_into_stages(application: Application) -> None:
    create_table(application)
    commit(application)
    lines = dict(line.rsplit(" ", 1) for line in text_of(application).splitlines() if not line.startswith("#"))

    counts = [
        int(lines[f'endive_commit_stage_seconds_count{{warehouse="lake",stage="{one}"}}']) for one in ("work", "put")
    ]
    assert counts[0] == counts[1] > 0
    assert int(lines['endive_commit_stage_seconds_count{warehouse="lake",stage="waiting"}']) >= counts[0]
    assert int(lines['endive_commit_batch_size_count{warehouse="lake"}']) == counts[0]
    assert int(lines['endive_commit_batches_total{warehouse="lake"}']) >= counts[0]
    assert any(line.startswith("endive_store_requests_total") for line in lines)


def test_series_of_metrics_are_well_formed(application: Application) -> None:
    create_table(application)
    seen = set()
    for line in text_of(application).splitlines():
        if line.startswith("# TYPE "):
            name = line.split()[2]
            assert name not in seen
            seen.add(name)
        elif not line.startswith("#"):
            float(line.rsplit(" ", 1)[1])
    assert "endive_commit_stage_seconds" in seen


class Receiver:
    """A receiver that can refuse."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.is_down = False

    def post(self, body: bytes, headers: dict[str, str]) -> None:
        if self.is_down:
            raise OSError("refused")
        assert headers["content-type"] == "application/json"
        self.events += json.loads(body)["events"]


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def webhook(catalog: KVCatalog, receiver: Receiver) -> Webhook:
    return Webhook({"lake": catalog}, "hook", receiver.post)


def test_commits_that_happened_are_told(application: Application, webhook: Webhook, receiver: Receiver) -> None:
    create_table(application)
    commit(application)
    stale = {"requirements": [{"type": "assert-create"}], "updates": [set_property("a", "1")]}
    assert error(application, "POST", "namespaces/db/tables/events", stale)[0] == 409

    assert webhook.tell() == 2
    assert [(one["type"], one["version"], one["table"]) for one in receiver.events] == [
        ("table-created", 0, "events"),
        ("table-committed", 1, "events"),
    ]
    assert receiver.events[1]["commit-id"]
    assert webhook.tell() == 0


def test_a_commit_is_told_again_until_it_is_accepted(
    application: Application, webhook: Webhook, receiver: Receiver, catalog: KVCatalog
) -> None:
    create_table(application)
    receiver.is_down = True
    with pytest.raises(OSError, match="refused"):
        webhook.tell()
    receiver.is_down = False
    commit(application)

    assert Webhook({"lake": catalog}, "hook", receiver.post).tell() == 2  # after a restart
    assert webhook.tell() == 0
    assert Webhook({"lake": catalog}, "another", receiver.post).tell() == 2
    assert catalog.check() == []


def test_commits_that_are_no_longer_kept_are_named(
    application: Application, webhook: Webhook, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("endive.server.events.KEPT", 2)
    assert KEPT == 1000
    create_table(application)
    for number in range(5):
        commit(application, str(number))

    webhook.tell()
    assert [(one["type"], one["version"]) for one in receiver.events] == [
        ("commits-missed", 3),
        ("table-committed", 4),
        ("table-committed", 5),
    ]
    assert receiver.events[0]["first-version"] == 0


def test_many_events_come_in_batches(
    application: Application, webhook: Webhook, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("endive.server.events.BATCH_MAX", 2)
    create_table(application)
    for number in range(3):
        commit(application, str(number))

    assert [webhook.tell() for _ in range(3)] == [2, 2, 0]
    assert [one["version"] for one in receiver.events] == [0, 1, 2, 3]


def test_bodies_are_signed() -> None:
    assert signature(b"key", b"body") == "sha256=" + hmac.new(b"key", b"body", hashlib.sha256).hexdigest()


def test_the_thread_tells_and_ends(application: Application, catalog: KVCatalog, receiver: Receiver) -> None:
    create_table(application)
    with Webhook({"lake": catalog}, "hook", receiver.post, interval_s=0.01).start() as running:
        for _ in range(1000):
            if receiver.events:
                break
            running._ending.wait(0.01)
    assert receiver.events
    assert not running._thread.is_alive()


class _Answering(http.server.BaseHTTPRequestHandler):
    """A receiver that redirects, or answers with something that is no HTTP."""

    asked: ClassVar[Queue[str]] = Queue()

    def do_POST(self) -> None:
        self.asked.put(f"POST {self.path}")
        if self.path == "/garbage":
            self.wfile.write(b"garbage\r\n\r\n")
            return
        self.send_response(302)
        self.send_header("location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        self.asked.put(f"GET {self.path}")
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.mark.parametrize("path", ["/moved", "/garbage"])
def test_a_receiver_that_redirects_or_speaks_no_http_was_told_nothing(
    application: Application, catalog: KVCatalog, path: str
) -> None:
    """A redirect was followed by a GET without the events, whose answer then counted; garbage ended the thread."""
    create_table(application)
    with http.server.HTTPServer(("127.0.0.1", 0), _Answering) as receiver:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        post = posting(f"http://127.0.0.1:{receiver.server_port}{path}", b"s" * 16)
        with Webhook({"lake": catalog}, "hook", post, interval_s=0.01).start():
            asked = [_Answering.asked.get(timeout=60) for _ in range(2)]  # it tries again
        receiver.shutdown()
    while not _Answering.asked.empty():
        asked.append(_Answering.asked.get())
    assert set(asked) == {f"POST {path}"}
