"""Searches of the explorer as tests: cases that must hold, and mutants that must be found."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from endive.testing.automaton import Program
from endive.testing.explorer import Bounds, Exploration, Invariant, explore

Case = tuple[dict[str, Program], Bounds, Mapping[str, bytes]]
Mutant = tuple[Callable[[], Any], dict[str, Program], Bounds, Mapping[str, bytes], str]
Search = Callable[..., Exploration]


def search(
    programs: Mapping[str, Program],
    invariants: Mapping[str, Invariant],
    bounds: Bounds,
    objects: Mapping[str, bytes],
) -> Exploration:
    """Search, and print the number of states."""
    found = explore(programs, invariants, bounds, objects)
    print(f"\n{', '.join(programs)}; {bounds}: {found}")  # noqa: T201 - the number of states is a result
    return found


def nothing_goes_wrong(cases: Mapping[str, Case], searched: Search) -> Callable[[Case], None]:
    """Return a test that exhausts every case and finds no violation."""

    @pytest.mark.parametrize("case", cases.values(), ids=cases.keys())
    def test(case: Case) -> None:
        assert searched(*case).violation is None

    return test


def every_mutant_is_found(mutants: Mapping[str, Mutant], searched: Search) -> Callable[[Mutant], None]:
    """Return a test that finds the violation of every mutant."""

    @pytest.mark.parametrize("case", mutants.values(), ids=mutants.keys())
    def test(case: Mutant) -> None:
        mutant, programs, bounds, objects, expected = case
        with mutant():
            found = searched(programs, bounds, objects, expected)

        assert found.violation is not None
        assert expected in found.violation
        assert found.trace

    return test
