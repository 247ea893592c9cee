"""Processes for the explorer that use one catalog, and what must hold of it in every state.

The catalog's own transaction functions run on the store's own protocol. Two processes commit: one as tables do that
write their metadata file in the background (the change is applied in the transaction), one as all others do (it is
prepared on a version that may be old by then). Meanwhile one process renames the table, and one drops it.

What a process keeps between two requests has to be plain, so it keeps records as bytes.
"""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.types import LongType, NestedField

from endive.catalog.commit.apply import GroupMember, Stale, apply_commit, apply_group
from endive.catalog.commit.change import TableChange
from endive.catalog.commit.prepared import PreparedCommit, advanced, compute_rows
from endive.catalog.model.catalog_records import SnapshotRecord, TableRecord
from endive.catalog.model.keys import dropped_key, history_of, snapshots_of, table_key
from endive.catalog.model.names import Identifier
from endive.catalog.operations import dropped_tables as dropped_module
from endive.catalog.operations.dropped_tables import rows_of
from endive.catalog.operations.namespaces import create_namespace
from endive.catalog.operations.table_rows import TableView, create_table, drop_table, rename_table
from endive.errors import AlreadyInCatalogError, EndiveError, NotInCatalogError, OutcomeUnknownError
from endive.kv.log.committing import commit_batch
from endive.kv.log.epochs import open_shared
from endive.kv.log.state import StoreState, refreshed
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction, run_functions
from endive.protocol.requests import Steps, ask
from endive.testing.explorer import Invariant, RecordEvent
from tests.races.processes import driver_of
from tests.races.scenarios import at_rest

TABLE, RENAMED = ("db", "t"), ("db", "u")
TABLE_ID = UUID(int=7)
SNAPSHOT_ID = 11
LOOKS = 2
ROUNDS = 3


def change_of(letter: str, name: Identifier) -> TableChange:
    """B: add a snapshot to a branch that must be empty. Others: set a property."""
    requirements: tuple[Any, ...] = (AssertTableUUID(uuid=TABLE_ID),)
    if letter != "b":
        return TableChange(name, requirements, (SetPropertiesUpdate(updates={letter: "1"}),))
    snapshot = Snapshot(
        snapshot_id=SNAPSHOT_ID,
        sequence_number=1,
        timestamp_ms=20,
        manifest_list="list",
        summary=Summary(Operation.APPEND),
        schema_id=0,
    )
    ref = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=SNAPSHOT_ID,
        max_ref_age_ms=None,
        max_snapshot_age_ms=None,
        min_snapshots_to_keep=None,
    )
    updates = (AddSnapshotUpdate(snapshot=snapshot), ref, SetPropertiesUpdate(updates={letter: "1"}))
    return TableChange(name, (*requirements, AssertRefSnapshotId(ref="main", snapshot_id=None)), updates)


# Transaction functions.


def follows(_properties: object) -> bool:
    """Metadata files come later, for all tables."""
    return False


def committed_inside(letter: str, tx: Transaction) -> Steps[bool]:
    answer = yield from apply_commit(tx, [PreparedCommit(change_of(letter, TABLE))], f"commit {letter}", 10, follows)
    return not isinstance(answer, Stale)


def committed_as_known(letter: str, known: bytes, tx: Transaction) -> Steps[bool]:
    """Commit what was worked out on the record `known`."""
    change = change_of(letter, TABLE)
    view = TableView(TableRecord.decoded(known), (), ())
    rows = compute_rows(change, view, 10).named(f"file of {letter}", "", 0)
    answer = yield from apply_commit(tx, [PreparedCommit(change, rows)], f"commit {letter}", 10, follows)
    return not isinstance(answer, Stale)


def committed_as_group(letters: str, known: bytes, tx: Transaction) -> Steps[bool]:
    """Commit several changes by one transaction, each computed on top of the one before, on the record `known`."""
    view = TableView(TableRecord.decoded(known), (), ())
    members = []
    for letter in letters:
        change = change_of(letter, TABLE)
        rows = compute_rows(change, view, 10)
        members.append(GroupMember(f"commit {letter}", change, rows))
        view = advanced(view, rows)
    last = members[-1].rows.named(f"file of {letters}", "", 0)
    answer = yield from apply_group(tx, TABLE, members, last)
    return isinstance(answer, tuple)


