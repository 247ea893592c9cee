"""Group commit: who waits for whom."""

import os
from collections.abc import Sequence
from threading import Event, Thread
from typing import Any

import pytest

from endive.drivers.blocking import random_id
from endive.kv.group_commit import Committer
from endive.kv.transaction import Outcome, Transaction, TransactionFunction
from endive.protocol.requests import Steps


def nothing(tx: Transaction) -> Steps[None]:
    yield from ()


def test_a_committer_that_comes_back_at_once_is_not_counted_twice() -> None:
    sizes: list[int] = []

    def commit(works: Sequence[TransactionFunction[Any]]) -> tuple[Outcome, ...]:
        sizes.append(len(works))
        return tuple(Outcome(number) for number in range(len(works)))

    committer = Committer(commit, "a store", works_max=10, linger_max_ms=60_000)
    for _ in range(100):
        committer.submit(nothing).result()
        assert committer._expected == 1
    committer.close()

    assert sizes == [1] * 100


def test_a_group_takes_those_who_came_while_the_last_one_was_under_way() -> None:
    sizes: list[int] = []
    may_end, has_begun = Event(), Event()

    def commit(works: Sequence[TransactionFunction[Any]]) -> tuple[Outcome, ...]:
        sizes.append(len(works))
        has_begun.set()
        may_end.wait()
        return tuple(Outcome() for _ in works)

    committer = Committer(commit, "a store", works_max=10, linger_max_ms=0)
    first = committer.submit(nothing)
    has_begun.wait()
    others = [committer.submit(nothing) for _ in range(12)]
    may_end.set()
    for future in (first, *others):
        future.result()
    committer.close()

    assert sizes == [1, 10, 2]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # newer Pythons, of fork
def test_the_ids_of_a_process_and_its_child_differ() -> None:
    random_id()  # so that some are in stock
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(sender, " ".join(random_id() for _ in range(100)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(receiver, 100_000).decode().split()
    ours = [random_id() for _ in range(100)]
    os.close(receiver)
    os.close(sender)

    assert len({*theirs, *ours}) == 200
    assert {len(one) for one in (*theirs, *ours)} == {32}


def test_threads_never_share_an_id() -> None:
    found: list[str] = []
    threads = [Thread(target=lambda: found.extend([random_id() for _ in range(500)])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(found)) == 4000
