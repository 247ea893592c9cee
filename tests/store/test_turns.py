"""Writers take turns: a writer that keeps winning pauses, more often if another one used the pause."""

from endive.kv.turns import PAUSE_COMMITS, STREAK_FIRST, STREAK_MAX, Turns


def pauses(turns: Turns, others: list[int]) -> list[bool]:
    return [turns.after_commit(0.1, count) > 0 for count in others]


def test_a_lone_writer_pauses_ever_more_rarely() -> None:
    turns = Turns()
    paused = pauses(turns, [0] * 2000)

    assert paused.index(True) == STREAK_FIRST - 1
    assert sum(paused[-10 * STREAK_MAX :]) == 10


def test_a_writer_among_others_pauses_after_every_entry() -> None:
    turns = Turns()
    pauses(turns, [0] * 200)

    assert all(pauses(turns, [1, 3, 1, 2]))


def test_a_pause_is_long_enough_to_read_and_create() -> None:
    turns = Turns()
    turns.after_commit(0.1, 0)

    assert turns.after_commit(0.3, 1) == PAUSE_COMMITS * 0.1


def test_a_disturbed_commit_says_nothing_about_how_long_one_takes() -> None:
    turns = Turns()
    turns.after_commit(0.1, 0)
    turns.after_commit(5.0, 7)

    assert turns.after_commit(0.1, 7) == PAUSE_COMMITS * 0.1
