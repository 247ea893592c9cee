"""State of the explorer's object store as an immutable value, and the effect of a request on it.

The state includes the record store of two-phase create, which stays empty if no protocol uses it.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

from endive.protocol.requests import Delete, Get, GetRange, List, Now, ObjectInfo, Put, PutIfAbsent, Request
from endive.protocol.two_phase import (
    CommitRecord,
    DeleteRecord,
    GetRecord,
    InsertRecord,
    OpenRecords,
    TransferRecord,
)

CHANGES = PutIfAbsent | Put | Delete | InsertRecord | CommitRecord | DeleteRecord
"""Requests that change the state."""


class Contents(dict[str, bytes]):
    """Objects by path, plus the records of two-phase create: the view that invariants check."""

    def __init__(self, objects: dict[str, bytes], records: tuple[TransferRecord, ...] = ()) -> None:
        super().__init__(objects)
        self.records = records


@dataclass(frozen=True)
class StoreState:
    """Objects as (path, body, write time), sorted by path; records, sorted by destination."""

    objects: tuple[tuple[str, bytes, int], ...] = ()
    records: tuple[TransferRecord, ...] = ()

    def contents(self) -> Contents:
        """Return the objects by path."""
        return Contents({path: body for path, body, _ in self.objects}, self.records)

    def body(self, path: str) -> bytes | None:
        """Return an object; None if there is none."""
        return next((body for name, body, _ in self.objects if name == path), None)

    def record(self, destination: str) -> TransferRecord | None:
        """Return the record of a destination; None if there is none."""
        return next((record for record in self.records if record.destination == destination), None)

    def with_object(self, path: str, body: bytes, clock: int) -> "StoreState":
        """Return the state after a put, which replaces an existing object."""
        return replace(self, objects=tuple(sorted((*self.without_object(path).objects, (path, body, clock)))))

    def without_object(self, path: str) -> "StoreState":
        """Return the state after a delete."""
        return replace(self, objects=tuple(item for item in self.objects if item[0] != path))

    def with_record(self, record: TransferRecord) -> "StoreState":
        """Return the state with a record, which replaces an existing one."""
        kept = (*self.without_record(record.destination).records, record)
        return replace(self, records=tuple(sorted(kept, key=lambda one: one.destination)))

    def without_record(self, destination: str) -> "StoreState":
        """Return the state without a record."""
        return replace(self, records=tuple(record for record in self.records if record.destination != destination))


def apply_request(state: StoreState, request: Request[Any], clock: int) -> tuple[StoreState, Hashable]:  # noqa: PLR0911
    """Return the state after a request, and the reply to it."""
    match request:
        case Now():
            return state, clock
        case Get(path):
            return state, state.body(path)
        case GetRange(path, start, length):
            body = state.body(path)
            return state, None if body is None else body[start : start + length]
        case List(prefix, after):
            found = (item for item in state.objects if item[0].startswith(prefix) and item[0] > after)
            return state, tuple(ObjectInfo(path, len(body), time) for path, body, time in found)
        case PutIfAbsent(path, body):
            return (state.with_object(path, body, clock), True) if state.body(path) is None else (state, False)
        case Put(path, body):
            return state.with_object(path, body, clock), None
        case Delete(path):
            return state.without_object(path), None
    return _record_effect(state, request)


def _record_effect(state: StoreState, request: Request[Any]) -> tuple[StoreState, Hashable]:
    match request:
        case InsertRecord(destination, source):
            if state.record(destination) is not None:
                return state, False
            return state.with_record(TransferRecord(destination, source, is_committed=False)), True
        case GetRecord(destination):
            return state, state.record(destination)
        case OpenRecords(prefix):
            records = (record for record in state.records if record.destination.startswith(prefix))
            return state, tuple(record for record in records if not record.is_committed)
        case CommitRecord(destination):
            record = state.record(destination)
            return state if record is None else state.with_record(replace(record, is_committed=True)), None
        case DeleteRecord(destination):
            return state.without_record(destination), None
    raise TypeError(f"the explorer does not know {request!r}")
