"""The explorer on guests of an exclusive writer: each call takes effect once, by its owner or another.

Every search prints its number of states (`pytest -s`).
"""

from contextlib import nullcontext
from functools import partial

import pytest

from endive.testing.automaton import Program
from endive.testing.explorer import Bounds
from tests.races import guests, helping_mutants
from tests.races.guests import hosts_at_rest, recording_as_guest, serving, visiting
from tests.races.searches import Case, Mutant, every_mutant_is_found, nothing_goes_wrong
from tests.races.test_helping import KEEPERS, searched

OBJECTS, HOST, GUEST = hosts_at_rest()
"""A store with an exclusive writer, its state, and the state of a process that came later."""

EXCLUSIVE: dict[str, Program] = {"exclusive writer": partial(serving, "e", HOST)}
A: dict[str, Program] = {"guest a": partial(visiting, "a", GUEST)}
B: dict[str, Program] = {"guest b": partial(visiting, "b", GUEST)}
READING: dict[str, Program] = {"guest c, which reads": partial(visiting, "c", GUEST, reads=True)}
RECORDED: dict[str, Program] = {"recording guest": partial(recording_as_guest, "r", GUEST)}

EXHAUSTED: dict[str, Case] = {
    "an exclusive writer and a guest; two preemptions": ({**EXCLUSIVE, **A}, Bounds(preemptions=2), OBJECTS),
    "an exclusive writer and a guest that reads; one preemption": (
        {**EXCLUSIVE, **READING},
        Bounds(preemptions=1),
        OBJECTS,
    ),
    "an exclusive writer and a recorded function; one preemption": (
        {**EXCLUSIVE, **RECORDED},
        Bounds(preemptions=1),
        OBJECTS,
    ),
}
LONG: dict[str, Case] = {
    "an exclusive writer and a guest, a lost reply, a crash; one preemption": (
        {**EXCLUSIVE, **A},
        Bounds(lost_replies=1, crashes=1, preemptions=1),
        OBJECTS,
    ),
    "an exclusive writer and two guests; one preemption": ({**EXCLUSIVE, **A, **B}, Bounds(preemptions=1), OBJECTS),
}
CAMPAIGN: dict[str, Case] = {
    "an exclusive writer and a guest": ({**EXCLUSIVE, **A}, Bounds(), OBJECTS),
    "an exclusive writer and a recorded function, a lost reply; two preemptions": (
        {**EXCLUSIVE, **RECORDED},
        Bounds(lost_replies=1, preemptions=2),
        OBJECTS,
    ),
    "an exclusive writer, two guests, a lost reply; one preemption": (
        {**EXCLUSIVE, **A, **B},
        Bounds(lost_replies=1, preemptions=1),
        OBJECTS,
    ),
    "an exclusive writer, a guest, compactor and collector; one preemption": (
        {**EXCLUSIVE, **A, **KEEPERS},
        Bounds(preemptions=1),
        OBJECTS,
    ),
}

test_nothing_goes_wrong = nothing_goes_wrong(EXHAUSTED, searched)
test_nothing_goes_wrong_in_long_searches = pytest.mark.slow(nothing_goes_wrong(LONG, searched))
test_nothing_goes_wrong_in_campaigns = pytest.mark.campaign(nothing_goes_wrong(CAMPAIGN, searched))

MUTANTS: dict[str, Mutant] = {
    "a guest that is not served runs its function beside its intention": (
        nullcontext,
        {**EXCLUSIVE, "guest a": partial(guests.claiming_without_the_intention, "a", GUEST)},
        Bounds(preemptions=2),
        OBJECTS,
        "counts twice",
    ),
    "results are not looked up": (
        helping_mutants.results_not_looked_up,
        {**EXCLUSIVE, **A},
        Bounds(preemptions=2),
        OBJECTS,
        "counts twice",
    ),
    "a guest reads what it knew": (
        guests.no_second_look,
        {**EXCLUSIVE, **READING},
        Bounds(preemptions=1),
        OBJECTS,
        "a read that began after the commit",
    ),
    "an exclusive writer acknowledges behind a guest's fence": (
        guests.fences_ignored,
        {**EXCLUSIVE, **A},
        Bounds(preemptions=1),
        OBJECTS,
        "is missing",
    ),
}

test_the_search_finds_what_is_wrong_with_a_mutant = every_mutant_is_found(MUTANTS, searched)
