"""DynamoDB as the record store of two-phase create.

An insert is a conditional put; reads are strongly consistent. The table must exist: its cost and permissions are the
user's decision. Its partition key is `destination`, a string.
"""

import importlib
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from endive.errors import ConfigurationError, OutcomeUnknownError, StorageAccessError, StorageUnavailableError
from endive.protocol.two_phase import TransferRecord

HOPELESS = {"ResourceNotFoundException", "AccessDeniedException", "UnrecognizedClientException", "ValidationException"}
REFUSED = {"ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"}
"""Error codes of requests that had no effect."""


class DynamoRecords:
    """Records in a DynamoDB table, through a `boto3` client."""

    def __init__(self, client: Any, table: str) -> None:  # noqa: ANN401 - boto3 makes its clients at run time
        self._client = client
        self._table = table

    def insert(self, destination: str, source: str) -> bool:
        item = {"destination": {"S": destination}, "source": {"S": source}, "committed": {"BOOL": False}}
        try:
            self._call(
                destination,
                True,
                self._client.put_item,
                Item=item,
                ConditionExpression="attribute_not_exists(destination)",
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True

    def get(self, destination: str) -> TransferRecord | None:
        key = {"destination": {"S": destination}}
        answer = self._call(destination, False, self._client.get_item, Key=key, ConsistentRead=True)
        return _from_item(answer["Item"]) if "Item" in answer else None

    def open_records(self, prefix: str) -> tuple[TransferRecord, ...]:
        found: list[TransferRecord] = []
        page: dict[str, Any] = {}
        while True:
            answer = self._call(prefix, False, self._client.scan, ConsistentRead=True, **page)
            found += [_from_item(item) for item in answer["Items"]]
            if "LastEvaluatedKey" not in answer:
                break
            page = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}
        kept = (record for record in found if not record.is_committed and record.destination.startswith(prefix))
        return tuple(sorted(kept, key=lambda record: record.destination))

    def commit(self, destination: str) -> None:
        try:
            self._call(
                destination,
                False,
                self._client.update_item,
                Key={"destination": {"S": destination}},
                UpdateExpression="SET committed = :yes",
                ConditionExpression="attribute_exists(destination)",
                ExpressionAttributeValues={":yes": {"BOOL": True}},
            )
        except self._client.exceptions.ConditionalCheckFailedException:
            return  # deleted concurrently

    def delete(self, destination: str) -> None:
        self._call(destination, False, self._client.delete_item, Key={"destination": {"S": destination}})

    def close(self) -> None:
        pass  # the client is the caller's

    def _call(self, path: str, is_insert: bool, call: Callable[..., Any], **arguments: Any) -> Any:  # noqa: ANN401
        try:
            return call(TableName=self._table, **arguments)
        except self._client.exceptions.ConditionalCheckFailedException:
            raise
        except Exception as error:  # botocore's errors have no common root that can be named without it
            code = getattr(error, "response", {}).get("Error", {}).get("Code", "")
            if code in HOPELESS:
                raise StorageAccessError(path, f"the record store {self._table!r}: {error}") from error
            if is_insert and code not in REFUSED:
                raise OutcomeUnknownError(path) from error
            raise StorageUnavailableError(path, f"the record store: {error}") from error


def _from_item(item: dict[str, Any]) -> TransferRecord:
    return TransferRecord(item["destination"]["S"], item["source"]["S"], item["committed"]["BOOL"])


def open_dynamo(url: str, boto3: Any) -> DynamoRecords:  # noqa: ANN401 - a module
    """Return the record store at `dynamodb://table`, with optional `?region=…&endpoint=…`.

    boto3 finds credentials and other settings as usual.
    """
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    settings = {"region_name": given.pop("region", None), "endpoint_url": given.pop("endpoint", None)}
    if given or not parts.netloc:
        raise ConfigurationError(url, ["a DynamoDB URL is dynamodb://table, with optional ?region=…&endpoint=…"])
    # The driver retries requests that are safe to retry; botocore would also retry an insert that took effect.
    once = importlib.import_module("botocore.config").Config(retries={"total_max_attempts": 1})
    try:
        return DynamoRecords(boto3.client("dynamodb", config=once, **settings), parts.netloc)
    except Exception as error:  # botocore's errors have no common root that can be named without it
        raise ConfigurationError(url, [str(error)]) from error
