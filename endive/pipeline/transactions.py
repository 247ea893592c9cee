"""The transactions of a sweep as one Parquet data set, with experiment, seed and parameters as columns.

Thousands of files, one per run, become few: a Spark task copies the files of a bin of runs into one, a row group or
more for each run, in the order of experiments and seeds, so that a reader who asks for some of them skips the rest.
Rows go from file to file within the task; neither Spark's JVM nor the Spark driver sees them.
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
from endive.pipeline.results import first_line
from endive.sim.results.statistics import SCHEMA

BIN_BYTES = 256 * 2**20
"""About the size of a file of the data set."""

REMEDY = "delete it and start the sweep again: its run will be repeated"


@dataclass(frozen=True)
class DataSet:
    """A data set to be written: which runs, and the columns that their experiments add."""

    directory: SweepDirectory
    target: Path
    parameters: pa.Schema
    values: Mapping[str, Mapping[str, Any]]
    """By experiment: the values of its parameters."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the data set."""
        return pa.schema([pa.field("experiment", pa.string()), pa.field("seed", pa.int64()), *self.parameters, *SCHEMA])

    def write(self, runs: Sequence[Run], spark: SparkSession) -> None:
        """Write the transactions of `runs`. `ResultError` names a file that is missing, damaged or foreign."""
        context = spark.sparkContext
        bins = list(enumerate(self._bins(sorted(runs), context.defaultParallelism)))
        obstacles = context.parallelize(bins, len(bins) or 1).map(self._copy).collect() if bins else []
        for obstacle in obstacles:
            if obstacle is not None:
                raise obstacle

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
            remedy = "start the sweep again: its run will be repeated"
            raise ResultError(str(path), f"cannot be read ({error.strerror})", remedy) from error

    def _copy(self, numbered: tuple[int, Sequence[Run]]) -> ResultError | None:
        """Copy the files of a bin into one; return what is in the way, since an error loses its type on Spark."""
        number, runs = numbered
        try:
            write_durably(self.target / f"part-{number:05}.parquet", lambda part: self._write_part(part, runs))
        except ResultError as error:
            return error
        return None

    def _write_part(self, part: Path, runs: Sequence[Run]) -> None:
        with pq.ParquetWriter(part, self.schema, compression="zstd") as writer:
            for run in runs:
                writer.write_table(self._table(run))

    def _table(self, run: Run) -> pa.Table:
        experiment, seed = run
        rows = read_transactions(self.directory.transactions(*run))
        values = {"experiment": experiment, "seed": seed, **self.values[experiment]}
        added = [
            pa.repeat(pa.scalar(values[field.name], field.type), len(rows))
            for field in self.schema
            if field.name in values
        ]
        return pa.table([*added, *rows.columns], schema=self.schema)


def read_transactions(path: Path) -> pa.Table:
    """Read the transactions of one run. `ResultError` if the file is damaged or not one of ours."""
    try:
        rows = pq.ParquetFile(path).read()  # not read_table, which takes directories called a=b for columns
    except (pa.ArrowException, OSError) as error:
        problem = f"cannot be read as Parquet ({first_line(error)})"
        raise ResultError(str(path), problem, REMEDY) from error
    if not rows.schema.equals(SCHEMA):
        raise ResultError(str(path), "does not hold the transactions of a run", REMEDY)
    return rows
