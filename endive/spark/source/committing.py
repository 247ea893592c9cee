"""Commits a job's files exactly once, and deletes only files that were certainly not committed.

Cases and guarantees:

- *Tasks are tried again, or run twice.* Spark takes one message for each of its partitions; the files of other
  attempts are in no message and never become visible. A partition that occurs twice counts once.
- *The same commit is repeated*: a stream's batch after a crash between the commit and Spark's record of it, or a job
  that is repeated with its `commit-id`. The id is in the snapshot's summary. Every attempt searches for it in the same
  metadata that the attempt is built on; the catalog refuses an attempt if the branch has moved since. So of two
  concurrent commits with the same id, the second finds the first. The files of the repetition are deleted.
- *Another job commits first.* An append is rebuilt on top of it. An overwrite replaces the files that are current when
  it commits, as if it had begun after the other job; `validate-from-snapshot-id` refuses that.
- *The outcome is unknown*: the catalog's answer is lost. The table is loaded again. If it has the id, the commit has
  happened. If not, it may still happen, so nothing is deleted and the error says so.
- *Spark calls abort* after a failed task, and after an error in commit, without a distinction. After a failed task its
  message is missing, and no commit was tried: the other tasks' files are deleted. If all messages are present, a commit
  may have been tried; it has deleted its files itself if it certainly failed, and abort deletes nothing.
"""

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, ValidationException
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql.datasource import WriterCommitMessage

from endive.catalog.settings import COMMIT_ID, REBASE, WRITE_ID
from endive.errors import AttemptsExhaustedError, OutcomeUnknownError
from endive.spark.source.options import Place, WriteOptions, open_catalog
from endive.spark.source.replacing import stage
from endive.spark.source.writing import delete_files

ATTEMPTS_MAX = 50
"""Lost races before a job gives up. The files are written: giving up early would cost far more than another attempt."""

WAIT_MAX_S = 2.0
CHECKS = 5
"""How often the table is loaded after an unknown outcome."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """A task's files, and the table and job for which they were written."""

    partition: int
    """Spark's partition, of which there may be several attempts."""
    files: tuple[DataFile, ...]
    table_uuid: str
    spec_id: int
    write_id: str
    query_id: str | None = None
    """The stream that the task belongs to. None: the task belongs to a batch job."""


def files_of(messages: Iterable[Written]) -> tuple[DataFile, ...]:
    """Return the files of one attempt at each Spark partition."""
    taken: dict[int, Written] = {}
    for message in messages:
        taken.setdefault(message.partition, message)
    return tuple(file for message in taken.values() for file in message.files)


def commit(place: Place, options: WriteOptions, messages: Sequence[Written], commit_id: str) -> None:
    """Make the files of `messages` visible in one commit, at most once."""
    if not messages:
        return
    with open_catalog(place.properties) as catalog:
        files = files_of(messages)
        job = _Commit(catalog, place, options, files, messages[0], commit_id)
        try:
            job.run()
        except OutcomeUnknownError:
            raise
        except Exception:
            # Nothing was committed: the error preceded the attempt, or the catalog refused it.
            job.drop_files()
            raise


def abandon(place: Place, messages: Sequence[Written | None]) -> None:
    """Delete the files of a job whose tasks have failed. If no task has, a commit may have happened: delete nothing."""
    if all(message is not None for message in messages):
        return
    paths = [file.file_path for message in messages if message for file in message.files]
    if paths:
        with place.table() as table:
            delete_files(table.io, paths)


@dataclass
class _Commit:
    """One commit, attempt by attempt."""

    catalog: Catalog
    place: Place
    options: WriteOptions
    files: Sequence[DataFile]
    written: Written
    commit_id: str
    io: FileIO | None = None

    def run(self) -> None:
        """Try until the commit exists, by this run or by an earlier one, or is impossible."""
        for attempt in range(ATTEMPTS_MAX):
            table = self._load()
            if not found(table, self.commit_id):
                summary = {COMMIT_ID: self.commit_id, WRITE_ID: self.written.write_id}
                if self.options.validate_from is not None:
                    summary[REBASE] = "false"  # otherwise the catalog would rebase the append
                transaction = stage(table, self.options, self.files, self.written.spec_id, summary)
                if transaction is None:
                    return
                committed = self._swap(transaction)
                if committed is None:
                    time.sleep(random.uniform(0.5, 1.0) * min(0.05 * 2**attempt, WAIT_MAX_S))
                    continue
                table = committed  # not loaded again: an error would look like one before the commit
            self._drop_if_another(found(table, self.commit_id))
            return
        raise AttemptsExhaustedError(f"{self.place}: commit {self.commit_id}", ATTEMPTS_MAX)

    def drop_files(self) -> None:
        """Delete this run's files, which no snapshot names."""
        if self.io is not None:
            delete_files(self.io, (file.file_path for file in self.files))

    def _load(self) -> Table:
        table = self.catalog.load_table(self.place.identifier)
        self.io = table.io
        if str(table.metadata.table_uuid) != self.written.table_uuid:
            raise NoSuchTableError(f"{self.place} was dropped and created again during the write; repeat the job")
        return table

    def _swap(self, transaction: Transaction) -> Table | None:
        """Commit; return the new table, or None if another commit won. `OutcomeUnknownError`: the answer was lost."""
        try:
            return transaction.commit_transaction()
        except CommitFailedException:
            return None
        except (ValidationException, NoSuchTableError):
            raise
        except Exception as error:
            for check in range(CHECKS):
                time.sleep(0.1 * 2**check)
                committed = self._committed()
                if committed is not None:
                    return committed
            raise OutcomeUnknownError(f"{self.place}: commit {self.commit_id}") from error

    def _committed(self) -> Table | None:
        try:
            table = self.catalog.load_table(self.place.identifier)
        except Exception:  # noqa: BLE001 - the catalog does not answer; the caller asks again
            return None
        return table if found(table, self.commit_id) else None

    def _drop_if_another(self, committed: Snapshot | None) -> None:
        """Delete the files of a repeat: the snapshot that has the commit's id was written by another run."""
        properties = committed.summary.additional_properties if committed and committed.summary else None
        if properties is not None and properties.get(WRITE_ID) != self.written.write_id:
            self.drop_files()


def found(table: Table, commit_id: str) -> Snapshot | None:
    """Return the snapshot that this commit made, or None."""
    for snapshot in reversed(table.metadata.snapshots):
        if snapshot.summary is not None and snapshot.summary.additional_properties.get(COMMIT_ID) == commit_id:
            return snapshot
    return None
