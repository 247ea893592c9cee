"""Checkpoints of a catalog: transaction functions, and the rule that keeps the files of a checkpoint from deletion.

**Guarantees.** A file that a finished checkpoint needs is not deleted while the checkpoint's row exists.

**What can race.** The store's checkpoint has the state of a moment before it is written: it lists the log, then writes
the manifest that names the checkpoint. In between, snapshots can expire, and their files be deleted by a process that
has seen no checkpoint. So a checkpoint is created in three steps: an unfinished row, the store's checkpoint, the
finished row. And a process that deletes files first removes what refers to them from the records, and then reads the
checkpoints' rows and the table's in one transaction (`holding`):

* a finished row: its files are kept;
* an unfinished row: it is deleted, in that transaction, and its creator begins again;
* no row: a checkpoint that is begun later has a state without those files.

The last step of creating checks that the unfinished row still exists. The same rule covers metadata files, dropped
tables that are purged, and a table that a restore brings back: a restore checks in its transaction that its checkpoint
still exists. A row that has expired is deleted in the same way before it is ignored.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.model.keys import CHECKPOINTS, checkpoint_key
from endive.catalog.model.transaction import StoreTransaction, TransactionalStore
from endive.catalog.operations.stored_tables import raise_format
from endive.errors import AlreadyInCatalogError, NotInCatalogError
from endive.protocol.requests import Steps

T = TypeVar("T")
TransactionFunctionOf = Callable[[StoreTransaction], Steps[T]]


def all_checkpoints(tx: StoreTransaction) -> Steps[tuple[CheckpointRecord, ...]]:
    """Return the rows of all checkpoints, unfinished and expired ones too."""
    rows = yield from tx.scan(CHECKPOINTS.encode())
    return tuple(CheckpointRecord.decoded(body) for _, body in rows)


def find_checkpoint(tx: StoreTransaction, name: str) -> Steps[CheckpointRecord | None]:
    """Return the row of a checkpoint; None if there is none."""
    body = yield from tx.get(checkpoint_key(name))
    return None if body is None else CheckpointRecord.decoded(body)


def require_checkpoint(tx: StoreTransaction, name: str, now_ms: int) -> Steps[CheckpointRecord]:
    """Return a checkpoint that can be opened."""
    found = yield from find_checkpoint(tx, name)
    if found is None or not found.is_finished:
        raise NotInCatalogError("Checkpoint", name)
    if found.is_expired(now_ms):
        raise NotInCatalogError("Checkpoint", name, "it has expired")
    return found


def begin_checkpoint(tx: StoreTransaction, record: CheckpointRecord, now_ms: int) -> Steps[None]:
    """Put the unfinished row of a checkpoint; one that is there keeps the name, unless it is unfinished or expired."""
    found = yield from find_checkpoint(tx, record.name)
    if found is not None and found.is_finished and not found.is_expired(now_ms):
        raise AlreadyInCatalogError("Checkpoint", record.name)
    yield from raise_format(tx)  # an older Endive would delete the files of checkpoints
    tx.put(checkpoint_key(record.name), record.encoded())


def finish_checkpoint(tx: StoreTransaction, record: CheckpointRecord, store_checkpoint: str) -> Steps[bool]:
    """Finish the row of a checkpoint; False if it was deleted meanwhile, or belongs to another call."""
    found = yield from find_checkpoint(tx, record.name)
    if found is None or found.id != record.id:
        return False
    tx.put(checkpoint_key(record.name), replace(record, store_checkpoint=store_checkpoint).encoded())
    return True


def delete_checkpoint(tx: StoreTransaction, name: str, checkpoint_id: str) -> Steps[bool]:
    """Delete the row of a checkpoint; False if it does not exist, or another has its name now."""
    found = yield from find_checkpoint(tx, name)
    if found is None or found.id != checkpoint_id:
        return False
    tx.delete(checkpoint_key(name))
    return True


Looked = tuple[T, tuple[CheckpointRecord, ...]]
"""The result of a function, and checkpoints."""


def holding(store: TransactionalStore, function: TransactionFunctionOf[T], now_ms: int) -> Looked[T]:
    """Run a function that only reads, and return its result with the checkpoints that hold files at that moment.

    To be called by a process that deletes files, after the records no longer refer to them.
    """
    result, found = store.read(lambda tx: look(tx, function))
    if all(holds(one, now_ms) for one in found):
        return result, found
    return store.transact(lambda tx: look_and_abandon(tx, function, now_ms))


def look(tx: StoreTransaction, function: TransactionFunctionOf[T]) -> Steps[Looked[T]]:
    """Return the result of a function and all checkpoints, of one state."""
    found = yield from all_checkpoints(tx)
    result = yield from function(tx)
    return result, found


def look_and_abandon(tx: StoreTransaction, function: TransactionFunctionOf[T], now_ms: int) -> Steps[Looked[T]]:
    """Delete the rows of unfinished and expired checkpoints; return the others with the result of a function."""
    result, found = yield from look(tx, function)
    for one in found:
        if not holds(one, now_ms):
            tx.delete(checkpoint_key(one.name))
    return result, tuple(one for one in found if holds(one, now_ms))


def holds(record: CheckpointRecord, now_ms: int) -> bool:
    """Whether a checkpoint keeps its files."""
    return record.is_finished and not record.is_expired(now_ms)


def nothing(_tx: StoreTransaction) -> Steps[None]:
    """Read nothing, for `holding` alone."""
    yield from ()
