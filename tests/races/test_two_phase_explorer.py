"""The explorer on two-phase create: alone, and under the store's own protocols.

Every search prints its number of states (`pytest -s`). A reply may be lost while its request still takes effect, and
only the protocol itself retries (`resent=()`); a request may be refused; a process may crash.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from endive.protocol.requests import Steps
from endive.testing.automaton import Program
from endive.testing.explorer import Bounds, Exploration, Invariant, explore
from tests.races import mutants
from tests.races.scenarios import collector, compactor_open_already, open_already, reader, store_at_rest, writer
from tests.races.two_phase_scenarios import (
    AT_ONCE_MS,
    INVARIANTS,
    NOTHING_LOST,
    creator,
    deleter,
    in_two_phases,
    reading_process,
    recovery,
    store_invariants,
)

Case = tuple[dict[str, Program], Bounds]


def searched(
    programs: Mapping[str, Program], bounds: Bounds, invariants: Mapping[str, Invariant], objects: Mapping[str, bytes]
) -> Exploration:
    found = explore(programs, invariants, bounds, objects)
    print(f"\n{', '.join(programs)}; {bounds}: {found}")  # noqa: T201 - the number of states is a result
    return found


# Creating one object.

CREATORS: dict[str, Program] = {"writer a": partial(creator, "a"), "writer b": partial(creator, "b")}
ONE_WRITER: dict[str, Program] = {"writer a": partial(creator, "a")}
RECOVERY: dict[str, Program] = {"recovery": recovery}
COLLECTION: dict[str, Program] = {"collection": partial(recovery, AT_ONCE_MS)}
READER: dict[str, Program] = {"reader": reading_process}
ALL: dict[str, Program] = {**CREATORS, **RECOVERY, **READER}

CREATING: dict[str, Case] = {
    "two writers": (CREATORS, Bounds(lost_replies=2, refusals=1, crashes=1, resent=())),
    "a writer and a reader": ({**ONE_WRITER, **READER}, Bounds(lost_replies=1, refusals=1, crashes=1, resent=())),
    "a writer, recovery and a reader": ({**ONE_WRITER, **RECOVERY, **READER}, Bounds(lost_replies=1, resent=())),
    "a writer, two recoveries, a crash": (
        {**ONE_WRITER, **RECOVERY, "second recovery": recovery},
        Bounds(lost_replies=1, crashes=1, resent=()),
    ),
    "two writers, recovery and a reader": (ALL, Bounds(crashes=1, resent=())),
}


@pytest.mark.parametrize("case", CREATING.values(), ids=CREATING.keys())
def test_creates_violate_no_invariant(case: Case) -> None:
    assert searched(*case, INVARIANTS, {}).violation is None


def test_a_recovery_with_a_clock_far_ahead_loses_no_acknowledged_create() -> None:
    invariants = {name: invariant for name, invariant in INVARIANTS.items() if name != NOTHING_LOST}
    bounds = Bounds(lost_replies=1, refusals=1, resent=())

    assert searched({**CREATORS, **COLLECTION}, bounds, invariants, {}).violation is None


def test_a_name_can_be_created_again_only_after_its_object_was_deleted() -> None:
    programs: dict[str, Program] = {"deleter": deleter, **ONE_WRITER}

    assert searched(programs, Bounds(resent=()), INVARIANTS, {}).violation is None


# The store on top.

OBJECTS, LEASE = store_at_rest("x")


def on_two_phases(program: Program) -> Program:
    def started() -> Steps[Any]:
        return in_two_phases(program())

    return started


OLD_AND_NEW: dict[str, Program] = {
    "old writer": on_two_phases(partial(open_already, "old", LEASE)),
    "writer b": on_two_phases(partial(writer, "b")),
}
WRITERS: dict[str, Program] = {"writer a": on_two_phases(partial(writer, "a")), "writer b": OLD_AND_NEW["writer b"]}
KEEPERS: dict[str, Program] = {
    "compactor": on_two_phases(compactor_open_already),
    "collector": on_two_phases(collector),
}
STORE_READER: dict[str, Program] = {"reader": on_two_phases(partial(reader, "x"))}

STORE: dict[str, Case] = {
    "an old writer and a new one": (OLD_AND_NEW, Bounds(lost_replies=1, crashes=1, resent=())),
    "two writers": (WRITERS, Bounds(resent=())),
    "an old writer, a new one and recovery": ({**OLD_AND_NEW, **RECOVERY}, Bounds(resent=())),
    "a writer, the compactor, the collector and a reader; one preemption": (
        {"old writer": OLD_AND_NEW["old writer"], **KEEPERS, **STORE_READER},
        Bounds(preemptions=1, resent=()),
    ),
}
LONG_STORE: dict[str, Case] = {
    "two writers, a lost reply; two preemptions": (WRITERS, Bounds(lost_replies=1, preemptions=2, resent=())),
    "an old writer and a new one, compactor, collector, recovery; two preemptions": (
        {**OLD_AND_NEW, **KEEPERS, **RECOVERY},
        Bounds(preemptions=2, resent=()),
    ),
}


@pytest.mark.parametrize("case", STORE.values(), ids=STORE.keys())
def test_the_store_violates_no_invariant(case: Case) -> None:
    assert searched(*case, store_invariants(), OBJECTS).violation is None


@pytest.mark.campaign
@pytest.mark.parametrize("case", LONG_STORE.values(), ids=LONG_STORE.keys())
def test_the_store_violates_no_invariant_in_long_searches(case: Case) -> None:
    assert searched(*case, store_invariants(), OBJECTS).violation is None


# Mutants. The first two are defects of a two-phase write as it is often described.

MUTANTS: dict[str, tuple[Callable[[], Any], dict[str, Program], Bounds, str]] = {
    "collection does not recover first": (
        mutants.temporary_objects_collected_by_age_alone,
        {**ONE_WRITER, **COLLECTION, **READER},
        Bounds(resent=()),
        "what was seen stays",
    ),
    "a committed record is taken for a deletion": (
        mutants.a_committed_record_taken_for_a_deletion,
        {**ONE_WRITER, **READER},
        Bounds(resent=()),
        "what was seen stays",
    ),
    "an insert whose answer was lost is forgotten": (
        mutants.an_unsure_insert_forgotten,
        CREATORS,
        Bounds(lost_replies=1, resent=()),
        NOTHING_LOST,
    ),
    "a record is committed before the copy": (
        mutants.a_record_committed_before_the_copy,
        {**ONE_WRITER, **READER},
        Bounds(resent=()),
        "what was seen stays",
    ),
}
STORE_MUTANTS: dict[str, tuple[Callable[[], Any], dict[str, Program], Bounds, str]] = {
    "collection does not recover first": (
        mutants.temporary_objects_collected_by_age_alone,
        {**OLD_AND_NEW, **COLLECTION},
        Bounds(resent=()),
        "the store cannot be opened",
    ),
    "readers do not consult the records": (
        mutants.records_not_consulted,
        OLD_AND_NEW,
        Bounds(resent=()),
        "the store cannot be opened",
    ),
}


@pytest.mark.parametrize("case", MUTANTS.values(), ids=MUTANTS.keys())
def test_the_search_finds_mutants(
    case: tuple[Callable[[], Any], dict[str, Program], Bounds, str],
) -> None:
    mutant, programs, bounds, expected = case
    with mutant():
        found = searched(programs, bounds, INVARIANTS, {})

    assert found.violation is not None
    assert expected in found.violation


@pytest.mark.parametrize("case", STORE_MUTANTS.values(), ids=STORE_MUTANTS.keys())
def test_the_search_finds_mutants_below_the_store(
    case: tuple[Callable[[], Any], dict[str, Program], Bounds, str],
) -> None:
    mutant, programs, bounds, expected = case
    with mutant():
        found = searched(programs, bounds, store_invariants(), OBJECTS)

    assert found.violation is not None
    assert expected in found.violation


def test_a_record_that_is_deleted_too_early_loses_a_write() -> None:
    programs: dict[str, Program] = {"deleter": deleter, **ONE_WRITER}
    with mutants.a_record_deleted_before_its_object():
        found = searched(programs, Bounds(resent=()), INVARIANTS, {})

    assert found.violation is not None
    assert "has created an object that is not there" in found.violation
