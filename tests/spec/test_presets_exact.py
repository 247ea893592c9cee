"""Each catalog preset against an exact model of its kind: granularity, pointers, workers, lock, batches and limit.

Latencies are replaced by fixed or exponential ones, so that formulas apply; everything else is the preset's.

**Optimistic commits.** Transactions arrive at rate r (Poisson) and do not retry. Each is decided a fixed time L after
its snapshot, and succeeds if nothing was committed in between. So a commit blocks those that are decided within L after
it, and no others: a counter with a dead time. It counts r / (1 + r L). Pointers of m tables are m such counters.
"""

import math

import numpy as np
import pytest

from endive.sim.config.catalogs import load_presets
from endive.sim.config.configuration import parse_configuration
from endive.sim.engines import simulate
from endive.sim.results.statistics import RunResult

TEXT = """
[simulation]
duration_ms = {seconds}e3
[storage]
provider = "instant"
decision = "end"
[storage.latency]
read = {{ value = 0 }}
write = {{ value = 0 }}
cas = {{ value = 100 }}
[catalog]
preset = "{preset}"
num_tables = {tables}
{service}
[transaction]
inter_arrival = {{ scale = {arrival} }}
runtime = {{ value = 0 }}
retry = 0
operation_types = {{ fast_append = 1.0 }}
"""
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def run(preset: str, arrival: float, seconds: int, tables: int = 1, service: str = "") -> RunResult:
    lines = "[catalog.service]\n" + service if service else ""
    text = TEXT.format(preset=preset, arrival=arrival, seconds=seconds, tables=tables, service=lines)
    return simulate(parse_configuration(text), 1, "compiled")


def commits_ms(result: RunResult) -> Floats:
    """Return the time that each finished commit took in the catalog, in the order of arrivals."""
    finished = np.isin(result.table["status"].to_numpy(zero_copy_only=False), ["committed", "aborted"])
    found: Floats = result.table["catalog_commit_ms"].to_numpy()[finished]
    return found


def dead_time(per_s: float, blocked_s: float, pointers: int = 1) -> float:
    """Return the commits per second of optimistic transactions that are decided so long after their snapshot."""
    return per_s / (1 + per_s / pointers * blocked_s)


SERVICE = "read = { value = 0 }\ncommit = { value = 40 }\nwork = { value = 80 }"
OPTIMISTIC = {
    # preset, tables: pointers, seconds from the snapshot to the decision
    ("object", 1): (1, 0.1, ""),
    ("object", 4): (1, 0.1, ""),
    ("hadoop", 1): (1, 0.1, ""),
    ("hadoop", 4): (4, 0.1, ""),
    ("jdbc", 4): (4, 0.1, SERVICE),
    ("glue", 4): (4, 0.1, SERVICE),
    ("s3tables", 4): (4, 0.1, SERVICE),
}


@pytest.mark.parametrize(("preset", "tables"), OPTIMISTIC)
def test_optimistic_presets_are_counters_with_a_dead_time(preset: str, tables: int) -> None:
    pointers, blocked_s, service = OPTIMISTIC[preset, tables]
    result = run(preset, 25.0, 1_000, tables, service)
    assert result.seq / 1_000 == pytest.approx(dead_time(40.0, blocked_s, pointers), rel=0.03)


def test_the_lock_of_hive_is_granted_in_the_order_of_requests() -> None:
    """Every wait, from the arrivals: a commit that finds the lock taken asks after 50 ms, then 1.5 times as long, …"""
    result = run("hive", 400.0, 1_000, service="read = { value = 0 }\ncommit = { value = 0 }\nwork = { value = 60 }")
    asked, wait = [0.0], 50.0
    while asked[-1] < 180_000:
        asked.append(asked[-1] + wait)
        wait = min(1.5 * wait, 5_000.0)
    free, expected = 0.0, []
    for arrived in result.table["t_submit"].to_pylist():
        turn = next(each for each in asked if each >= free - arrived)
        free = arrived + turn + 60.0
        expected.append(turn + 60.0)
    found = commits_ms(result)
    assert len(found) > 2_000
    assert found == pytest.approx(expected[: len(found)])
    assert max(expected) > 400  # the lock was contended


def test_the_workers_of_rest_are_an_m_m_c_queue() -> None:
    work_ms, workers, utilisation = 50.0, 16, 0.9
    assert load_presets()["rest"].service.workers == workers
    load = workers * utilisation
    service = f"read = {{ value = 0 }}\ncommit = {{ value = 0 }}\nwork = {{ scale = {work_ms} }}\nretries = 0"
    found = commits_ms(run("rest", work_ms / load, 4_000, tables=100, service=service))
    terms = [load**k / math.factorial(k) for k in range(workers)]
    last = load**workers / math.factorial(workers) * workers / (workers - load)
    expected_ms = work_ms + last / (sum(terms) + last) * work_ms / (workers - load)
    assert found.mean() == pytest.approx(expected_ms, rel=0.05)


