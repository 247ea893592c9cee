"""The explorer on shared and exclusive writers: exhausted within stated bounds, and every kept mutant found.

Every search prints its number of states (`pytest -s`).
"""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial

import pytest

from endive.kv.log.epochs import open_exclusive
from endive.testing.automaton import Program
from endive.testing.explorer import Bounds, Exploration
from tests.races import mutants as mutants_of_the_store
from tests.races import writer_mutants as mutants
from tests.races.scenarios import collector, compactor, compactor_open_already
from tests.races.searches import Case, Mutant, every_mutant_is_found, nothing_goes_wrong, search
from tests.races.shared_writers import (
    INVARIANTS,
    alone,
    alone_already,
    closing,
    committing,
    committing_again,
    committing_and_reading,
    joining,
    maintaining,
    opening_and_reading,
    owning,
    reading,
    sending,
    short_lived,
    two_in_flight,
    writer_at_rest,
    writers_at_rest,
)

OBJECTS, STATE = writers_at_rest()
"""A shared store with one commit, a writer's state, and an open compactor."""
EXCLUSIVE, LEASE = writer_at_rest()
"""A store that an exclusive writer has open, with one commit and an open compactor."""
OWNED, OWNER = writers_at_rest(open_exclusive)
"""The same as the first, by an exclusive writer that reopens."""
PARALLEL, PARALLEL_OWNER = writers_at_rest(partial(open_exclusive, parallel_writes=2))
"""The same, with two writes in flight."""


def searched(
    programs: Mapping[str, Program], bounds: Bounds, objects: Mapping[str, bytes] = OBJECTS, _expected: str = ""
) -> Exploration:
    return search(programs, INVARIANTS, bounds, objects)


KEEPERS: dict[str, Program] = {"compactor": compactor_open_already, "collector": collector}
ONE: dict[str, Program] = {"writer a": partial(committing, "a", STATE)}
TWO: dict[str, Program] = {**ONE, "writer b": partial(committing, "b", STATE, 2)}
JOINING: dict[str, Program] = {"joining a": partial(joining, "a"), "joining b": partial(joining, "b")}
OWNERS: dict[str, Program] = {
    "owner a": partial(committing, "a", OWNER, 2),
    "owner b": partial(owning, "b"),
}
UNSURE: dict[str, Program] = {"owner a": partial(committing_again, "a", OWNER), "joining b": partial(joining, "b")}
TAKEN: dict[str, Program] = {"owner a": partial(committing, "a", OWNER), "joining b": partial(joining, "b")}
OLD_WRITER: dict[str, Program] = {"old writer": partial(alone_already, "w", LEASE, b"x")}

SHORT_LIVED: dict[str, Program] = {
    "short-lived a": partial(short_lived, "a", STATE),
    "short-lived b": partial(short_lived, "b", STATE),
}
MAINTAINERS: dict[str, Program] = {"first share": maintaining, "second share": maintaining}

FIRST_SENT, SECOND_SENT = two_in_flight(PARALLEL_OWNER)
IN_FLIGHT: dict[str, Program] = {
    "owner, first": partial(sending, "p", FIRST_SENT, PARALLEL_OWNER),
    "owner, second": partial(sending, "q", SECOND_SENT, PARALLEL_OWNER),
    "joining b": partial(joining, "b"),
}

