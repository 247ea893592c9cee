"""The check of histories finds what is not linearizable, and nothing else."""

import random

import pytest

from tests.server.histories import NEVER, Commit, History, Load, violations


def history(*operations: Commit | Load) -> History:
    made = History()
    made.commits = [one for one in operations if isinstance(one, Commit)]
    made.loads = [one for one in operations if isinstance(one, Load)]
    return made


def load(keys: str, began_s: float, ended_s: float) -> Load:
    return Load(frozenset(keys), began_s, ended_s)


def test_commits_and_loads_one_after_the_other() -> None:
    assert violations(history(Commit("a", 0, 1), load("a", 2, 3), Commit("b", 4, 5), load("ab", 6, 7))) == []


def test_an_unanswered_commit_may_happen_late_or_never() -> None:
    assert violations(history(Commit("a", 0, NEVER), load("", 1, 2), load("a", 3, 4), load("a", 5, 6))) == []
    assert violations(history(Commit("a", 0, NEVER), load("", 1, 2))) == []


def test_a_load_beside_a_commit_may_find_it_or_not() -> None:
    assert violations(history(Commit("a", 0, 10), load("", 1, 2), load("a", 3, 4))) == []


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        ([Commit("a", 0, 1), load("", 2, 3)], "did not find a"),
        ([Commit("a", 5, 6), load("a", 2, 3)], "before its commit began"),
        ([load("x", 2, 3)], "nobody committed"),
        ([Commit("a", 0, NEVER), load("a", 1, 2), load("", 3, 4)], "lost a"),
        ([Commit("a", 0, 9), Commit("b", 0, 9), load("a", 1, 8), load("b", 1, 8)], "disagree"),
        ([Commit("a", 0, 1), Commit("b", 2, 9), load("b", 0, 9)], "newer commit, but not a"),
    ],
)
def test_what_cannot_be_is_found(operations: list[Commit | Load], words: str) -> None:
    assert any(words in one for one in violations(history(*operations)))


@pytest.mark.parametrize("seed", range(200))
def test_it_agrees_with_a_search_of_all_orders(seed: int) -> None:
    """Small random histories, against a search for an order that explains them."""
    source = random.Random(seed)
    keys = "abc"
    operations: list[Commit | Load] = []
    for key in keys:
        began = source.randrange(8)
        operations.append(Commit(key, began, source.choice([NEVER, began + source.randrange(1, 6)])))
    for _ in range(3):
        began = source.randrange(10)
        found = "".join(key for key in keys if source.random() < began / 10)
        operations.append(load(found, began, began + source.randrange(1, 4)))

    assert (violations(history(*operations)) == []) == exists_order(operations, frozenset())


def exists_order(left: list[Commit | Load], state: frozenset[str]) -> bool:
    """Whether the operations can be put into an order that respects their times and explains the loads."""
    if not [one for one in left if one.ended_s < NEVER]:
        return True
    first_end = min(one.ended_s for one in left)
    for one in left:
        if one.began_s > first_end:
            continue  # another operation ended before this one began
        rest = [other for other in left if other is not one]
        if isinstance(one, Commit) and exists_order(rest, state | {one.key}):
            return True
        if isinstance(one, Load) and one.keys == state and exists_order(rest, state):
            return True
    return False
