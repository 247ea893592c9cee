"""Seeded runs of shared stores in virtual time. A failure prints the seed and the command that replays it."""

from math import inf

import pytest

from tests.races import writer_mutants as mutants
from tests.simulation.shared_run import SharedRun, failures


def test_nothing_goes_wrong_in_a_few_runs() -> None:
    assert list(failures(range(20))) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_nothing_goes_wrong_in_dozens_of_runs(part: int) -> None:
    assert list(failures(range(1000 + 30 * part, 1030 + 30 * part))) == []


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(20))
def test_nothing_goes_wrong_in_thousands_of_runs(part: int) -> None:
    assert list(failures(range(10_000 + 250 * part, 10_250 + 250 * part))) == []


def test_a_run_can_be_repeated() -> None:
    first, second = SharedRun(7), SharedRun(7)

    assert first.play() == second.play()
    assert first.appended == second.appended
    assert first.seen == second.seen


def test_runs_do_something() -> None:
    run = SharedRun(7)
    run.play()

    assert sum(one.acknowledged_ms < inf for one in run.appended.values()) > 100
    assert len(run.seen) > 10
    assert run.refused


def test_short_lived_processes_do_their_share() -> None:
    shares = 0
    for seed in range(4):
        run = SharedRun(seed)
        assert run.play() == []
        shares += run.shares

    assert shares > 0


@pytest.mark.slow
def test_runs_find_what_is_wrong_with_a_mutant() -> None:
    with mutants.compacted_means_stale():
        assert any("there twice" in failure for failure in failures(range(60)))
