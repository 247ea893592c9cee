"""PyIceberg's tables, with transactions that do not copy the whole table, and say what they were decided on.

A transaction of PyIceberg works its metadata out anew whenever it is asked for it, a dozen times in an append, and
copies all of it in depth each time: every snapshot that the table ever had. Here it is worked out by the same updates
without the copies (`endive.catalog.commit.updates`).

**An overwrite that found nothing to delete** commits an append, and nothing else: what it looked for is not in the
commit. If rows that it should have deleted came in between, the catalog would put that append on top of them. So the
transaction says that its branch must not have moved (`AssertUnmoved`). Then the commit fails, and PyIceberg, which
knows the filter, looks again. Everything else is PyIceberg's.
"""

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId, TableRequirement
from pyiceberg.table.update.snapshot import _FastAppendFiles

from endive.catalog.commit.rebase import AssertUnmoved
from endive.catalog.commit.updates import updated
from endive.drivers.blocking import unix_ms


class EndiveTransaction(Transaction):
    """A transaction whose metadata shares with the table what it does not change."""

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the updates of this transaction."""
        return updated(self._table.metadata, self._updates, "", unix_ms()) if self._updates else self._table.metadata

    def commit_transaction(self) -> Table:
        self._requirements = requirements_of(self)
        return super().commit_transaction()

    def _rebuild_snapshot_updates(self) -> None:
        super()._rebuild_snapshot_updates()
        self._requirements = requirements_of(self)


def requirements_of(transaction: Transaction) -> tuple[TableRequirement, ...]:
    """Return what a transaction requires: that its branch has not moved, if it does anything but append to it."""
    if all(isinstance(one, _FastAppendFiles) for one in transaction._snapshot_producers):
        return transaction._requirements
    return tuple(
        AssertUnmoved(ref=one.ref, snapshot_id=one.snapshot_id) if isinstance(one, AssertRefSnapshotId) else one
        for one in transaction._requirements
    )


class EndiveTable(Table):
    """A table of the catalog."""

    def transaction(self) -> Transaction:
        return EndiveTransaction(self)
