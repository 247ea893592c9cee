"""What the explorer's stores hold at one moment, as a value, and what a request does to it.

An object store, and beside it the record store of two-phase create, which is empty where nobody uses it.
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
"""Requests that change what is held."""


class Contents(dict[str, bytes]):
    """Objects by path, and the records, as invariants look at them."""

    def __init__(self, objects: dict[str, bytes], records: tuple[TransferRecord, ...] = ()) -> None:
        super().__init__(objects)
        self.records = records


@dataclass(frozen=True)
class Holdings:
    """Bodies with the times at which they were written, sorted by path; records, sorted by destination."""

    objects: tuple[tuple[str, bytes, int], ...] = ()
    records: tuple[TransferRecord, ...] = ()

    def contents(self) -> Contents:
        """Return the same by path."""
        return Contents({path: body for path, body, _ in self.objects}, self.records)

    def body(self, path: str) -> bytes | None:
        """Return an object; None if there is none."""
        return next((body for held, body, _ in self.objects if held == path), None)

    def record(self, destination: str) -> TransferRecord | None:
        """Return the record of a destination; None if there is none."""
        return next((record for record in self.records if record.destination == destination), None)

    def with_object(self, path: str, body: bytes, clock: int) -> "Holdings":
        """Write an object, over whatever is there."""
        return replace(self, objects=tuple(sorted((*self.without_object(path).objects, (path, body, clock)))))

    def without_object(self, path: str) -> "Holdings":
        """Remove an object, if there is one."""
        return replace(self, objects=tuple(item for item in self.objects if item[0] != path))

    def with_record(self, record: TransferRecord) -> "Holdings":
        """Write a record, over whatever is there."""
        kept = (*self.without_record(record.destination).records, record)
        return replace(self, records=tuple(sorted(kept, key=lambda one: one.destination)))

    def without_record(self, destination: str) -> "Holdings":
        """Remove a record, if there is one."""
        return replace(self, records=tuple(record for record in self.records if record.destination != destination))


def effect(held: Holdings, request: Request[Any], clock: int) -> tuple[Holdings, Hashable]:  # noqa: PLR0911
    """Return what is held after a request, and the reply to it."""
    match request:
        case Now():
            return held, clock
        case Get(path):
            return held, held.body(path)
        case GetRange(path, start, length):
            body = held.body(path)
            return held, None if body is None else body[start : start + length]
        case List(prefix, after):
            found = (item for item in held.objects if item[0].startswith(prefix) and item[0] > after)
            return held, tuple(ObjectInfo(path, len(body), time) for path, body, time in found)
        case PutIfAbsent(path, body):
            return (held.with_object(path, body, clock), True) if held.body(path) is None else (held, False)
        case Put(path, body):
            return held.with_object(path, body, clock), None
        case Delete(path):
            return held.without_object(path), None
    return _record_effect(held, request)


def _record_effect(held: Holdings, request: Request[Any]) -> tuple[Holdings, Hashable]:
    match request:
        case InsertRecord(destination, source):
            if held.record(destination) is not None:
                return held, False
            return held.with_record(TransferRecord(destination, source, is_committed=False)), True
        case GetRecord(destination):
            return held, held.record(destination)
        case OpenRecords(prefix):
            records = (record for record in held.records if record.destination.startswith(prefix))
            return held, tuple(record for record in records if not record.is_committed)
        case CommitRecord(destination):
            record = held.record(destination)
            return held if record is None else held.with_record(replace(record, is_committed=True)), None
        case DeleteRecord(destination):
            return held.without_record(destination), None
    raise TypeError(f"the explorer does not know {request!r}")
