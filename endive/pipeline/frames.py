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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from endive import __version__
from endive.errors import ResultError, SparkUnavailableError
from endive.files import make_directory, write_durably
from endive.pipeline.curves import curves
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.measures import EXPERIMENT, RUN, RUN_FIGURES, WINDOW, over_seeds, run_figures
from endive.pipeline.records import RUN_SCHEMA
from endive.pipeline.schemas import spark_schema
from endive.pipeline.transactions import DataSet

TABLES = ("runs.parquet", "experiments.parquet", "curves.parquet")
TRANSACTIONS = "transactions"
INPUTS = "inputs.json"
AGAIN = "start the sweep again"
NOT_OURS = "name a directory that `endive sweep` has written"


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
    paths = [directory / "about.json", directory / "experiments.parquet", *_parts(directory)]
    states = {path: path.stat() for path in paths if path.is_file()}
    files = {str(path.relative_to(directory)): [state.st_size, state.st_mtime_ns] for path, state in states.items()}
    return {"version": __version__, "files": files}


def _parts(directory: Path) -> list[Path]:
    return sorted((directory / "runs").glob("part-*.parquet"))


@dataclass(frozen=True)
class Sweep:
    """A sweep's directory, read."""

    path: Path

    @property
    def measures(self) -> Path:
        """Where the measures go."""
        return self.path / "measures"

    @cached_property
    def about(self) -> Mapping[str, Any]:
        """What was asked."""
        path = self.path / "about.json"
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            needed = about["keep"], about["seeds"], about["success_target"], about["families"]
            return dict(about) if all(needed) else {}
        except FileNotFoundError as error:
            raise ResultError(str(path), "there is no such file", NOT_OURS) from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultError(str(path), "does not say what a sweep asked", f"{AGAIN}, or {NOT_OURS}") from error

    @cached_property
    def plan(self) -> pa.Table:
        """One row per family and experiment: load, window and parameters."""
        path = self.path / "experiments.parquet"
        try:
            table = pq.read_table(path)
            plan = table.select([*EXPERIMENT, "load", *WINDOW, *(name for name in table.column_names if "." in name)])
        except (pa.ArrowException, OSError, KeyError) as error:
            problem = f"cannot be read as the experiments of a sweep ({_first_line(error)})"
            raise ResultError(str(path), problem, f"{AGAIN}, or {NOT_OURS}") from error
        # A parameter without any value has no type; Spark needs one.
        fields = [pa.field(f.name, pa.string()) if pa.types.is_null(f.type) else f for f in plan.schema]
        return plan.cast(pa.schema(fields))

    @property
    def parameters(self) -> pa.Schema:
        """The parameter columns: those that are named by dotted keys."""
        return pa.schema([field for field in self.plan.schema if "." in field.name])

    def check_parts(self, whole: bool = False) -> None:
        """Look at every file of runs, or all through it: an error on Spark loses its type and its file's name."""
        if not _parts(self.path):
            raise ResultError(str(self.path / "runs"), "holds no runs", f"{AGAIN}, or {NOT_OURS}")
        remedy = f"delete it and {AGAIN}: its runs will be repeated"
        for path in _parts(self.path):
            try:
                schema = pq.ParquetFile(path).read().schema if whole else pq.read_schema(path)
            except (pa.ArrowException, OSError) as error:
                problem = f"cannot be read as Parquet ({_first_line(error)})"
                raise ResultError(str(path), problem, remedy) from error
            if not schema.equals(RUN_SCHEMA):
                raise ResultError(str(path), "does not hold the rows of runs", remedy)

    def runs(self, spark: SparkSession) -> pa.Table:
        """Return one row for each run of the plan, however often it was tried: the done one, if there is one."""
        parts = [str(path) for path in _parts(self.path)]

        def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in numbers:
                for number in batch["id"].to_pylist():
                    yield from pq.ParquetFile(parts[number]).read().to_batches()

        def tidied(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            rows = list(batches)
            yield from one_per_run(pa.Table.from_batches(rows)).to_batches() if rows else []

        schema = spark_schema(RUN_SCHEMA)
        # Read in Python: Spark's own reader needs seconds to start, and thousands of small files are slow with it.
        rows = spark.range(0, len(parts), 1, min(len(parts), spark.sparkContext.defaultParallelism))
        tried = rows.mapInArrow(read, schema).repartition("experiment")
        runs = tried.mapInArrow(tidied, schema).toArrow()
        return runs.filter(pc.is_in(runs["experiment"], self.plan["experiment"].combine_chunks()))

    def of_families(self, runs: pa.Table) -> pa.Table:
        """Return the runs that the families ask for, with family, load and parameters."""
        wanted = {family["name"]: family["seeds"] for family in self.about["families"]}
        seeds = pa.table(
            {
                "family": pa.array([name for name, seeds in wanted.items() for _ in seeds], pa.string()),
                "seed": pa.array([seed for seeds in wanted.values() for seed in seeds], pa.int64()),
            }
        )
        joined = runs.join(self.plan, "experiment", join_type="inner").join(
            seeds, ["family", "seed"], join_type="inner"
        )
        return joined.select([*self._first_columns(), *(name for name in RUN_SCHEMA.names if name != "experiment")])

    def with_parameters(self, estimates: pa.Table) -> pa.Table:
        """Return a row for every experiment of the plan, with its parameters, load and estimates."""
        joined = self.plan.join(estimates, list(EXPERIMENT))
        for name in ("seeds_done", "seeds_failed"):
            joined = joined.set_column(joined.column_names.index(name), name, joined[name].fill_null(0))
        return joined.select(
            [*self._first_columns(), *(name for name in estimates.column_names if name not in EXPERIMENT)]
        )

    def _first_columns(self) -> list[str]:
        return [*EXPERIMENT, *self.parameters.names, "load"]

    def in_order(self, series: pa.Table) -> pa.Table:
        """Return series in the order in which the sweep's files name them."""
        keys = [name for name in series.column_names if name in ("family", *self.parameters.names)]
        places: dict[tuple[object, ...], int] = {}
        for place, row in enumerate(self.plan.to_pylist()):
            places.setdefault(tuple(row[key] for key in keys), place)
        series = sorted_by(series, "family", "series")
        rows = series.select(keys).to_pylist()
        order = sorted(range(len(rows)), key=lambda row: places.get(tuple(rows[row][key] for key in keys), len(places)))
        return series.take(order)

    def windows(self, runs: pa.Table) -> pa.Table:
        """Return the window of each run that is done."""
        done = runs.filter(pc.equal(runs["status"], "done")).select(list(RUN))
        windows = self.plan.select(["experiment", *WINDOW]).group_by(["experiment", *WINDOW]).aggregate([])
        return done.join(windows, "experiment", join_type="inner")


def one_per_run(rows: pa.Table) -> pa.Table:
    """Return one row for each run: a done one, if there is one."""
    tried = rows.append_column("not_done", pc.not_equal(rows["status"], "done"))
    keys = [*RUN, "not_done", "message"]  # whichever comes first then: always the same
    tried = tried.sort_by([(name, "ascending") for name in keys])
    runs = tried.select(list(RUN)).append_column("row", pa.array(range(len(tried)), pa.int64()))
    first = runs.group_by(list(RUN)).aggregate([("row", "min")])["row_min"]
    return tried.take(first).select(rows.column_names)


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


def sorted_by(table: pa.Table, *names: str) -> pa.Table:
    """Return the rows in the order of these columns."""
    return table.sort_by([(name, "ascending") for name in names])


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


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
