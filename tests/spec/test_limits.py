"""Limits of a store: token bucket, the client's repetitions, contention, the point of decision."""

from pathlib import Path

import pytest

from endive.sim.config.configuration import parse_configuration
from endive.sim.config.profiles import load_client_sections, load_profile_set
from endive.sim.engines import simulate
from endive.sim.limits import TICKS_PER_S, ClientRetries, Contention, RateLimit
from endive.sim.results.statistics import RunResult

STORE = """
[simulation]
duration_ms = {seconds}e3
[storage]
provider = "limited"
profile_file = "{file}"
[catalog]
type = "cas"
[transaction]
arrivals = "closed"
writers = {writers}
runtime = {{ value = 0 }}
retry = 1_000
operation_types = {{ fast_append = 1.0 }}
"""

PROFILE = """
[limited]
client = "{client}"
read = {{ value = 0 }}
write = {{ value = 0 }}
cas = {{ value = 10 }}
object_limit = {{ per_s = 2, burst = {burst}, refusal_cost = {cost} }}
"""


def run(
    tmp_path: Path, writers: int = 1, seconds: int = 100, burst: int = 1, cost: float = 0.0, client: str = "opendal"
) -> RunResult:
    file = tmp_path / "limited.toml"
    file.write_text(PROFILE.format(client=client, burst=burst, cost=cost), encoding="utf-8")
    settings = parse_configuration(STORE.format(seconds=seconds, writers=writers, file=file), str(file))
    reference, compiled = simulate(settings, 1, "reference"), simulate(settings, 1, "compiled")
    assert reference.table.equals(compiled.table)
    assert reference.counters == compiled.counters
    return compiled


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    limit, full_at, taken = RateLimit(per_s=2, burst=5), 0, 0
    for tick in range(0, 10 * TICKS_PER_S, TICKS_PER_S // 100):
        if limit.has_token(full_at, tick):
            full_at = limit.after(full_at, tick, landed=True)
            taken += 1
    assert taken == 5 + 2 * 10 - 1  # the last token comes back at the very end


def test_a_refused_request_takes_its_own_number_of_tokens() -> None:
    limit = RateLimit(per_s=1, burst=2, refusal_cost=0.5)
    assert limit.after(0, 0, landed=True) == TICKS_PER_S
    assert limit.after(0, 0, landed=False) == TICKS_PER_S // 2


def test_without_a_limit_every_request_is_decided() -> None:
    assert RateLimit().interval_ticks == 0


def test_contention_begins_above_the_free_requests_and_ends_at_its_limit() -> None:
    contention = Contention(per_writer=0.1, scale_max=1.25, free=2)
    assert [contention.scale(count) for count in (1, 2, 3, 9)] == [1.0, 1.0, 1.1, 1.25]
    saturating = Contention(scale_max=1.5, half=2.0)
    assert [saturating.scale(count) for count in (1, 3)] == [1.0, 1.25]
    assert 1.49 < saturating.scale(1_000) < 1.5


def test_waits_grow_to_their_limit_and_jitter_shortens_them() -> None:
    client = ClientRetries(attempts=5, base_ms=100, multiplier=2, max_ms=300, jitter=1.0)
    assert [client.capped_ms(retry) for retry in (1, 2, 3, 4)] == [100, 200, 300, 300]
    assert client.delay_ticks(2, 0.25) == 150_000_000


def test_one_writer_commits_at_the_rate_of_the_bucket(tmp_path: Path) -> None:
    result = run(tmp_path)
    # a bucket of one token at 2 per second; a throttled request waits 1 s, in which two tokens' time has passed
    assert result.seq == pytest.approx(100, rel=0.05)
    assert result.counters["throttled_requests"] == pytest.approx(result.seq, abs=2)


def test_a_client_that_gives_up_fails_the_attempt(tmp_path: Path) -> None:
    result = run(tmp_path, writers=30, seconds=60, client="pyarrow-s3")
    assert result.counters["cas_failure"] > 0
    assert result.counters["throttled_requests"] > 3 * result.seq


def test_refusals_that_take_tokens_lower_the_rate_under_contention(tmp_path: Path) -> None:
    free, costly = (run(tmp_path, writers=16, seconds=600, burst=3, cost=cost) for cost in (0.0, 1.0))
    assert costly.seq < 0.9 * free.seq


def test_every_client_and_limit_names_its_source() -> None:
    assert all(client.source for client in load_client_sections().values())
    for profile in load_profile_set("measured").values():
        assert all(profile.sources.values())


def test_the_specifications_profiles_have_no_limits() -> None:
    for profile in load_profile_set("spec").values():
        assert (profile.object_limit, profile.client, profile.contention) == (
            RateLimit(),
            ClientRetries(),
            Contention(),
        )
        assert profile.decision == 1.0
