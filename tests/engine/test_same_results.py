"""The compiled engine gives the readable engine's results, bit for bit, for every option."""

from collections import Counter
from typing import get_args

import pytest

from endive.errors import ConfigurationError, InvariantError
from endive.sim.config.catalogs import load_presets
from endive.sim.config.configuration import Settings, parse_configuration
from endive.sim.config.schema import Configuration
from endive.sim.engine.run import summarise_compiled
from endive.sim.engines import Engine, simulate
from endive.sim.results.statistics import RunResult
from endive.sim.results.summary import Glance, summarise
from tests.engine.configurations import configuration

FAST_SAMPLE = range(500, 560, 10)
SAMPLE = range(0, 120, 10)
CAMPAIGN = range(1_000, 5_000, 50)
"""At least 3,000 of these are valid; `test_the_campaign_is_large_enough` counts them."""


def valid(number: int) -> Settings | None:
    try:
        return parse_configuration(configuration(number), f"configuration-{number}")
    except ConfigurationError:
        return None


def outcome(settings: Settings, seed: int, engine: Engine) -> RunResult | str:
    """Return the result, or the rule that the run broke: both engines must then say so."""
    try:
        return simulate(settings, seed, engine)
    except InvariantError as error:
        return error.rule


def compare(number: int) -> int:
    """Run configuration `number` on both engines; return how many transactions were compared."""
    settings = valid(number)
    if settings is None:
        return 0
    expected, found = outcome(settings, number, "reference"), outcome(settings, number, "compiled")
    replay = f"differs: see tests/engine/configurations.py, configuration({number}), seed {number}"
    if isinstance(expected, str) or isinstance(found, str):
        assert expected == found, replay
        return 0
    assert expected.table.equals(found.table), replay
    assert expected.counters == found.counters, replay
    assert expected.seq == found.seq, replay
    return int(expected.table.num_rows)


@pytest.mark.parametrize("first", FAST_SAMPLE)
def test_a_random_configuration_gives_equal_rows_and_counters(first: int) -> None:
    number = next(number for number in range(first, first + 10) if valid(number) is not None)
    assert compare(number) > 0


@pytest.mark.slow
@pytest.mark.parametrize("first", SAMPLE)
def test_random_configurations_give_equal_rows_and_counters(first: int) -> None:
    assert sum(compare(number) for number in range(first, first + 10)) > 0


@pytest.mark.campaign
@pytest.mark.parametrize("first", CAMPAIGN)
def test_thousands_of_random_configurations_give_equal_rows_and_counters(first: int) -> None:
    assert sum(compare(number) for number in range(first, first + 50)) > 0


@pytest.mark.campaign
def test_the_campaign_is_large_enough() -> None:
    assert sum(valid(number) is not None for first in CAMPAIGN for number in range(first, first + 50)) >= 3_000


def test_the_configurations_draw_every_preset() -> None:
    with_preset = (number for number in range(2_000) if "preset = " in configuration(number))
    drawn = {settings.values.catalog.preset for number in with_preset if (settings := valid(number)) is not None}
    assert drawn == set(load_presets())


@pytest.mark.slow
def test_the_configurations_reach_every_choice_of_the_schema() -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for number in range(300):
        settings = valid(number)
        if settings is not None:
            for one in settings.values.by_class().values():
                values = one.transaction.model_dump() | one.catalog.model_dump()
                seen.update((key, value) for key, value in values.items() if isinstance(value, str))
    for section in ("transaction", "catalog"):
        model = Configuration.model_fields[section].annotation
        assert model is not None
        for key, info in model.model_fields.items():
            for choice in _choices(info.annotation):
                assert seen[key, choice] > 0, f"no configuration has {section}.{key} = {choice!r}"


def _choices(annotation: object) -> list[str]:
    arguments = getattr(annotation, "__args__", ())
    words = [word for word in arguments if isinstance(word, str)]
    return words + [word for inner in arguments if not isinstance(inner, str) for word in _choices(inner)]


@pytest.mark.slow
def test_every_outcome_occurs_in_the_sample() -> None:
    counters: Counter[str] = Counter()
    for number in range(140):
        settings = valid(number)
        found = outcome(settings, number, "compiled") if settings else "refused"
        if isinstance(found, RunResult):
            counters += found.counters
    from endive.sim.engine.kernel import COUNTERS

    assert set(COUNTERS) == set(counters)


def test_the_metrics_do_not_depend_on_whether_the_rows_are_kept() -> None:
    settings = valid(2) or valid(3)
    assert settings is not None
    result = simulate(settings, 7)
    whole = summarise(result.table, settings.window)
    assert summarise_compiled(settings, 7, settings.window) == (whole, result.counters)
    assert whole.transactions > 0


