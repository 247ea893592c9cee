"""The contract of record stores. Servers are tested in `tests/servers/`; here, DynamoDB's client is a fake."""

import gc
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endive.errors import ConfigurationError, OutcomeUnknownError, StorageUnavailableError
from endive.objects.dynamo import DynamoRecords
from endive.objects.records import RecordStore, SqlRecords, open_records
from endive.protocol.two_phase import TransferRecord
from tests.threads import winners


class FakeDynamo:
    """The five calls of boto3's client that Endive uses, with their conditions, on a dictionary."""

    class exceptions:  # noqa: N801 - boto3's name
        class ConditionalCheckFailedException(Exception):  # noqa: N818
            pass

    def __init__(self) -> None:
        self.items: dict[str, dict[str, Any]] = {}
        self.lock = threading.Lock()
        self.is_down = False

    def _key(self, item: dict[str, Any]) -> str:
        if self.is_down:
            raise TimeoutError("timed out")
        return str(item["destination"]["S"])

    def put_item(self, TableName: str, Item: dict[str, Any], ConditionExpression: str) -> None:  # noqa: N803
        assert ConditionExpression == "attribute_not_exists(destination)"
        with self.lock:
            if self._key(Item) in self.items:
                raise self.exceptions.ConditionalCheckFailedException
            self.items[self._key(Item)] = dict(Item)

    def get_item(self, TableName: str, Key: dict[str, Any], ConsistentRead: bool) -> dict[str, Any]:  # noqa: N803
        assert ConsistentRead
        found = self.items.get(self._key(Key))
        return {} if found is None else {"Item": found}

    def scan(self, TableName: str, ConsistentRead: bool, **page: Any) -> dict[str, Any]:  # noqa: N803
        """Return one item a page, so that pages are followed."""
        names = sorted(self.items)
        start = names.index(page["ExclusiveStartKey"]["destination"]["S"]) + 1 if page else 0
        answer: dict[str, Any] = {"Items": [self.items[name] for name in names[start : start + 1]]}
        if start + 1 < len(names):
            answer["LastEvaluatedKey"] = {"destination": {"S": names[start]}}
        return answer

    def update_item(self, TableName: str, Key: dict[str, Any], **change: Any) -> None:  # noqa: N803
        if self._key(Key) not in self.items:
            raise self.exceptions.ConditionalCheckFailedException
        self.items[self._key(Key)]["committed"] = change["ExpressionAttributeValues"][":yes"]

    def delete_item(self, TableName: str, Key: dict[str, Any]) -> None:  # noqa: N803
        self.items.pop(self._key(Key), None)


@pytest.fixture(params=["sqlite", "dynamodb"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RecordStore]:
    opened = (
        open_records(f"sqlite://{tmp_path}/records.db")
        if request.param == "sqlite"
        else DynamoRecords(FakeDynamo(), "t")
    )
    yield opened
    opened.close()


def test_a_destination_has_one_record(records: RecordStore) -> None:
    assert records.insert("wal/1", "source")
    assert not records.insert("wal/1", "other")
    assert records.insert("wal/2", "second")
    assert records.insert("manifest/1", "third")

    assert records.get("wal/1") == TransferRecord("wal/1", "source", False)
    assert records.get("wal/3") is None
    assert [record.destination for record in records.open_records("wal/")] == ["wal/1", "wal/2"]
    records.commit("wal/1")
    records.commit("wal/1")
    assert records.get("wal/1") == TransferRecord("wal/1", "source", True)
    assert [record.destination for record in records.open_records("")] == ["manifest/1", "wal/2"]
    records.delete("wal/1")
    records.delete("wal/1")
    records.commit("wal/1")
    assert records.get("wal/1") is None
    assert records.insert("wal/1", "again")


def test_of_many_inserts_one_wins(records: RecordStore) -> None:
    for attempt in range(10):
        name = f"race/{attempt}"
        (won,) = winners(6, lambda number, name=name: records.insert(name, f"source {number}"))  # type: ignore[misc]

        assert records.get(name) == TransferRecord(name, f"source {won}", False)


def test_after_a_timeout_an_insert_is_unknown_and_a_read_unavailable() -> None:
    client = FakeDynamo()
    records = DynamoRecords(client, "t")
    client.is_down = True

    with pytest.raises(OutcomeUnknownError):
        records.insert("wal/1", "source")
    with pytest.raises(StorageUnavailableError, match="timed out"):
        records.get("wal/1")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis://somewhere", "not a record store"),
        ("dynamodb://", "dynamodb://table"),
        ("dynamodb://table?zone=1", "dynamodb://table"),
        ("dynamodb://table?region=us-east-1&endpoint=nowhere", "nowhere"),
    ],
)
def test_a_url_that_names_no_record_store_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        open_records(url)


def test_connections_of_a_record_store_that_was_not_closed_are_closed(tmp_path: Path) -> None:
    records = open_records(f"sqlite:///{tmp_path}/records.db")
    assert isinstance(records, SqlRecords)
    (connection,) = records._connections

    del records
    gc.collect()

    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
