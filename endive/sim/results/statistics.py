"""Results of a run: one row per transaction, and counters."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from endive.sim.outcome import DEFAULT_CLASS, TransactionResult, TransactionStatus
from endive.sim.results.columns import SCHEMA, STATUSES, Columns, to_columns, to_table
from endive.sim.results.summary import Summary, Window, check_commits, summarise
from endive.sim.transaction import Transaction

if TYPE_CHECKING:
    import pandas as pd  # loaded only where a frame is asked for: it takes half a second

FINISHED = (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)

ATTRIBUTES = {
    "t_submit": "submit_time_ms",
    "t_runtime": "runtime_ms",
    "t_commit": "commit_time_ms",
    "commit_latency": "commit_latency_ms",
    "total_latency": "total_latency_ms",
    "n_retries": "total_retries",
    "class": "class_name",
}
"""Columns that `TransactionResult` has under another name."""


@dataclass(frozen=True, eq=False)
class RunResult:
    """Results of a run, of either engine."""

    rows: pa.Table | Columns
    """As the engine has them: the compiled one has integer columns, the reference engine a table."""
    counters: Counter[str]
    seq: int
    classes: tuple[str, ...] = (DEFAULT_CLASS,)
    """The classes of transactions, in the order of the configuration."""

    @cached_property
    def table(self) -> pa.Table:
        """One row for each transaction, in the order of their numbers; see `columns.SCHEMA`."""
        return self.rows if isinstance(self.rows, pa.Table) else to_table(self.rows, self.classes)

    @cached_property
    def columns(self) -> Columns:
        """The same rows as integers: times in ticks, words as codes."""
        return to_columns(self.rows, self.classes) if isinstance(self.rows, pa.Table) else self.rows

    def summary(self, window: Window) -> Summary:
        """Return the metrics of the run."""
        return summarise(self.columns, window, self.classes)

    def check(self) -> None:
        """Check that commits equal `seq`."""
        counts = Counter(self.columns["status"].tolist())
        committed, aborted = (counts[STATUSES.index(status)] for status in ("committed", "aborted"))
        check_commits(committed, counts.total() - committed - aborted, self.seq)


@dataclass
class Statistics:
    """Rows and counters of one run. Transactions still in flight at its end are rows too, with their status."""

    transactions: list[TransactionResult] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    """Requests by kind, outcomes of appends, conflicts by kind; transactions in flight included."""
    seq: int = 0
    """The catalog's final sequence number."""

    def record_transaction(self, result: TransactionResult) -> None:
        """Add the row of a transaction."""
        self.transactions.append(result)

    def record_work(self, txn: Transaction) -> None:
        """Add what a transaction has requested and met, finished or not."""
        self.counters.update(txn.requests)
        self.counters.update(txn.events)

    def _count(self, status: TransactionStatus) -> int:
        return sum(1 for row in self.transactions if row.status is status)

    @property
    def committed(self) -> int:
        """Transactions that committed."""
        return self._count(TransactionStatus.COMMITTED)

    @property
    def aborted(self) -> int:
        """Transactions that gave up."""
        return self._count(TransactionStatus.ABORTED)

    @property
    def unfinished(self) -> int:
        """Transactions in flight when the run ended."""
        return sum(1 for row in self.transactions if row.status not in FINISHED)

    @property
    def total_retries(self) -> int:
        """Retries of all transactions."""
        return sum(row.total_retries for row in self.transactions)

    @property
    def validation_exceptions(self) -> int:
        """Transactions that gave up because of a real conflict."""
        return sum(1 for row in self.transactions if row.abort_reason == "validation_exception")

    @property
    def manifest_list_reads(self) -> int:
        """Manifest lists read, historical ones included."""
        return sum(row.manifest_list_reads for row in self.transactions)

    @property
    def manifest_list_writes(self) -> int:
        """Manifest lists written."""
        return sum(row.manifest_list_writes for row in self.transactions)

    @property
    def manifest_file_reads(self) -> int:
        """Manifest files read."""
        return sum(row.manifest_file_reads for row in self.transactions)

    @property
    def manifest_file_writes(self) -> int:
        """Manifest files written."""
        return sum(row.manifest_file_writes for row in self.transactions)

    def to_arrow(self) -> pa.Table:
        """Return one row for each transaction, in the order of their numbers; see `columns.SCHEMA`."""
        rows = sorted(self.transactions, key=lambda row: row.txn_id)
        return pa.Table.from_pylist([_row(result) for result in rows], schema=SCHEMA)

    def to_result(self, classes: tuple[str, ...] = (DEFAULT_CLASS,)) -> RunResult:
        """Return rows, counters and final `seq`."""
        return RunResult(self.to_arrow(), +self.counters, self.seq, classes)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return the rows as a pandas frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def export_parquet(self, path: str) -> None:
        """Write the rows to a Parquet file."""
        pq.write_table(self.to_arrow(), path, compression="zstd")


def _row(result: TransactionResult) -> dict[str, Any]:
    row = {name: getattr(result, ATTRIBUTES.get(name, name)) for name in SCHEMA.names}
    return row | {"status": result.status.name.lower()}