def test_two_batches_of_endive_are_written_at_a_time() -> None:
    """Every commit, from the arrivals: it is prepared after the one before, and joins the batch that waits.

    Preparing takes the preset's time, and a write 100 ms.
    """
    preset = load_presets()["endive"].service
    assert preset.batches == 2
    assert preset.prepare_ms
    result = run("endive", 10.0, 60, tables=100, service="read = { value = 0 }\ncommit = { value = 0 }")
    writers, begins, prepared, expected = [0.0, 0.0], -1.0, 0.0, []
    for arrived in result.table["t_submit"].to_pylist():
        prepared = max(arrived, prepared) + preset.prepare_ms
        if prepared >= begins:  # no batch waits
            begins = max(prepared, min(writers))
            writers[writers.index(min(writers))] = begins + 100.0
        expected.append(begins + 100.0 - arrived)
    found = commits_ms(result)
    assert len(found) > 5_000
    assert found == pytest.approx(expected[: len(found)])


def test_a_process_prepares_one_commit_after_the_other() -> None:
    """Beyond one commit in `prepare_ms` they queue up: M/D/1, and then a write of their own."""
    utilisation, prepare_ms = 0.8, 20.0
    service = f"read = {{ value = 0 }}\ncommit = {{ value = 0 }}\nprepare_ms = {prepare_ms}\nbatches = 1000"
    found = commits_ms(run("endive", prepare_ms / utilisation, 2_000, tables=1_000, service=service))
    expected_ms = prepare_ms + utilisation * prepare_ms / (2 * (1 - utilisation)) + 100.0
    assert found.mean() == pytest.approx(expected_ms, rel=0.02)


def test_a_lone_commit_of_endive_takes_one_write() -> None:
    result = run("endive", 60_000.0, 3_600, service="read = { value = 0 }\ncommit = { value = 0 }\nprepare_ms = 0")
    assert set(commits_ms(result)) == {100.0}


HELPING = """
read = { value = 30 }
write = { value = 60 }
manifest_list_read = { value = 0 }
manifest_list_write = { value = 0 }
manifest_file_write = { value = 0 }
cas = { value = 100 }
"""


def helping(arrival: float, seconds: int) -> RunResult:
    """Run `endive-shared` on a store that writes in 60 ms, reads and lists in 30 ms, and creates in 100 ms."""
    text = TEXT.format(preset="endive-shared", arrival=arrival, seconds=seconds, tables=1_000, service="")
    before, _, after = text.partition("[storage.latency]")
    rest = after.partition("[catalog]")
    service = "[catalog.service]\nread = { value = 0 }\n[transaction]"
    last = rest[2].replace("[transaction]", service)
    settings = parse_configuration(f"{before}[storage.latency]{HELPING}[catalog]{last}")
    return simulate(settings, 1, "compiled")


def test_a_lone_process_creates_an_entry_and_lists() -> None:
    result = helping(60_000.0, 3_600)
    assert set(commits_ms(result)) == {130.0}
    assert result.counters["announced_commits"] == 0
    assert result.counters["batches"] == result.seq


def test_processes_announce_commits_that_the_next_entry_carries_out() -> None:
    """Every commit, from the arrivals. While an entry is under way: announce 60 ms, entry 160 ms, look 30 ms."""
    result = helping(10.0, 60)
    begins, ends, expected = -1.0, 0.0, []
    for arrived in result.table["t_submit"].to_pylist():
        is_lone = arrived >= ends
        ready = arrived if is_lone else arrived + 60.0
        if ready >= begins:
            begins = max(ready, ends)
            ends = begins + (130.0 if is_lone else 160.0)
        expected.append(ends - arrived + (0.0 if is_lone else 30.0))
    found = commits_ms(result)
    assert len(found) > 5_000
    assert found == pytest.approx(expected[: len(found)])
    assert result.counters["batches"] == pytest.approx(60_000 / 160, abs=3)
    assert found.max() <= 60 + 2 * 160 + 30  # whatever the load


def test_glue_admits_the_burst_of_an_account_and_then_its_rate() -> None:
    """A token bucket, with the client of the preset, which repeats throttled commits."""
    service = "read = { value = 0 }\ncommit = { value = 2 }\nwork = { value = 1 }\nrequests_per_s = 5\nburst = 10"
    result = run("glue", 20.0, 1_000, tables=1_000, service=service)
    assert result.counters["throttled_requests"] > 10_000
    assert result.seq == pytest.approx(10 + 5 * 1_000, rel=0.02)


def test_every_preset_has_an_exact_model() -> None:
    modelled = {preset for preset, _ in OPTIMISTIC} | {"hive", "rest", "endive", "endive-shared"}
    assert modelled == set(load_presets())
