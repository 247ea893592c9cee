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
from endive.catalog.commit import stored_results
from endive.catalog.model.keys import OUTBOX
from endive.catalog.operations import outbox
from endive.server.application import Application
from endive.server.events import Webhook, posting, signature
from endive.server.http import Request
from tests.server.calls import SCHEMA, VERSION, answer, create_table, error, set_property


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
    for series in ("announced_batches", "carried_by_others", "carried_for_others"):
        assert lines[f'endive_{series}_total{{warehouse="lake"}}'] == "0"


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


def test_commits_that_happened_are_delivered(application: Application, webhook: Webhook, receiver: Receiver) -> None:
    create_table(application)
    commit(application)
    stale = {"requirements": [{"type": "assert-create"}], "updates": [set_property("a", "1")]}
    assert error(application, "POST", "namespaces/db/tables/events", stale)[0] == 409

    assert webhook.deliver() == 2
    assert [(one["type"], one["version"], one["table"]) for one in receiver.events] == [
        ("table-created", 0, "events"),
        ("table-committed", 1, "events"),
    ]
    assert receiver.events[1]["commit-id"]
    assert webhook.deliver() == 0


def test_a_commit_is_sent_again_until_it_is_accepted(
    application: Application, webhook: Webhook, receiver: Receiver, catalog: KVCatalog
) -> None:
    create_table(application)
    receiver.is_down = True
    with pytest.raises(OSError, match="refused"):
        webhook.deliver()
    receiver.is_down = False
    commit(application)

    assert Webhook({"lake": catalog}, "hook", receiver.post).deliver() == 2  # after a restart
    assert webhook.deliver() == 0
    assert Webhook({"lake": catalog}, "another", receiver.post).deliver() == 2
    assert catalog.check() == []


