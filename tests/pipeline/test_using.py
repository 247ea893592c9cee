"""A session of the user's own, as in a notebook or a PySpark shell: no JVM of ours, no settings of ours."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from endive.pipeline.opening import open_results
from endive.spark import use
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import small_plan, sweep_text

SHELL = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

import endive, endive.spark
from endive.pipeline.catalog_tables import catalog_at
from endive.spark.source.options import open_catalog

out, lake, sweep = sys.argv[1:]
assert endive.spark.use(spark) is spark
results = endive.sweep(sweep, out)
curves = results.frame("curves")
assert curves.sparkSession is spark
print("series", [row.series for row in curves.orderBy("series").collect()])

with open_catalog({**catalog_at(lake), "endive.create": "true"}) as catalog:
    catalog.create_namespace("db")
    catalog.create_table("db.t", __import__("pyarrow").schema([("id", "int64")]))
spark.range(5).write.format("endive").option("catalog", lake).mode("append").save("db.t")
print("rows", spark.read.format("endive").option("catalog", lake).load("db.t").count())
print("alive", spark.range(3).count())
spark.stop()
"""


def test_measures_are_frames_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    leave_runs(tmp_path, small_plan())

    frame = open_results(tmp_path).frame("experiments")

    assert frame.sparkSession is spark
    assert frame.count() == 6
    assert use(spark) is spark


@pytest.mark.slow
def test_a_plain_session_runs_sweeps_and_reads_and_writes_tables(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(sweep_text(tables="[1, 3]", scales="[2000, 400]"))
    arguments = [tmp_path / "out", (tmp_path / "lake").as_uri(), tmp_path / "small.toml"]

    done = subprocess.run(
        [sys.executable, "-c", SHELL, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["series ['1 table', '3 tables']", "rows 5", "alive 3"]
