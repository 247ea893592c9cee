"""Events that a receiver cannot find in the records of tables: drops, renames and views.

The commits of a table are found by its version and their stored results (`endive.server.events`). A drop deletes both.
So the transaction of a drop puts an event into the outbox, together with the undelivered events of the table's
commits. Renames and changes of views have events there, too. Without a receiver nothing is put.

A row of the outbox has a number that is never used again. It is deleted after delivery to all receivers, or when
`ROWS_MAX` newer rows have been put: a receiver that was removed must not let the outbox grow for ever.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from endive.catalog.model.catalog_records import CommitRecord, TableRecord
from endive.catalog.model.keys import OUTBOX, RECEIVERS, commit_key, commit_version_key, outbox_key, webhook_key
from endive.catalog.model.names import Identifier
from endive.catalog.model.transaction import StoreTransaction
from endive.protocol.requests import Steps

Event = dict[str, Any]

RESULTS_DELIVERED = 1_000
"""Results of a table's last commits that always have an event; the catalog keeps at least as many."""
ROWS_MAX = 10_000
"""Rows of the outbox that are kept for a receiver that is away."""
EVENTS_PER_ROW = 200


@dataclass(frozen=True, slots=True)
class Receivers:
    """The names of the receivers of events, and the number of the next row of the outbox."""

    names: tuple[str, ...] = ()
    following: int = 0

    def encoded(self) -> bytes:
        """Return the JSON."""
        return to_json({"names": self.names, "next": self.following})


def receivers(tx: StoreTransaction) -> Steps[Receivers]:
    """Return the receivers of a catalog's events."""
    body = yield from tx.get(RECEIVERS)
    if body is None:
        return Receivers()
    fields = from_json(body)
    return Receivers(tuple(fields["names"]), fields["next"])


def add_receiver(tx: StoreTransaction, name: str) -> Steps[None]:
    """Let the outbox have events for a receiver from now on. Idempotent."""
    found = yield from receivers(tx)
    if name not in found.names:
        tx.put(RECEIVERS, Receivers((*found.names, name), found.following).encoded())


def delivered_versions(tx: StoreTransaction, receiver: str) -> Steps[dict[str, int]]:
    """Return the last delivered version of each table, by uuid."""
    body = yield from tx.get(webhook_key(receiver))
    return {} if body is None else dict(from_json(body))


def named(kind: str, identifier: Identifier, uuid: object, version: int, **more: object) -> Event:
    """Return an event of a table or view. Its id is that of the version, unless `more` has one."""
    what = "view" if kind.startswith("view-") else "table"
    return {
        "id": f"{uuid}-{version}",
        "type": kind,
        "namespace": identifier[:-1],
        what: identifier[-1],
        f"{what}-uuid": str(uuid),
        "version": version,
        **more,
    }


def commit_events(
    tx: StoreTransaction, record: TableRecord, since: int, events_max: int
) -> Steps[tuple[list[Event], int]]:
    """Return the events of a table's versions after `since`, and the last version that they cover."""
    events: list[Event] = []
    first = max(since + 1, record.version - RESULTS_DELIVERED + 1)
    if first > since + 1:
        missed = named("commits-missed", record.identifier, record.uuid, first - 1)
        events.append({**missed, "first-version": since + 1})
        since = first - 1
    for version in range(first, record.version + 1):
        if len(events) >= events_max:
            break
        event = yield from _commit_event(tx, record, version)
        events += [event] if event is not None else []
        since = version
    return events, since


def _commit_event(tx: StoreTransaction, record: TableRecord, version: int) -> Steps[Event | None]:
    """Return the event of a version; None if it has no stored result, as after a restore."""
    commit_id = yield from tx.get(commit_version_key(record.uuid, version))
    body = None if commit_id is None else (yield from tx.get(commit_key(record.uuid, commit_id.decode())))
    if body is None:
        return named("table-created", record.identifier, record.uuid, version) if version == 0 else None
    found = CommitRecord.decoded(body)
    facts = {
        "commit-id": found.commit_id,
        "snapshot-id": found.snapshot_id,
        "metadata-location": found.metadata_location,
        "tables-of-transaction": found.together,
    }
    return {**named("table-committed", record.identifier, record.uuid, version), **facts}


def note_end(tx: StoreTransaction, record: TableRecord, kind: str) -> Steps[None]:
    """Put the event of a table whose rows will be deleted, after the undelivered events of its commits.

    `kind`: `table-dropped`, or `table-replaced` if the table goes on with another metadata file.
    """
    found = yield from receivers(tx)
    if not found.names:
        return
    since: list[int] = []
    for name in found.names:
        delivered = yield from delivered_versions(tx, name)
        since.append(delivered.pop(str(record.uuid), -1))  # a table that is registered again begins with version 0
        if kind == "table-replaced":
            delivered[str(record.uuid)] = record.version + 1
        tx.put(webhook_key(name), to_json(delivered))
    events, _ = yield from commit_events(tx, record, min(since), record.version + 2)
    yield from note(tx, *events, named(kind, record.identifier, record.uuid, record.version, id=""))


def note(tx: StoreTransaction, *events: Event) -> Steps[None]:
    """Put events into the outbox, if there is a receiver. An event with an empty id gets one from its row."""
    found = yield from receivers(tx)
    if not found.names:
        return
    number = found.following
    for start in range(0, len(events), EVENTS_PER_ROW):
        some = [_with_id(one, number) for one in events[start : start + EVENTS_PER_ROW]]
        tx.put(outbox_key(number), to_json({"receivers": found.names, "events": some}))
        if number >= ROWS_MAX:
            tx.delete(outbox_key(number - ROWS_MAX))
        number += 1
    tx.put(RECEIVERS, Receivers(found.names, number).encoded())


def _with_id(event: Event, number: int) -> Event:
    """Return an event with an id. At most one event of a row has none of its own."""
    return event if event["id"] else {**event, "id": f"{event['type']}-{number}"}


def outbox_of(tx: StoreTransaction, receiver: str) -> Steps[Mapping[bytes, Sequence[Event]]]:
    """Return the undelivered events of the outbox for a receiver, by row, in order."""
    rows = yield from tx.scan(OUTBOX.encode())
    decoded = [(key, from_json(body)) for key, body in rows]
    return {key: fields["events"] for key, fields in decoded if receiver in fields["receivers"]}


def acknowledge(tx: StoreTransaction, receiver: str, rows: Sequence[bytes]) -> Steps[None]:
    """Record that the events of rows of the outbox were delivered to a receiver."""
    for key in rows:
        body = yield from tx.get(key)
        if body is None:
            continue
        fields = from_json(body)
        left = [one for one in fields["receivers"] if one != receiver]
        if left:
            tx.put(key, to_json({**fields, "receivers": left}))
        else:
            tx.delete(key)
