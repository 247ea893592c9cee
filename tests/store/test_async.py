"""The asynchronous driver: the same protocols, from coroutines."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor

import pytest

from endive.drivers.asynchronous import AsyncDriver
from endive.drivers.blocking import BlockingDriver
from endive.errors import FencedError, StorageUnavailableError
from endive.kv.opening import open_writer
from endive.kv.reading import newest_view
from endive.kv.wal import WAL
from endive.objects import FaultyStore, MemoryStore, Troubles
from endive.protocol.fencing import append
from tests.races.scenarios import group_of


def run(work: Coroutine[None, None, None]) -> None:
    """Run in a thread of its own: a browser's driver may have left a loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


def test_protocols_run_side_by_side() -> None:
    async def work() -> None:
        driver = AsyncDriver(BlockingDriver(MemoryStore()))
        lease = await driver.run(open_writer(2))
        bodies = [group_of({f"{n}": "v"}, lease.epoch, f"{n:032x}", n + 1) for n in range(2)]
        writes = (append(WAL, lease.next_slot + n, body, lease.epoch) for n, body in enumerate(bodies))
        await asyncio.gather(*map(driver.run, writes))
        view = await driver.run(newest_view())
        assert [len(group.rows.keys) for group in view.groups] == [0, 0, 1, 1]
        await driver.run(open_writer(2))
        with pytest.raises(FencedError):
            await driver.run(append(WAL, lease.next_slot + 2, bodies[0], lease.epoch))

    run(work())


def test_lost_replies_are_settled() -> None:
    async def work() -> None:
        objects = FaultyStore(MemoryStore(), 3, Troubles(loses_reply=0.3), sleep=lambda _: None)
        driver = AsyncDriver(BlockingDriver(objects, sleep=lambda _: None))
        lease = await driver.run(open_writer())
        for slot in range(lease.next_slot, lease.next_slot + 10):
            await driver.run(append(WAL, slot, group_of({"k": "v"}, lease.epoch, f"{slot:032x}", slot), lease.epoch))

    run(work())


def test_what_does_not_pass_is_raised() -> None:
    objects = FaultyStore(MemoryStore(), 3, Troubles(throttled=1.0), sleep=lambda _: None)
    pauses: list[float] = []
    driver = BlockingDriver(objects, sleep=pauses.append)

    with pytest.raises(StorageUnavailableError, match="throttled"):
        driver.run(newest_view())
    assert len(pauses) == 7
    assert pauses == sorted(pauses)
