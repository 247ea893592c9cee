"""Seeded runs in virtual time. A failure prints the seed and the command that replays it."""

import pytest

from tests.simulation.history import Operation, is_linearizable
from tests.simulation.run import Run, failures


def test_nothing_goes_wrong_in_a_few_runs() -> None:
    assert list(failures(range(20))) == []


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(3))
def test_nothing_goes_wrong_in_hundreds_of_runs(hundred: int) -> None:
    assert list(failures(range(1000 + 100 * hundred, 1100 + 100 * hundred))) == []


@pytest.mark.campaign
@pytest.mark.parametrize("part", range(50))
def test_nothing_goes_wrong_in_ten_thousand_runs(part: int) -> None:
    assert list(failures(range(10_000 + 200 * part, 10_200 + 200 * part))) == []


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = Run(5), Run(5)

    assert first.play() == second.play()
    assert first.history.operations == second.history.operations
    assert first.cluster.objects.list("") == second.cluster.objects.list("")


def test_runs_see_writes_reads_and_injected_faults() -> None:
    runs = [Run(seed) for seed in range(8)]
    for run in runs:
        run.play()

    operations = [one for run in runs for one in run.history.operations]
    assert sum(one.is_read for one in operations) > 300
    assert sum(not one.is_read for one in operations) > 300
    assert any(one.answered_ms == float("inf") and not one.is_read for one in operations)
    assert any(not machine.is_up for run in runs for machine in run.cluster.machines)
    assert sum(run.checkpoints_kept for run in runs) > 5
    assert any(machine.clock_jumps for run in runs for machine in run.cluster.machines)


# The checker itself.


def write(value: str, called_ms: float, answered_ms: float = float("inf")) -> Operation:
    return Operation("k", called_ms, value, answered_ms=answered_ms)


def read(value: str, called_ms: float, answered_ms: float) -> Operation:
    return Operation("k", called_ms, value, is_read=True, answered_ms=answered_ms)


def test_a_read_that_overlaps_a_write_may_see_either() -> None:
    assert is_linearizable([write("1", 0, 1), write("2", 2, 5), read("1", 3, 4)])
    assert is_linearizable([write("1", 0, 1), write("2", 2, 5), read("2", 3, 4)])


def test_a_read_after_a_write_must_see_it() -> None:
    assert not is_linearizable([write("1", 0, 1), read("", 2, 3)])


def test_reads_may_not_go_back() -> None:
    assert not is_linearizable([write("1", 0, 1), write("2", 2, 9), read("2", 3, 4), read("1", 5, 6)])


def test_a_write_of_unknown_outcome_may_happen_late_or_never() -> None:
    assert is_linearizable([write("1", 0, 1), write("2", 2), read("1", 3, 4), read("2", 9, 10)])
    assert is_linearizable([write("1", 0, 1), write("2", 2), read("1", 3, 4), read("1", 9, 10)])
    assert not is_linearizable([write("1", 0, 1), write("2", 2), read("2", 3, 4), read("1", 9, 10)])
