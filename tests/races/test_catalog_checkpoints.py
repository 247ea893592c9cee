"""The explorer on checkpoints of a catalog: no file of a finished checkpoint is deleted, no purged table comes back.

Every search prints its number of states (`pytest -s`).
"""

from collections.abc import Mapping
from functools import partial

import pytest

from endive.catalog.model.checkpoint_records import CheckpointRecord
from endive.catalog.model.keys import checkpoint_key
from endive.catalog.operations import checkpoint_rows, restore
from endive.catalog.operations.dropped_tables import find_dropped
from endive.kv.log.state import StoreState
from endive.kv.transaction import Transaction
from endive.protocol.requests import Steps, ask
from endive.testing.automaton import Program
from endive.testing.explorer import Bounds, Exploration, RecordEvent, explore
from tests.races import catalog_checkpoints as scenario
from tests.races.catalog_checkpoints import (
    INVARIANTS,
    checkpointing,
    deleting,
    dropped_with_a_checkpoint,
    expiring,
    purging,
    restoring,
    with_a_file,
)
from tests.races.catalogs import TABLE_ID

FILE_OBJECTS, FILE_STATE = with_a_file()
DROPPED_OBJECTS, DROPPED_STATE = dropped_with_a_checkpoint()
EXPIRY: dict[str, Program] = {
    "checkpointer": partial(checkpointing, FILE_STATE),
    "expirer": partial(expiring, FILE_STATE),
}
PURGE: dict[str, Program] = {
    "restorer": partial(restoring, DROPPED_STATE),
    "deleter": partial(deleting, DROPPED_STATE),
    "purger": partial(purging, DROPPED_STATE),
}


def searched(programs: Mapping[str, Program], objects: dict[str, bytes], bounds: Bounds) -> Exploration:
    found = explore(programs, INVARIANTS, bounds, objects)
    print(f"\n{', '.join(programs)}; {bounds}: {found}")  # noqa: T201 - the number of states is a result
    return found


@pytest.mark.parametrize("bounds", [Bounds(preemptions=3), Bounds(preemptions=2, lost_replies=1)])
def test_no_file_of_a_checkpoint_is_deleted(bounds: Bounds) -> None:
    assert searched(EXPIRY, FILE_OBJECTS, bounds).violation is None


def test_no_purged_table_comes_back() -> None:
    assert searched(PURGE, DROPPED_OBJECTS, Bounds(preemptions=3)).violation is None


@pytest.mark.campaign
def test_no_file_of_a_checkpoint_is_deleted_in_a_long_search() -> None:
    assert searched(EXPIRY, FILE_OBJECTS, Bounds(lost_replies=1)).violation is None
    assert searched(PURGE, DROPPED_OBJECTS, Bounds(lost_replies=1)).violation is None


# Mutants.


def test_a_checkpoint_without_an_unfinished_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def skips(tx: Transaction) -> Steps[None]:
        yield from ()

    def puts(pinned: str, tx: Transaction) -> Steps[bool]:
        yield from ()
        record = CheckpointRecord(scenario.NAME, "id", 1, store_checkpoint=pinned)
        tx.put(checkpoint_key(scenario.NAME), record.encoded())
        return True

    monkeypatch.setattr(scenario, "begin", skips)
    monkeypatch.setattr(scenario, "finish", puts)

    assert searched(EXPIRY, FILE_OBJECTS, Bounds(preemptions=2)).violation is not None


def test_a_checkpoint_that_is_finished_without_its_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def puts(pinned: str, tx: Transaction) -> Steps[bool]:
        yield from ()
        record = CheckpointRecord(scenario.NAME, "id", 1, store_checkpoint=pinned)
        tx.put(checkpoint_key(scenario.NAME), record.encoded())
        return True

    monkeypatch.setattr(scenario, "finish", puts)

    assert searched(EXPIRY, FILE_OBJECTS, Bounds(preemptions=2)).violation is not None


def test_an_expiry_that_ignores_unfinished_checkpoints_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def ignores(tx: Transaction) -> Steps[tuple[int, int]]:
        _, found = yield from checkpoint_rows.look(tx, checkpoint_rows.nothing)
        return sum(checkpoint_rows.holds(one, 1) for one in found), 0

    monkeypatch.setattr(scenario, "look_at_checkpoints", ignores)

    assert searched(EXPIRY, FILE_OBJECTS, Bounds(preemptions=2)).violation is not None


def test_an_expiry_that_looks_before_it_removes_is_found() -> None:
    def early(state: StoreState) -> Steps[str]:
        state, (found, unfinished) = yield from scenario.looked(state, scenario.look_at_checkpoints)
        if unfinished:
            state, found = yield from scenario.done(state, scenario.abandon)
        yield from scenario.done(state, scenario.remove_file)
        if not found:
            yield from ask(RecordEvent(scenario.GONE))
        return "deleted"

    programs: dict[str, Program] = {**EXPIRY, "expirer": partial(early, FILE_STATE)}
    assert searched(programs, FILE_OBJECTS, Bounds(preemptions=2)).violation is not None


def test_a_restore_that_does_not_check_its_checkpoint_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def trusts(_tx: Transaction, name: str) -> Steps[CheckpointRecord]:
        yield from ()
        return CheckpointRecord(name, "id", 1, store_checkpoint="pinned")

    monkeypatch.setattr(restore, "find_checkpoint", trusts)

    assert searched(PURGE, DROPPED_OBJECTS, Bounds(preemptions=2)).violation is not None


def test_a_purge_that_reads_the_mark_and_the_checkpoints_apart_is_found() -> None:
    def apart(state: StoreState) -> Steps[str]:
        state, mark = yield from scenario.looked(state, lambda tx: find_dropped(tx, TABLE_ID))
        is_marked = mark is not None
        mark = None
        state, (found, _) = yield from scenario.looked(state, scenario.look_at_checkpoints)
        if is_marked and not found:
            yield from ask(RecordEvent(scenario.PURGED))
        return "purged"

    programs: dict[str, Program] = {**PURGE, "purger": partial(apart, DROPPED_STATE)}
    assert searched(programs, DROPPED_OBJECTS, Bounds(preemptions=3)).violation is not None
