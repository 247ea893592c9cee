"""Computes the measures of a sweep from the files that its runs have left.

    measures/runs.parquet           one row per group, experiment and seed, with parameters and metrics
    measures/experiments.parquet    one row per group and experiment: means and intervals over seeds
    measures/curves.parquet         one row per series: sustainable throughput and saturation
    measures/transactions/          every transaction, if they are kept
    measures/inputs.json            the files and version they were computed from; written last

Each is written under a temporary name and renamed, so a file that exists is complete. `is_current` says whether all of
them belong together and to the runs in the directory.
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
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from endive import __version__
from endive.errors import SparkUnavailableError
from endive.files import make_directory, write_durably
from endive.pipeline.curves import curves
from endive.pipeline.directory import SweepDirectory, write_table
from endive.pipeline.estimates import EXPERIMENT, over_seeds
from endive.pipeline.run_rows import METRICS, RUN_SCHEMA
from endive.pipeline.saved_sweep import RUN, SavedSweep, parts_of, sorted_by
from endive.pipeline.transactions import TransactionDataSet

TABLES = ("runs", "experiments", "curves")
INPUTS = "inputs.json"


def consolidate(directory: Path, spark: SparkSession) -> None:
    """Compute the measures of a sweep and write them into its directory.

    `ResultError` names a file that is missing, damaged or of another kind; then the measures are not current. One row
    for each run passes through the Spark driver; transactions never do.
    """
    sweep = SavedSweep(directory.absolute())
    inputs = _inputs(sweep.path)
    sweep.check_parts()
    make_directory(sweep.measures)
    with _explained(sweep):
        runs = sweep.runs(spark)
        if sweep.about["keep"] == "transactions":
            runs = consolidate_transactions(sweep, runs, spark)
        runs = sweep.by_group(runs)
        experiments = sweep.with_parameters(over_seeds(spark.createDataFrame(runs)).toArrow())
        series = curves(spark.createDataFrame(experiments), sweep.about).toArrow()
    write_table(sweep.measures / "runs.parquet", sorted_by(runs, *EXPERIMENT, "seed"))
    write_table(sweep.measures / "experiments.parquet", sorted_by(experiments, *EXPERIMENT))
    write_table(sweep.measures / "curves.parquet", sweep.in_order(series))
    text = json.dumps(inputs, indent=1)
    write_durably(sweep.measures / INPUTS, lambda part: part.write_text(text, encoding="utf-8"))


def is_current(directory: Path) -> bool:
    """Whether the measures exist, are complete, and belong to the runs that the directory holds now."""
    measures = directory / "measures"
    try:
        known = json.loads((measures / INPUTS).read_text(encoding="utf-8"))
        complete = all((measures / f"{name}.parquet").is_file() for name in TABLES)
        return complete and bool(known == _inputs(directory))
    except (OSError, ValueError):
        return False


def _inputs(directory: Path) -> dict[str, Any]:
    """Return the inputs of the measures: the files, by size and time, and the version that computes them."""
    paths = [directory / "about.json", directory / "experiments.parquet", *parts_of(directory)]
    states = {path: path.stat() for path in paths if path.is_file()}
    files = {str(path.relative_to(directory)): [state.st_size, state.st_mtime_ns] for path, state in states.items()}
    return {"version": __version__, "files": files}


def consolidate_transactions(sweep: SavedSweep, runs: pa.Table, spark: SparkSession) -> pa.Table:
    """Write the transactions of all done runs as one data set; return the runs with metrics computed from them."""
    target = sweep.measures / "transactions"
    done = runs.filter(pc.equal(runs["status"], "done")).select(list(RUN))
    names = sweep.parameters.names
    values = {row["experiment"]: {name: row[name] for name in names} for row in sweep.plan.to_pylist()}
    with _directory_aside(target) as part:
        data_set = TransactionDataSet(SweepDirectory(sweep.path), part, sweep.parameters, values, sweep.windows)
        rows = data_set.write(list(zip(*(done[name].to_pylist() for name in RUN), strict=True)), spark)
    recorded = runs.select([name for name in RUN_SCHEMA.names if name not in METRICS or name == "cpu_s"])
    computed = rows.select([*RUN, *(name for name in METRICS if name != "cpu_s")])
    return recorded.join(computed, list(RUN)).select(RUN_SCHEMA.names)


@contextmanager
def _directory_aside(target: Path) -> Iterator[Path]:
    """Provide a temporary directory, and rename it to `target` if the block succeeds."""
    part = target.with_name(f".{target.name}.{socket.gethostname()}.{os.getpid()}.part")
    try:
        make_directory(part)
        yield part
        shutil.rmtree(target, ignore_errors=True)
        part.replace(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _explained(sweep: SavedSweep) -> Iterator[None]:
    """Turn an error from Spark into one message."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        sweep.check_parts(whole=True)  # a damaged file is the likeliest cause, and Spark does not name it
        problem = f"Spark could not compute the measures: {_cause(str(error))}"
        raise SparkUnavailableError(problem, "repeat the command") from error


def _cause(text: str) -> str:
    """Return the line of a stack trace, Java's or Python's, that names the cause."""
    causes = re.findall(r"^(?:[a-zA-Z_]\w*(?:\.\w+)+|\w+Error): .+|^\[[A-Z_.]+\].*", text, re.MULTILINE)
    return str((causes or text.splitlines() or ["no reason given"])[0])
