"""Processes for the explorer: a checkpoint of the catalog beside expiry, purge, restore and the checkpoint's deletion.

One row, `FILE`, stands for a table's reference to a file. The expirer deletes the row, looks at the checkpoints as all
that delete files do, and records that the file is gone. In every state, a finished checkpoint must not have the row of
a file that is gone; nor may a table exist whose files were purged.
"""

from collections.abc import Hashable, Mapping
from functools import partial
from typing import Any

from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.model.keys import CHECKPOINTS, checkpoint_key, dropped_key, table_key
from endive.catalog.operations import checkpoint_rows
from endive.catalog.operations.checkpoint_rows import begin_checkpoint, delete_checkpoint, finish_checkpoint, nothing
from endive.catalog.operations.dropped_tables import find_dropped
from endive.catalog.operations.restore import CatalogState, NotCleared, TableState, apply_restore
from endive.catalog.operations.table_rows import TableView, drop_table
from endive.errors import NotInCatalogError, OutcomeUnknownError
from endive.kv.log.committing import commit_batch
from endive.kv.log.state import StoreState, refreshed
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction, run_functions
from endive.kv.views import create_checkpoint, view_at
from endive.protocol.requests import Steps, ask
from endive.testing.explorer import Invariant, RecordEvent
from tests.races.catalogs import LOOKS, TABLE, TABLE_ID, catalog_at_rest, first_record, rows_at_rest
from tests.races.processes import driver_of
from tests.races.scenarios import at_rest

FILE = b"__files/one"
NAME = "point"
GONE, PURGED = "gone", "purged"


def done(state: StoreState, work: Any) -> Steps[tuple[StoreState, Any]]:
    """Run a transaction function to its end; raise its error."""
    ended = yield from commit_batch(state, (work,), NoCache(), LOOKS)
    if ended.outcomes[0].error is not None:
        raise ended.outcomes[0].error
    return ended.state, ended.outcomes[0].value


def looked(state: StoreState, work: Any) -> Steps[tuple[StoreState, Any]]:
    """Run a function that only reads, on a fresh state."""
    state = yield from refreshed(state)
    seen, _ = yield from run_functions((work,), state.manifest.value.runs, state.recent, NoCache())
    return state, seen[0].value


# Transaction functions.


def put_file(tx: Transaction) -> Steps[None]:
    yield from ()
    tx.put(FILE, b"")


def remove_file(tx: Transaction) -> Steps[None]:
    yield from ()
    tx.delete(FILE)


def begin(tx: Transaction) -> Steps[None]:
    yield from begin_checkpoint(tx, CheckpointRecord(NAME, "id", 1), 1)


def finish(pinned: str, tx: Transaction) -> Steps[bool]:
    finished = yield from finish_checkpoint(tx, CheckpointRecord(NAME, "id", 1), pinned)
    return finished


def unpin(tx: Transaction) -> Steps[bool]:
    deleted = yield from delete_checkpoint(tx, NAME, "id")
    return deleted


def look_at_checkpoints(tx: Transaction) -> Steps[tuple[int, int]]:
    """How many checkpoints there are, and how many of them are unfinished."""
    _, found = yield from checkpoint_rows.look(tx, nothing)
    return len(found), sum(not checkpoint_rows.holds(one, 1) for one in found)


def abandon(tx: Transaction) -> Steps[int]:
    _, held = yield from checkpoint_rows.look_and_abandon(tx, nothing, 1)
    return len(held)


def look_at_dropped(tx: Transaction) -> Steps[bool]:
    """Whether the table is to be purged, and no checkpoint is there to prevent it; of one state."""
    mark, held = yield from checkpoint_rows.look(tx, lambda tx: find_dropped(tx, TABLE_ID))
    return mark is not None and not held


def restored(tx: Transaction) -> Steps[bool]:
    record = first_record()
    state = CatalogState({TABLE_ID: TableState(TableView(record, (), ()))}, {})
    point = CheckpointRecord(NAME, "id", 1, store_checkpoint="pinned")
    report = yield from apply_restore(tx, state, point, 100)
    return not isinstance(report, NotCleared)


