"""Computes the measures of a sweep from the files that its runs have left.

    measures/runs.parquet           one row per group, experiment and seed, with parameters and metrics
    measures/experiments.parquet    one row per group and experiment: means and intervals over seeds
    measures/breakdown.parquet      one row per experiment and class, or table
    measures/counters.parquet       one row per experiment and counter
    measures/curves.parquet         one row per series: sustainable throughput and saturation
    measures/transactions/          every transaction, if they are kept
    measures/inputs.json            what they were computed from; deleted first and written last

Measures without `inputs.json` are not complete. `is_current` says whether all of them belong together and to the runs
in the directory.
"""

import json
import re
import secrets
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from endive import __version__
from endive.errors import ResultError, SparkUnavailableError
from endive.pipeline.curves import curves, curves_of
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.estimates import EXPERIMENT, estimates_of, over_seeds
from endive.pipeline.run_rows import METRICS, RECORDED, RUN_SCHEMA
from endive.pipeline.saved_sweep import RUN, SavedSweep, sorted_by
from endive.pipeline.transactions import TransactionDataSet
from endive.spark.naming import named

ROWS_HERE_MAX = 50_000
"""Up to so many runs, means and curves are computed in this process by the same functions: a second, in which Spark SQL
would not even have started."""

MEASURES_VERSION = 2
"""Rises when measures get other columns; those of an older number are computed again. 2: prices and trust."""
TABLES = ("runs", "experiments", "curves")
INPUTS = "measures/inputs.json"
TRANSACTIONS = "measures/transactions"


def consolidate(
    directory: SweepDirectory, spark: SparkSession | None, known: Collection[str] = (), plan: str | None = None
) -> None:
    """Compute the measures of a sweep and write them into its directory.

    `known` are files of runs that exist, whether a listing shows them already or not. `plan` is the digest of the plan
    that the directory must show. `ResultError` names a file that is missing, damaged or of another kind; then the
    measures are not current. One row for each run passes through this process; transactions never do. Without `spark`,
    or for few runs, means and curves are computed here, by the same functions; kept transactions need Spark.
    """
    sweep = SavedSweep(directory, plan)
    keeps = sweep.about["keep"] == "transactions"
    if keeps and spark is None:
        raise SparkUnavailableError("transactions are consolidated on Spark", "start a session for it")
    inputs = _inputs(sweep)
    runs = sweep.runs(known)
    directory.delete(INPUTS)
    kept: Sequence[str] = ()
    title = f"sweep {directory.name}: measures of {len(runs):,} runs"
    with _explained(), named(spark.sparkContext, title) if spark else nullcontext():
        if keeps and spark:
            runs, kept = consolidate_transactions(sweep, runs, spark)
        runs = sweep.by_group(runs)
        frames = spark if spark and len(runs) > ROWS_HERE_MAX else None
        means = over_seeds(frames.createDataFrame(runs)).toArrow() if frames else estimates_of(runs)
        experiments = sweep.with_parameters(means)
        about = sweep.about
        series = (
            curves(frames.createDataFrame(experiments), about).toArrow() if frames else curves_of(experiments, about)
        )
    directory.write_table("measures/runs.parquet", sorted_by(runs, *EXPERIMENT, "seed"))
    directory.write_table("measures/experiments.parquet", sorted_by(experiments, *EXPERIMENT))
    directory.write_table("measures/curves.parquet", sweep.in_order(series))
    directory.write_table("measures/breakdown.parquet", sorted_by(sweep.breakdown(runs), *EXPERIMENT, "by"))
    directory.write_table("measures/counters.parquet", sorted_by(sweep.counters(runs), *EXPERIMENT, "counter"))
    _ = SavedSweep(directory, plan).about  # still this plan: otherwise the measures do not belong to it
    directory.write(INPUTS, json.dumps({**inputs, "transactions": kept}, indent=1).encode())
    for info in directory.list(f"{TRANSACTIONS}/"):
        if info.path not in kept:
            directory.delete(info.path)


def is_current(directory: SweepDirectory) -> bool:
    """Whether the measures exist, are complete, and belong to the plan and the runs that the directory holds now."""
    try:
        found = json.loads(directory.read(INPUTS) or b"null")
        names = {info.path for info in directory.list("measures/")}
        complete = all(f"measures/{name}.parquet" in names for name in TABLES)
        expected = _inputs(SavedSweep(directory))
        return complete and {key: found.get(key) for key in expected} == expected
    except (ResultError, ValueError, AttributeError):
        return False


def _inputs(sweep: SavedSweep) -> dict[str, Any]:
    """Return the inputs of the measures: the plan, the files by size and time, and the version of the code."""
    infos = [info for prefix in (sweep.plan_name, "runs/part-") for info in sweep.directory.list(prefix)]
    files = {info.path: [info.size_bytes, info.modified_unix_ms] for info in infos}
    return {"version": __version__, "measures": MEASURES_VERSION, "plan": sweep.about.get("plan"), "files": files}


def consolidate_transactions(sweep: SavedSweep, runs: pa.Table, spark: SparkSession) -> tuple[pa.Table, list[str]]:
    """Write the transactions of all done runs as one data set.

    Return the runs with metrics computed from them, and the files of the data set.
    """
    done = runs.filter(pc.equal(runs["status"], "done")).select(list(RUN))
    names = sweep.parameters.names
    values = {row["experiment"]: {name: row[name] for name in names} for row in sweep.plan.to_pylist()}
    target = f"{TRANSACTIONS}/part-{secrets.token_hex(4)}"
    data_set = TransactionDataSet(sweep.directory, target, sweep.parameters, values, sweep.windows)
    rows, files = data_set.write(list(zip(*(done[name].to_pylist() for name in RUN), strict=True)), spark)
    recorded = runs.select([name for name in RUN_SCHEMA.names if name not in METRICS or name in RECORDED])
    computed = rows.select([*RUN, *(name for name in METRICS if name not in RECORDED)])
    return recorded.join(computed, list(RUN)).select(RUN_SCHEMA.names), files


@contextmanager
def _explained() -> Iterator[None]:
    """Turn an error from Spark into one message."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        problem = f"Spark could not compute the measures: {_cause(str(error))}"
        raise SparkUnavailableError(problem, "repeat the command") from error


def _cause(text: str) -> str:
    """Return the line of a stack trace, Java's or Python's, that names the cause."""
    causes = re.findall(r"^(?:[a-zA-Z_]\w*(?:\.\w+)+|\w+Error): .+|^\[[A-Z_.]+\].*", text, re.MULTILINE)
    return str((causes or text.splitlines() or ["no reason given"])[0])