def record_of(tx: Transaction) -> Steps[bytes | None]:
    body = yield from tx.get(table_key(TABLE))
    return body


def renamed(tx: Transaction) -> Steps[bool]:
    yield from rename_table(tx, TABLE, RENAMED, None)
    return True


def dropped(name: Identifier, tx: Transaction) -> Steps[bool]:
    yield from drop_table(tx, name, None)
    return True


def registered(tx: Transaction) -> Steps[bool]:
    """Take the table over as it was at first, with the same uuid."""
    record = first_record()
    yield from create_table(tx, ((table_key(TABLE), record.encoded()),), record, False, False)
    return True


# Processes.


def clearing(state: StoreState) -> Steps[str]:
    """Clear the rows of a dropped table, as they were at one look, and then its mark."""
    state = yield from refreshed(state)
    seen, _ = yield from run_functions((dropped_rows,), state.manifest.value.runs, state.recent, NoCache())
    keys: tuple[bytes, ...] = tuple(seen[0].value)
    for work in (partial(clear_batch, keys), forget):
        ended = yield from commit_batch(state, (work,), NoCache(), LOOKS)
        if ended.outcomes[0].error is not None:
            raise ended.outcomes[0].error
        state = ended.state
    return "done"


def dropped_rows(tx: Transaction) -> Steps[list[bytes]]:
    keys = yield from rows_of(tx, TABLE_ID)
    return keys


def clear_batch(keys: tuple[bytes, ...], tx: Transaction) -> Steps[bool]:
    is_dropped = yield from dropped_module._clear_batch(tx, TABLE_ID, keys)
    return is_dropped


def forget(tx: Transaction) -> Steps[None]:
    yield from dropped_module._delete_mark(tx, TABLE_ID)


def doing(event: str, work: Callable[..., Steps[bool]], state: StoreState) -> Steps[str]:
    """Do something once, again if its outcome is unknown, and tell how it ended."""
    for _ in range(2):
        try:
            ended = yield from commit_batch(state, (work,), NoCache(), LOOKS)
        except OutcomeUnknownError:
            continue
        outcome = ended.outcomes[0]
        if outcome.error is not None and not isinstance(outcome.error, NotInCatalogError | AlreadyInCatalogError):
            raise outcome.error
        yield from ask(RecordEvent((event, outcome.error is None and outcome.value)))
        return "done"
    return "unknown"


def committing_known(
    letters: str, state: StoreState, work: Callable[..., Steps[bool]] = committed_as_known
) -> Steps[str]:
    """Work changes out, commit them, and begin anew as long as the table has moved on."""
    for _ in range(ROUNDS):
        state = yield from refreshed(state)
        seen, _ = yield from run_functions((record_of,), state.manifest.value.runs, state.recent, NoCache())
        known = seen[0].value
        if known is None:
            yield from _record(letters, False)
            return "gone"
        try:
            ended = yield from commit_batch(state, (partial(work, letters, known),), NoCache(), LOOKS)
        except OutcomeUnknownError:
            return "unknown"
        outcome = ended.outcomes[0]
        if isinstance(outcome.error, NotInCatalogError):
            yield from _record(letters, False)
            return "gone"
        if outcome.error is not None:
            raise outcome.error
        if outcome.value:
            yield from _record(letters, True)
            return "done"
        state = ended.state
    return "lost every race"


def _record(letters: str, is_committed: bool) -> Steps[None]:
    for letter in letters:
        yield from ask(RecordEvent((letter, is_committed)))


def repeating(letter: str, state: StoreState) -> Steps[str]:
    """Commit twice under one id, as a job does that was restarted and does not know how far it had come."""
    for _ in range(2):
        ended = yield from commit_batch(state, (partial(committed_inside, letter),), NoCache(), LOOKS)
        yield from ask(RecordEvent(("repeat", ended.outcomes[0].error is None)))
        state = ended.state
    return "done"


