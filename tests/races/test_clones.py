"""The explorer on clones: no order of steps, crash or jump of the clock costs a clone or its source a row."""

from collections.abc import Callable
from typing import Any

import pytest

from endive.kv.manifest import Parent, StoreManifest
from endive.protocol.requests import Steps
from endive.testing.automaton import Program
from endive.testing.explorer import Bounds, explore
from tests.races.clones import (
    INVARIANTS,
    clone_collection,
    clone_maintenance,
    cloner,
    source_at_rest,
    source_maintenance,
)
from tests.races.mutants import swapped

OBJECTS = source_at_rest()
CLONING: dict[str, Program] = {"cloner": cloner, "source": source_maintenance}
COLLECTING: dict[str, Program] = {**CLONING, "clone": clone_collection}
SHARING: dict[str, Program] = {**CLONING, "clone": clone_maintenance}

CASES: dict[str, tuple[dict[str, Program], Bounds]] = {
    "a cloner and maintenance of the source, a crash, a jump of the clock; two preemptions": (
        CLONING,
        Bounds(crashes=1, clock_jumps=1, preemptions=2),
    ),
    "a cloner, a lost reply": ({"cloner": cloner}, Bounds(lost_replies=1, crashes=1, clock_jumps=1)),
    "maintenance of the source and of the clone; two preemptions": (SHARING, Bounds(preemptions=2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_nothing_goes_wrong(case: tuple[dict[str, Program], Bounds]) -> None:
    programs, bounds = case
    found = explore(programs, INVARIANTS, bounds, OBJECTS)
    print(f"\n{', '.join(programs)}; {bounds}: {found}")  # noqa: T201 - the number of states is a result

    assert found.violation is None


def never_made_permanent() -> Any:
    """The source's checkpoint keeps the lifetime that it has while the clone is being made."""

    def refresh_checkpoint(checkpoint_id: str, lifetime_s: int) -> Steps[None]:
        yield from ()

    return swapped(("endive.kv.clones.refresh_checkpoint", refresh_checkpoint))


def released_at_once() -> Any:
    """The clone lets its parent go with its first collection."""

    def unused_parents(current: StoreManifest, others: object) -> tuple[Parent, ...]:
        return current.parents

    return swapped(("endive.kv.maintenance.garbage_collector.unused_parents", unused_parents))


MUTANTS: dict[str, tuple[Callable[[], Any], dict[str, Program], Bounds]] = {
    "the checkpoint is never made permanent": (never_made_permanent, CLONING, Bounds(clock_jumps=1, preemptions=1)),
    "the parent is released at once": (released_at_once, COLLECTING, Bounds(preemptions=2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", MUTANTS.values(), ids=MUTANTS.keys())
def test_the_search_finds_what_is_wrong_with_a_mutant(
    case: tuple[Callable[[], Any], dict[str, Program], Bounds],
) -> None:
    mutant, programs, bounds = case
    with mutant():
        found = explore(programs, INVARIANTS, bounds, OBJECTS)

    assert found.violation is not None
    assert "clone" in found.violation
    assert found.trace
