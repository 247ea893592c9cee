"""Events for changes that happened: a webhook, delivered at least once, from the catalog's own records.

A thread finds tables whose version is past the last delivered one, reads the stored results of the commits between,
and POSTs them. Drops, renames and changes of views are in the catalog's outbox, with the commits of a dropped table
(`endive.catalog.operations.outbox`). Events count as delivered once the receiver has answered: after a crash they are
sent again, and none is left out. A receiver recognises an event that it has seen by its id; each of several servers may
send it. A commit that failed, or whose outcome was unknown and which did not happen, has no stored result and so no
event.

A receiver that was away for more than a table's last 1,000 commits gets one event `commits-missed` with the versions.
"""

import hashlib
import hmac
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from urllib.request import Request, build_opener

from pydantic_core import to_json

from endive.catalog.catalog import KVCatalog
from endive.catalog.model.keys import webhook_key
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.outbox import (
    Event,
    acknowledge,
    add_receiver,
    commit_events,
    delivered_versions,
    outbox_of,
)
from endive.catalog.operations.table_rows import all_tables
from endive.closing import Closing
from endive.errors import EndiveError
from endive.logs import log_error
from endive.protocol.requests import Steps
from endive.server.access.oidc import NoRedirect

log = logging.getLogger(__name__)

INTERVAL_S = 1.0
BACKOFF_MAX_S = 60.0
BATCH_MAX = 500
"""Events of one request."""
TIMEOUT_S = 10.0

Post = Callable[[bytes, dict[str, str]], None]
"""Sends a body with headers; raises unless the receiver has accepted it."""


@dataclass(frozen=True)
class Found:
    """Events to deliver, and the versions and rows of the outbox that they cover."""

    events: tuple[Event, ...]
    versions: dict[str, int]
    outbox: tuple[bytes, ...]


def pending(tx: StoreTransaction, hook: str, warehouse: str) -> Steps[Found]:
    """Return the events to deliver to a receiver, at most about `BATCH_MAX`."""
    events: list[Event] = []
    outbox = yield from outbox_of(tx, hook)
    rows: list[bytes] = []
    for key, some in outbox.items():
        if len(events) >= BATCH_MAX:
            break
        events += some
        rows.append(key)
    delivered = yield from delivered_versions(tx, hook)
    records = yield from all_tables(tx)
    new = {str(one.uuid): delivered.get(str(one.uuid), -1) for one in records}  # without tables that were dropped
    for record in records:
        if len(events) >= BATCH_MAX:
            break
        uuid = str(record.uuid)
        more, new[uuid] = yield from commit_events(tx, record, new[uuid], BATCH_MAX - len(events))
        events += more
    return Found(tuple({**one, "warehouse": warehouse} for one in events), new, tuple(rows))


def put_delivered(tx: StoreTransaction, hook: str, found: Found) -> Steps[None]:
    """Record delivered events; another server may have delivered later versions."""
    before = yield from delivered_versions(tx, hook)
    merged = {uuid: max(version, before.get(uuid, -1)) for uuid, version in found.versions.items()}
    if merged != before:
        tx.put(webhook_key(hook), to_json(merged))
    yield from acknowledge(tx, hook, found.outbox)


def signature(secret: bytes, body: bytes) -> str:
    """Return the signature of a body: the receiver computes it again, and compares."""
    return "sha256=" + hmac.new(secret, body, hashlib.sha256).hexdigest()


def posting(url: str, secret: bytes) -> Post:
    """Return a function that sends to a URL.

    A redirect is a failure: it would be followed without the body, and its answer taken for the receiver's.
    """
    opener = build_opener(NoRedirect())

    def post(body: bytes, headers: dict[str, str]) -> None:
        signed = {**headers, "x-endive-signature": signature(secret, body)}
        with opener.open(Request(url, body, signed, method="POST"), timeout=TIMEOUT_S) as answer:  # noqa: S310 - the operator's
            answer.read(1024)

    return post


class Webhook(Closing):
    """Delivers the events of catalogs to a receiver, in a thread. `hook`: its name in the catalog."""

    def __init__(self, catalogs: dict[str, KVCatalog], hook: str, post: Post, interval_s: float = INTERVAL_S) -> None:
        self._catalogs = catalogs
        self._hook = hook
        self._post = post
        self._interval_s = interval_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="endive-webhook", daemon=True)

    def start(self) -> "Webhook":
        """Start the thread. Everything that happens after this call has an event."""
        self.register()
        self._thread.start()
        return self

    def register(self) -> None:
        """Let the catalogs keep events for the receiver that their tables' records do not show. Idempotent."""
        for catalog in self._catalogs.values():
            catalog.store.transact(lambda tx: add_receiver(tx, self._hook))

    def close(self) -> None:
        """End the thread; pending events are delivered after the next start. Idempotent."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(TIMEOUT_S + 5)

    def deliver(self) -> int:
        """Deliver the pending events once; return their number."""
        return sum(self._deliver(name, catalog) for name, catalog in self._catalogs.items())

    def _deliver(self, name: str, catalog: KVCatalog) -> int:
        found = catalog.store.read(lambda tx: pending(tx, self._hook, name))
        if found.events:
            body = json.dumps({"events": found.events}).encode()
            self._post(body, {"content-type": "application/json", "user-agent": "endive"})
            catalog.store.transact(lambda tx: put_delivered(tx, self._hook, found))
        return len(found.events)

    def _run(self) -> None:
        wait_s = self._interval_s
        while not self._ending.wait(wait_s):
            try:
                self.deliver()
                wait_s = self._interval_s
            except (OSError, HTTPException, EndiveError) as error:
                wait_s = min(wait_s * 2, BACKOFF_MAX_S)
                log_error(log, "webhook_failed", error, retry_s=wait_s)
