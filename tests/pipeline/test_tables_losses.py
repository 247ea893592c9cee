"""What a job must not delete: files that a snapshot names, however the commit's answer came."""

from pathlib import Path

import pytest
from pyiceberg.exceptions import NoSuchTableError, ValidationException
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.types import DoubleType, FloatType, NestedField, PrimitiveType
from pyspark.sql.types import StructType

from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.errors import ConfigurationError, OutcomeUnknownError, StorageUnavailableError
from endive.spark.source.options import WriteOptions, place_of
from endive.spark.source.streaming import BatchWriter
from tests.pipeline.lakes import ROWS, Lake, batch_of, message_of


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endive.spark.source.committing.time.sleep", lambda _: None)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create()
    return lake


def no_loads_after_a_commit(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let tables be loaded until the first commit, and not after it."""
    commit_table, load_table = EndiveCatalog.commit_table, EndiveCatalog.load_table
    committed: list[bool] = []

    def commit(self: EndiveCatalog, *arguments: object) -> CommitTableResponse:
        answer = commit_table(self, *arguments)  # type: ignore[arg-type]
        committed.append(True)
        return answer

    def load(self: EndiveCatalog, identifier: str) -> Table:
        if committed:
            raise error
        return load_table(self, identifier)

    monkeypatch.setattr(EndiveCatalog, "commit_table", commit)
    monkeypatch.setattr(EndiveCatalog, "load_table", load)


@pytest.mark.parametrize(
    "error", [StorageUnavailableError("s3://bucket", "slow down"), NoSuchTableError("renamed since"), OSError("reset")]
)
def test_files_of_a_commit_stay_though_the_table_cannot_be_loaded_after_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    writer = lake.writer(ROWS)
    message = message_of(writer, [1, 2])
    no_loads_after_a_commit(monkeypatch, error)

    writer.commit([message])

    monkeypatch.undo()
    assert lake.ids() == [1, 2]


def test_files_of_a_commit_stay_when_the_table_is_renamed_before_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the metadata file follows later, the catalog loads a table whose past it does not know to answer."""
    lake = Lake(tmp_path)
    lake.create(properties={"endive.metadata-json": "background"})
    earlier = lake.writer(ROWS)
    earlier.commit([message_of(earlier, [0])])
    writer = lake.writer(ROWS)
    message = message_of(writer, [1, 2])
    with lake.catalog() as catalog:
        assert isinstance(catalog, EndiveCatalog)
        commit = type(catalog.kv)._commit

        def commit_and_lose_the_name(self: object, *arguments: object) -> object:
            answer = commit(self, *arguments)  # type: ignore[arg-type]
            catalog.rename_table("db.t", "db.moved")
            return answer

        monkeypatch.setattr(type(catalog.kv), "_commit", commit_and_lose_the_name)
        with pytest.raises(OutcomeUnknownError, match=r"db\.t"):
            writer.commit([message])

    monkeypatch.undo()
    assert lake.ids("db.moved") == [0, 1, 2]


def test_an_append_that_must_not_be_overtaken_is_refused_when_it_is_at_the_last_moment(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lake.writer(ROWS)
    first.commit([message_of(first, [1])])
    with lake.table() as table:
        head = str(table.metadata.current_snapshot_id)
    slow, fast = lake.writer(ROWS, validate_from_snapshot_id=head), lake.writer(ROWS)
    message, other = message_of(slow, [2]), message_of(fast, [3])
    commit_table = EndiveCatalog.commit_table
    pending = [other]

    def overtaken(self: EndiveCatalog, *arguments: object) -> CommitTableResponse:
        if pending:
            fast.commit([pending.pop()])
        return commit_table(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(EndiveCatalog, "commit_table", overtaken)

    with pytest.raises(ValidationException, match=f"built on snapshot {head}"):
        slow.commit([message])

    assert lake.ids() == [1, 3]


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()])
def test_dynamic_overwrite_by_floating_point_partitions_is_refused(tmp_path: Path, kind: PrimitiveType) -> None:
    """The old rows of 0.1 and of NaN would stay beside the new ones."""
    lake = Lake(tmp_path)
    lake.create(schema=Schema(NestedField(1, "p", kind)), by={"p": "identity"})
    struct = StructType().add("p", "float" if isinstance(kind, FloatType) else "double")

    with pytest.raises(ConfigurationError, match="floating-point"):
        lake.writer(struct, overwrite=True, overwrite_mode="dynamic")


def test_a_batch_of_a_stream_without_a_name_is_refused(lake: Lake) -> None:
    """Batches go by the stream's id and their number. Without an id, batch 0 of another stream would be known."""
    writer = BatchWriter(place_of({**lake.options, "path": "db.t"}), WriteOptions(), ROWS)

    with pytest.raises(ConfigurationError, match="does not identify the stream"):
        writer.commit([writer.write(iter([batch_of([1])]))], 0)

    assert lake.rows() == []


def test_columns_that_are_no_list_are_told_as_such(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="not a JSON list"):
        lake.reader(columns='["id"')