def test_a_glance_counts_what_the_summary_counts() -> None:
    text = """
        simulation.duration_ms = 600_000
        storage.provider = "s3"
        transaction = { runtime.value = 100, retry = 1 }
        workload.fast = { inter_arrival.scale = 300 }
        workload.slow = { inter_arrival.scale = 900 }
        """
    settings, last = parse_configuration(text), list[Glance]()

    def look(glance: Glance) -> bool:
        last.append(glance)
        return False

    summary, _ = summarise_compiled(settings, 1, settings.window, look)
    for found, expected in (
        (last[-1], summary),
        *((last[-1].of_class(name), one) for name, one in summary.classes.items()),
    ):
        assert found.counted == round(expected.finished_per_s * settings.window.seconds) > 100
        assert found.successes == round(expected.committed_per_s * settings.window.seconds) < found.counted
    assert summarise_compiled(settings, 1, settings.window)[0] == summary


def test_a_run_that_ends_early_has_the_metrics_of_the_part_it_reached() -> None:
    text = """
        simulation = { duration_ms = 100_000, trim_start_ms = 0, trim_end_ms = 0 }
        storage.provider = "s3"
        [transaction]
        inter_arrival.scale = 100
        runtime.value = 0
        """
    settings = parse_configuration(text)
    early, _ = summarise_compiled(settings, 1, settings.window, enough=lambda tally: tally.counted >= 100)
    assert early.window.end_ms < settings.window.end_ms
    assert early.drift is None
    assert early.offered_per_s == pytest.approx(10, rel=0.25)


def test_an_event_at_the_very_end_of_the_run_does_not_happen() -> None:
    text = """
        storage.provider = "instant"
        catalog = { type = "instant", latency_ms = 10 }
        [simulation]
        duration_ms = {duration}
        [storage.latency]
        read.value = 10
        write.value = 10
        [transaction]
        inter_arrival.value = 10
        runtime.value = 10
        operation_types.fast_append = 1
        """
    statuses: list[list[str]] = []
    for duration in (70, 71):  # arrival 10, catalog read 20, work 30, three requests 60: the commit lands at 70 ms
        settings = parse_configuration(text.replace("{duration}", str(duration)))
        for engine in get_args(Engine)[::-1]:
            statuses.append(simulate(settings, 1, engine).table["status"].to_pylist())
    assert [row[0] for row in statuses] == ["committing"] * 2 + ["committed"] * 2
    assert statuses[0] == statuses[1]
    assert statuses[2] == statuses[3]


def test_a_draw_above_the_longest_latency_is_the_same_in_both() -> None:
    text = """
        simulation.duration_ms = 1_000_000
        storage.provider = "s3"
        [transaction]
        inter_arrival.scale = 1_000
        runtime = { median = 7_000_000_000, sigma = 5 }
        """
    settings = parse_configuration(text)
    reference, compiled = simulate(settings, 1, "reference"), simulate(settings, 1, "compiled")
    assert reference.table.equals(compiled.table)


def test_writers_of_a_closed_loop_begin_in_the_order_of_their_numbers() -> None:
    text = """
        simulation.duration_ms = 1_000
        storage.provider = "s3x"
        catalog = { type = "append", log_entry_read_ms = 1.5 }
        [storage.latency]
        read.value = 0
        write.value = 0
        cas.value = 0
        append.value = 0
        append_failure.value = 0
        [transaction]
        arrivals = "closed"
        writers = 3
        stagger_ms = 0
        think.value = 100
        runtime.value = 0
        operation_types.fast_append = 1
        """
    settings = parse_configuration(text)
    reference, compiled = simulate(settings, 1, "reference"), simulate(settings, 1, "compiled")
    assert reference.table.equals(compiled.table)
    assert reference.table["t_commit"].to_pylist()[:2] == [1.5, 4.5]  # the second reads the first one's entry


def test_an_attempt_that_cannot_append_its_entry_fails_like_any_other() -> None:
    text = """
        simulation.duration_ms = 1_000
        storage.provider = "instant"
        catalog = { type = "instant", latency_ms = 1, num_tables = 2 }
        [storage.latency]
        read.value = 1
        write.value = 1
        append.value = 5
        [transaction]
        arrivals = "closed"
        writers = 8
        think.value = 1
        runtime.value = 0
        retry = 3
        append_attempts = 2
        manifest_list_mode = "append"
        operation_types.fast_append = 1
        """
    settings = parse_configuration(text)
    reference, compiled = simulate(settings, 1, "reference"), simulate(settings, 1, "compiled")
    assert reference.table.equals(compiled.table)
    assert reference.counters == compiled.counters
    gave_up = compiled.counters["manifest_file_writes"] - compiled.counters["manifest_append_physical_success"]
    assert gave_up > 8  # more than those in flight at the end
    assert "aborted" in compiled.table["status"].to_pylist()
