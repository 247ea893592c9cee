"""The explorer on helping: exhausted within stated bounds, and every kept mutant found.

Every search prints its number of states (`pytest -s`).
"""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial

import pytest

from endive.testing.automaton import Program
from endive.testing.explorer import Bounds, Exploration
from tests.races import helping_mutants as mutants
from tests.races.helping import (
    INVARIANTS,
    abandoned,
    collecting_files,
    deciding,
    forgetting,
    giving_up,
    helpers_at_rest,
    helping,
    helping_exclusively,
    needing,
    recording,
)
from tests.races.scenarios import collector, compactor_open_already
from tests.races.searches import Case, Mutant, every_mutant_is_found, nothing_goes_wrong, search
from tests.races.shared_writers import committing

OBJECTS, STATE = helpers_at_rest()
"""A shared store with one commit, a writer's state, and an open compactor."""
ABANDONED, OF_THE_DEAD = abandoned(OBJECTS, STATE, "d")
"""The same, with an intention whose owner is gone."""

A: dict[str, Program] = {"owner a": partial(helping, "a", STATE)}
B: dict[str, Program] = {"owner b": partial(helping, "b 0", STATE)}
C: dict[str, Program] = {"owner c": partial(helping, "c", STATE)}
GONE: dict[str, Program] = {"owner g, gives up": partial(giving_up, "g", STATE)}
FUNCTION: dict[str, Program] = {"writer f": partial(committing, "f", STATE)}
RECORDED: dict[str, Program] = {
    "recorded r": partial(recording, "r", STATE),
    "recorded s": partial(recording, "s", STATE),
}
EXCLUSIVE: dict[str, Program] = {"exclusive writer": partial(helping_exclusively, "e")}
FORGETTING: dict[str, Program] = {"forgetting": partial(forgetting, STATE)}
BACK: dict[str, Program] = {"owner d, back again": partial(deciding, OF_THE_DEAD, STATE)}
FILES: dict[str, Program] = {
    "d needs its file": partial(needing, "d"),
    "collecting files": partial(collecting_files, STATE),
}
KEEPERS: dict[str, Program] = {"compactor": compactor_open_already, "collector": collector}


LOST = "its object is gone"


def searched(
    programs: Mapping[str, Program], bounds: Bounds, objects: Mapping[str, bytes], expected: str = LOST
) -> Exploration:
    # An intention that is lost is found before what follows from it.
    ignored = "" if expected == LOST else "intentions"
    invariants = {name: invariant for name, invariant in INVARIANTS.items() if name != ignored}
    return search(programs, invariants, bounds, objects)


EXHAUSTED: dict[str, Case] = {
    "two owners, a lost reply, a crash": ({**A, **B}, Bounds(lost_replies=1, crashes=1), OBJECTS),
    "an owner that gives up, another, results forgotten; two preemptions": (
        {**A, **GONE, **FORGETTING},
        Bounds(preemptions=2),
        OBJECTS,
    ),
    "an owner and an exclusive writer that opens, a lost reply": ({**A, **EXCLUSIVE}, Bounds(lost_replies=1), OBJECTS),
    "two recorded functions, a lost reply": (RECORDED, Bounds(lost_replies=1), OBJECTS),
    "an owner, one that is gone, and its file": ({**A, **FILES}, Bounds(), ABANDONED),
}
LONG: dict[str, Case] = {
    "two owners and a function; two preemptions": ({**A, **B, **FUNCTION}, Bounds(preemptions=2), OBJECTS),
    "two owners, results forgotten; two preemptions": ({**A, **B, **FORGETTING}, Bounds(preemptions=2), OBJECTS),
    "two owners, compactor and collector; one preemption": ({**A, **B, **KEEPERS}, Bounds(preemptions=1), OBJECTS),
}
CAMPAIGN: dict[str, Case] = {
    "two recorded functions and an owner, a lost reply, a crash; two preemptions": (
        {**RECORDED, **A},
        Bounds(lost_replies=1, crashes=1, preemptions=2),
        OBJECTS,
    ),
    "two recorded functions, compactor and collector; two preemptions": (
        {**RECORDED, **KEEPERS},
        Bounds(preemptions=2),
        OBJECTS,
    ),
    "three owners": ({**A, **B, **C}, Bounds(), OBJECTS),
    "three owners, a lost reply, a crash; two preemptions": (
        {**A, **B, **C},
        Bounds(lost_replies=1, crashes=1, preemptions=2),
        OBJECTS,
    ),
    "two owners, results forgotten": ({**A, **B, **FORGETTING}, Bounds(), OBJECTS),
    "two owners, results forgotten, a lost reply; two preemptions": (
        {**A, **B, **FORGETTING},
        Bounds(lost_replies=1, preemptions=2),
        OBJECTS,
    ),
    "an owner that is back, another, results forgotten, a lost reply; two preemptions": (
        {**BACK, **A, **FORGETTING},
        Bounds(lost_replies=1, preemptions=2),
        ABANDONED,
    ),
    "two owners and an exclusive writer that opens, a lost reply, a crash; one preemption": (
        {**A, **B, **EXCLUSIVE},
        Bounds(lost_replies=1, crashes=1, preemptions=1),
        OBJECTS,
    ),
    "two owners and an exclusive writer that opens; two preemptions": (
        {**A, **B, **EXCLUSIVE},
        Bounds(preemptions=2),
        OBJECTS,
    ),
    "two owners, compactor and collector; two preemptions": ({**A, **B, **KEEPERS}, Bounds(preemptions=2), OBJECTS),
    "an owner, one that is gone, its file, results forgotten; two preemptions": (
        {**A, **FILES, **FORGETTING},
        Bounds(preemptions=2),
        ABANDONED,
    ),
    "three owners, an exclusive writer, results forgotten, compactor and collector; one preemption": (
        {**A, **B, **C, **EXCLUSIVE, **FORGETTING, **KEEPERS},
        Bounds(preemptions=1),
        OBJECTS,
    ),
    "two owners, results forgotten, compactor and collector, a lost reply, a crash; one preemption": (
        {**A, **B, **FORGETTING, **KEEPERS},
        Bounds(lost_replies=1, crashes=1, preemptions=1),
        OBJECTS,
    ),
}


