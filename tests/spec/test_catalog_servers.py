"""Catalogs with a server against exact models: M/M/c, a lock that is polled, group commit, a rate limit, retries."""

import math
from collections.abc import Callable
from itertools import cycle

import numpy as np
import pytest

from endive.sim.config.catalogs import PresetSection, ServiceSection, load_presets
from endive.sim.config.configuration import parse_configuration
from endive.sim.engines import simulate
from endive.sim.results.statistics import RunResult
from endive.sim.station import Batches, Queue, Station
from endive.timing import to_ticks

TEXT = """
[simulation]
duration_ms = {seconds}e3
[storage]
provider = "instant"
[storage.latency]
read = {{ value = 0 }}
write = {{ value = 0 }}
[catalog]
type = "service"
num_tables = {tables}
{catalog}
[catalog.service]
read = {{ value = 0 }}
commit = {{ value = 0 }}
{service}
[transaction]
inter_arrival = {{ scale = {arrival} }}
runtime = {{ value = 0 }}
retry = 0
operation_types = {{ fast_append = 1.0 }}
"""


def run(service: str, arrival: float, seconds: int = 2_000, tables: int = 1, catalog: str = "") -> RunResult:
    text = TEXT.format(service=service, arrival=arrival, seconds=seconds, tables=tables, catalog=catalog)
    settings = parse_configuration(text)
    if seconds <= 200:
        reference, compiled = simulate(settings, 1, "reference"), simulate(settings, 1, "compiled")
        assert reference.table.equals(compiled.table)
        assert reference.counters == compiled.counters
    return simulate(settings, 1, "compiled")


def waits_ms(result: RunResult) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    finished = result.table["status"].to_numpy(zero_copy_only=False) != "committing"
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = result.table["catalog_commit_ms"].to_numpy()[finished]
    return found


def erlang_c(servers: int, load: float) -> float:
    """Return the probability of waiting in M/M/c."""
    terms = [load**k / math.factorial(k) for k in range(servers)]
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(terms) + last)


@pytest.mark.parametrize(("workers", "utilisation"), [(1, 0.7), (4, 0.8), (16, 0.9)])
def test_a_pool_of_workers_is_an_m_m_c_queue(workers: int, utilisation: float) -> None:
    work_ms, load = 50.0, workers * utilisation
    result = run(f"work = {{ scale = {work_ms} }}\nworkers = {workers}", work_ms / load, seconds=6_000)
    expected_ms = work_ms + erlang_c(workers, load) * work_ms / (workers - load)
    assert waits_ms(result).mean() == pytest.approx(expected_ms, rel=0.05)


def test_without_a_limit_on_workers_no_commit_waits() -> None:
    assert waits_ms(run("work = { value = 30 }", 5.0, seconds=20)).max() == pytest.approx(30.0)


def test_a_waiting_commit_has_its_turn_when_it_next_asks() -> None:
    lock = Station(workers=1, poll_ms=50, poll_multiplier=2, poll_max_ms=150, wait_max_ms=1_000, serves=True)
    assert [to_ticks(wait) for wait in (0, 50, 150, 300, 450)] == list(lock.polls[:5])
    queue, work = Queue(), lambda: to_ticks(120)
    ends = [queue.enter(lock, to_ticks(now), work) for now in (0, 10, 20)]
    # the first holds the lock until 120, the second asks at 10, 60 and 160 and holds it until 280, the third until 440
    assert ends == [to_ticks(wait) for wait in (120, 270, 420)]


def test_a_commit_that_waited_too_long_for_the_lock_fails() -> None:
    lock = "work = { value = 100 }\nworkers = 1\nper_table = true\npoll_ms = 10\nwait_max_ms = 150"
    result = run(lock, 40.0, seconds=100)
    assert result.counters["lock_timeouts"] > 0
    assert waits_ms(result).max() <= 260.0


def test_locks_of_different_tables_do_not_hinder_each_other() -> None:
    lock = "work = { value = 100 }\nworkers = 1\nper_table = true"
    one, many = (run(lock, 80.0, seconds=200, tables=50, catalog=f"table_groups = {pointers}") for pointers in (1, 50))
    assert waits_ms(many).mean() < 110 < waits_ms(one).mean()


