"""Tables that were written through the data source, read by Iceberg's own Java library on Spark."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyspark.sql import DataFrame, SparkSession

from endive.spark.source.types import arrow_schema, struct_of
from tests.pipeline.lakes import ROWS, Lake, message_of
from tests.pipeline.test_tables_read import EVERY, NULLS, ROW

ROOT = Path(__file__).resolve().parent.parent.parent
RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
UNREACHABLE = ("unresolved dependency", "UNRESOLVED DEPENDENCIES", "download failed", "UnknownHostException")
DEADLINE_S = 900


def as_java_reads(*locations: str) -> list[list[str]]:
    command = [sys.executable, "-m", "tests.pipeline.jobs", "read_iceberg", RUNTIME, *locations]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if any(word in done.stdout + done.stderr for word in UNREACHABLE):
        pytest.skip(f"{RUNTIME} cannot be had: its repository is out of reach")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]


def as_we_read(frame: DataFrame) -> list[str]:
    return sorted(row["row"] for row in frame.selectExpr("to_json(struct(*)) as row").collect())


def location(lake: Lake, name: str) -> str:
    with lake.table(name) as table:
        return table.metadata_location


@pytest.mark.slow
def test_java_reads_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    names = ["db.every", "db.changed", "db.parts", "db.replaced"]
    lake.create("db.every", EVERY)
    struct = struct_of(EVERY, "t")
    writer = lake.writer(struct, "db.every")
    batch = pa.RecordBatch.from_pylist([ROW, NULLS], schema=arrow_schema(struct))
    writer.commit([writer.write(iter([batch]))])

    lake.create("db.changed")
    rows(lake, "db.changed", 1, 2)
    with lake.table("db.changed") as table, table.update_schema() as update:
        update.rename_column("name", "called")
        update.add_column("size", ice.IntegerType())

    lake.create("db.parts", by={"id": "bucket[4]", "name": "truncate[2]"})
    rows(lake, "db.parts", *range(50))
    with lake.table("db.parts") as table, table.update_spec() as change:
        change.add_identity("name")
    rows(lake, "db.parts", *range(50, 60))

    lake.create("db.replaced")
    rows(lake, "db.replaced", 1, 2, 3)
    rows(lake, "db.replaced", 4, 5, overwrite=True)
    rows(lake, "db.replaced", 6, overwrite=True, overwrite_filter="id = 5")

    theirs = as_java_reads(*(location(lake, name) for name in names))

    assert [len(one) for one in theirs] == [2, 2, 60, 2]
    assert theirs == [as_we_read(lake.load(spark, name)) for name in names]


def rows(lake: Lake, name: str, *ids: int, overwrite: bool = False, **options: str) -> None:
    writer = lake.writer(ROWS, name, overwrite, **options)
    writer.commit([message_of(writer, ids)])