test_nothing_goes_wrong = nothing_goes_wrong(EXHAUSTED, searched)
test_nothing_goes_wrong_in_long_searches = pytest.mark.slow(nothing_goes_wrong(LONG, searched))
test_nothing_goes_wrong_in_campaigns = pytest.mark.campaign(nothing_goes_wrong(CAMPAIGN, searched))


# Mutants: taken away what makes it safe, the search finds what goes wrong.

MUTANTS: dict[str, Mutant] = {
    "a helper does not read the entry before its own": (
        mutants.not_read_again,
        {**A, **C},
        Bounds(),
        OBJECTS,
        "is missing",
    ),
    "an intention is deleted before it is decided": (
        mutants.deleted_before_it_is_decided,
        {**A, **C},
        Bounds(),
        OBJECTS,
        LOST,
    ),
    "an intention is deleted before it is decided, and its file with it": (
        mutants.deleted_before_it_is_decided,
        {**A, **FILES},
        Bounds(),
        ABANDONED,
        "its file was deleted",
    ),
    "an owner retries under a new key": (
        nullcontext,
        {"owner a": partial(mutants.retrying_under_a_new_key, "a", STATE), **C},
        Bounds(),
        OBJECTS,
        "a commit counts twice",
    ),
    "a refusal is not recorded": (
        mutants.refusals_not_recorded,
        {**A, **B, **FUNCTION},
        Bounds(preemptions=2),
        OBJECTS,
        "was told that it is refused",
    ),
    "an abandoned intention is collected while a helper holds it": (
        mutants.abandoned_ones_collected,
        {**A, **FILES},
        Bounds(),
        ABANDONED,
        "its file was deleted",
    ),
    "an intention never expires": (
        mutants.no_horizon,
        {**A, **C, **FORGETTING},
        Bounds(lost_replies=1, preemptions=2),
        OBJECTS,
        "a commit counts twice",
    ),
    "results are removed without a horizon": (
        mutants.horizon_in_a_later_entry,
        {**A, **C, **FORGETTING},
        Bounds(lost_replies=1, preemptions=1),
        OBJECTS,
        "a commit counts twice",
    ),
    "reads of a recorded function are not compared": (
        mutants.reads_not_compared,
        RECORDED,
        Bounds(),
        OBJECTS,
        "is missing",
    ),
    "results are not looked up": (
        mutants.results_not_looked_up,
        {**A, **C},
        Bounds(),
        OBJECTS,
        "a commit counts twice",
    ),
}


test_the_search_finds_what_is_wrong_with_a_mutant = pytest.mark.slow(every_mutant_is_found(MUTANTS, searched))
