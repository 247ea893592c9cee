"""PyIceberg's tables, with transactions that do not copy the whole table again and again.

A transaction of PyIceberg works its metadata out anew whenever it is asked for it, a dozen times in an append, and
copies all of it in depth each time: every snapshot that the table ever had. Here it is worked out by the same updates
without the copies (`endive.catalog.updates`). Everything else is PyIceberg's.
"""

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata

from endive.catalog.updates import updated
from endive.drivers.blocking import unix_ms


class EndiveTransaction(Transaction):
    """A transaction whose metadata shares with the table what it does not change."""

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with the updates of this transaction."""
        return updated(self._table.metadata, self._updates, "", unix_ms()) if self._updates else self._table.metadata


class EndiveTable(Table):
    """A table of the catalog."""

    def transaction(self) -> Transaction:
        return EndiveTransaction(self)
