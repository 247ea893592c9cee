"""Record stores for two-phase create: SQLite, PostgreSQL, MySQL and MariaDB; DynamoDB is in `dynamo`.

A record store accepts one record for each destination. A database or table serves one store. Endive does not depend
on the database drivers: PostgreSQL needs `psycopg`, MySQL and MariaDB need `pymysql`, DynamoDB needs `boto3`.
"""

import importlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import local
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit
from weakref import finalize

from endive.errors import ConfigurationError, OutcomeUnknownError, StorageUnavailableError
from endive.extras import EXTRA_OF
from endive.objects.dynamo import open_dynamo
from endive.protocol.two_phase import TransferRecord

TABLE = "endive_records"
PATH_LENGTH_MAX = 700
"""Fits MySQL's longest key with four bytes for each character."""


class RecordStore(Protocol):
    """Records of two-phase creates. Safe to use from several threads."""

    def insert(self, destination: str, source: str) -> bool:
        """Insert an open record. False: the destination has one. `OutcomeUnknownError` if the reply was lost."""
        ...

    def get(self, destination: str) -> TransferRecord | None:
        """Return the record of a destination; None if there is none."""
        ...

    def open_records(self, prefix: str) -> tuple[TransferRecord, ...]:
        """Return the open records whose destination starts with `prefix`."""
        ...

    def commit(self, destination: str) -> None:
        """Mark a record as committed."""
        ...

    def delete(self, destination: str) -> None:
        """Delete a record. Idempotent."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class SqlRecords:
    """Records in a table of an SQL database, through a module of Python's database interface.

    An index on `committed` makes listing the open records independent of the number of all records. MySQL has it only
    in tables that this version has created.
    """

    def __init__(self, connect: Callable[[], Any], module: Any, mark: str = "%s", inline_index: str = "") -> None:  # noqa: ANN401
        self._connect = connect
        self._module = module
        self._mark = mark
        self._held = local()
        self._connections: list[Any] = []
        finalize(self, _close_all, self._connections)  # an object store has no `close`: its records may go unclosed
        with self._transaction("CREATE TABLE") as cursor:
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {TABLE} (destination VARCHAR({PATH_LENGTH_MAX}) PRIMARY KEY, "
                f"source VARCHAR({PATH_LENGTH_MAX + 50}) NOT NULL, committed SMALLINT NOT NULL{inline_index})"
            )
            if not inline_index:
                cursor.execute(f"CREATE INDEX IF NOT EXISTS {TABLE}_committed ON {TABLE} (committed)")

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
        _close_all(self._connections)
        self._held = local()

    def _connected(self) -> Any:  # noqa: ANN401
        connection = self._connect()
        self._connections.append(connection)
        return connection

    def _run(self, cursor: Any, statement: str, *values: str) -> None:  # noqa: ANN401
        cursor.execute(statement.replace("?", self._mark), values)

    @contextmanager
    def _transaction(self, path: str, is_write: bool = False) -> Iterator[Any]:
        """Run a transaction on this thread's connection, which is discarded after any error but a duplicate."""
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


def open_records(url: str) -> RecordStore:
    """Return the record store at `sqlite:///file`, `postgresql://user:password@host/db`, `mysql://…`, `dynamodb://table`."""
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
        # MySQL has no CREATE INDEX IF NOT EXISTS.
        return SqlRecords(lambda: pymysql.connect(**settings), pymysql, inline_index=", INDEX (committed)")
    if parts.scheme == "dynamodb":
        return open_dynamo(url, _needed("boto3", url))
    raise ConfigurationError(url, ["not a record store; known: sqlite:///, postgresql://, mysql://, dynamodb://"])


def _close_all(connections: list[Any]) -> None:
    while connections:
        connections.pop().close()


def _sqlite(file: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(file, timeout=30, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")  # a record that was confirmed must survive a power failure
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _needed(module: str, url: str) -> Any:  # noqa: ANN401 - a module
    try:
        return importlib.import_module(module)
    except ImportError as error:
        extra = EXTRA_OF[module]
        raise ConfigurationError(url, [f"needs the package {module!r}: pip install 'endive[{extra}]'"]) from error
