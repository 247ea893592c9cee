"""The explorer on intentions that need files: composed by any of their owners, each takes effect once.

Every search prints its number of states (`pytest -s`).
"""

from functools import partial

import pytest

from endive.testing.automaton import Program
from endive.testing.explorer import Bounds
from tests.races import helping_mutants, topics
from tests.races.helping import forgetting
from tests.races.searches import Case, Mutant, every_mutant_is_found, nothing_goes_wrong
from tests.races.shared_writers import committing
from tests.races.test_helping import KEEPERS, OBJECTS, STATE, searched
from tests.races.topics import composing

A: dict[str, Program] = {"owner a": partial(composing, "a", STATE)}
B: dict[str, Program] = {"owner b": partial(composing, "b", STATE)}
C: dict[str, Program] = {"owner c": partial(composing, "c", STATE)}
FUNCTION: dict[str, Program] = {"writer f": partial(committing, "f", STATE)}
FORGETTING: dict[str, Program] = {"forgetting": partial(forgetting, STATE)}

EXHAUSTED: dict[str, Case] = {
    "two owners; two preemptions": ({**A, **B}, Bounds(preemptions=2), OBJECTS),
}
LONG: dict[str, Case] = {
    "two owners, a lost reply, a crash; two preemptions": (
        {**A, **B},
        Bounds(lost_replies=1, crashes=1, preemptions=2),
        OBJECTS,
    ),
    "two owners and a function; one preemption": ({**A, **B, **FUNCTION}, Bounds(preemptions=1), OBJECTS),
}
CAMPAIGN: dict[str, Case] = {
    "two owners": ({**A, **B}, Bounds(), OBJECTS),
    "three owners; two preemptions": ({**A, **B, **C}, Bounds(preemptions=2), OBJECTS),
    "two owners, results forgotten, a lost reply; two preemptions": (
        {**A, **B, **FORGETTING},
        Bounds(lost_replies=1, preemptions=2),
        OBJECTS,
    ),
    "two owners, compactor and collector; one preemption": ({**A, **B, **KEEPERS}, Bounds(preemptions=1), OBJECTS),
}


test_nothing_goes_wrong = nothing_goes_wrong(EXHAUSTED, searched)
test_nothing_goes_wrong_in_long_searches = pytest.mark.slow(nothing_goes_wrong(LONG, searched))
test_nothing_goes_wrong_in_campaigns = pytest.mark.campaign(nothing_goes_wrong(CAMPAIGN, searched))

TWO_PREEMPTIONS = Bounds(preemptions=2)
MUTANTS: dict[str, Mutant] = {
    "results are not looked up": (
        helping_mutants.results_on_topics_not_looked_up,
        {**A, **C},
        TWO_PREEMPTIONS,
        OBJECTS,
        "counts twice",
    ),
    "what was composed is not compared": (
        topics.state_not_compared,
        {**A, **FUNCTION},
        TWO_PREEMPTIONS,
        OBJECTS,
        "is missing",
    ),
    "results are not recorded": (topics.results_not_recorded, {**A, **C}, TWO_PREEMPTIONS, OBJECTS, "counts twice"),
}

test_the_search_finds_what_is_wrong_with_a_mutant = every_mutant_is_found(MUTANTS, searched)
