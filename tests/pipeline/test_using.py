"""A session of the user's own, as in a notebook or a PySpark shell: no JVM of ours, no settings of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from endive.pipeline.opening import open_results
from endive.spark import use
from endive.spark.java import find_java
from endive.spark.sql import settings_at_start
from tests.pipeline.saved import leave_runs
from tests.pipeline.sweeps import small_plan, sweep_text

CELLS = """
import endive, endive.spark, endive.spark.sql, os, pyarrow
out, lake, sweep = os.environ["OUT"], os.environ["LAKE"], os.environ["SWEEP"]
same = endive.spark.use(spark) is spark
results = endive.sweep(sweep, out)
say("runs", results.measures("runs").num_rows, "<caption>Small</caption>" in results._repr_html_())
curves = results.frame("curves")
say("series", same, curves.sparkSession is spark, [row.series for row in curves.orderBy("series").collect()])
runs = results.frame("runs")
say("by Spark SQL", spark.sql("SELECT count(*) FROM {runs} WHERE status = 'done'", runs=runs).first()[0])
same = endive.spark.sql.catalog(spark, "lake", lake) is spark
spark.sql("CREATE NAMESPACE lake.db").collect()
spark.sql("CREATE TABLE lake.db.t (id BIGINT)").collect()
spark.sql("INSERT INTO lake.db.t VALUES (1), (2)").collect()
spark.range(5, 8).write.format("endive").option("catalog", lake).mode("append").save("db.t")
source = spark.read.format("endive").option("catalog", lake).load("db.t")
say("rows", same, source.count(), [row.id for row in spark.sql("SELECT id FROM lake.db.t ORDER BY id").collect()])
say("alive", spark.range(3).count())
spark.stop()
"""
"""A cell on each line."""

SAID = [
    "runs 12 True",
    "series True True ['1 table', '3 tables']",
    "by Spark SQL 12",
    "rows True 5 [1, 2, 5, 6, 7]",
    "alive 3",
]


def test_measures_are_frames_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    leave_runs(tmp_path, small_plan())

    frame = open_results(tmp_path).frame("experiments")

    assert frame.sparkSession is spark
    assert frame.count() == 6
    assert use(spark) is spark


@pytest.mark.campaign  # minutes: a shell, a sweep and Spark SQL, each with a JVM of its own
def test_a_pyspark_shell_runs_sweeps_and_reads_and_writes_tables(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(sweep_text(tables="[1, 3]", scales="[2000, 400]"))
    url = (tmp_path / "lake").as_uri()
    places = {"OUT": str(tmp_path / "out"), "LAKE": url, "SWEEP": str(tmp_path / "small.toml")}
    home = {"JAVA_HOME": str(find_java().path), "SPARK_LOCAL_IP": "127.0.0.1"}
    # Without a terminal, Python reads its start-up file, which makes the session, only if it is told to be interactive.
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    python["PYSPARK_DRIVER_PYTHON_OPTS"] = "-i"
    settings = {**settings_at_start("lake", url), "spark.ui.enabled": "false"}
    shell = Path(pyspark.__file__).parent / "bin" / "pyspark"
    words = [str(shell), "--master", "local[2]", *(f"--conf={key}={value}" for key, value in settings.items())]
    say = "say = lambda *words: print('SAID', *words, flush=True)\n"

    done = subprocess.run(
        words,
        input=say + CELLS,
        env={**os.environ, **places, **home, **python},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    if "unresolved dependency" in done.stdout + done.stderr:
        pytest.skip("Iceberg's Spark runtime cannot be fetched from Maven")
    said = [line.partition("SAID ")[2] for line in done.stdout.splitlines() if "SAID " in line]
    assert said == SAID, (done.stdout + done.stderr)[-4000:]