EXHAUSTED: dict[str, Case] = {
    "two members, a lost reply, a crash": (TWO, Bounds(lost_replies=1, crashes=1), OBJECTS),
    "two members, two lost replies": (TWO, Bounds(lost_replies=2), OBJECTS),
    "two members and two compactors": (
        {**TWO, "compactor": compactor_open_already, "second": compactor},
        Bounds(preemptions=2),
        OBJECTS,
    ),
    "two that join a shared store": (JOINING, Bounds(lost_replies=1), OBJECTS),
    "two that join an exclusive writer's store; two preemptions": (
        {**JOINING, **OLD_WRITER},
        Bounds(preemptions=2),
        EXCLUSIVE,
    ),
    "one that joins an exclusive writer's store": (
        {"joining a": partial(joining, "a"), **OLD_WRITER},
        Bounds(lost_replies=1),
        EXCLUSIVE,
    ),
    "a member and an exclusive writer that opens": ({**TWO, "alone": partial(alone, "w")}, Bounds(), OBJECTS),
    "a member that commits and reads, compactor and collector": (
        {"writer a": partial(committing_and_reading, "a", STATE), **KEEPERS},
        Bounds(lost_replies=1, preemptions=3),
        OBJECTS,
    ),
    "one that opens and reads, a member, compactor and collector; two preemptions": (
        {"opening": opening_and_reading, "writer b": partial(committing, "b", STATE, 2), **KEEPERS},
        Bounds(preemptions=2),
        OBJECTS,
    ),
    "two that keep the store to themselves": (OWNERS, Bounds(preemptions=3), OWNED),
    "two that keep the store to themselves, a lost reply, a crash": (
        OWNERS,
        Bounds(lost_replies=1, crashes=1, preemptions=2),
        OWNED,
    ),
    "an owner and one that joins, a lost reply": (TAKEN, Bounds(lost_replies=1, preemptions=2), OWNED),
    "an owner with two batches in flight and one that joins; one preemption": (
        IN_FLIGHT,
        Bounds(preemptions=1),
        PARALLEL,
    ),
    "two shares of maintenance, a jump of the clock; one preemption": (
        MAINTAINERS,
        Bounds(clock_jumps=1, preemptions=1),
        OBJECTS,
    ),
}
LONG: dict[str, Case] = {
    "an owner that closes, an exclusive writer that opens, compactor and collector; two preemptions": (
        {"owner a": partial(closing, "a", OWNER), "alone": partial(alone, "w"), **KEEPERS},
        Bounds(preemptions=2),
        OWNED,
    ),
    "a member, an exclusive writer that opens, compactor and collector; two preemptions": (
        {"writer b": partial(committing, "b", STATE, 2), "alone": partial(alone, "w"), **KEEPERS},
        Bounds(preemptions=2),
        OBJECTS,
    ),
    "two shares of maintenance, a jump of the clock, a crash; two preemptions": (
        MAINTAINERS,
        Bounds(clock_jumps=1, crashes=1, preemptions=2),
        OBJECTS,
    ),
    "two short-lived processes, a jump of the clock; one preemption": (
        SHORT_LIVED,
        Bounds(clock_jumps=1, preemptions=1),
        OBJECTS,
    ),
    "two members, compactor and collector": ({**TWO, **KEEPERS}, Bounds(), OBJECTS),
    "a member that commits three times and reads, compactor and collector": (
        {"writer a": partial(committing_and_reading, "abc", STATE), **KEEPERS},
        Bounds(preemptions=3),
        OBJECTS,
    ),
    "two members, compactor and collector, a lost reply; two preemptions": (
        {**TWO, **KEEPERS},
        Bounds(lost_replies=1, preemptions=2),
        OBJECTS,
    ),
    "a stale reader, two members, compactor and collector; two preemptions": (
        {"reader": partial(reading, STATE), **TWO, **KEEPERS},
        Bounds(preemptions=2),
        OBJECTS,
    ),
    "two that join an exclusive writer's store, a lost reply; one preemption": (
        {**JOINING, **OLD_WRITER},
        Bounds(lost_replies=1, preemptions=1),
        EXCLUSIVE,
    ),
    "two that keep the store to themselves, compactor and collector; two preemptions": (
        {**OWNERS, **KEEPERS},
        Bounds(preemptions=2),
        OWNED,
    ),
    "an owner, one that joins, compactor and collector; two preemptions": (
        {**TAKEN, **KEEPERS},
        Bounds(preemptions=2),
        OWNED,
    ),
    "an owner with two batches in flight and one that joins; two preemptions": (
        IN_FLIGHT,
        Bounds(preemptions=2),
        PARALLEL,
    ),
    "an owner with two batches in flight and one that joins, a lost reply, a crash; one preemption": (
        IN_FLIGHT,
        Bounds(lost_replies=1, crashes=1, preemptions=1),
        PARALLEL,
    ),
}
CAMPAIGN: dict[str, Case] = {
    "one that opens and reads, two members, compactor and collector; two preemptions": (
        {"opening": opening_and_reading, **TWO, **KEEPERS},
        Bounds(preemptions=2),
        OBJECTS,
    ),
    "two short-lived processes and a stale reader, a jump of the clock, a lost reply; two preemptions": (
        {**SHORT_LIVED, "reader": partial(reading, STATE)},
        Bounds(clock_jumps=1, lost_replies=1, preemptions=2),
        OBJECTS,
    ),
    "two short-lived processes, a crash; two preemptions": (
        SHORT_LIVED,
        Bounds(crashes=1, clock_jumps=1, preemptions=2),
        OBJECTS,
    ),
    "an owner with two batches in flight, one that joins, compactor and collector; two preemptions": (
        {**IN_FLIGHT, **KEEPERS},
        Bounds(preemptions=2),
        PARALLEL,
    ),
    "an owner that does not know how it went, one that joins, compactor and collector; one preemption": (
        {**UNSURE, **KEEPERS},
        Bounds(lost_replies=1, refusals=1, preemptions=1),
        OWNED,
    ),
    "an owner, one that joins, compactor and collector, a lost reply; two preemptions": (
        {**TAKEN, **KEEPERS},
        Bounds(lost_replies=1, preemptions=2),
        OWNED,
    ),
    "two members, compactor and collector, a lost reply": ({**TWO, **KEEPERS}, Bounds(lost_replies=1), OBJECTS),
    "two members, compactor and collector, a crash": ({**TWO, **KEEPERS}, Bounds(crashes=1), OBJECTS),
    "a member, an exclusive writer that opens, compactor and collector": (
        {"writer b": partial(committing, "b", STATE, 2), "alone": partial(alone, "w"), **KEEPERS},
        Bounds(),
        OBJECTS,
    ),
    "one that joins, an exclusive writer, compactor and collector": (
        {"joining a": partial(joining, "a"), **OLD_WRITER, **KEEPERS},
        Bounds(clock_jumps=1),
        EXCLUSIVE,
    ),
}


