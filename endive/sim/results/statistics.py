"""What a run leaves behind: one row per transaction, and counters."""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from endive.sim.results.summary import check_commits
from endive.sim.transaction import Transaction, TransactionResult, TransactionStatus

if TYPE_CHECKING:
    import pandas as pd  # loaded only where a frame is asked for: it takes half a second

STATUS_NAMES = {status: status.name.lower() for status in TransactionStatus}
FINISHED = (TransactionStatus.COMMITTED, TransactionStatus.ABORTED)

SCHEMA = pa.schema(
    [
        ("txn_id", pa.int64()),
        ("t_submit", pa.float64()),
        ("t_runtime", pa.float64()),
        ("t_commit", pa.float64()),
        ("commit_latency", pa.float64()),
        ("total_latency", pa.float64()),
        ("n_retries", pa.int64()),
        ("status", pa.string()),
        ("operation_type", pa.string()),
        ("abort_reason", pa.string()),
        ("manifest_list_reads", pa.int64()),
        ("manifest_list_writes", pa.int64()),
        ("manifest_file_reads", pa.int64()),
        ("manifest_file_writes", pa.int64()),
        ("catalog_read_ms", pa.float64()),
        ("per_attempt_io_ms", pa.float64()),
        ("conflict_io_ms", pa.float64()),
        ("catalog_commit_ms", pa.float64()),
    ]
)
"""The specification's columns. Times are in milliseconds; `t_commit` is -1 for a transaction that did not commit."""


@dataclass(frozen=True)
class RunResult:
    """What a run leaves behind, whichever engine ran it."""

    table: pa.Table
    """The specification's columns, in the order of the transactions' numbers."""
    counters: Counter[str]
    seq: int

    def check(self) -> None:
        """Check that commits equal `seq`."""
        counts = Counter({row["values"]: row["counts"] for row in self.table["status"].value_counts().to_pylist()})
        check_commits(counts["committed"], counts.total() - counts["committed"] - counts["aborted"], self.seq)


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
        """Return the rows in the order of their numbers, with exactly the specification's columns."""
        rows = sorted(self.transactions, key=lambda row: row.txn_id)
        return pa.Table.from_pylist([_row(result) for result in rows], schema=SCHEMA)

    def to_result(self) -> RunResult:
        """Return rows, counters and final `seq`."""
        return RunResult(self.to_arrow(), +self.counters, self.seq)

    def to_dataframe(self) -> "pd.DataFrame":
        """Return the rows as a pandas frame."""
        frame: pd.DataFrame = self.to_arrow().to_pandas()
        return frame

    def export_parquet(self, path: str) -> None:
        """Write the rows to a Parquet file."""
        pq.write_table(self.to_arrow(), path, compression="zstd")


def _row(result: TransactionResult) -> dict[str, Any]:
    return {
        "txn_id": result.txn_id,
        "t_submit": result.submit_time_ms,
        "t_runtime": result.runtime_ms,
        "t_commit": result.commit_time_ms,
        "commit_latency": result.commit_latency_ms,
        "total_latency": result.total_latency_ms,
        "n_retries": result.total_retries,
        "status": STATUS_NAMES[result.status],
        "operation_type": result.operation_type,
        "abort_reason": result.abort_reason,
        "manifest_list_reads": result.manifest_list_reads,
        "manifest_list_writes": result.manifest_list_writes,
        "manifest_file_reads": result.manifest_file_reads,
        "manifest_file_writes": result.manifest_file_writes,
        "catalog_read_ms": result.catalog_read_ms,
        "per_attempt_io_ms": result.per_attempt_io_ms,
        "conflict_io_ms": result.conflict_io_ms,
        "catalog_commit_ms": result.catalog_commit_ms,
    }
