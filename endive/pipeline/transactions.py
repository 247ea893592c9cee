"""The transactions of a sweep as one Parquet data set, and the metrics of each run from its transactions.

Thousands of files, one per run, become few. A Spark task copies the files of a bin of runs into one, at least one row
group for each run, in the order of experiments and seeds, so that a reader of some runs skips the rest. The same task
computes each run's metrics with `summarise`, as the task that simulated it did. Rows go from file to file within the
task; neither Spark's JVM nor the Spark driver sees them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from endive.errors import ResultError
from endive.pipeline.directory import SweepDirectory, first_line, read_parquet
from endive.pipeline.plan import Run
from endive.pipeline.run_rows import RUN_SCHEMA, done_row
from endive.sim.results.columns import SCHEMA, with_labels
from endive.sim.results.summary import Window, summarise

BIN_BYTES = 64 * 2**20
"""Approximate size of a file of the data set, which is in memory until it is written."""

REMEDY = "delete it and repeat the sweep: its run will be repeated"


@dataclass(frozen=True)
class TransactionDataSet:
    """A data set to be written: its directory, and the columns that experiments add."""

    directory: SweepDirectory
    target: str
    """What the names of its files begin with; no other data set has files of such names."""
    parameters: pa.Schema
    values: Mapping[str, Mapping[str, Any]]
    """By experiment: the values of its parameters."""
    windows: Mapping[str, Window]
    """By experiment: the window of its metrics."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the data set."""
        return pa.schema([pa.field("experiment", pa.string()), pa.field("seed", pa.int64()), *self.parameters, *SCHEMA])

    def write(self, runs: Sequence[Run], spark: SparkSession) -> tuple[pa.Table, list[str]]:
        """Write the transactions of `runs`; return a row of metrics for each run, and the files.

        `ResultError` names a file that is missing, damaged or foreign.
        """
        context = spark.sparkContext
        bins = list(enumerate(self._bins(sorted(runs), context.defaultParallelism)))
        metrics: list[dict[str, Any]] = []
        context.setJobDescription(f"sweep {self.directory.name}: transactions of {len(runs):,} runs as one data set")
        for result in context.parallelize(bins, len(bins)).map(self._copy).collect() if bins else ():
            if isinstance(result, ResultError):
                raise result
            metrics += result
        return pa.Table.from_pylist(metrics, schema=RUN_SCHEMA), [self._file(number) for number, _ in bins]

    def _file(self, number: int) -> str:
        return f"{self.target}-{number:05}.parquet"

    def _bins(self, runs: Sequence[Run], cores: int) -> Iterator[list[Run]]:
        """Cut the runs into bins of about `BIN_BYTES`, less if that would leave a core idle."""
        known = {info.path: info.size_bytes for info in self.directory.list("transactions/")}
        sizes = [known.get(self.directory.transactions(*run), 0) for run in runs]
        target = min(BIN_BYTES, sum(sizes) / cores)
        collected: list[Run] = []
        collected_bytes = 0
        for run, size_bytes in zip(runs, sizes, strict=True):
            collected.append(run)
            collected_bytes += size_bytes
            if collected_bytes >= target:
                yield collected
                collected, collected_bytes = [], 0
        if collected:
            yield collected

    def _copy(self, numbered: tuple[int, Sequence[Run]]) -> list[dict[str, Any]] | ResultError:
        """Copy the files of a bin into one; return the runs' rows, or the error, which would lose its type on Spark."""
        number, runs = numbered
        rows: list[dict[str, Any]] = []
        sink = pa.BufferOutputStream()
        try:
            with pq.ParquetWriter(sink, self.schema, compression="zstd") as writer:
                for run in runs:
                    transactions = read_transactions(self.directory, run)
                    rows.append(done_row(*run, summarise(transactions, self.windows[run[0]]), None))
                    writer.write_table(self._with_parameters(run, transactions))
            self.directory.create(self._file(number), sink.getvalue().to_pybytes())
        except ResultError as error:
            return error
        return rows

    def _with_parameters(self, run: Run, transactions: pa.Table) -> pa.Table:
        experiment, seed = run
        values = {"experiment": experiment, "seed": seed, **self.values[experiment]}
        added = [
            pa.repeat(pa.scalar(values[field.name], field.type), len(transactions))
            for field in self.schema
            if field.name in values
        ]
        return pa.table([*added, *transactions.columns], schema=self.schema)


def read_transactions(directory: SweepDirectory, run: Run) -> pa.Table:
    """Read the transactions of one run. `ResultError` if the file is missing, damaged or of another kind."""
    path = directory.transactions(*run)
    body = directory.read(path)
    if body is None:
        raise ResultError(directory.place(path), "does not exist", "repeat the sweep: its run will be repeated")
    try:
        rows = read_parquet(body)
    except (pa.ArrowException, OSError) as error:
        problem = f"cannot be read as Parquet ({first_line(error)})"
        raise ResultError(directory.place(path), problem, REMEDY) from error
    rows = with_labels(rows)
    if not rows.schema.equals(SCHEMA):
        raise ResultError(directory.place(path), "does not hold the transactions of a run", REMEDY)
    return rows
