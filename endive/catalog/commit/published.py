"""The transaction that puts a metadata file into a table's record: as a function, and as a procedure.

As a procedure it shares a WAL entry with commits of other processes to the same table: it depends on its argument and
on the record as it is then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar
from uuid import UUID

from pydantic_core import from_json, to_json
from pyiceberg.table.snapshots import MetadataLogEntry

from endive.catalog.model.names import Identifier
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.stored_tables import put_record
from endive.catalog.operations.table_rows import find_table
from endive.kv.procedures import Call, PortableFunction, procedure
from endive.kv.transaction import Outcome, Transaction
from endive.protocol.requests import Steps

NAME, VERSION = "endive.catalog.published", 1
NOTED, NOT_NEEDED = b"noted", b"not needed"


@dataclass(frozen=True)
class NotePublished(PortableFunction):
    """Puts a metadata file into a table's record. Returns False if the record has one as new, or is another table's."""

    identifier: Identifier
    uuid: UUID
    version: int
    """What the file shows. A version that the record has not reached is of the table before it was registered again."""
    location: str
    log: Sequence[MetadataLogEntry]
    """The metadata log in the file."""
    updated_unix_ms: int
    """When the table was updated last, at that version."""

    def __call__(self, tx: StoreTransaction) -> Steps[bool]:
        """Put the file, if it is newer than the record's."""
        record = yield from find_table(tx, self.identifier)
        if record is None or record.uuid != self.uuid or not record.metadata_version < self.version <= record.version:
            return False
        new = replace(
            record,
            metadata=record.metadata.model_copy(update={"metadata_log": list(self.log)}),
            metadata_location=self.location,
            metadata_version=self.version,
            metadata_unix_ms=self.updated_unix_ms,
            is_written_beside=False,
        )
        yield from put_record(tx, new)
        return True

    def call(self) -> Call | None:
        """Return the call of the procedure."""
        fields = {
            "identifier": self.identifier,
            "uuid": self.uuid,
            "version": self.version,
            "location": self.location,
            "log": [[entry.metadata_file, entry.timestamp_ms] for entry in self.log],
            "updated_unix_ms": self.updated_unix_ms,
        }
        return Call(NAME, VERSION, to_json(fields))

    def outcome(self, result: Outcome) -> Outcome:
        """Return the result of the call as that of the function."""
        return result if result.error is not None else Outcome(result.value == NOTED)


class NotePublishedLater(NotePublished):
    """The same, by a thread in the background: it waits for a commit of its process, and shares its WAL entry."""

    is_urgent: ClassVar[bool] = False


@procedure(NAME, VERSION)
def note_portable(tx: Transaction, argument: bytes) -> Steps[bytes]:
    """Put a metadata file into a table's record; the argument is that of `NotePublished.call`."""
    fields = from_json(argument)
    log = [MetadataLogEntry(metadata_file=file, timestamp_ms=unix_ms) for file, unix_ms in fields["log"]]
    function = NotePublished(
        tuple(fields["identifier"]),
        UUID(fields["uuid"]),
        fields["version"],
        fields["location"],
        log,
        fields["updated_unix_ms"],
    )
    is_noted = yield from function(tx)
    return NOTED if is_noted else NOT_NEEDED
