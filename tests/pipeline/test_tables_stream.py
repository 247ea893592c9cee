"""Streams, without Spark: readers and writers are called as Spark does, made anew where it makes them anew."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from endive.errors import ConfigurationError
from endive.spark.source.committing import Written
from endive.spark.source.options import place_of, read_options, write_options
from endive.spark.source.streaming import NOTHING, BatchWriter, Offset, SnapshotReader
from tests.pipeline.lakes import ROWS, Lake, message_of

STRUCT = StructType().add("id", "long", nullable=False).add("name", "string")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.create()
    return lake


def append(lake: Lake, *ids: int, overwrite: bool = False) -> Offset:
    """Commit rows; return the offset after it."""
    writer = lake.writer(ROWS, overwrite=overwrite)
    writer.commit([message_of(writer, ids)])
    with lake.table() as table:
        head = table.metadata.current_snapshot_id
    assert head is not None
    return {"snapshot": head}


def reader(lake: Lake, **options: str) -> SnapshotReader:
    named = {key.replace("_", "-"): value for key, value in options.items()}
    return SnapshotReader(place_of({**lake.options, "path": "db.t"}), read_options(named), STRUCT)


def read(lake: Lake, start: Offset, end: Offset, **options: str) -> list[int]:
    """The ids of a batch: planned in one process, read in another."""
    planning, reading = reader(lake, **options), reader(lake, **options)
    partitions = planning.partitions(start, end)
    planning.stop()
    rows = [
        row
        for one in pickle.loads(pickle.dumps(partitions))  # noqa: S301 - our own
        for batch in pickle.loads(pickle.dumps(reading)).read(one)  # noqa: S301
        for row in batch.to_pylist()
    ]
    return sorted(row["id"] for row in rows)


# Reading.


def test_a_stream_begins_with_the_whole_table_and_continues_with_added_rows(lake: Lake) -> None:
    stream = reader(lake)
    first = stream.initialOffset()
    assert first == {"snapshot": NOTHING} == stream.latestOffset()
    append(lake, 1)
    second = append(lake, 2, 3)
    assert stream.latestOffset() == second
    append(lake, 4)
    third = append(lake, 5)

    assert read(lake, first, second) == [1, 2, 3]
    assert read(lake, second, third) == [4, 5]
    assert read(lake, second, third) == [4, 5]  # the same again, after a restart
    assert read(lake, third, third) == []
    stream.stop()


def test_a_stream_may_begin_now_or_after_a_snapshot(lake: Lake) -> None:
    first = append(lake, 1)
    second = append(lake, 2)

    now, later = reader(lake, stream_from="now"), reader(lake, stream_from=str(first["snapshot"]))
    assert now.initialOffset() == second
    assert later.initialOffset() == first
    assert read(lake, first, second) == [2]
    now.stop()


def test_a_stream_of_a_branch_does_not_see_main(lake: Lake) -> None:
    first = append(lake, 1)
    with lake.table() as table:
        table.manage_snapshots().create_branch(first["snapshot"], "side").commit()
    append(lake, 2)

    stream = reader(lake, branch="side")
    assert stream.latestOffset() == first
    stream.stop()
    with pytest.raises(ConfigurationError, match="no branch 'gone'"):
        reader(lake, branch="gone").latestOffset()


@pytest.mark.parametrize("kind", ["overwrite", "delete"])
def test_a_commit_that_takes_rows_away_ends_the_stream_unless_it_may_be_skipped(lake: Lake, kind: str) -> None:
    start = append(lake, 1)
    append(lake, 2)
    if kind == "overwrite":
        append(lake, 3, overwrite=True)
    else:
        with lake.table() as table:
            table.delete("id = 1")
    end = append(lake, 4)

    with pytest.raises(ConfigurationError, match=rf"commit of kind {kind}.*skip-overwrites=true"):
        read(lake, start, end)
    assert read(lake, start, end, skip_overwrites="true") == [2, 4]


def test_a_stream_that_was_overtaken_by_a_rollback_says_so(lake: Lake) -> None:
    first = append(lake, 1)
    second = append(lake, 2)
    with lake.catalog() as catalog:
        catalog.kv.roll_back("db.t", snapshot_id=first["snapshot"])  # type: ignore[attr-defined]
    third = append(lake, 3)

    with pytest.raises(ConfigurationError, match="no longer an ancestor"):
        read(lake, second, third)
    assert read(lake, first, third) == [3]


def test_a_stream_has_no_snapshot_of_its_own(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="stream-from says where it begins"):
        reader(lake, snapshot_id="1")


# Writing.


def batch_writer(lake: Lake, overwrite: bool = False) -> BatchWriter:
    """Spark makes one where it plans, and another for each commit."""
    return BatchWriter(place_of({**lake.options, "path": "db.t"}), write_options({}, overwrite), ROWS)


def batch(lake: Lake, *ids: int, query: str = "q") -> list[Written | None]:
    """What the tasks of a batch say."""
    planned = lake.writer(ROWS)
    return [replace(message_of(planned, [one], number), query_id=query) for number, one in enumerate(ids)]


def test_a_batch_that_comes_again_is_committed_once_and_its_files_go(lake: Lake) -> None:
    batch_writer(lake).commit([*batch(lake, 1, 2)], 0)
    batch_writer(lake).commit([*batch(lake, 1, 2)], 0)  # after a crash: other files, the same rows
    batch_writer(lake).commit([*batch(lake, 3)], 1)

    assert lake.ids() == [1, 2, 3]
    assert {path.as_uri() for path in lake.data_files()} == lake.live_files()


def test_the_same_batch_number_of_another_stream_is_another_batch(lake: Lake) -> None:
    batch_writer(lake).commit([*batch(lake, 1, query="one")], 0)
    batch_writer(lake).commit([*batch(lake, 2, query="other")], 0)

    assert lake.ids() == [1, 2]


def test_a_batch_without_rows_commits_nothing(lake: Lake) -> None:
    empty = replace(batch(lake, 1)[0], files=())  # type: ignore[type-var]
    batch_writer(lake).commit([empty], 0)
    batch_writer(lake).commit([], 1)

    with lake.table() as table:
        assert table.metadata.snapshots == []


def test_complete_output_replaces_the_table_with_every_batch(lake: Lake) -> None:
    batch_writer(lake, overwrite=True).commit([*batch(lake, 1, 2)], 0)
    batch_writer(lake, overwrite=True).commit([*batch(lake, 3)], 1)
    batch_writer(lake, overwrite=True).commit([*batch(lake, 1, 2)], 0)  # an old one again, from a process that hung

    assert lake.ids() == [3]


def test_abort_after_a_failed_task_deletes_and_after_a_commit_does_not(lake: Lake) -> None:
    failed = batch(lake, 1, 2)
    batch_writer(lake).abort([*failed, None], 0)
    assert lake.data_files() == set()

    done = batch(lake, 3)
    batch_writer(lake).commit([*done], 0)
    batch_writer(lake).abort([*done], 0)
    assert lake.ids() == [3]


def test_a_stream_names_its_commits_itself(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="each batch has its own"):
        BatchWriter(place_of({**lake.options, "path": "db.t"}), write_options({"commit-id": "x"}, False), ROWS)
