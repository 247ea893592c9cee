"""A session of the user's own, as in a notebook or a PySpark shell: no JVM of ours, no settings of ours."""

import json
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
SAY = "say = lambda *words: print('SAID', *words, flush=True)"
START = """
import json
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]")
for key, value in json.loads(os.environ["SETTINGS"]).items(): builder.config(key, value)
spark = builder.getOrCreate()
"""
"""How a notebook makes its session."""

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


def places(directory: Path) -> dict[str, str]:
    """Write the sweep, and return the environment in which the cells find it and Java."""
    (directory / "small.toml").write_text(sweep_text(tables="[1, 3]", scales="[2000, 400]"))
    lake = (directory / "lake").as_uri()
    found = {"OUT": str(directory / "out"), "LAKE": lake, "SWEEP": str(directory / "small.toml")}
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**found, **python, "JAVA_HOME": str(find_java().path), "SPARK_LOCAL_IP": "127.0.0.1"}


def settings(lake: str) -> dict[str, str]:
    """Return what a session needs from the start for Spark SQL on `lake`."""
    return {**settings_at_start("lake", lake), "spark.ui.enabled": "false"}


def check_said(printed: str, errors: str) -> None:
    if "unresolved dependency" in printed + errors:
        pytest.skip("Iceberg's Spark runtime cannot be fetched from Maven")
    said = [line.partition("SAID ")[2] for line in printed.splitlines() if "SAID " in line]
    assert said == SAID, (printed + errors)[-4000:]


@pytest.mark.campaign  # minutes: a shell, a sweep and Spark SQL, each with a JVM of its own
def test_a_pyspark_shell_runs_sweeps_and_reads_and_writes_tables(tmp_path: Path) -> None:
    environment = places(tmp_path)
    shell = Path(pyspark.__file__).parent / "bin" / "pyspark"
    asked = [f"--conf={key}={value}" for key, value in settings(environment["LAKE"]).items()]

    done = subprocess.run(
        [str(shell), "--master", "local[2]", *asked],
        input=f"{SAY}\n{CELLS}",
        # Without a terminal, Python reads its start-up file, which makes the session, only if it is interactive.
        env={**os.environ, **environment, "PYSPARK_DRIVER_PYTHON_OPTS": "-i"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    check_said(done.stdout, done.stderr)


@pytest.mark.campaign  # a minute: a kernel and a JVM
def test_a_notebook_runs_sweeps_and_reads_and_writes_tables(tmp_path: Path) -> None:
    environment = places(tmp_path)
    asked = {"SETTINGS": json.dumps(settings(environment["LAKE"]))}
    texts = ["import os", START, SAY, *CELLS.strip().splitlines()]
    fixed: dict[str, object] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    cells = [{**fixed, "id": str(number), "source": text} for number, text in enumerate(texts)]
    notebook = tmp_path / "sweep.ipynb"
    notebook.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells}))
    jupyter = Path(sys.executable).with_name("jupyter-execute")

    done = subprocess.run(
        [str(jupyter), "--inplace", "--kernel_name=python3", str(notebook)],
        env={**os.environ, **environment, **asked},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    outputs = [output for cell in json.loads(notebook.read_text())["cells"] for output in cell["outputs"]]
    printed = "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")
    check_said(printed, done.stdout + done.stderr)