# Processes.


def checkpointing(state: StoreState) -> Steps[str]:
    """Create a checkpoint in three steps."""
    try:
        state, _ = yield from done(state, begin)
        pinned = yield from create_checkpoint(0, NAME)
        _, finished = yield from done(state, partial(finish, pinned.id))
    except OutcomeUnknownError:
        return "unknown"
    return "finished" if finished else "abandoned"


def expiring(state: StoreState) -> Steps[str]:
    """Remove the reference to a file; delete the file unless a checkpoint is there."""
    try:
        state, _ = yield from done(state, remove_file)
        state, (found, unfinished) = yield from looked(state, look_at_checkpoints)
        if unfinished:
            _, found = yield from done(state, abandon)
    except OutcomeUnknownError:
        return "unknown"
    if found:
        return "kept"
    yield from ask(RecordEvent(GONE))
    return "deleted"


def purging(state: StoreState) -> Steps[str]:
    """Delete the files of a dropped table, unless a checkpoint has it."""
    _, may_purge = yield from looked(state, look_at_dropped)
    if not may_purge:
        return "kept"
    yield from ask(RecordEvent(PURGED))
    return "purged"


def restoring(state: StoreState) -> Steps[str]:
    try:
        yield from done(state, restored)
    except NotInCatalogError:
        return "the checkpoint is gone"
    except OutcomeUnknownError:
        return "unknown"
    return "restored"


def deleting(state: StoreState) -> Steps[str]:
    """Delete the checkpoint."""
    try:
        yield from done(state, unpin)
    except OutcomeUnknownError:
        return "unknown"
    return "deleted"


# Catalogs at rest.


def _at_rest(*works: Any) -> tuple[dict[str, bytes], StoreState]:
    objects, state = catalog_at_rest()
    driver = driver_of()
    for path, body in objects.items():
        driver.objects.put_if_absent(path, body)
    for work in works:
        state = driver.run(commit_batch(state, (work,), NoCache())).state
    return {info.path: driver.objects.get(info.path) or b"" for info in driver.objects.list("")}, state


def with_a_file() -> tuple[dict[str, bytes], StoreState]:
    """A catalog whose records refer to a file."""
    return _at_rest(put_file)


def dropped_with_a_checkpoint() -> tuple[dict[str, bytes], StoreState]:
    """A catalog whose table is to be purged, which a checkpoint prevents."""

    def drop(tx: Transaction) -> Steps[None]:
        tx.put(checkpoint_key(NAME), CheckpointRecord(NAME, "id", 1, store_checkpoint="pinned").encoded())
        yield from drop_table(tx, TABLE, None, purge=True)

    return _at_rest(drop)


# Invariants.


def _files_at(pinned: str) -> Steps[bool]:
    view = yield from view_at(pinned)
    return _has_file(view.entries)


def _has_file(entries: Any) -> bool:
    newest: bytes | None = None
    for entry in entries:
        for key, value in zip(entry.rows.keys, entry.rows.values, strict=True):
            newest = value if key == FILE else newest
    return newest is not None


def what_a_checkpoint_has_is_there(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    if GONE not in events:
        return None
    rows = rows_at_rest(bodies)
    for key, body in rows.items():
        record = CheckpointRecord.decoded(body) if key.startswith(CHECKPOINTS.encode()) else None
        if record is not None and record.is_finished and at_rest(bodies, _files_at(record.store_checkpoint)):
            return "a finished checkpoint has a file that was deleted"
    return None


def no_table_lacks_its_files(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    rows = rows_at_rest(bodies)
    if table_key(TABLE) in rows and dropped_key(TABLE_ID) in rows:
        return "a table that is there is marked as dropped"
    return "a table is back whose files were purged" if PURGED in events and table_key(TABLE) in rows else None


INVARIANTS: dict[str, Invariant] = {
    "checkpoint": what_a_checkpoint_has_is_there,
    "purge": no_table_lacks_its_files,
}
