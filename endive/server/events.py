"""Events for commits that happened: a webhook, told at least once, from the catalog's own records.

A thread looks for tables whose version is past the last one told, reads the stored results of the commits between, and
POSTs them. The versions that were told are a row of the catalog, put after the receiver has answered: a crash tells
again, and never leaves one out. An event has an id (table and version) by which a receiver recognises what it has seen;
of several servers, each may tell. A commit that failed, or whose outcome was unknown and which did not happen, has no
stored result and so no event.

The catalog keeps the results of a table's last 1,000 commits. A receiver that was away for longer gets one event
`commits-missed` with the versions.
"""

import hashlib
import hmac
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.request import Request, build_opener

from pydantic_core import from_json, to_json

from endive.catalog.catalog import KVCatalog
from endive.catalog.model.catalog_records import CommitRecord, TableRecord
from endive.catalog.model.keys import commit_key, commit_version_key, webhook_key
from endive.catalog.model.transaction import StoreTransaction
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
KEPT = 1_000
"""Results of commits that the catalog keeps of a table."""

Event = dict[str, Any]
Post = Callable[[bytes, dict[str, str]], None]
"""Sends a body with headers; raises unless the receiver has accepted it."""


@dataclass(frozen=True)
class Found:
    """Events that were not told yet, and the versions that are told with them."""

    events: tuple[Event, ...]
    told: dict[str, int]


def pending(tx: StoreTransaction, hook: str, warehouse: str) -> Steps[Found]:
    """Return the commits since those that were told, at most `BATCH_MAX`."""
    body = yield from tx.get(webhook_key(hook))
    told: dict[str, int] = {} if body is None else dict(from_json(body))
    records = yield from all_tables(tx)
    new = {str(one.uuid): told.get(str(one.uuid), -1) for one in records}  # without tables that were dropped
    events: list[Event] = []
    for record in records:
        since = new[str(record.uuid)]
        first = max(since + 1, record.version - KEPT + 1)
        if first > since + 1:
            events.append(_missed(record, warehouse, since + 1, first - 1))
        for version in range(first, record.version + 1):
            if len(events) >= BATCH_MAX:
                break
            event = yield from _event(tx, record, version, warehouse)
            events += [event] if event is not None else []
            new[str(record.uuid)] = version
    return Found(tuple(events), new)


def _event(tx: StoreTransaction, record: TableRecord, version: int, warehouse: str) -> Steps[Event | None]:
    """Return the event of a version; None if it has no stored result, such as the creation of a table."""
    commit_id = yield from tx.get(commit_version_key(record.uuid, version))
    body = None if commit_id is None else (yield from tx.get(commit_key(record.uuid, commit_id.decode())))
    if body is None:
        return _named("table-created", record, warehouse, version) if version == 0 else None
    found = CommitRecord.decoded(body)
    return {
        **_named("table-committed", record, warehouse, version),
        "commit-id": found.commit_id,
        "snapshot-id": found.snapshot_id,
        "metadata-location": found.metadata_location,
        "tables-of-transaction": found.together,
    }


def _missed(record: TableRecord, warehouse: str, first: int, last: int) -> Event:
    return {**_named("commits-missed", record, warehouse, last), "first-version": first}


def _named(kind: str, record: TableRecord, warehouse: str, version: int) -> Event:
    return {
        "id": f"{record.uuid}-{version}",
        "type": kind,
        "warehouse": warehouse,
        "namespace": record.identifier[:-1],
        "table": record.identifier[-1],
        "table-uuid": str(record.uuid),
        "version": version,
    }


def put_told(tx: StoreTransaction, hook: str, told: dict[str, int]) -> Steps[None]:
    """Record the versions that were told; another server may have told later ones."""
    body = yield from tx.get(webhook_key(hook))
    before: dict[str, int] = {} if body is None else dict(from_json(body))
    merged = {uuid: max(version, before.get(uuid, -1)) for uuid, version in told.items()}
    if merged != before:
        tx.put(webhook_key(hook), to_json(merged))


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
    """Tells the commits of catalogs to a receiver, in a thread. `hook`: its name in the catalog."""

    def __init__(self, catalogs: dict[str, KVCatalog], hook: str, post: Post, interval_s: float = INTERVAL_S) -> None:
        self._catalogs = catalogs
        self._hook = hook
        self._post = post
        self._interval_s = interval_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="endive-webhook", daemon=True)

    def start(self) -> "Webhook":
        """Start the thread."""
        self._thread.start()
        return self

    def close(self) -> None:
        """End the thread; commits that were not told are told after the next start. Idempotent."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(TIMEOUT_S + 5)

    def tell(self) -> int:
        """Tell what is new, once; return the number of events."""
        return sum(self._tell(name, catalog) for name, catalog in self._catalogs.items())

    def _tell(self, name: str, catalog: KVCatalog) -> int:
        found = catalog.store.read(lambda tx: pending(tx, self._hook, name))
        if found.events:
            body = json.dumps({"events": found.events}).encode()
            self._post(body, {"content-type": "application/json", "user-agent": "endive"})
        if found.events:
            catalog.store.transact(lambda tx: put_told(tx, self._hook, found.told))
        return len(found.events)

    def _run(self) -> None:
        wait_s = self._interval_s
        while not self._ending.wait(wait_s):
            try:
                self.tell()
                wait_s = self._interval_s
            except (OSError, HTTPException, EndiveError) as error:
                wait_s = min(wait_s * 2, BACKOFF_MAX_S)
                log_error(log, "webhook_failed", error, retry_s=wait_s)
