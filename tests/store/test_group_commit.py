"""Group commit: which callers share a batch."""

import os
from threading import Event, Thread

import pytest

from endive.drivers.blocking import random_id
from endive.kv import StoreOptions, group_commit
from endive.kv.group_commit import GroupCommit, Result
from endive.kv.pipeline import Batch, Pipeline
from endive.kv.transaction import Outcome, Transaction
from endive.protocol.requests import Steps


def nothing(tx: Transaction) -> Steps[None]:
    yield from ()


class Committed:
    """Group commit without a store; notes the size of each batch."""

    def __init__(self, linger_max_ms: float, functions_max: int = 10) -> None:
        self.sizes: list[int] = []
        self.has_begun, self.may_end = Event(), Event()
        self.may_end.set()
        options = StoreOptions(linger_max_ms=linger_max_ms)
        self.group = GroupCommit(self.commit, "a store", Pipeline(1, functions_max), options)
        self.group.start()

    def commit(self, batch: Batch) -> None:
        self.sizes.append(len(batch.functions))
        self.has_begun.set()
        self.may_end.wait()
        with self.group.changed:
            self.group.pipeline.remove((batch,))
            self.group.computed()
            self.group.done((batch,))
        for _, result in batch.functions:
            result.give(Outcome())


def test_a_caller_that_comes_back_at_once_is_not_counted_twice() -> None:
    committed = Committed(linger_max_ms=60_000)
    for _ in range(100):
        committed.group.submit(nothing).wait()
        assert committed.group.pipeline.expected == 1
    committed.group.close()

    assert committed.sizes == [1] * 100


def test_a_batch_takes_the_functions_that_came_while_the_last_one_was_in_flight() -> None:
    committed = Committed(linger_max_ms=0)
    committed.may_end.clear()
    first = committed.group.submit(nothing)
    committed.has_begun.wait()
    others = [committed.group.submit(nothing) for _ in range(12)]
    committed.may_end.set()
    for result in (first, *others):
        result.wait()
    committed.group.close()

    assert committed.sizes == [1, 10, 2]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")  # newer Pythons, of fork
@pytest.mark.parametrize(("parallel_writes", "wanted"), [(1, 10), (2, 5), (4, 3)])
def test_a_batch_waits_for_its_share_of_the_callers_that_were_just_answered(parallel_writes: int, wanted: int) -> None:
    group = GroupCommit(lambda _: None, "a store", Pipeline(parallel_writes, 100), StoreOptions())
    answered = Batch(functions=[(nothing, Result()) for _ in range(10)])
    with group.changed:
        group.done((answered,))

    group.submit(nothing)  # the first one that comes back

    assert group._wanted() == wanted


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


class Unhurried:
    """A function that can wait for others."""

    is_urgent = False

    def __call__(self, tx: Transaction) -> Steps[None]:
        yield from ()


def test_a_function_that_is_not_urgent_shares_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "UNHURRIED_S", 3600)
    committed = Committed(linger_max_ms=60_000)
    unhurried = committed.group.submit(Unhurried())

    committed.group.submit(nothing).wait()
    unhurried.wait()

    assert committed.sizes == [2]
    assert committed.group.pipeline.expected == 1  # it does not come back in a moment
    committed.group.close()


def test_a_function_that_is_not_urgent_is_committed_alone_if_no_other_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "UNHURRIED_S", 0.001)
    committed = Committed(linger_max_ms=0)

    committed.group.submit(Unhurried()).wait()

    assert committed.sizes == [1]
    committed.group.close()


def test_functions_that_are_not_urgent_are_committed_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "UNHURRIED_S", 3600)
    committed = Committed(linger_max_ms=0)
    unhurried = committed.group.submit(Unhurried())

    committed.group.close()
    unhurried.wait()

    assert committed.sizes == [1]
