"""A store that is interrupted on purpose, and what tests of commits look at."""

from pathlib import Path
from typing import TypeVar

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate, TableUpdate

from endive.catalog.commit.committer import TableCommitter
from endive.catalog.model.transaction import TransactionFunction
from endive.errors import OutcomeUnknownError
from tests.catalog.stand_in import DictStore

T = TypeVar("T")


class Interrupted(DictStore):
    """A store that loses requests or answers, as a test sets it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers_lost = 0
        self.requests_lost = 0

    def _transact(self, function: TransactionFunction[T]) -> T:
        if self.requests_lost:
            self.requests_lost -= 1
            raise OutcomeUnknownError("wal/1")
        result = super()._transact(function)
        if self.answers_lost:
            self.answers_lost -= 1
            raise OutcomeUnknownError("wal/1")
        return result


def rows_of(table: Table) -> list[int]:
    values: list[int] = table.refresh().scan().to_arrow()["n"].to_pylist()
    return sorted(values)


def files_of(table: Table) -> set[str]:
    root = Path(table.location().removeprefix("file://"))
    return {path.name for path in root.rglob("*") if path.is_file()}


def setting(**properties: str) -> tuple[TableUpdate, ...]:
    return (SetPropertiesUpdate(updates=properties),)


def read_result_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next read of a stored result come before the first try arrives; later reads find it."""
    answered, looks = TableCommitter._stored_results, iter([True])

    def look(self: TableCommitter, *arguments: object) -> object:
        return None if next(looks, False) else answered(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(TableCommitter, "_stored_results", look)