test_nothing_goes_wrong = nothing_goes_wrong(EXHAUSTED, searched)
test_nothing_goes_wrong_in_long_searches = pytest.mark.slow(nothing_goes_wrong(LONG, searched))
test_nothing_goes_wrong_in_campaigns = pytest.mark.campaign(nothing_goes_wrong(CAMPAIGN, searched))


# Mutants: taken away what makes it safe, the search finds what goes wrong.

STALE_READER: dict[str, Program] = {"reader": partial(reading, STATE), **TWO, **KEEPERS}
MUTANTS: dict[str, Mutant] = {
    "no look at the manifest after the create": (
        mutants.no_look_after_the_create,
        {**TWO, **KEEPERS},
        Bounds(preemptions=2),
        OBJECTS,
        "the acknowledged commit 'a' is missing",
    ),
    "an entry that was compacted is taken for a stale one": (
        mutants.compacted_means_stale,
        {**ONE, "compactor": compactor_open_already},
        Bounds(),
        OBJECTS,
        "a commit counts twice",
    ),
    "no look at the manifest after reading entries": (
        mutants.no_look_after_reading,
        {**TWO, "writer c": partial(committing, "c", STATE), **KEEPERS},
        Bounds(preemptions=2),
        OBJECTS,
        "the acknowledged commit 'b' is missing",
    ),
    "a gap in the log is taken for its end": (
        mutants.a_gap_is_the_end,
        {"writer a": partial(committing_and_reading, "abc", STATE), **KEEPERS},
        Bounds(preemptions=3),
        OBJECTS,
        "a read that began after the commit of 'c' saw",
    ),
    "entries that a newer manifest has compacted are kept": (
        mutants.compacted_entries_kept,
        {**TWO, **KEEPERS},
        Bounds(preemptions=2),
        OBJECTS,
        "a commit counts twice",
    ),
    "shared before the fences stand": (
        mutants.shared_before_the_fences,
        {**JOINING, **OLD_WRITER},
        Bounds(),
        EXCLUSIVE,
        "",
    ),
    "joined without replaying": (
        mutants.joined_without_replaying,
        JOINING,
        Bounds(),
        OBJECTS,
        "the acknowledged commit",
    ),
    "fences are collected, and an owner does not look": (
        mutants_of_the_store.fences_collected,
        {"owner a": partial(committing, "a", OWNER), "owner b": partial(owning, "b", 2), **KEEPERS},
        Bounds(preemptions=2),
        OWNED,
        "the acknowledged commit 'a' is missing",
    ),
    "no fence is kept": (
        mutants.no_fence_is_kept,
        {"owner a": partial(committing, "a", OWNER), "owner b": partial(owning, "b", 2), **KEEPERS},
        Bounds(preemptions=2),
        OWNED,
        "the acknowledged commit 'a' is missing",
    ),
    "void entries are replayed": (
        mutants_of_the_store.void_entries_replayed,
        IN_FLIGHT,
        Bounds(preemptions=1),
        PARALLEL,
        "a commit counts twice",
    ),
    "a compactor whose claim has expired publishes": (
        mutants.expired_claims_publish,
        MAINTAINERS,
        Bounds(clock_jumps=1, preemptions=2),
        OBJECTS,
        "one compactor at a time",
    ),
    "a batch is not computed again after a lost race": (
        mutants.not_computed_again,
        TWO,
        Bounds(),
        OBJECTS,
        "the acknowledged commit",
    ),
}


LONG_MUTANTS: dict[str, Mutant] = {
    "an owner goes on in its epoch after an unknown outcome": (
        nullcontext,
        {**UNSURE, "owner a": partial(committing_again, "a", OWNER, claims=False), **KEEPERS},
        Bounds(lost_replies=1, refusals=1, preemptions=2),
        OWNED,
        "the acknowledged commit 'A' is missing",
    ),
}


test_the_search_finds_what_is_wrong_with_a_mutant = pytest.mark.slow(every_mutant_is_found(MUTANTS, searched))
test_a_long_search_finds_what_is_wrong_with_a_mutant = pytest.mark.campaign(
    every_mutant_is_found(LONG_MUTANTS, searched)
)
