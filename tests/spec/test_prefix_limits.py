"""Requests per second to one prefix: exact waits, tables that share a prefix, and both engines alike."""

from pathlib import Path

import pytest

from endive.sim.config.configuration import parse_configuration
from endive.sim.config.profiles import load_profile_set
from endive.sim.engines import simulate
from endive.sim.limits import TICKS_PER_S, ClientRetries, PrefixLimit
from endive.sim.results.statistics import RunResult
from endive.sim.storage import ObjectTable
from endive.timing import TICKS_PER_MS

PROFILE = """
[tight]
read = { value = 10 }
write = { value = 10 }
cas = { value = 10 }
prefix_limit = { reads_per_s = 2, writes_per_s = 4 }
"""
WORKLOAD = """
simulation = { duration_ms = 100_000, trim_start_ms = 0, trim_end_ms = 0 }
storage = { provider = "tight", profile_file = "tight.toml", prefix_limits = true, prefix = "{prefix}" }
catalog = { num_tables = 2, conflict_granularity = "table" }
[transaction]
runtime.value = 0
{more}
arrivals = "triggered"
writers = 2
stagger_ms = 0
interval_ms = {interval}
"""


def run(
    tmp_path: Path,
    prefix: str = "table",
    interval: int = 1_000,
    more: str = "operation_types.fast_append = 1",
    profile: str = PROFILE,
) -> RunResult:
    (tmp_path / "tight.toml").write_text(profile, encoding="utf-8")
    text = WORKLOAD.replace("{prefix}", prefix).replace("{interval}", str(interval)).replace("{more}", more)
    settings = parse_configuration(text, str(tmp_path / "file.toml"))
    reference, compiled = simulate(settings, 1, "reference"), simulate(settings, 1, "compiled")
    assert reference.table.equals(compiled.table)
    assert reference.counters == compiled.counters
    return compiled


def test_a_seconds_requests_pass_at_once_and_others_wait_for_their_turn() -> None:
    now, objects, limit = [0], ObjectTable(), PrefixLimit(reads_per_s=10, writes_per_s=5)
    objects.clock = lambda: now[0]
    assert objects.queue(0, limit, (10, 5)) == 0
    assert objects.queue(0, limit, (1, 0)) == TICKS_PER_S // 10
    assert objects.queue(0, limit, (0, 2)) == 2 * TICKS_PER_S // 5
    assert objects.queue(1, limit, (1, 1)) == 0  # another prefix
    now[0] = 10 * TICKS_PER_S
    assert objects.queue(0, limit, (11, 0)) == TICKS_PER_S // 10


def test_a_load_below_the_limit_waits_for_nothing(tmp_path: Path) -> None:
    """A fast append makes one read and two writes: two a second of each side are half of the limit."""
    result = run(tmp_path)
    assert result.counters["delayed_requests"] == 0
    assert set(result.table["per_attempt_io_ms"].to_pylist()) <= {0.0, 10.0, 20.0, 30.0}


def test_a_load_above_the_limit_is_cut_to_it(tmp_path: Path) -> None:
    """Four appends a second need eight writes: half of them are admitted, two commits a second for each prefix."""
    committed = run(tmp_path, interval=250).table["status"].to_pylist().count("committed")
    assert committed == pytest.approx(2 * 2 * 100, rel=0.02)


def test_tables_may_share_a_prefix(tmp_path: Path) -> None:
    committed = run(tmp_path, "bucket", interval=250).table["status"].to_pylist().count("committed")
    assert committed == pytest.approx(2 * 100, rel=0.02)


def test_documented_limits_have_sources_and_are_off_unless_asked_for() -> None:
    for name in ("spec", "measured"):
        s3 = load_profile_set(name)["s3"]
        assert s3.prefix_limit == PrefixLimit(5_500, 3_500)
        assert "documented" in s3.sources["prefix_limit"]
    plain = parse_configuration("storage.provider = 's3'\n[transaction]\ninter_arrival.scale = 1000\n")
    assert plain.profile.prefix_limit == PrefixLimit()


def test_a_throttled_request_passes_when_the_client_sends_it_again() -> None:
    """Sent again after 100, 300 and 700 ms; after that the client has used up its attempts."""
    client = ClientRetries(attempts=4, base_ms=100, multiplier=2, max_ms=10_000, jitter=1.0)
    turns = [client.turn_ticks(ms * TICKS_PER_MS) // TICKS_PER_MS for ms in (1, 100, 101, 650, 900)]
    assert turns == [100, 100, 300, 700, 900]


def test_merged_manifests_count_as_requests_of_the_attempt(tmp_path: Path) -> None:
    """An append to a table of 20 manifests reads its list and all of them with its own: 22 reads at 2 a second."""
    result = run(
        tmp_path,
        interval=50_000,
        more="operation_types.append = 1\nmanifest_min_count_to_merge = 10\ntable_manifests = 20",
    )
    first = result.table.slice(0, 1).to_pylist()[0]
    assert first["manifest_file_reads"] == 21
    assert first["per_attempt_io_ms"] == 22 / 2 * 1_000 - 1_000
    assert result.counters["delayed_requests"] >= 25


def test_requests_that_take_longer_than_their_admission_are_not_delayed(tmp_path: Path) -> None:
    """22 reads of a second each, one after the other: two a second would be admitted."""
    more = "operation_types.append = 1\nmanifest_min_count_to_merge = 10\ntable_manifests = 20"
    slow = PROFILE.replace("read = { value = 10 }", "read = { value = 1_000 }")
    result = run(tmp_path, interval=50_000, more=more, profile=slow)
    assert result.counters["delayed_requests"] == 0
    assert result.table.slice(0, 1).to_pylist()[0]["per_attempt_io_ms"] == 22 * 1_000 + 3 * 10
