"""A sweep that lives in tables alone: tasks write data files, and the Spark driver commits them by batch.

A task's files are named by the write, the bin and the attempt, so attempts do not share files; the driver takes the
files of one attempt at each bin. A commit adds all bins that have finished since the last one: first their
transactions, then the rows of their runs, so a reader who sees a run also sees its transactions. Runs whose bin was
not committed count as not done; their files are in no snapshot. `endive sweep --clean` deletes them: their names hold a
digest of the sweep's name. `endive catalog orphans` finds them, too.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from endive.drivers.directory import remedy_for
from endive.errors import ConfigurationError, EndiveError, ResultError
from endive.pipeline.directory import first_line
from endive.pipeline.plan import Run
from endive.sim.results.columns import SCHEMA as TRANSACTION_SCHEMA
from endive.spark.source.committing import Written
from endive.spark.source.writing import WriteJob, write_rows

TEXT = pa.string()
OF_SWEEP = pa.field("sweep", TEXT, nullable=False)
OF_RUN = (pa.field("experiment", TEXT, nullable=False), pa.field("seed", pa.int64(), nullable=False))

WRITTEN = ("transactions", "runs")
"""Tables that tasks write data files for, in the order of their commits."""

Files = Mapping[str, Written]
"""By table: the files of one bin."""


@contextmanager
def explained(place: str, what: str) -> Iterator[None]:
    """Turn an error of a bucket or a catalog into one message with a remedy; `what` cannot be written."""
    try:
        yield
    except (ResultError, ConfigurationError):
        raise
    except (OSError, EndiveError, CommitFailedException, CommitStateUnknownException) as error:
        # A file that is about to be written cannot be missing: the bucket is.
        missing = " NoSuchBucket" if isinstance(error, FileNotFoundError) else ""
        problem = f"{what} cannot be written ({first_line(error)})"
        raise ResultError(place, problem, remedy_for(f"{error}{missing}")) from error


@dataclass(frozen=True)
class TableFiles:
    """Where the tasks of a sweep write its rows: part of the job that is broadcast to them."""

    sweep: str
    jobs: Mapping[str, WriteJob]
    """By table: `runs`, and `transactions` if they are kept."""

    def write(self, number: int, attempt: int, tables: Mapping[str, Sequence[pa.Table]]) -> Files:
        """Write the rows of a bin, table by table; return the files."""
        return {name: self._written(self.jobs[name], number, attempt, rows) for name, rows in tables.items() if rows}

    def _written(self, job: WriteJob, number: int, attempt: int, tables: Sequence[pa.Table]) -> Written:
        batches = (batch for rows in tables for batch in of_sweep(rows, self.sweep).to_batches())
        files = write_rows(job, batches, f"{number:05}-{attempt}")
        return Written(number, files, str(job.metadata.table_uuid), job.metadata.default_spec_id, job.write_id)


def write_prefix(sweep: str) -> str:
    """Return the beginning of every write id of a sweep, by which its files are found among those of other sweeps."""
    return hashlib.sha256(sweep.encode()).hexdigest()[:10]


def of_sweep(rows: pa.Table, sweep: str) -> pa.Table:
    """Return rows with the name of their sweep."""
    return rows.add_column(0, OF_SWEEP, pa.array([sweep] * len(rows), TEXT))


def of_run(transactions: pa.Table, run: Run) -> pa.Table:
    """Return transactions with the run that they belong to."""
    added = zip(OF_RUN, run, strict=True)
    columns = [pa.repeat(pa.scalar(value, one.type), len(transactions)) for one, value in added]
    return pa.table([*columns, *transactions.columns], schema=pa.schema([*OF_RUN, *TRANSACTION_SCHEMA]))
