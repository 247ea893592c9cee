"""Transactional stores for two-phase create: SQLite, PostgreSQL, MySQL and MariaDB, DynamoDB.

All they must do is accept one record for each destination. The drivers of the servers are not among Endive's own
requirements: PostgreSQL needs `psycopg`, MySQL and MariaDB need `pymysql`, DynamoDB a client of `boto3`.
"""

import importlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import local
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from endive.errors import ConfigurationError, OutcomeUnknownError, StorageUnavailableError
from endive.protocol.two_phase import TransferRecord

TABLE = "endive_records"
PATH_LENGTH_MAX = 700
"""Fits MySQL's longest key with four bytes for each character."""


class RecordStore(Protocol):
    """Records of transfers. Safe to use from several threads."""

    def insert(self, destination: str, source: str) -> bool:
        """Insert an open record. False: the destination has one. `OutcomeUnknownError` if the answer was lost."""
        ...

    def get(self, destination: str) -> TransferRecord | None:
        """Return the record of a destination."""
        ...

    def open_records(self, prefix: str) -> tuple[TransferRecord, ...]:
        """Return the records that are not committed and whose destination starts with `prefix`."""
        ...

    def commit(self, destination: str) -> None:
        """Mark a record as committed."""
        ...

    def delete(self, destination: str) -> None:
        """Remove a record."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


class SqlRecords:
    """Records in a table of an SQL database, by any module of Python's database interface."""

    def __init__(self, connect: Callable[[], Any], module: Any, mark: str = "%s") -> None:  # noqa: ANN401
        self._connect = connect
        self._module = module
        self._mark = mark
        self._held = local()
        self._connections: list[Any] = []
        with self._transaction("CREATE TABLE") as cursor:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {TABLE} (destination VARCHAR({PATH_LENGTH_MAX}) PRIMARY KEY, "
                f"source VARCHAR({PATH_LENGTH_MAX + 50}) NOT NULL, committed SMALLINT NOT NULL)"
            )

    def insert(self, destination: str, source: str) -> bool:
        try:
            with self._transaction(destination, is_write=True) as cursor:
                self._run(cursor, f"INSERT INTO {TABLE} VALUES (?, ?, 0)", destination, source)  # noqa: S608
        except self._module.IntegrityError:
            return False
        return True

    def get(self, destination: str) -> TransferRecord | None:
        with self._transaction(destination) as cursor:
            self._run(cursor, f"SELECT source, committed FROM {TABLE} WHERE destination = ?", destination)  # noqa: S608
            row = cursor.fetchone()
        return None if row is None else TransferRecord(destination, row[0], bool(row[1]))

    def open_records(self, prefix: str) -> tuple[TransferRecord, ...]:
        with self._transaction(prefix) as cursor:
            self._run(cursor, f"SELECT destination, source FROM {TABLE} WHERE committed = 0")  # noqa: S608
            rows = cursor.fetchall()
        return tuple(TransferRecord(path, source, False) for path, source in sorted(rows) if path.startswith(prefix))

    def commit(self, destination: str) -> None:
        with self._transaction(destination) as cursor:
            self._run(cursor, f"UPDATE {TABLE} SET committed = 1 WHERE destination = ?", destination)  # noqa: S608

    def delete(self, destination: str) -> None:
        with self._transaction(destination) as cursor:
            self._run(cursor, f"DELETE FROM {TABLE} WHERE destination = ?", destination)  # noqa: S608

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        self._held = local()

    def _connected(self) -> Any:  # noqa: ANN401
        connection = self._connect()
        self._connections.append(connection)
        return connection

    def _run(self, cursor: Any, statement: str, *values: str) -> None:  # noqa: ANN401
        cursor.execute(statement.replace("?", self._mark), values)

    @contextmanager
    def _transaction(self, path: str, is_write: bool = False) -> Iterator[Any]:
        """One transaction on this thread's connection, which is thrown away after any error but a duplicate."""
        connection: Any = None
        try:
            connection = getattr(self._held, "connection", None) or self._connected()
            self._held.connection = connection
            cursor = connection.cursor()
            yield cursor
            connection.commit()
        except self._module.IntegrityError:
            connection.rollback()
            raise
        except self._module.Error as error:
            self._held.connection = None
            self._discard(connection)
            if is_write:
                raise OutcomeUnknownError(path) from error
            raise StorageUnavailableError(path, f"the record store: {error}") from error

    def _discard(self, connection: Any) -> None:  # noqa: ANN401
        with suppress(self._module.Error, AttributeError):
            connection.close()
        with suppress(ValueError):
            self._connections.remove(connection)


class DynamoRecords:
    """Records in a DynamoDB table whose partition key is `destination`, by a client of `boto3`."""

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
            return  # deleted meanwhile

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
            if is_insert:
                raise OutcomeUnknownError(path) from error
            raise StorageUnavailableError(path, f"the record store: {error}") from error


def _from_item(item: dict[str, Any]) -> TransferRecord:
    return TransferRecord(item["destination"]["S"], item["source"]["S"], item["committed"]["BOOL"])


def open_records(url: str) -> RecordStore:
    """Return the record store at `sqlite:///file`, `postgresql://user:password@host/db` or `mysql://…`."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        file = Path(unquote(parts.path))
        return SqlRecords(lambda: _sqlite(file), sqlite3, "?")
    if parts.scheme == "postgresql":
        psycopg = _needed("psycopg", url)
        return SqlRecords(lambda: psycopg.connect(url), psycopg)
    if parts.scheme == "mysql":
        pymysql = _needed("pymysql", url)
        settings = {
            "host": parts.hostname or "127.0.0.1",
            "port": parts.port or 3306,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "database": parts.path.strip("/"),
        }
        return SqlRecords(lambda: pymysql.connect(**settings), pymysql)
    raise ConfigurationError(url, ["not a record store; known: sqlite:///, postgresql://, mysql://"])


def _sqlite(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=30, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a record that was confirmed must survive a power cut
    return connection


def _needed(module: str, url: str) -> Any:  # noqa: ANN401 - a module
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigurationError(url, [f"needs the package {module!r}; install it"]) from error
