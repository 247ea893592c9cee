"""PyIceberg's tables, with transactions that do not copy the whole table, and that require unmoved branches.

A transaction of PyIceberg computes its metadata whenever it is asked for it, a dozen times in an append, and makes a
deep copy each time, with every snapshot that the table ever had. Here the same updates are applied without the copies
(`endive.catalog.commit.updates`).

**An overwrite that found nothing to delete** commits an append, and nothing else: its filter is not in the commit. If
rows that it should delete were committed in between, the catalog would rebase that append onto them. So the transaction
requires that its branch has not moved (`AssertUnmoved`). Then the commit fails, and PyIceberg, which knows the filter,
reads the table again. Everything else is PyIceberg's.
"""

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertRefSnapshotId, TableRequirement

from endive.catalog import iceberg
from endive.catalog.catalog import KVCatalog
from endive.catalog.commit.decision import AssertUnmoved
from endive.catalog.commit.updates import updated
from endive.drivers.blocking import unix_ms
from endive.errors import AtCheckpointError


class EndiveTransaction(iceberg.TransactionWithHooks):
    """A transaction whose metadata shares with the table the parts that it does not change."""

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the updates of this transaction."""
        base, updates = iceberg.base_table_of(self).metadata, iceberg.updates_of(self)
        return updated(base, updates, "", unix_ms()) if updates else base

    def requirements_to_send(self) -> tuple[TableRequirement, ...]:
        return requirements_of(self)


def requirements_of(transaction: Transaction) -> tuple[TableRequirement, ...]:
    """Return the requirements of a transaction: of an unmoved branch, if it does anything but append to it."""
    requirements = iceberg.requirements_of(transaction)
    if iceberg.only_fast_appends(transaction):
        return requirements
    return tuple(
        AssertUnmoved(ref=one.ref, snapshot_id=one.snapshot_id) if isinstance(one, AssertRefSnapshotId) else one
        for one in requirements
    )


class EndiveTable(Table):
    """A table of the catalog."""

    def transaction(self) -> Transaction:
        kv: KVCatalog | None = getattr(self.catalog, "kv", None)
        if kv is not None and kv.at:  # before any file is written
            raise AtCheckpointError(kv.at)
        return EndiveTransaction(self)

    def refresh(self) -> Table:
        """Load the newest state of the table; raise if another table has its name now."""
        fresh = self.catalog.load_table(self.name())
        if fresh.metadata.table_uuid != self.metadata.table_uuid:
            problem = "the table UUID does not match, since another table has this name now"
            raise NoSuchTableError(f"Table does not exist: {'.'.join(self.name())}; {problem}")
        self.metadata, self.metadata_location = fresh.metadata, fresh.metadata_location
        self.io, self.config = fresh.io, fresh.config
        return self
