"""`endive capacity`: the highest load that holds a target."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from endive.cli.app import app
from endive.errors import ConfigurationError
from endive.sim.config.configuration import Settings, parse_configuration
from endive.sim.config.distributions import DistributionSection
from endive.sim.engine.kernel import ROW
from endive.sim.engine.run import summarise_compiled
from endive.sim.results.axis import shrunk
from endive.sim.results.capacity import (
    EVERYWHERE,
    NOWHERE,
    Capacity,
    Search,
    SeedCapacity,
    Trial,
    find_capacity,
    load_of,
    load_scale,
    seed_capacity,
    with_load,
)
from endive.sim.results.capacity_cases import parse_vary
from endive.sim.results.capacity_wording import no_answer, sentence
from endive.sim.results.summary import Glance, LatencyMetrics, Summary, Window, drift
from endive.sim.results.targets import Target

WINDOW = Window(0.0, 1_000_000.0)


def a_summary(success: float | None, p99_ms: float = 100.0) -> Summary:
    return Summary(
        window=WINDOW,
        offered_per_s=1.0,
        finished_per_s=1.0,
        committed_per_s=1.0,
        success=success,
        success_whole_run=success,
        latency={"all": LatencyMetrics(10, p99_ms / 2, p99_ms, p99_ms, p99_ms)},
        retries_mean=1.0,
        time_ms={"catalog_read": 1.0, "per_attempt_io": 50.0, "backoff": 2.0},
        overhead=0.5,
        requests={"manifest_list_reads": 2.0},
        aborted={"max_retries_exceeded": 3},
        unfinished=0,
        transactions=10,
    )


def search(simulate: Callable[[float], Summary], target: Target, start: float = 1.0) -> SeedCapacity:
    def evaluate(load_per_s: float) -> Trial:
        summary = simulate(load_per_s)
        return Trial(summary, target.broken_by(summary))

    return find_capacity(evaluate, Search(load_scale(window_s=1_000_000), start, tolerance=0.01))


@pytest.mark.parametrize("start", [0.01, 1.0, 40.0])
def test_bisection_finds_the_load_at_which_success_falls_below_the_target(start: float) -> None:
    found = search(lambda load: a_summary(1.0 if load <= 7.3 else 0.5), Target(0.95), start)
    assert found.value <= 7.3 < found.value * 1.01
    assert found.limit == "success: retries run out"


def test_the_latency_can_be_the_limit() -> None:
    found = search(lambda load: a_summary(1.0, 100 * load), Target(0.95, p99_ms=330))
    assert found.value == pytest.approx(3.3, rel=0.01)
    assert found.limit == "p99 latency: most of it is per attempt I/O"


def test_a_target_that_holds_nowhere_gives_no_load() -> None:
    found = search(lambda _: a_summary(0.9), Target(0.95))
    assert found.value == NOWHERE


def test_a_target_that_holds_everywhere_gives_no_limit() -> None:
    found = search(lambda _: a_summary(1.0), Target(0.95))
    assert found.value == EVERYWHERE


def test_a_run_in_which_nothing_finishes_holds_nothing() -> None:
    assert Target(0.0).broken_by(a_summary(None)) == "nothing finishes in the window"


CONFIGURATION = """
    simulation.duration_ms = 120_000
    storage = { provider = "s3", profiles = "measured" }
    catalog.type = "cas"
    [transaction]
    inter_arrival = { distribution = "lognormal", median = 500, sigma = 0.5 }
    runtime = { value = 1_000 }
    operation_types.fast_append = 1
    """


def settings(*overrides: str) -> Settings:
    return parse_configuration(CONFIGURATION, overrides=overrides)


def test_a_load_is_one_over_the_mean_time_between_arrivals() -> None:
    assert load_of(settings()) == pytest.approx(2 / math.exp(0.125), rel=0.001)
    assert load_of(with_load(settings(), 3.0)) == pytest.approx(6 / math.exp(0.125), rel=0.001)


@pytest.mark.parametrize(
    "section",
    [
        {"scale": 300.0},
        {"value": 300.0},
        {"mean": 300.0, "sigma": 0.7, "min": 10.0},
        {"distribution": "uniform", "min": 100.0, "max": 500.0},
        {"mean": 300.0, "stddev": 30.0},
        {"quantiles": ((0.0, 100.0), (1.0, 900.0))},
        {"base": 100.0, "per_mib": 0.0, "sigma": 0.3},
    ],
)
def test_every_law_of_arrivals_is_scaled_in_time_only(section: dict[str, object]) -> None:
    before = DistributionSection.model_validate(section).build()
    after = shrunk(DistributionSection.model_validate(section), 4.0).build()
    for u in (0.01, 0.5, 0.99):
        assert after.quantile.ticks_at(u) == pytest.approx(before.quantile.ticks_at(u) / 4, rel=1e-6)


def test_a_closed_loop_has_no_offered_load() -> None:
    closed = parse_configuration(
        CONFIGURATION.replace("inter_arrival", 'arrivals = "closed"\n    writers = 3\n    think')
    )
    with pytest.raises(ConfigurationError, match="only open arrivals"):
        load_of(closed)


def test_the_capacity_of_a_configuration_holds_and_a_little_more_does_not() -> None:
    target = Target(0.9)
    found = seed_capacity(settings("transaction.retry=2"), 1, target, 0.02)
    assert 0.5 < found.value < 50
    assert target.broken_by(found.at_capacity) is None
    chosen = settings("transaction.retry=2")
    more = with_load(chosen, 1.1 * found.value / load_of(chosen))
    assert target.broken_by(summarise_compiled(more, 1, chosen.window)[0]) is not None


def test_a_growing_backlog_does_not_hold_a_target() -> None:
    behind = replace(a_summary(1.0), offered_per_s=100.0, finished_per_s=7.0)
    assert Target(0.95).broken_by(behind) == "a backlog: transactions arrive faster than they finish"


def run(*arguments: str, tmp: Path) -> tuple[int, str]:
    file = tmp / "c.toml"
    file.write_text(CONFIGURATION, encoding="utf-8")
    result = CliRunner().invoke(app, ["capacity", str(file), *arguments])
    return result.exit_code, result.output


def test_the_answer_is_a_sentence_with_its_interval(tmp_path: Path) -> None:
    code, text = run("--success", "0.9", "--seeds", "1..2", "--tolerance", "0.1", tmp=tmp_path)
    assert code == 0
    assert "Amazon S3 Standard, 1 table:" in text
    assert "±" in text
    assert "commits/s at 90 % success of what finishes" in text
    assert "the limit is success: retries run out" in text


def test_an_interval_that_seeds_do_not_give_is_not_shown(tmp_path: Path) -> None:
    _, text = run("--success", "0.9", "--seeds", "1..1", "--tolerance", "0.1", tmp=tmp_path)
    assert ", 1 seed, " in text
    assert "±" not in text

    alike = SeedCapacity(3.0, a_summary(0.96), "success: retries run out")
    assert "±" not in sentence(settings(), Capacity((alike, alike), Target(0.95)))


def test_an_impossible_target_is_said_to_be_one(tmp_path: Path) -> None:
    code, text = run("--p99-ms", "1", "--seeds", "1..2", tmp=tmp_path)
    assert code == 0
    assert "does not hold at any load" in text
    assert "ask for less" in text


def test_a_configuration_in_which_nothing_finishes_says_what_to_change(tmp_path: Path) -> None:
    code, text = run("--set", "transaction.runtime.value=200_000", "--seeds", "1..2", tmp=tmp_path)
    assert code == 0
    assert "nothing finishes in the window" in text
    assert "run longer" in text


def test_another_seeds_answer_is_only_where_the_search_begins() -> None:
    target = Target(0.9)
    alone = seed_capacity(settings("transaction.retry=2"), 2, target, 0.01)
    guided = seed_capacity(settings("transaction.retry=2"), 2, target, 0.01, near=replace(alone, value=20.0))
    assert guided.value == pytest.approx(alone.value, rel=0.15)


def test_seeds_that_disagree_are_said_to_disagree() -> None:
    holding = SeedCapacity(3.0, a_summary(0.96), "success: retries run out")
    failing = SeedCapacity(NOWHERE, a_summary(0.94), "success: retries run out")
    always = SeedCapacity(EVERYWHERE, a_summary(1.0), "none found")
    target = Target(0.95)
    assert "holds in 2 of 3 seeds" in no_answer(Capacity((holding, failing, always), target))
    assert "does not hold at any load" in no_answer(Capacity((failing, failing), target))
    assert "holds at every load tried" in no_answer(Capacity((always, always), target))


def test_a_run_that_would_hold_is_seen_to_its_end() -> None:
    glance = Glance(WINDOW)
    count = 60_000
    ends = np.arange(count, dtype=np.int64) * 1_000_000
    rows = {name: np.zeros(count, np.int64) for name in ROW}
    glance.add(rows | {"t_submit": ends, "status": np.full(count, 2)})
    assert not Target(0.95).is_missed(glance)
    glance.add(rows | {"t_submit": ends, "status": np.full(count, 3), "abort_reason": np.ones(count, np.int64)})
    assert Target(0.95).is_missed(glance)


def test_tables_and_words_can_be_varied() -> None:
    assert parse_vary("storage.provider=s3,s3x") == ("storage.provider", ["s3", "s3x"])
    assert parse_vary("catalog.num_tables=1,10") == ("catalog.num_tables", ["1", "10"])
    mixes = parse_vary("t.mix={ a = 0.9, b = 0.1 },{ a = 1.0 }")
    assert mixes == ("t.mix", ["{ a = 0.9, b = 0.1 }", "{ a = 1.0 }"])


def test_the_only_case_is_named_by_its_label(tmp_path: Path) -> None:
    code, text = run("--seeds", "1..1", "--tolerance", "0.5", "--json", tmp=tmp_path)
    assert code == 0
    assert list(json.loads(text[text.index("{") :])) == ["c"]


def test_saturated_manifest_lists_miss_a_target_and_are_no_defect() -> None:
    """ML+ far beyond what a list takes: appends are refused over and over, which is ordinary saturation."""
    saturated = parse_configuration(
        """
        simulation.duration_ms = 30_000
        storage = { provider = "s3x", profiles = "measured" }
        [transaction]
        manifest_list_mode = "append"
        inter_arrival.scale = 2
        runtime.value = 50
        operation_types.fast_append = 1
        """
    )
    found = seed_capacity(saturated, 1, Target(0.9), 0.2)
    assert found.is_finite
    assert found.value < load_of(saturated)


def test_values_of_an_option_make_a_table(tmp_path: Path) -> None:
    options = ("--vary", "catalog.num_tables=1,4", "--seeds", "1..2", "--tolerance", "0.2", "--json")
    code, text = run(*options, tmp=tmp_path)
    answers = json.loads(text[text.index("{") :])
    assert code == 0
    assert list(answers) == ["catalog.num_tables=1", "catalog.num_tables=4"]
    one, four = (answer["commits_per_s"]["mean"] for answer in answers.values())
    assert four > one


@pytest.mark.parametrize("wrong", ["catalog.num_tables", "=1,2", "catalog.num_tabels=1,2", "catalog.num_tables=0"])
def test_a_wrong_value_to_vary_is_refused_before_anything_runs(tmp_path: Path, wrong: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(CONFIGURATION, encoding="utf-8")
    with pytest.raises(ConfigurationError):
        CliRunner().invoke(app, ["capacity", str(file), "--vary", wrong], catch_exceptions=False)


def test_a_rate_that_changes_within_the_window_is_reported() -> None:
    steady = np.array([100, 104, 97, 99, 101, 103, 98, 100, 102, 96] * 2)
    double = np.concatenate([steady[:10], steady[10:] * 2])
    assert drift(steady, steady) is None
    assert drift(double, double) == pytest.approx(1.0)
    assert drift(double, steady) == pytest.approx(1.0)  # commits are steady, but more and more fail
    assert drift(np.zeros(20), np.zeros(20)) is None