def _only_work(*ticks: int) -> Callable[[str], int]:
    """Return how long each batch takes to write, in turn and then over again, without reads and writes of files."""
    works = cycle(ticks)
    return lambda row: next(works) if row == "work" else 0


def test_commits_that_arrive_during_a_batch_share_the_next_one() -> None:
    rules, batches = Station(batches=1, serves=True), Batches()
    ends = [now + batches.enter(rules, now, _only_work(100)) for now in (0, 10, 60, 99, 150, 205)]
    assert ends == [100, 200, 200, 200, 300, 400]


def test_two_batches_at_a_time_end_in_order() -> None:
    rules, batches = Station(batches=2, serves=True), Batches()
    draw = _only_work(100, 20, 50)
    ends = [now + batches.enter(rules, now, draw) for now in (0, 10, 30)]
    assert ends == [100, 100, 150]  # the second is written at 30, but counts only after the first


def test_group_commit_serves_any_rate_within_two_writes() -> None:
    result = run("work = { value = 50 }\nbatches = 1", 2.0, seconds=20)
    waits = waits_ms(result)
    assert waits.max() <= 100.0
    assert waits.mean() == pytest.approx(75.0, abs=2.0)  # half of the batch before, and the own one


def test_a_service_admits_its_burst_and_then_its_rate() -> None:
    result = run("work = { value = 1 }\nrequests_per_s = 5\nburst = 10", 20.0, seconds=200)
    answered = result.counters["cas_success"] + result.counters["cas_failure"]
    assert answered - result.counters["throttled_requests"] == pytest.approx(10 + 5 * 200, rel=0.01)


def test_the_server_retries_commits_that_lost_without_overlap() -> None:
    catalog = 'conflict_granularity = "catalog"'
    alone, retried = (
        run(f"work = {{ value = 40 }}\nretries = {retries}", 200.0, 200, 50, catalog) for retries in (0, 20)
    )
    assert retried.counters["cas_failure"] < 0.2 * alone.counters["cas_failure"]


@pytest.mark.parametrize("name", load_presets())
def test_a_preset_runs_alike_on_both_engines(name: str) -> None:
    text = f"""
        simulation.duration_ms = 60_000
        storage = {{ provider = "s3", profiles = "measured" }}
        catalog = {{ preset = "{name}", num_tables = 3 }}
        [transaction]
        cost_model = "iceberg"
        inter_arrival.scale = 300
        runtime.value = 500
        """
    settings, preset = parse_configuration(text), load_presets()[name]
    reference, compiled = simulate(settings, 1, "reference"), simulate(settings, 1, "compiled")
    assert reference.table.equals(compiled.table)
    assert reference.counters == compiled.counters
    assert compiled.seq > 50
    assert name in settings.catalog_name
    assert preset.checked


NOT_FIGURES = ("title", "type", "trust", "checked", "sources", "service")


@pytest.mark.parametrize("name", load_presets())
def test_every_figure_of_a_preset_has_a_source(name: str) -> None:
    preset = load_presets()[name]
    own = set(PresetSection.model_fields) - set(NOT_FIGURES)
    served = {key for key, value in preset.service if value is not None}
    assert own | served <= set(preset.sources)
    assert set(preset.sources) <= own | set(ServiceSection.model_fields)
    assert all(preset.sources.values())


@pytest.mark.parametrize("name", load_presets())
def test_a_source_without_publication_says_assumed(name: str) -> None:
    silent = [text for text in load_presets()[name].sources.values() if "none published" in text]
    assert all("assumed" in text for text in silent)


def test_pointers_of_their_own_let_tables_commit_side_by_side() -> None:
    text = """
        storage = { provider = "s3", profiles = "measured" }
        catalog.num_tables = 10
        [transaction]
        inter_arrival.scale = 60
        runtime.value = 0
        """
    one, each = (
        simulate(parse_configuration(text, overrides=[f"catalog.preset={preset}", "simulation.duration_ms=300_000"]), 1)
        for preset in ("object", "hadoop")
    )
    assert each.seq > 1.2 * one.seq
