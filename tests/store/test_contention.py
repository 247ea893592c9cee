"""Guesses of a writer about the others: how long it waits for their entry before it takes their place."""

from dataclasses import replace

from endive.kv.log.combining import CYCLE_ENTRIES_MAX, POLLS, Contention, Hints
from endive.kv.log.committing import Committed
from endive.kv.log.epochs import open_shared
from endive.kv.log.state import StoreState
from tests.races.processes import driver_of


def learned(entry_ms: float, cycle_ms: float, commits: int = 30) -> Hints:
    """Return the guesses after commits of a writer that takes turns with another one."""
    state: StoreState = driver_of().run(open_shared())
    contention = Contention()
    for number in range(1, commits):
        end = 2 * number
        committed = Committed(replace(state, wal_end=end), (), entry=end)
        contention.update(committed, 2 * cycle_ms * number, entry_ms, others=1)
    return contention.hints(2 * cycle_ms * commits, is_last=False)


def test_the_wait_grows_with_the_time_from_entry_to_entry() -> None:
    fast, slow = learned(90, 120), learned(90, 480)

    assert fast.poll_ms == slow.poll_ms
    assert fast.polls >= POLLS
    assert 3 * fast.polls < slow.polls <= 4 * fast.polls


def test_the_wait_follows_the_latency_of_the_store() -> None:
    near, far = learned(2, 4), learned(90, 180)

    assert near.poll_ms < far.poll_ms / 5
    assert near.polls <= far.polls


def test_the_wait_has_a_limit() -> None:
    assert learned(20, 300).polls == learned(20, 900).polls == learned(20, 20 * CYCLE_ENTRIES_MAX).polls


def test_a_writer_that_was_idle_has_learned_nothing_of_the_time_between_entries() -> None:
    assert learned(90, 60_000).cycle_ms == 0
