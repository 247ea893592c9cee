"""An object store that gets conditional writes from a record store (`endive.protocol.two_phase`)."""

from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any, TypeVar

from google_crc32c import value as crc32c

from endive.objects.api import Capabilities, HasTemporaries, ObjectStore, execute_request, require_path
from endive.objects.records import RecordStore
from endive.protocol.records_marker import claim_records, require_own_records
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
    """`objects`, with creates decided by `records`. All users of the store must use the same records.

    The first use checks that: `ConfigurationError` if the store belongs to other records or to none. The first write
    ties a new store to its records, for good.
    """

    def __init__(
        self, objects: ObjectStore, records: RecordStore, new_id: Callable[[], str], clock: Callable[[], int]
    ) -> None:
        self._objects = objects
        self._records = records
        self._new_id = new_id
        self._clock = clock
        self._lock = Lock()
        self._is_checked = self._is_claimed = False
        self.url = objects.url
        self.capabilities: Capabilities = replace(objects.capabilities, create_if_absent=True, reads_at_once=False)

    def get(self, path: str) -> bytes | None:
        self._check()
        return self._run(get_in_two_phases(path))

    def get_range(self, path: str, start: int, length: int) -> bytes | None:
        self._check()
        found = self._objects.get_range(path, start, length)
        if found is not None:
            return found
        body = self.get(path)
        return None if body is None else body[start : start + length]

    def put_if_absent(self, path: str, body: bytes) -> bool:
        require_path(path)
        self._claim()
        return self._run(create_in_two_phases(path, body, crc32c(body)))

    def put(self, path: str, body: bytes) -> None:
        self._claim()
        self._objects.put(path, body)

    def list(self, prefix: str, after: str = "") -> tuple[ObjectInfo, ...]:
        self._check()
        return self._run(list_in_two_phases(prefix, after))

    def delete(self, path: str) -> None:
        self._check()
        self._run(delete_in_two_phases(path))

    def recover(self, prefix: str = "", release_lost: bool = False) -> Recovered:
        """Finish creates of crashed writers and delete old temporary objects (`endive.protocol.two_phase.recover`)."""
        self._check()
        return self._run(recover(prefix, release_lost=release_lost))

    def delete_temporaries(self, before_unix_ms: int) -> int:
        """Delete stale temporary files, if the objects are in a local directory."""
        return self._objects.delete_temporaries(before_unix_ms) if isinstance(self._objects, HasTemporaries) else 0

    def _check(self) -> None:
        """Check once that the records are the store's own."""
        with self._lock:
            if not self._is_checked:
                self._is_claimed = self._run(require_own_records())
                self._is_checked = True

    def _claim(self) -> None:
        """Tie the store to the records before the first write."""
        with self._lock:
            if not self._is_claimed:
                self._run(claim_records())
                self._is_checked = self._is_claimed = True

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
