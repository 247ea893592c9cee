"""The time of commits by stage."""

from itertools import pairwise
from time import sleep

import pytest

from endive.kv import Store
from endive.kv.store import WriterKind
from endive.kv.transaction import Transaction
from endive.objects.memory import MemoryStore
from endive.protocol.requests import Steps
from endive.stages import recording

PUT_S = 0.05


class SlowLog(MemoryStore):
    """An object store in which a PUT of a WAL entry takes its time."""

    def put_if_absent(self, path: str, body: bytes) -> bool:
        if path.startswith("wal/"):
            sleep(PUT_S)
        return super().put_if_absent(path, body)


def put_row(tx: Transaction) -> Steps[None]:
    tx.put(b"a", b"1")
    yield from ()


@pytest.mark.parametrize("writer", ["exclusive", "shared"])
def test_the_put_of_a_wal_entry_is_not_counted_as_work(writer: WriterKind) -> None:
    with Store(SlowLog(), writer=writer) as store:
        before = store.commit_times.stages()
        store.transact(put_row)
        store.transact(put_row)
        store.flush()

    after = store.commit_times.stages()
    assert after["put"].total - before["put"].total >= 2 * PUT_S
    assert sum(after["put"].counts) == sum(after["work"].counts) == 2


@pytest.mark.parametrize("writer", ["exclusive", "shared"])
def test_a_caller_that_wants_to_know_gets_the_stages_of_its_transaction(writer: WriterKind) -> None:
    with Store(SlowLog(), writer=writer) as store:
        store.transact(put_row)
        with recording() as stages:
            store.transact(put_row)
        store.transact(put_row)

    assert [one.name for one in stages] == ["commit.waiting", "commit.work", "commit.put", "commit.settle"]
    assert stages[2].ended_s - stages[2].began_s >= PUT_S
    assert all(first.ended_s == second.began_s for first, second in pairwise(stages))
    assert stages[1].facts["commit.batch.size"] == 1
