"""The explorer on the store's own protocols: exhausted within stated bounds, and every kept mutant found.

Every search prints its number of states (`pytest -s`). Searches that take more than seconds are marked `slow`, those
that take minutes `campaign`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from endive.testing.automaton import Program
from endive.testing.explorer import Bounds, Exploration, explore
from tests.races import mutants
from tests.races.scenarios import (
    INVARIANTS,
    collector,
    compactor,
    compactor_open_already,
    in_flight,
    keeper,
    one_write,
    open_already,
    reader,
    store_at_rest,
    writer,
)

OBJECTS, LEASE = store_at_rest("x")
"""A store with one write, an open writer and an open compactor."""


def searched(programs: Mapping[str, Program], bounds: Bounds, objects: Mapping[str, bytes] = OBJECTS) -> Exploration:
    found = explore(programs, INVARIANTS, bounds, objects)
    print(f"\n{', '.join(programs)}; {bounds}: {found}")  # noqa: T201 - the number of states is a result
    return found


WRITERS: dict[str, Program] = {"writer a": partial(writer, "a"), "writer b": partial(writer, "b")}
OLD_WRITER: dict[str, Program] = {"old writer": partial(open_already, "old", LEASE)}
KEEPERS: dict[str, Program] = {"compactor": compactor, "collector": collector}
OPEN_KEEPERS: dict[str, Program] = {"compactor": compactor_open_already, "collector": collector}

# Exhausted: every order of steps, and every place for each fault.

EXHAUSTED: dict[str, tuple[dict[str, Program], Bounds]] = {
    "two writers open at once": (WRITERS, Bounds()),
    "two writers, a lost reply, a crash": (WRITERS, Bounds(lost_replies=1, crashes=1)),
    "a writer, compactor and collector": ({"writer a": partial(writer, "a"), **OPEN_KEEPERS}, Bounds()),
    "a checkpoint, compactor and collector, the clock jumps": (
        {"keeper": partial(keeper, 100), **OPEN_KEEPERS},
        Bounds(clock_jumps=1),
    ),
    "a reader, a writer and the compactor": (
        {"reader": partial(reader, "old0"), **OLD_WRITER, "compactor": compactor_open_already},
        Bounds(lost_replies=1),
    ),
    "a reader, a writer, compactor and collector": (
        {"reader": partial(reader, "x"), **OLD_WRITER, **OPEN_KEEPERS},
        Bounds(),
    ),
    "a reader, compactor and collector": ({"reader": partial(reader, "x"), **OPEN_KEEPERS}, Bounds(lost_replies=1)),
    "two collectors and a compactor": ({**OPEN_KEEPERS, "second collector": collector}, Bounds()),
    "two compactors": ({"compactor": compactor_open_already, "second": compactor}, Bounds(lost_replies=1)),
}
OLD_AND_NEW: dict[str, Program] = {**OLD_WRITER, "writer b": partial(writer, "b"), **OPEN_KEEPERS}
LONG: dict[str, tuple[dict[str, Program], Bounds]] = {
    "an old writer and a new one, compactor and collector, a crash": (OLD_AND_NEW, Bounds(crashes=1)),
    "two writers, compactor and collector; two preemptions": ({**WRITERS, **OPEN_KEEPERS}, Bounds(preemptions=2)),
    "two writers and the compactor": ({**WRITERS, "compactor": compactor_open_already}, Bounds()),
    "a writer, compactor and collector, a lost reply; two preemptions": (
        {"writer a": partial(writer, "a"), **OPEN_KEEPERS},
        Bounds(lost_replies=1, preemptions=2),
    ),
}
CAMPAIGN: dict[str, tuple[dict[str, Program], Bounds]] = {
    "an old writer and a new one, compactor and collector, a lost reply": (OLD_AND_NEW, Bounds(lost_replies=1)),
    "an old writer and a new one, compactor and collector, the clock jumps": (OLD_AND_NEW, Bounds(clock_jumps=1)),
    "two writers, compactor and collector": ({**WRITERS, **OPEN_KEEPERS}, Bounds()),
}


@pytest.mark.parametrize("case", EXHAUSTED.values(), ids=EXHAUSTED.keys())
def test_nothing_goes_wrong(case: tuple[dict[str, Program], Bounds]) -> None:
    assert searched(*case).violation is None


@pytest.mark.slow
@pytest.mark.parametrize("case", LONG.values(), ids=LONG.keys())
def test_nothing_goes_wrong_in_long_searches(case: tuple[dict[str, Program], Bounds]) -> None:
    assert searched(*case).violation is None


@pytest.mark.campaign
@pytest.mark.parametrize("case", CAMPAIGN.values(), ids=CAMPAIGN.keys())
def test_nothing_goes_wrong_in_campaigns(case: tuple[dict[str, Program], Bounds]) -> None:
    assert searched(*case).violation is None


def test_parallel_writes_are_fenced_together() -> None:
    objects, lease = store_at_rest("x", parallel_writes=2)
    programs = parallel_writes_and_a_new_writer(lease)

    assert searched(programs, Bounds(lost_replies=1), objects).violation is None


@pytest.mark.slow
def test_parallel_writes_are_fenced_together_beside_compactor_and_garbage_collector() -> None:
    objects, lease = store_at_rest("x", parallel_writes=2)
    programs = {**parallel_writes_and_a_new_writer(lease), **OPEN_KEEPERS}

    assert searched(programs, Bounds(preemptions=2), objects).violation is None


def parallel_writes_and_a_new_writer(lease: Any) -> dict[str, Program]:
    return {
        "old, first": partial(in_flight, lease, lease.next_entry, "p"),
        "old, second": partial(in_flight, lease, lease.next_entry + 1, "q"),
        "writer b": partial(writer, "b", 1, 2),
    }


# Mutants: taken away what makes it safe, the search finds what goes wrong.

MUTANTS: dict[str, tuple[Callable[[], Any], dict[str, Program], Bounds, str]] = {
    "the document as written": (mutants.document_004, WRITERS, Bounds(), "two writers are open"),
    "no second look after the fence": (
        mutants.no_second_look,
        {"old writer": partial(open_already, "old", LEASE, 2), "writer b": partial(writer, "b", 0), **OPEN_KEEPERS},
        Bounds(clock_jumps=1, preemptions=2),
        "two writers are open",
    ),
    "no boundary": (mutants.no_boundary, {"keeper": keeper, **KEEPERS}, Bounds(), "a checkpoint is gone"),
    "fences are collected": (
        mutants.fences_collected,
        {**OLD_WRITER, "writer b": partial(writer, "b"), **OPEN_KEEPERS},
        Bounds(clock_jumps=1, preemptions=2),
        "",
    ),
    "SSTs are collected before they are published": (
        mutants.no_watermark,
        OPEN_KEEPERS,
        Bounds(),
        "an acknowledged write is missing",
    ),
    "a lost reply is taken for success": (
        mutants.a_lost_reply_taken_for_success,
        WRITERS,
        Bounds(lost_replies=1),
        "an acknowledged write is missing",
    ),
    "a lost reply is taken for a rival's": (
        mutants.a_lost_reply_taken_for_a_rival,
        WRITERS,
        Bounds(lost_replies=1),
        "entries behind an exclusive writer's fences are its own",
    ),
    "a manifest is written over with an older one": (
        mutants.stale_manifest_written_over,
        {**WRITERS, "compactor": compactor},
        Bounds(preemptions=2),
        "two writers",
    ),
    "a reader does not look whether the manifest was superseded": (
        mutants.no_look_for_a_newer_manifest,
        {"reader": partial(reader, "x"), **OPEN_KEEPERS, "old writer": partial(open_already, "old", LEASE)},
        Bounds(),
        "was lost, which was collected",
    ),
    "checkpoints expire by the clock alone": (
        mutants.checkpoints_expire_by_the_clock_alone,
        {"keeper": partial(keeper, 100), **OPEN_KEEPERS},
        Bounds(clock_jumps=1, preemptions=2),
        "a checkpoint is gone",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MUTANTS.values(), ids=MUTANTS.keys())
def test_the_search_finds_what_is_wrong_with_a_mutant(
    case: tuple[Callable[[], Any], dict[str, Program], Bounds, str],
) -> None:
    mutant, programs, bounds, expected = case
    with mutant():
        found = searched(programs, bounds)

    assert found.violation is not None
    assert expected in found.violation
    assert found.trace


def test_one_fence_does_not_stop_two_parallel_writes() -> None:
    objects, lease = store_at_rest("x", parallel_writes=2)
    with mutants.one_fence():
        found = searched(parallel_writes_and_a_new_writer(lease), Bounds(), objects)

    assert found.violation is not None
    assert "two writers are open" in found.violation


def test_void_entries_that_are_replayed_are_found() -> None:
    objects, lease = store_at_rest("x", parallel_writes=2)
    with mutants.void_entries_replayed():
        found = searched(parallel_writes_and_a_new_writer(lease), Bounds(), objects)

    assert found.violation is not None
    assert "an entry counts behind a refused one" in found.violation


def test_a_compaction_that_ends_inside_a_run_of_fences_is_found() -> None:
    objects, lease = store_at_rest("x", parallel_writes=2)
    programs = {**parallel_writes_and_a_new_writer(lease), "compactor": compactor_open_already}
    with mutants.compaction_ends_anywhere():
        found = searched(programs, Bounds(), objects)

    assert found.violation is not None
    assert "an entry counts behind a refused one" in found.violation


def test_entries_acknowledged_out_of_order_are_found() -> None:
    objects, lease = store_at_rest("x", parallel_writes=2)
    programs = parallel_writes_and_a_new_writer(lease)
    out_of_order: dict[str, Program] = {**programs, "old, second": partial(one_write, lease, lease.next_entry + 1, "q")}
    found = searched(out_of_order, Bounds(), objects)

    assert found.violation is not None
    assert "acknowledged write 'q'" in found.violation


# The explorer itself.


def test_states_distinguished_by_variables_or_by_histories_lead_to_the_same_ends() -> None:
    merged = explore(WRITERS, INVARIANTS, Bounds(), OBJECTS)
    apart = explore(WRITERS, INVARIANTS, Bounds(), OBJECTS, merge=False)

    assert merged.results == apart.results
    assert merged.states <= apart.states


def test_a_crash_adds_no_violation_that_waiting_for_ever_does_not_have() -> None:
    with mutants.document_004():
        without = explore(WRITERS, INVARIANTS, Bounds(), OBJECTS)
        with_crashes = explore(WRITERS, INVARIANTS, Bounds(crashes=2), OBJECTS)

    assert without.violation == with_crashes.violation
