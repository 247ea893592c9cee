"""Seeded runs of writers that help each other, in virtual time. A failure prints the seed and how to replay it."""

from math import inf

import pytest

from tests.races import helping_mutants as mutants
from tests.simulation.helping_run import HelpingRun, failures


def test_nothing_goes_wrong_in_a_few_runs() -> None:
    assert list(failures(range(10))) == []


@pytest.mark.slow
def test_nothing_goes_wrong_in_dozens_of_runs() -> None:
    assert list(failures(range(1000, 1040))) == []


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(40))
def test_nothing_goes_wrong_in_thousands_of_runs(part: int) -> None:
    assert list(failures(range(10_000 + 500 * part, 10_500 + 500 * part))) == []


def test_a_run_can_be_repeated() -> None:
    first, second = HelpingRun(7), HelpingRun(7)

    assert first.play() == second.play()
    assert first.appended == second.appended
    assert first.told == second.told


def test_runs_do_something() -> None:
    runs = [HelpingRun(seed) for seed in (0, 1, 6)]
    for run in runs:
        run.play()

    assert sum(one.acknowledged_ms < inf for run in runs for one in run.appended.values()) > 300
    assert sum(run.by_others for run in runs) > 30
    assert sum(run.expired for run in runs) > 0
    assert all(run.refused for run in runs)


@pytest.mark.slow
def test_runs_find_what_is_wrong_with_a_mutant() -> None:
    with mutants.results_not_looked_up():
        assert any("there twice" in failure for failure in failures(range(20)))
