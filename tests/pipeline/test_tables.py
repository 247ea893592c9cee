"""The data source on Spark: whole jobs, with tasks that fail, jobs side by side, and files read natively."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import LongType, StringType
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource

from endive.catalog import KVCatalog
from endive.errors import ConfigurationError
from endive.spark import read_native, register
from endive.spark.source.scanning import planned
from tests.pipeline.lakes import Lake, append
from tests.pipeline.test_tables_read import EVERY

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path / "lake")
    lake.create()
    return lake


def numbers(spark: SparkSession, *range_: int, parts: int = 3) -> DataFrame:
    start, end = range_ if len(range_) == 2 else (0, range_[0])
    return spark.range(start, end, 1, parts).selectExpr("id", "concat('n', id) as name")


def test_written_rows_are_read_back_by_spark_and_by_pyiceberg(spark: SparkSession, lake: Lake) -> None:
    lake.save(numbers(spark, 1000))
    lake.save(numbers(spark, 1000, 1500))

    frame = lake.load(spark)
    assert sorted(row.id for row in frame.collect()) == list(range(1500)) == lake.ids()
    assert frame.where("id >= 1490 and name like 'n149%'").count() == 10
    assert frame.groupBy().sum("id").first()[0] == sum(range(1500))  # type: ignore[index]
    with lake.table() as table:
        assert [one.summary.operation.value for one in table.metadata.snapshots if one.summary] == ["append"] * 2


def test_every_type_goes_through_spark_unharmed(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create(schema=EVERY)
    row = (
        True, -5, 2**62, 0.5, 1.5e300, Decimal("1234567890.12"), date(2026, 11, 16), datetime(2026, 3, 29, 2, 30),
        datetime(2026, 3, 29, 2, 30, tzinfo=UTC), "größer", b"\x00\xff", [1, None], {"a": 1.0, "b": None},
        {"x": 1, "deep": [{"y": "z"}, None]},
    )  # fmt: skip
    schema = lake.load(spark).schema
    lake.save(spark.createDataFrame([row, (None,) * len(row)], schema))

    def through(frame: DataFrame) -> list[str]:
        return sorted(frame.selectExpr("to_json(struct(*)) as row").toPandas()["row"])

    wanted = through(spark.createDataFrame([row, (None,) * len(row)], schema))
    assert through(lake.load(spark)) == wanted
    assert through(read_native(spark, lake.url, "db.t")) == wanted


@pytest.mark.slow
def test_a_checkpoint_is_opened_read_only(spark: SparkSession, lake: Lake) -> None:
    append(lake, 1)
    with KVCatalog.open(lake.url) as catalog:
        catalog.create_checkpoint("then")
    append(lake, 2)
    then = Lake(lake.path, {"catalog.endive.at": "then"})

    assert [row.id for row in then.load(spark).collect()] == [1]
    before = lake.data_files()
    with pytest.raises(PySparkException, match="this is checkpoint then, which is read-only"):
        then.save(numbers(spark, 20, 30, parts=1))
    assert lake.data_files() == before
    assert lake.ids() == [1, 2]


@pytest.mark.slow
def test_a_task_that_fails_at_first_leaves_no_row_twice(spark: SparkSession, lake: Lake) -> None:
    """Tasks write all their rows, and fail after that: the files are there when the next attempt begins."""

    def fail_once(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() < 2:
            raise RuntimeError("on purpose")

    lake.save(numbers(spark, 300).mapInArrow(fail_once, "id long, name string"))

    assert lake.ids() == list(range(300))
    assert {path.as_uri() for path in lake.data_files()} == lake.live_files()  # failed attempts have tidied up


@pytest.mark.slow
def test_a_job_that_fails_leaves_no_visible_file_and_no_file_at_all(spark: SparkSession, lake: Lake) -> None:
    lake.save(numbers(spark, 10))

    def fail_one(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 2:
            raise RuntimeError("always, on purpose")

    with pytest.raises(PySparkException, match="on purpose"):
        lake.save(numbers(spark, 300).mapInArrow(fail_one, "id long, name string"))

    assert lake.ids() == list(range(10))
    assert {path.as_uri() for path in lake.data_files()} == lake.live_files()


def test_a_frame_that_does_not_fit_is_reported_before_anything_is_written(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(PySparkException, match="column 'id' is long in the table, string in the frame"):
        lake.save(spark.range(3).selectExpr("cast(id as string) id", "id as more"))

    assert lake.data_files() == set()


def test_two_jobs_that_write_one_table_at_once_lose_nothing(spark: SparkSession, lake: Lake) -> None:
    errors: list[PySparkException] = []

    def write(start: int) -> None:
        try:
            register(spark)  # in this thread
            for n in range(3):
                lake.save(numbers(spark, start + 100 * n, start + 100 * n + 100, parts=2))
        except PySparkException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert lake.ids() == list(range(600))


def test_overwrites_and_time_travel(spark: SparkSession, lake: Lake) -> None:
    lake.save(numbers(spark, 10))
    with lake.table() as table:
        first = str(table.metadata.current_snapshot_id)
    lake.save(numbers(spark, 5), mode="overwrite")
    assert lake.ids() == list(range(5))
    lake.save(numbers(spark, 100, 102), mode="overwrite", overwrite_filter="id >= 3")
    assert lake.ids() == [0, 1, 2, 100, 101]

    assert lake.load(spark, snapshot_id=first).count() == 10


def test_the_same_job_again_under_its_commit_id_changes_nothing(spark: SparkSession, lake: Lake) -> None:
    for _ in range(2):
        lake.save(numbers(spark, 10), commit_id="nightly-2026-11-16")

    assert lake.ids() == list(range(10))


def test_sql_reads_and_inserts_through_a_view(spark: SparkSession, lake: Lake) -> None:
    lake.save(numbers(spark, 5))
    spark.sql(f"create or replace temporary view t using endive options (catalog '{lake.url}', path 'db.t')")

    spark.sql("insert into t values (5, 'n5')")

    assert lake.ids() == [0, 1, 2, 3, 4, 5]
    assert spark.sql("select count(*) from t").first()[0] == 5  # type: ignore[index] # pinned when it was made


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE a (id bigint) USING endive",
        "create table a using endive options (catalog 'x', table 'db.t')",
        "/* mine */ CREATE OR REPLACE TABLE a -- new\n USING `endive` AS SELECT 1 AS id",
        "CREATE EXTERNAL TABLE IF NOT EXISTS a USING endive LOCATION 'db.t'",
    ],
)
def test_sql_creates_no_table_that_could_not_be_read(spark: SparkSession, statement: str) -> None:
    with pytest.raises(ConfigurationError, match="CREATE TEMPORARY VIEW name USING endive"):
        spark.sql(statement)

    assert spark.sql("show tables").filter("tableName = 'a'").count() == 0
    with pytest.raises(ConfigurationError, match="CREATE TEMPORARY VIEW name USING endive"):
        spark.newSession().sql(statement)
    register(spark)  # once more, as in another thread
    assert spark.sql("select 'create table a using endive' as words where 1 = {one}", one=1).count() == 1


@pytest.mark.parametrize(
    "create",
    [
        lambda frame, options: frame.sparkSession.catalog.createTable("a", source="endive", **options),
        lambda frame, options: frame.sparkSession.catalog.createTable(
            "a", source="Endive", schema=frame.schema, **options
        ),
        lambda frame, options: frame.write.format("endive").options(**options).saveAsTable("a"),
        lambda frame, options: frame.write.saveAsTable("a", "endive", "append", **options),
        lambda frame, options: frame.writeTo("a").using("endive").options(**options).create(),
        lambda frame, options: frame.writeTo("a").using("endive").options(**options).createOrReplace(),
    ],
)
def test_no_method_creates_a_table_that_could_not_be_read(
    spark: SparkSession, lake: Lake, create: Callable[[DataFrame, dict[str, str]], object]
) -> None:
    with pytest.raises(ConfigurationError, match=r"save\('db.table'\)"):
        create(numbers(spark, 5), {"catalog": lake.url, "path": "db.t"})

    assert spark.sql("show tables").filter("tableName = 'a'").count() == 0
    assert lake.ids() == []


def test_no_stream_creates_a_table_that_could_not_be_read(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    options = {"catalog": lake.url, "path": "db.t", "checkpointLocation": str(tmp_path / "checkpoint")}
    stream = spark.readStream.format("rate").load()
    with pytest.raises(ConfigurationError, match=r"save\('db.table'\)"):
        stream.writeStream.format("endive").options(**options).toTable("a")
    with pytest.raises(ConfigurationError, match=r"save\('db.table'\)"):
        stream.writeStream.toTable("a", "endive", **options)

    assert spark.sql("show tables").filter("tableName = 'a'").count() == 0


def test_planners_find_pyiceberg_loaded(spark: SparkSession) -> None:
    """Spark asks several processes for each read and write; loading it anew takes a second each time."""

    class Probe(DataSource):  # here, so that it travels by value: unpickling it imports nothing of ours
        def schema(self) -> str:
            return f"loaded_{'pyiceberg.table' in sys.modules} int"

    spark.dataSource.register(Probe)

    assert spark.read.format("Probe").load().columns == ["loaded_True"]


# Filters.


def test_a_frame_may_be_filtered_in_many_ways_and_gives_every_row(spark: SparkSession, lake: Lake) -> None:
    """What Spark 4.1 gets wrong with pushed filters: see the next test."""
    lake.save(numbers(spark, 100))
    frame = lake.load(spark)

    assert frame.where("id > 90").count() == 9
    assert frame.count() == 100
    assert frame.where("id < 10").union(frame.where("id >= 95")).count() == 15


def test_pushed_filters_stay_with_the_frame_in_this_spark(spark: SparkSession, lake: Lake) -> None:
    """The reason why `push-filters` is off. When a newer Spark fails here, it can be on for good."""
    lake.save(numbers(spark, 100))
    frame = lake.load(spark, push_filters="true")

    assert frame.where("id > 90").count() == 9
    assert frame.count() == 9  # wrong: there are 100


@pytest.mark.slow
def test_the_option_filter_is_part_of_the_frame(spark: SparkSession, lake: Lake) -> None:
    for n in range(3):
        lake.save(numbers(spark, 100 * n, 100 * n + 100, parts=1))
    frame = lake.load(spark, filter="id >= 250")

    assert frame.count() == 50
    assert frame.where("id < 260").count() == 10


# Natively.


def test_native_reads_give_the_same_rows_after_columns_were_changed(spark: SparkSession, lake: Lake) -> None:
    lake.save(numbers(spark, 10))
    with lake.table() as table:
        first = table.metadata.current_snapshot_id
        with table.update_schema() as update:
            update.rename_column("name", "called")
        with table.update_schema() as update:
            update.add_column("name", StringType())  # the name that another column had, and its type
            update.add_column("more", LongType())
    lake.save(spark.range(10, 12).selectExpr("id", "'x' as called", "'y' as name", "id as more"))

    frame = read_native(spark, lake.url, "db.t")
    assert frame.columns == ["id", "called", "name", "more"]
    assert sorted(frame.collect()) == sorted(lake.load(spark).collect())
    assert {(row.called, row.name) for row in frame.where("id = 3").collect()} == {("n3", None)}
    assert read_native(spark, lake.url, "db.t", snapshot_id=first).columns == ["id", "name"]
    assert frame.where("id > 5").count() + frame.where("id <= 5").count() == 12


def test_native_reads_take_only_the_files_that_a_filter_needs(spark: SparkSession, lake: Lake) -> None:
    for n in range(3):
        lake.save(numbers(spark, 100 * n, 100 * n + 100, parts=1))

    frame = read_native(spark, lake.url, "db.t", filter="id >= 250")

    assert frame.count() == 50
    assert len(frame.inputFiles()) == 1
    assert len(read_native(spark, lake.url, "db.t").inputFiles()) == 3


def test_native_reads_of_a_table_with_delete_files_are_refused(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.save(numbers(spark, 10))

    def with_deletes(*arguments: object) -> object:
        tasks = planned(*arguments)  # type: ignore[arg-type]
        tasks[0].delete_files = {tasks[0].file}
        return tasks

    monkeypatch.setattr("endive.spark.source.native.planned", with_deletes)
    with pytest.raises(ConfigurationError, match="has delete files"):
        read_native(spark, lake.url, "db.t")


def test_a_table_without_rows_reads_natively_too(spark: SparkSession, lake: Lake) -> None:
    assert read_native(spark, lake.url, "db.t").collect() == []


# Streams.


def start(lake: Lake, frame: DataFrame, checkpoint: Path, name: str = "db.out") -> None:
    """Run a stream until everything that is there has been read, and end it."""
    writer = frame.writeStream.format("endive").options(**lake.options).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(name)
    query.awaitTermination()


def stream(spark: SparkSession, lake: Lake, **options: str) -> DataFrame:
    named = {key.replace("_", "-"): value for key, value in options.items()}
    return spark.readStream.format("endive").options(**lake.options, **named).load("db.t")


@pytest.mark.slow
def test_a_stream_takes_up_where_it_stopped(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    lake.create("db.out")
    lake.save(numbers(spark, 10))
    start(lake, stream(spark, lake), tmp_path / "checkpoint")
    assert lake.ids("db.out") == list(range(10))

    start(lake, stream(spark, lake), tmp_path / "checkpoint")
    assert lake.ids("db.out") == list(range(10))

    lake.save(numbers(spark, 10, 20))
    lake.save(numbers(spark, 20, 25))
    start(lake, stream(spark, lake), tmp_path / "checkpoint")
    assert lake.ids("db.out") == list(range(25))


@pytest.mark.slow
def test_a_stream_ends_at_an_overwrite_unless_it_may_skip_it(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    lake.create("db.out")
    lake.save(numbers(spark, 10))
    start(lake, stream(spark, lake), tmp_path / "checkpoint")
    lake.save(numbers(spark, 50, 60), mode="overwrite")
    lake.save(numbers(spark, 70, 72))

    with pytest.raises(PySparkException, match="is a commit of kind overwrite"):
        start(lake, stream(spark, lake), tmp_path / "checkpoint")
    start(lake, stream(spark, lake, skip_overwrites="true"), tmp_path / "checkpoint")

    assert lake.ids("db.out") == [*range(10), 70, 71]


@pytest.mark.slow
def test_a_batch_that_spark_repeats_is_committed_once(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """As after a crash between the sink's commit and Spark's note of it: the note is taken away."""
    lake.create("db.out")
    lake.save(numbers(spark, 10))
    checkpoint = tmp_path / "checkpoint"
    start(lake, stream(spark, lake), checkpoint)
    (note,) = [path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    note.unlink()
    (checkpoint / "commits" / f".{note.name}.crc").unlink(missing_ok=True)
    lake.save(numbers(spark, 10, 12))

    start(lake, stream(spark, lake), checkpoint)  # the batch again
    assert lake.ids("db.out") == list(range(10))
    start(lake, stream(spark, lake), checkpoint)

    assert lake.ids("db.out") == list(range(12))
    live = lake.live_files() | lake.live_files("db.out")
    assert {path.as_uri() for path in lake.data_files()} == live


def follow(lake: Lake, directory: Path) -> "subprocess.Popen[bytes]":
    """Start a process that streams from one table to the other until it is killed."""
    command = [sys.executable, "-m", "tests.pipeline.jobs", "follow", lake.url, str(directory / "checkpoint")]
    with (directory / "follower.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)


@pytest.mark.campaign  # four minutes; `make test` has a stopped stream and a repeated batch, no killed one
def test_a_stream_that_is_killed_and_started_again_neither_loses_nor_repeats(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    lake.create("db.out")
    written = 0
    for _ in range(3):
        seen = len(lake.ids("db.out"))
        process = follow(lake, tmp_path)
        try:
            while len(lake.ids("db.out")) <= seen + 20:  # it is in the middle of its work
                if process.poll() is not None:  # Spark gives up where a busy machine lets a worker wait: a crash too
                    process = follow(lake, tmp_path)
                lake.save(numbers(spark, written, written + 10, parts=1))
                written += 10
                time.sleep(0.5)
        finally:
            process.kill()
            process.wait()

    for _ in range(2):  # a start finishes the batch that was under way, or does the next
        start(lake, stream(spark, lake), tmp_path / "checkpoint")

    assert lake.ids("db.out") == list(range(written))


def test_the_former_module_of_the_data_source_still_works() -> None:
    from endive import spark as place
    from endive.pipeline import tables

    assert (tables.register, tables.read_native) == (place.register, place.read_native)
