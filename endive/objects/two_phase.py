"""An object store without conditional writes, made one that has them by a record store."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from google_crc32c import value as crc32c

from endive.objects.api import Capabilities, ObjectStore, execute_request, require_path
from endive.objects.records import RecordStore
from endive.protocol.requests import NewId, Now, ObjectInfo, Request, Steps, drive
from endive.protocol.two_phase import (
    CommitRecord,
    DeleteRecord,
    GetRecord,
    InsertRecord,
    OpenRecords,
    Recovered,
    create_in_two_phases,
    delete_in_two_phases,
    get_in_two_phases,
    list_in_two_phases,
    recover,
)

T = TypeVar("T")


class TwoPhaseStore:
    """`objects`, with creates decided by `records`. All users of the store must go through the same records."""

    def __init__(
        self, objects: ObjectStore, records: RecordStore, new_id: Callable[[], str], clock: Callable[[], int]
    ) -> None:
        self._objects = objects
        self._records = records
        self._new_id = new_id
        self._clock = clock
        self.url = objects.url
        self.capabilities: Capabilities = replace(objects.capabilities, create_if_absent=True)

    def get(self, path: str) -> bytes | None:
        return self._run(get_in_two_phases(path))

    def get_range(self, path: str, start: int, length: int) -> bytes | None:
        found = self._objects.get_range(path, start, length)
        if found is not None:
            return found
        body = self.get(path)
        return None if body is None else body[start : start + length]

    def put_if_absent(self, path: str, body: bytes) -> bool:
        return self._run(create_in_two_phases(require_path(path), body, crc32c(body)))

    def put(self, path: str, body: bytes) -> None:
        self._objects.put(path, body)

    def list(self, prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        return self._run(list_in_two_phases(prefix, after))

    def delete(self, path: str) -> None:
        self._run(delete_in_two_phases(path))

    def recover(self, prefix: str = "") -> Recovered:
        """Finish writes that others have left unfinished, and delete temporary objects that nobody names."""
        return self._run(recover(prefix))

    def _run(self, steps: Steps[T]) -> T:
        return drive(steps, self._answer)

    def _answer(self, request: Request[Any]) -> Any:  # noqa: ANN401, PLR0911 - one line for each kind of request
        match request:
            case InsertRecord(destination, source):
                return self._records.insert(destination, source)
            case GetRecord(destination):
                return self._records.get(destination)
            case OpenRecords(prefix):
                return self._records.open_records(prefix)
            case CommitRecord(destination):
                return self._records.commit(destination)
            case DeleteRecord(destination):
                return self._records.delete(destination)
            case NewId():
                return self._new_id()
            case Now():
                return self._clock()
        return execute_request(self._objects, request)
