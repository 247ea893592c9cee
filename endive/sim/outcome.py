"""Outcome of a transaction: its phase, its times and its requests, and which class and writer it is of."""

from dataclasses import dataclass
from enum import Enum, auto

DEFAULT_CLASS = "transaction"
"""Class of the transactions of a run that has only one."""
NO_WRITER = -1
"""Writer of a transaction of open arrivals."""


class TransactionStatus(Enum):
    """Phase of a transaction. The last two are final."""

    PENDING = auto()
    EXECUTING = auto()
    COMMITTING = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(frozen=True)
class TransactionResult:
    """Outcome of a transaction; for one still in flight, its progress so far. Times in milliseconds."""

    status: TransactionStatus
    txn_id: int
    commit_time_ms: float
    """-1 if not committed."""
    abort_time_ms: float
    """-1 if not aborted."""
    abort_reason: str | None
    total_retries: int
    commit_latency_ms: float
    total_latency_ms: float
    operation_type: str
    runtime_ms: float
    manifest_list_reads: int
    """Historical ones included."""
    manifest_list_writes: int
    manifest_file_reads: int
    manifest_file_writes: int
    catalog_read_ms: float
    per_attempt_io_ms: float
    conflict_io_ms: float
    catalog_commit_ms: float
    submit_time_ms: float
    class_name: str = DEFAULT_CLASS
    writer: int = NO_WRITER
    table: int = 0
    """The table written; of several, the first."""
