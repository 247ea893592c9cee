"""From a sweep's directory to its measures.

    measures/runs.parquet           one row per family, experiment and seed, with parameters and figures
    measures/experiments.parquet    one row per family and experiment: means and intervals over seeds
    measures/curves.parquet         one row per series: what load it takes
    measures/transactions/          every transaction, if they are kept
    measures/inputs.json            what all of these were computed from; written last

Each is written aside and renamed, so that what has its name is complete; `is_current` tells whether all of them belong
together and to what the directory holds now.
"""

import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from endive import __version__
from endive.errors import SparkUnavailableError
from endive.files import make_directory, write_durably
from endive.pipeline.curves import curves
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.measures import EXPERIMENT, RUN, RUN_FIGURES, over_seeds, run_figures
from endive.pipeline.results import Sweep, parts_of, sorted_by
from endive.pipeline.run_rows import RUN_SCHEMA
from endive.pipeline.transactions import DataSet
from endive.spark.schemas import spark_schema

TABLES = ("runs.parquet", "experiments.parquet", "curves.parquet")
TRANSACTIONS = "transactions"
INPUTS = "inputs.json"


def consolidate(directory: Path, spark: SparkSession) -> None:
    """Compute the measures of a sweep from what its runs have left, and write them into its directory.

    `ResultError` names a file that is missing, damaged or not ours; then the measures are not current. A row for each
    run passes through the Spark driver; the transactions never do.
    """
    sweep = Sweep(directory.absolute())
    inputs = _inputs(sweep.path)
    sweep.check_parts()
    make_directory(sweep.measures)
    with _explained(sweep):
        runs = sweep.runs(spark)
        if sweep.about["keep"] == "transactions":
            runs = _refigured(sweep, runs, spark)
        runs = sweep.of_families(runs)
        experiments = sweep.with_parameters(over_seeds(spark.createDataFrame(runs)).toArrow())
        families, success_target = sweep.about["families"], sweep.about["success_target"]
        found = curves(spark.createDataFrame(experiments), families, success_target).toArrow()
    _write(sorted_by(runs, *EXPERIMENT, "seed"), sweep.measures / "runs.parquet")
    _write(sorted_by(experiments, *EXPERIMENT), sweep.measures / "experiments.parquet")
    _write(sweep.in_order(found), sweep.measures / "curves.parquet")
    text = json.dumps(inputs, indent=1)
    write_durably(sweep.measures / INPUTS, lambda part: part.write_text(text, encoding="utf-8"))


def is_current(directory: Path) -> bool:
    """Whether the measures are there, complete, and of the runs that the directory holds now."""
    measures = directory / "measures"
    try:
        known = json.loads((measures / INPUTS).read_text(encoding="utf-8"))
        return all((measures / name).is_file() for name in TABLES) and bool(known == _inputs(directory))
    except (OSError, ValueError):
        return False


def _inputs(directory: Path) -> dict[str, Any]:
    """Return what measures depend on: the files, by size and time, and the version that computes."""
    paths = [directory / "about.json", directory / "experiments.parquet", *parts_of(directory)]
    states = {path: path.stat() for path in paths if path.is_file()}
    files = {str(path.relative_to(directory)): [state.st_size, state.st_mtime_ns] for path, state in states.items()}
    return {"version": __version__, "files": files}


def _refigured(sweep: Sweep, runs: pa.Table, spark: SparkSession) -> pa.Table:
    """Return the runs with figures computed from their transactions."""
    windows = sweep.windows(runs)
    transactions = consolidate_transactions(sweep, windows, spark)
    figures = run_figures(transactions, spark.createDataFrame(windows)).toArrow()
    return runs.drop_columns(list(RUN_FIGURES)).join(figures, list(RUN)).select(RUN_SCHEMA.names)


def consolidate_transactions(sweep: Sweep, runs: pa.Table, spark: SparkSession) -> DataFrame:
    """Write the transactions of `runs` as one data set into the measures, and return it."""
    target = sweep.measures / TRANSACTIONS
    keys = list(zip(*(runs[name].to_pylist() for name in RUN), strict=True))
    names = sweep.parameters.names
    values = {row["experiment"]: {name: row[name] for name in names} for row in sweep.plan.to_pylist()}
    with _directory_aside(target) as part:
        data_set = DataSet(SweepDirectory(sweep.path), part, sweep.parameters, values)
        data_set.write(keys, spark)
    # A directory's name may hold characters that Spark would take for a pattern.
    return spark.read.schema(spark_schema(data_set.schema)).option("__globPaths__", "false").parquet(str(target))


@contextmanager
def _directory_aside(target: Path) -> Iterator[Path]:
    """Give a directory to write to, and put it in the place of `target` if all went well."""
    part = target.with_name(f".{target.name}.{socket.gethostname()}.{os.getpid()}.part")
    try:
        make_directory(part)
        yield part
        shutil.rmtree(target, ignore_errors=True)
        part.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write(table: pa.Table, path: Path) -> None:
    write_durably(path, lambda part: pq.write_table(table, part, compression="zstd"))


@contextmanager
def _explained(sweep: Sweep) -> Iterator[None]:
    """Turn what Spark raises into one message."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        sweep.check_parts(whole=True)  # a damaged file is the likeliest cause, and Spark does not say which
        problem = f"Spark could not compute the measures: {_cause(str(error))}"
        raise SparkUnavailableError(problem, "start it again") from error


def _cause(text: str) -> str:
    """Return the line of a stack trace, Java's or Python's, that says what happened."""
    causes = re.findall(r"^(?:[a-zA-Z_]\w*(?:\.\w+)+|\w+Error): .+|^\[[A-Z_.]+\].*", text, re.MULTILINE)
    return str((causes or text.splitlines() or ["no reason given"])[0])
