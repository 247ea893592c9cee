"""Seeded runs with a clone. A failure prints the seed and the command that replays it."""

import pytest

from tests.races.test_clones import released_at_once
from tests.simulation.clone_run import CloneRun, failures


def test_nothing_goes_wrong_in_a_few_runs() -> None:
    assert list(failures(range(6))) == []


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(20))
def test_nothing_goes_wrong_in_thousands_of_runs(part: int) -> None:
    assert list(failures(range(20_000 + 250 * part, 20_250 + 250 * part))) == []


def test_runs_do_something() -> None:
    runs = [CloneRun(seed) for seed in range(3)]
    for run in runs:
        run.play()

    assert sum(run.clones for run in runs) >= 2
    assert sum(sum(run.own.values()) for run in runs) > 20


@pytest.mark.slow
def test_runs_find_what_is_wrong_with_a_mutant() -> None:
    with released_at_once():
        assert any("MissingObjectError" in failure for failure in failures(range(15, 19)))
