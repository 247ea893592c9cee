"""The transactions of a sweep as one Parquet data set, and the metrics of each run from its transactions.

Thousands of files, one per run, become few. A Spark task copies the files of a bin of runs into one, at least one row
group for each run, in the order of experiments and seeds, so that a reader of some runs skips the rest. The same task
computes each run's metrics with `summarise`, as the task that simulated it did. Rows go from file to file within the
task; neither Spark's JVM nor the Spark driver sees them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from endive.errors import ResultError
from endive.files import write_durably
from endive.pipeline.directory import SweepDirectory
from endive.pipeline.plan import Run
from endive.pipeline.run_rows import RUN_SCHEMA, done_row
from endive.pipeline.saved_sweep import first_line
from endive.sim.results.columns import SCHEMA, with_labels
from endive.sim.results.summary import Window, summarise

BIN_BYTES = 256 * 2**20
"""Approximate size of a file of the data set."""

REMEDY = "delete it and repeat the sweep: its run will be repeated"


@dataclass(frozen=True)
class TransactionDataSet:
    """A data set to be written: its directory, and the columns that experiments add."""

    directory: SweepDirectory
    target: Path
    parameters: pa.Schema
    values: Mapping[str, Mapping[str, Any]]
    """By experiment: the values of its parameters."""
    windows: Mapping[str, Window]
    """By experiment: the window of its metrics."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the data set."""
        return pa.schema([pa.field("experiment", pa.string()), pa.field("seed", pa.int64()), *self.parameters, *SCHEMA])

    def write(self, runs: Sequence[Run], spark: SparkSession) -> pa.Table:
        """Write the transactions of `runs`; return a row of metrics for each run.

        `ResultError` names a file that is missing, damaged or foreign.
        """
        context = spark.sparkContext
        bins = list(enumerate(self._bins(sorted(runs), context.defaultParallelism)))
        metrics: list[dict[str, Any]] = []
        for result in context.parallelize(bins, len(bins)).map(self._copy).collect() if bins else ():
            if isinstance(result, ResultError):
                raise result
            metrics += result
        return pa.Table.from_pylist(metrics, schema=RUN_SCHEMA)

    def _bins(self, runs: Sequence[Run], cores: int) -> Iterator[list[Run]]:
        """Cut the runs into bins of about `BIN_BYTES`, less if that would leave a core idle."""
        sizes = [self._size(run) for run in runs]
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

    def _size(self, run: Run) -> int:
        path = self.directory.transactions(*run)
        try:
            return path.stat().st_size
        except OSError as error:
            remedy = "repeat the sweep: its run will be repeated"
            raise ResultError(str(path), f"cannot be read ({error.strerror})", remedy) from error

    def _copy(self, numbered: tuple[int, Sequence[Run]]) -> list[dict[str, Any]] | ResultError:
        """Copy the files of a bin into one; return the runs' rows, or the error, which would lose its type on Spark."""
        number, runs = numbered
        rows: list[dict[str, Any]] = []
        try:
            write_durably(self.target / f"part-{number:05}.parquet", lambda part: self._write_part(part, runs, rows))
        except ResultError as error:
            return error
        return rows

    def _write_part(self, part: Path, runs: Sequence[Run], rows: list[dict[str, Any]]) -> None:
        with pq.ParquetWriter(part, self.schema, compression="zstd") as writer:
            for run in runs:
                transactions = read_transactions(self.directory.transactions(*run))
                rows.append(done_row(*run, summarise(transactions, self.windows[run[0]]), None))
                writer.write_table(self._with_parameters(run, transactions))

    def _with_parameters(self, run: Run, transactions: pa.Table) -> pa.Table:
        experiment, seed = run
        values = {"experiment": experiment, "seed": seed, **self.values[experiment]}
        added = [
            pa.repeat(pa.scalar(values[field.name], field.type), len(transactions))
            for field in self.schema
            if field.name in values
        ]
        return pa.table([*added, *transactions.columns], schema=self.schema)


def read_transactions(path: Path) -> pa.Table:
    """Read the transactions of one run. `ResultError` if the file is damaged or of another kind."""
    try:
        rows = pq.ParquetFile(path).read()  # not read_table, which takes directories called a=b for columns
    except (pa.ArrowException, OSError) as error:
        problem = f"cannot be read as Parquet ({first_line(error)})"
        raise ResultError(str(path), problem, REMEDY) from error
    rows = with_labels(rows)
    if not rows.schema.equals(SCHEMA):
        raise ResultError(str(path), "does not hold the transactions of a run", REMEDY)
    return rows
