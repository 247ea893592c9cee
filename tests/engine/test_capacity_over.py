"""`endive capacity --over KEY`: any number of a configuration, and targets of each class."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import endive
from endive.cli.app import app
from endive.errors import ConfigurationError
from endive.sim.config.configuration import Settings, parse_configuration
from endive.sim.config.defaults import value_at
from endive.sim.results.axis import Axis, Scale, axis_of, spread
from endive.sim.results.capacity import (
    EVERYWHERE,
    Capacity,
    Search,
    SeedCapacity,
    Trial,
    find_capacity,
    find_direction,
    late_class,
)
from endive.sim.results.capacity_wording import few_transactions, no_answer, sentence
from endive.sim.results.summary import Summary
from endive.sim.results.targets import Condition, Target, parse_conditions
from tests.engine.test_capacity import a_summary

FLEET = """
    simulation.duration_ms = 1_200_000
    storage = { provider = "s3", profiles = "measured" }
    catalog = { num_tables = 4, conflict_granularity = "table" }
    transaction = { cost_model = "iceberg", retry = 2 }
    [workload.streams]
    arrivals = "triggered"
    interval_ms = 10_000
    writers = 20
    tables.shares = [4, 3, 2, 1]
    runtime = { value = 1_000 }
    operation_types.fast_append = 1
    [workload.compaction]
    arrivals = "triggered"
    interval_ms = 60_000
    runtime = { value = 20_000 }
    operation_types.rewrite = 1
    """
CLOSED = """
    simulation.duration_ms = 300_000
    storage = { provider = "s3", profiles = "measured" }
    [transaction]
    retry = 3
    arrivals = "closed"
    writers = 2
    think = { value = 1_000 }
    runtime = { value = 500 }
    operation_types.fast_append = 1
    """


def fleet(*overrides: str) -> Settings:
    return parse_configuration(FLEET, overrides=overrides)


def with_classes(streams: Summary, compaction: Summary) -> Summary:
    return replace(a_summary(1.0), classes={"streams": streams, "compaction": compaction})


# Conditions.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("compaction.success>=0.9", Condition("success", 0.9, at_least=True, of="compaction")),
        ("compaction.success >= 90%", Condition("success", 0.9, at_least=True, of="compaction")),
        ("streams.p99_ms<=5_000", Condition("p99_ms", 5000.0, at_least=False, of="streams")),
        ("retries_mean<=1.5", Condition("retries_mean", 1.5, at_least=False)),
    ],
)
def test_a_condition_names_a_class_and_a_metric(text: str, expected: Condition) -> None:
    assert parse_conditions([text], ["streams", "compaction"]) == (expected,)


def test_wrong_conditions_are_reported_at_once_with_a_remedy() -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_conditions(["compaction.success", "stream.success>=0.9", "success>=95"], ["streams"])
    first, second, third = caught.value.errors
    assert "in quotes: a shell takes < and > for redirections" in first
    assert second == "stream.success: no such metric; did you mean 'streams.success'?"
    assert third.endswith("a share is at most 1; write 0.95 or 95%")


def test_every_condition_must_hold_and_the_first_that_fails_is_named() -> None:
    target = Target(None, conditions=parse_conditions(["a.success>=0.9", "b.p99_ms<=200"], ["a", "b"]))
    for success, p99_ms, expected in (
        (0.95, 150.0, None),
        (0.85, 300.0, "more than 10 % of a fail: retries run out"),
        (0.95, 300.0, "b.p99_ms is above 200: most of it is per attempt I/O"),
    ):
        summary = replace(a_summary(1.0), classes={"a": a_summary(success), "b": a_summary(1.0, p99_ms)})
        assert target.broken_by(summary) == expected


def test_a_class_in_which_nothing_finishes_misses_its_condition() -> None:
    target = Target(None, conditions=parse_conditions(["compaction.success>=0.1"], ["compaction"]))
    summary = with_classes(a_summary(1.0), a_summary(None))
    assert target.broken_by(summary) == "no transaction of compaction finishes in the window"


# Numbers of a configuration.


def test_a_key_of_a_class_is_found_with_its_value_and_its_limits() -> None:
    axis = axis_of(fleet(), "streams.writers")
    assert (axis.key, axis.today, axis.scale.whole, axis.scale.lowest) == ("workload.streams.writers", 20, True, 1)
    assert axis.known_direction == "larger"
    assert value_at(axis.at(33).values, "workload.streams.writers") == 33
    assert axis_of(fleet(), "streams.interval_ms").known_direction == "smaller"
    assert axis_of(fleet(), "catalog.num_tables").known_direction is None


def test_a_distribution_is_varied_by_its_mean() -> None:
    axis = axis_of(fleet("workload.streams.runtime={ mean = 800, sigma = 1.0 }"), "streams.runtime")
    assert axis.today == pytest.approx(800, rel=0.01)
    changed = value_at(axis.at(2 * axis.today).values, "workload.streams.runtime")
    assert (changed.mean, changed.sigma) == (pytest.approx(1600, rel=0.01), 1.0)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("streams.writer", "no such key; did you mean 'streams.writers'?"),
        ("transaction.arrivals", "is not a number; compare its values with --vary"),
        ("transaction.retry_timeout_ms", "has no value here; name a class, such as streams.retry_timeout_ms"),
        ("streams.think", "has a mean of 0"),
    ],
)
def test_a_key_that_is_not_a_number_is_refused(key: str, expected: str) -> None:
    with pytest.raises(ConfigurationError, match="--over") as caught:
        axis_of(fleet(), key)
    assert expected in caught.value.errors[0]


def test_shares_are_divided_over_another_number_of_tables() -> None:
    assert spread([4, 2], 4) == [2, 2, 1, 1]
    assert spread([4, 3, 2, 1], 2) == [7, 3]
    assert sum(spread([4, 3, 2, 1], 3)) == pytest.approx(10)
    at_eight = axis_of(fleet(), "catalog.num_tables").at(8)
    assert at_eight.values.workload["streams"].tables.shares == (2, 2, 1.5, 1.5, 1, 1, 0.5, 0.5)


# Searching.


def search(axis: Axis, holds: Callable[[float], bool], tolerance: float = 0.01) -> SeedCapacity:
    def evaluate(value: float) -> Trial:
        return Trial(a_summary(1.0), None if holds(value) else "too much")

    return find_capacity(evaluate, Search(axis.scale, axis.today, tolerance))


def test_whole_numbers_are_searched_to_the_last_one_that_holds() -> None:
    axis = axis_of(fleet("workload.streams.writers=5"), "streams.writers").towards("larger")
    found = search(axis, lambda value: value <= 37, tolerance=0.001)
    assert (found.value, found.beyond) == (37, 38)
    assert search(axis, lambda value: value <= 2, tolerance=0.001).value == 2
    assert search(axis, lambda _value: False).limit == "too much"


def test_values_can_be_worse_when_they_are_smaller() -> None:
    axis = axis_of(fleet(), "streams.interval_ms").towards("smaller")
    found = search(axis, lambda value: value >= 1_234.5)
    assert found.value / 1.01 <= 1_234.5 <= found.value
    assert found.beyond is not None
    assert found.beyond < 1_234.5


def test_no_retries_at_all_are_tried() -> None:
    axis = axis_of(fleet(), "streams.retry").towards("smaller")
    assert search(axis, lambda _value: True).value == EVERYWHERE
    found = search(axis, lambda value: value >= 1)
    assert (found.value, found.beyond) == (1, 0)


def test_a_search_can_begin_at_zero() -> None:
    axis = axis_of(fleet(), "streams.real_conflict_probability").towards("larger")
    assert axis.today == 0
    found = search(axis, lambda value: value <= 0.05)
    assert found.value <= 0.05 < found.value * 1.011


@pytest.mark.parametrize(("worse", "limit"), [("larger", 90.0), ("smaller", 6.0)])
@pytest.mark.parametrize("start", [2, 20, 200])
def test_the_worse_side_is_found_by_trying(worse: str, limit: float, start: int) -> None:
    axis = axis_of(fleet(f"workload.streams.writers={start}"), "streams.writers")

    def evaluate(value: float) -> Trial:
        holds = value <= limit if worse == "larger" else value >= limit
        return Trial(a_summary(1.0), None if holds else "too much")

    assert find_direction(evaluate, axis) == worse


def test_a_number_without_influence_has_no_worse_side() -> None:
    axis = axis_of(fleet(), "streams.writers")
    assert find_direction(lambda _: Trial(a_summary(1.0), None), axis) is None


def test_a_scale_ends_at_the_limits_of_the_key() -> None:
    scale = Scale(0, 1.0)
    assert scale.harder(0.8, 2.0) == 1.0
    assert scale.harder(1.0, 2.0) is None
    assert scale.easier(0.0, 2.0) is None


# Answers.


def an_answer(*values: tuple[float, float], name: str = "streams.writers") -> Capacity:
    seeds = tuple(SeedCapacity(value, a_summary(1.0), "too much", beyond) for value, beyond in values)
    axis = axis_of(fleet(), name)
    return Capacity(seeds, Target(0.95), axis.towards(axis.known_direction or "larger"))


def test_the_interval_contains_the_tolerance_of_the_search() -> None:
    exact = an_answer((350, 350), (354, 354)).value
    assert exact.half_width == pytest.approx(12.706 * 2, rel=0.001)
    wide = an_answer((350, 353), (354, 357)).value
    assert wide.mean == exact.mean == 352
    assert wide.half_width == pytest.approx((exact.half_width or 0) + 3)
    alike = an_answer((350, 353), (350, 353)).value
    assert alike.half_width == 3  # seeds that agree say nothing of the tolerance


def test_the_answer_says_how_far_today_is_from_the_limit() -> None:
    assert "you run 20 (streams.writers); 95 % success holds up to 352 ± " in sentence(
        fleet(), an_answer((350, 353), (354, 357))
    )
    assert "17.6 times today's; beyond it too much" in sentence(fleet(), an_answer((350, 353), (354, 357)))
    assert "does not hold today; it holds up to 10" in sentence(fleet(), an_answer((10, 11), (10, 11)))
    assert "holds down to 5,000" in sentence(fleet(), an_answer((5000, 4990), name="streams.interval_ms"))
    everywhere = no_answer(an_answer((EVERYWHERE, math.nan)))
    assert everywhere == "holds at every value of streams.writers tried, up to 20,480"


def test_triggers_that_are_missed_are_a_limit() -> None:
    busy = replace(a_summary(1.0), offered_per_s=0.5)
    settings = fleet("workload.streams.interval_ms=1_000")
    found = late_class(settings, with_classes(busy, a_summary(1.0)))
    assert found == "streams falls behind its triggers: transactions outlast the interval"
    assert late_class(settings, with_classes(replace(busy, offered_per_s=19.0), a_summary(1.0))) is None


def test_a_class_with_few_transactions_is_reported() -> None:
    target = Target(None, conditions=parse_conditions(["compaction.success>=0.9"], ["compaction"]))
    few = with_classes(a_summary(1.0), replace(a_summary(0.9), finished_per_s=12 / 1_000))
    answer = Capacity((SeedCapacity(30, few, "too much"),), target, axis_of(fleet(), "streams.writers"))
    (warning,) = few_transactions(fleet(), answer)
    assert warning.startswith("only 12 transactions of compaction finish in the window")
    assert "run longer: --set simulation.duration_ms=" in warning


# The command, and `import endive`.


def run(text: str, tmp: Path, *arguments: str) -> tuple[int, str]:
    file = tmp / "fleet.toml"
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["capacity", str(file), "--tolerance", "0.1", "--seeds", "1..2", *arguments])
    return result.exit_code, result.stdout


def test_writers_of_a_class_are_searched_under_targets_of_two_classes(tmp_path: Path) -> None:
    targets = ("--target", "compaction.success>=0.5", "--target", "streams.p99_ms<=20000")
    code, text = run(FLEET, tmp_path, "--over", "streams.writers", *targets, "--json")
    (answer,) = json.loads(text).values()
    assert code == 0
    assert answer["target"] == "compaction.success >= 0.5 and streams.p99_ms <= 20000"
    assert answer["today"] == 20
    assert answer["headroom"] == pytest.approx(answer["value"]["mean"] / 20)
    assert answer["meets_target_today"] is (answer["value"]["mean"] >= 20)
    assert answer["value"]["trust"] == "unchecked"
    assert (answer["catalog"], answer["granularity"]) == ("cas", "table")
    assert answer["dollars_per_million_commits"]["mean"] > 0
    assert "of compaction fail" in answer["limit"]


def test_a_closed_loop_has_a_capacity_of_writers(tmp_path: Path) -> None:
    code, text = run(CLOSED, tmp_path, "--over", "transaction.writers", "--success", "0.9")
    assert code == 0
    assert "you run 2 (transaction.writers); 90 % success holds up to" in text


def test_a_table_of_cases_has_todays_value(tmp_path: Path) -> None:
    vary = ("--vary", "storage.provider=s3,s3x")
    code, text = run(CLOSED, tmp_path, "--over", "transaction.writers", *vary)
    assert code == 0
    heading, slow, fast = text.splitlines()[:3]
    assert heading.split()[:3] == ["case", "today", "transaction.writers"]
    assert float(fast.split()[2].replace(",", "")) > float(slow.split()[2].replace(",", ""))


def test_without_a_key_a_fleet_says_which_ones_it_has(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text(FLEET, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"--over streams\.writers or --over streams\.interval_ms"):
        CliRunner().invoke(app, ["capacity", str(file)], catch_exceptions=False)


def test_the_api_has_the_same_search() -> None:
    found = endive.capacity(CLOSED, 0.9, over="transaction.writers", seeds=[1, 2], tolerance=0.1)
    (answer,) = found.answers.values()
    assert answer.exists
    assert answer.value.mean > 2
    assert answer.axis is not None
    assert found.to_arrow().column("value").to_pylist() == [answer.value.mean]


def test_both_directions_give_the_same_limit() -> None:
    stated = endive.capacity(CLOSED, 0.9, over="transaction.writers", worse="larger", seeds=1, tolerance=0.1)
    known = endive.capacity(CLOSED, 0.9, over="transaction.writers", seeds=1, tolerance=0.1)
    assert stated.document() == known.document()