def test_commits_that_are_no_longer_kept_are_named(
    application: Application, webhook: Webhook, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert outbox.RESULTS_DELIVERED == 1000 == stored_results.RESULTS_STORED
    monkeypatch.setattr(outbox, "RESULTS_DELIVERED", 2)
    create_table(application)
    for number in range(5):
        commit(application, str(number))

    webhook.deliver()
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

    assert [webhook.deliver() for _ in range(3)] == [2, 2, 0]
    assert [one["version"] for one in receiver.events] == [0, 1, 2, 3]


def types_of(receiver: Receiver) -> list[tuple[str, str]]:
    return [(one["type"], one.get("table") or one["view"]) for one in receiver.events]


def test_a_table_that_was_dropped_between_two_polls_has_its_events(
    application: Application, webhook: Webhook, receiver: Receiver, catalog: KVCatalog
) -> None:
    webhook.register()
    for _ in range(2):  # the second table has the name of the first
        create_table(application)
        commit(application)
        assert answer(application, "DELETE", "namespaces/db/tables/events?purgeRequested=true")[0] == 204

    assert webhook.deliver() == 6
    expected = [("table-created", "events"), ("table-committed", "events"), ("table-dropped", "events")]
    assert types_of(receiver) == expected * 2
    assert len({one["id"] for one in receiver.events}) == 6
    assert {one["warehouse"] for one in receiver.events} == {"lake"}
    assert webhook.deliver() == 0
    assert outbox_rows(catalog) == 0
    assert catalog.check() == []


def outbox_rows(catalog: KVCatalog) -> int:
    return len(catalog.store.read(lambda tx: tx.scan(OUTBOX.encode())))


def test_a_drop_does_not_repeat_delivered_commits(
    application: Application, webhook: Webhook, receiver: Receiver
) -> None:
    webhook.register()
    create_table(application)
    assert webhook.deliver() == 1
    commit(application)
    assert answer(application, "DELETE", "namespaces/db/tables/events")[0] == 204

    assert webhook.deliver() == 2
    assert types_of(receiver)[1:] == [("table-committed", "events"), ("table-dropped", "events")]


def test_every_receiver_gets_the_event_of_a_drop(application: Application, catalog: KVCatalog) -> None:
    hooks = {name: Receiver() for name in ("first", "second")}
    webhooks = [Webhook({"lake": catalog}, name, one.post) for name, one in hooks.items()]
    for webhook in webhooks:
        webhook.register()
    create_table(application)
    assert webhooks[0].deliver() == 1
    assert answer(application, "DELETE", "namespaces/db/tables/events")[0] == 204

    hooks["first"].is_down = True
    with pytest.raises(OSError, match="refused"):
        webhooks[0].deliver()
    assert webhooks[1].deliver() == 2
    assert outbox_rows(catalog) == 1
    hooks["first"].is_down = False
    webhooks[0].deliver()

    for one in hooks.values():
        assert types_of(one)[-1] == ("table-dropped", "events")
    assert outbox_rows(catalog) == 0


def test_a_table_that_is_registered_again_has_events_from_its_first_version_on(
    application: Application, webhook: Webhook, receiver: Receiver
) -> None:
    webhook.register()
    create_table(application)
    commit(application)
    webhook.deliver()
    _, gone = answer(application, "POST", "namespaces/db/tables/events/unregister")
    body = {"name": "events", "metadata-location": gone["metadata-location"]}
    assert answer(application, "POST", "namespaces/db/register", body)[0] == 200
    assert answer(application, "POST", "namespaces/db/register", {**body, "overwrite": True})[0] == 200

    webhook.deliver()

    assert [kind for kind, _ in types_of(receiver)[2:]] == ["table-dropped", "table-created", "table-replaced"]


def test_a_table_that_a_restore_drops_has_its_events(
    application: Application, catalog: KVCatalog, webhook: Webhook, receiver: Receiver
) -> None:
    webhook.register()
    catalog.create_checkpoint("before")
    create_table(application)
    commit(application)
    catalog.restore("before")

    webhook.deliver()

    assert [kind for kind, _ in types_of(receiver)] == ["table-created", "table-committed", "table-dropped"]


def test_renames_and_views_have_events(application: Application, webhook: Webhook, receiver: Receiver) -> None:
    webhook.register()
    create_table(application)
    for source, target in (("events", "moved"), ("moved", "events"), ("events", "moved")):
        names = [{"namespace": ["db"], "name": one} for one in (source, target)]
        assert answer(application, "POST", "tables/rename", {"source": names[0], "destination": names[1]})[0] == 204
    view = {"name": "v", "schema": SCHEMA, "view-version": VERSION}
    assert answer(application, "POST", "namespaces/db/views", view)[0] == 200
    assert answer(application, "POST", "namespaces/db/views/v", {"updates": [set_property("a", "1")]})[0] == 200
    names = [{"namespace": ["db"], "name": one} for one in ("v", "w")]
    assert answer(application, "POST", "views/rename", {"source": names[0], "destination": names[1]})[0] == 204
    assert answer(application, "DELETE", "namespaces/db/views/w")[0] == 204

    webhook.deliver()

    assert types_of(receiver) == [
        ("table-renamed", "moved"),
        ("table-renamed", "events"),
        ("table-renamed", "moved"),
        ("view-created", "v"),
        ("view-committed", "v"),
        ("view-renamed", "w"),
        ("view-dropped", "w"),
        ("table-created", "moved"),
    ]
    assert receiver.events[0]["old-table"] == "events"
    assert len({one["id"] for one in receiver.events}) == 8


def test_without_a_receiver_the_outbox_stays_empty(application: Application, catalog: KVCatalog) -> None:
    create_table(application)
    assert answer(application, "DELETE", "namespaces/db/tables/events")[0] == 204

    assert outbox_rows(catalog) == 0


def test_the_outbox_of_a_receiver_that_never_comes_back_is_bounded(
    application: Application, catalog: KVCatalog, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "ROWS_MAX", 3)
    webhook.register()
    for _ in range(5):
        create_table(application)
        assert answer(application, "DELETE", "namespaces/db/tables/events")[0] == 204

    assert outbox_rows(catalog) == 3


def test_bodies_are_signed() -> None:
    assert signature(b"key", b"body") == "sha256=" + hmac.new(b"key", b"body", hashlib.sha256).hexdigest()


def test_the_thread_delivers_and_ends(application: Application, catalog: KVCatalog, receiver: Receiver) -> None:
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
def test_a_receiver_that_redirects_or_speaks_no_http_has_accepted_nothing(
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