# A catalog at rest.


def first_record() -> TableRecord:
    metadata = new_table_metadata(
        Schema(NestedField(1, "n", LongType(), required=False)),
        UNPARTITIONED_PARTITION_SPEC,
        UNSORTED_SORT_ORDER,
        "place",
        {},
        TABLE_ID,
    ).model_copy(update={"last_updated_ms": 5})
    return TableRecord(TABLE, 0, metadata, "file 0", 0, 5)


def catalog_at_rest() -> tuple[dict[str, bytes], StoreState]:
    """Return the objects of a store with one namespace and one table, and a member's state."""
    record = first_record()
    rows = ((table_key(TABLE), record.encoded()),)

    def make(tx: Transaction) -> Steps[None]:
        yield from create_namespace(tx, ("db",), {}, "id")
        yield from create_table(tx, rows, record, True, False)

    driver = driver_of()
    state = driver.run(open_shared())
    state = driver.run(commit_batch(state, (make,), NoCache())).state
    return {info.path: driver.objects.get(info.path) or b"" for info in driver.objects.list("")}, state


# Invariants.

Rows = dict[bytes, bytes]


def everything(tx: Transaction) -> Steps[tuple[tuple[bytes, bytes], ...]]:
    rows = yield from tx.scan(b"__")
    return rows


def _read_all() -> Steps[Rows]:
    state = yield from open_shared()
    outcomes, _ = yield from run_functions((everything,), state.manifest.value.runs, state.recent, NoCache())
    return dict(outcomes[0].value)


def rows_at_rest(bodies: Mapping[str, bytes]) -> Rows:
    return at_rest(bodies, _read_all())


def tables_in(rows: Rows) -> list[TableRecord]:
    return [TableRecord.decoded(body) for key, body in rows.items() if key.startswith(b"__tables/")]


def the_rows_fit_together(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    try:
        rows = rows_at_rest(bodies)
    except EndiveError as error:
        return f"the catalog cannot be read: {error}"
    tables = tables_in(rows)
    if len(tables) > 1:
        return f"the table has two names: {[one.identifier for one in tables]}"
    snapshots = [SnapshotRecord.decoded(body) for key, body in rows.items() if key.startswith(snapshots_of(TABLE_ID))]
    lines = [key for key in rows if key.startswith(history_of(TABLE_ID))]
    commits = [key for key in rows if key.startswith(b"__commits/") and b"/id/" in key]
    is_marked = dropped_key(TABLE_ID) in rows
    if not tables:
        return "rows of a table that is gone" if (snapshots or lines or commits) and not is_marked else None
    (table,) = tables
    if is_marked or rows.get(table_key(table.identifier)) is None:
        return f"{table.identifier} is under another key, or marked as dropped"
    ids = {one.snapshot.snapshot_id for one in snapshots}
    fits = {ref.snapshot_id for ref in table.metadata.refs.values()} == ids and len(lines) == len(ids)
    if not fits or not table.version == len(commits) == len(table.metadata.properties):
        return f"version {table.version}, snapshots {ids}, commits {commits}, {table.metadata.properties}"
    return None


def what_was_acknowledged_is_there(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    tables = tables_in(rows_at_rest(bodies))
    is_dropped = any(event in events for event in (("drop t", True), ("drop u", True)))
    if is_dropped and tables:
        return "the table was dropped, and is there"
    for letter in ("a", "b", "c"):
        held = bool(tables) and letter in tables[0].metadata.properties
        if tables and (letter, True) in events and not held:
            return f"the acknowledged commit {letter} is missing"
        if (letter, False) in events and held:
            return f"the refused commit {letter} is there"
    if ("repeat", False) in events:
        return "a repeat was not recognised"
    if ("rename", True) in events and any(one.identifier == TABLE for one in tables):
        return "the table was renamed, and has its old name"
    return None


INVARIANTS: dict[str, Invariant] = {
    "rows": the_rows_fit_together,
    "acknowledgements": what_was_acknowledged_is_there,
}
