"""Every timeline of the manifest design document, entry for entry.

The document counts entries from 0; here too, by giving the numbers by hand.
"""

import pytest

from endive.errors import FencedError, InvariantError
from endive.kv.log.wal import WAL
from endive.kv.sst.format import decode_footer, encode_fence
from endive.protocol.fencing import ROLE, fence
from endive.protocol.requests import Get, Steps, ask, create
from tests.races.processes import Process, driver_of
from tests.races.scenarios import body_of


def data(epoch: int, number: int) -> bytes:
    return body_of({"key": f"{epoch}/{number}"}, epoch, f"{epoch:016x}{number:016x}", number + 1)


def write(epoch: int, number: int) -> Steps[None]:
    """Append as an open writer does, on a log without a manifest."""
    is_ours = yield from create(WAL.path_of(number), data(epoch, number))
    if is_ours:
        return
    found = yield from ask(Get(WAL.path_of(number)))
    found_epoch = WAL.epoch_of(WAL.path_of(number), found or b"")
    if found_epoch > epoch:
        raise FencedError(ROLE, epoch, found_epoch)
    raise InvariantError("entries behind a writer's fences are its own", WAL.path_of(number))


def fences(epoch: int, start: int, count: int = 1) -> Steps[int | None]:
    return fence(WAL, start, epoch, count, encode_fence(epoch, f"{epoch:032x}"))


class Log:
    """A WAL on which the timelines' writers work."""

    def __init__(self) -> None:
        self.driver = driver_of()

    def written(self, epoch: int, *numbers: int) -> "Log":
        for number in numbers:
            self.driver.run(write(epoch, number))
        return self

    def process(self, steps: Steps[int | None]) -> Process[int | None]:
        return Process(steps, self.driver)

    def epochs(self) -> list[int]:
        objects = self.driver.objects
        return [decode_footer(info.path, objects.get(info.path) or b"").epoch for info in objects.list(WAL.prefix)]


# The four outcomes of a fence.


def test_outcome_1_a_new_writer_fences_an_older_one() -> None:
    log = Log().written(1, 0, 1)

    assert log.driver.run(fences(2, start=2)) == 2  # time 2
    with pytest.raises(FencedError) as fenced:  # time 3: the old writer loses number 2, and halts
        log.driver.run(write(1, 2))
    log.driver.run(write(2, 3))  # time 4

    assert (fenced.value.own_epoch, fenced.value.found_epoch) == (1, 2)
    assert log.epochs() == [1, 1, 2, 2]


def test_outcome_2_an_older_writer_created_the_entry_and_the_fence_follows_it() -> None:
    log = Log().written(1, 0, 1)
    new = log.process(fences(2, start=2)).to_put(WAL.path_of(2))

    log.driver.run(write(1, 2))  # time 2
    assert new.finish() == 3  # times 3 and 4
    with pytest.raises(FencedError):
        log.driver.run(write(1, 3))

    assert log.epochs() == [1, 1, 1, 2]


def test_outcome_3_two_writers_with_one_epoch_cannot_be() -> None:
    log = Log().written(1, 0, 1)
    log.driver.run(write(2, 2))

    with pytest.raises(InvariantError, match="epochs are claimed once"):
        log.driver.run(fences(2, start=2))


def test_outcome_4_a_newer_writer_created_the_entry_and_this_one_halts() -> None:
    log = Log().written(1, 0, 1)

    assert log.driver.run(fences(3, start=2)) == 2  # time 2
    with pytest.raises(FencedError) as fenced:  # time 3
        log.driver.run(fences(2, start=2))
    log.driver.run(write(3, 3))  # time 4

    assert (fenced.value.own_epoch, fenced.value.found_epoch) == (2, 3)
    assert log.epochs() == [1, 1, 3, 3]


# Parallel writes.


def test_parallel_writes_need_as_many_fences_in_a_row() -> None:
    log = Log().written(1, 0, 1)
    new = log.process(fences(2, start=2, count=2)).to_put(WAL.path_of(2))

    new.step()  # time 2: number 2 is writer 2's
    log.driver.run(write(1, 3))  # time 3: the old writer's window reaches behind the fence
    with pytest.raises(FencedError):  # time 4
        log.driver.run(write(1, 2))
    assert new.finish() == 4  # times 5 to 7: number 3 is taken, the row starts anew

    assert log.epochs() == [1, 1, 2, 1, 2, 2]


def test_three_writers_and_the_youngest_wins() -> None:
    log = Log().written(1, 0, 1)  # times 0 and 1
    third = log.process(fences(3, start=2, count=2)).to_put(WAL.path_of(2))
    second = log.process(fences(2, start=3, count=2)).to_put(WAL.path_of(3))

    third.step()  # time 2: success
    log.driver.run(write(1, 3))  # time 3: success
    with pytest.raises(FencedError):  # time 4: writer 1 halts
        log.driver.run(write(1, 2))
    second.to_put(WAL.path_of(4))  # time 5: number 3 is taken
    third.to_put(WAL.path_of(4))  # time 6: number 3 is taken
    second.step()  # time 7: success
    third.to_put(WAL.path_of(5))  # time 8: number 4 is taken
    third.step()  # time 9: success
    with pytest.raises(FencedError) as fenced:  # time 10: writer 2 halts
        second.finish()
    assert third.finish() == 5  # time 11: numbers 5 and 6 are fences

    assert fenced.value.found_epoch == 3
    assert log.epochs() == [1, 1, 3, 1, 2, 3, 3]
