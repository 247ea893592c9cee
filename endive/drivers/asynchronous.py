"""The driver for asyncio: the blocking one's answers, given from threads.

Measured, a synchronous call in a thread costs a local store less than obstore's asynchronous one, and on a remote store
the difference drowns in the round trip. So there is one way to talk to a store, not two.
"""

import asyncio
from typing import TypeVar

from endive.drivers.blocking import BlockingDriver
from endive.errors import EndiveError
from endive.protocol.requests import Steps

T = TypeVar("T")


class AsyncDriver:
    """Runs protocols from coroutines. Any number may run at the same time; none blocks the loop."""

    def __init__(self, blocking: BlockingDriver) -> None:
        self._blocking = blocking

    async def run(self, steps: Steps[T]) -> T:
        """Answer a protocol until it returns or raises.

        A coroutine that is cancelled leaves a request under way, which may still be carried out: as after a crash.
        """
        try:
            request = next(steps)
            while True:
                try:
                    reply = await asyncio.to_thread(self._blocking.answer, request)
                except EndiveError as error:  # the protocol may know what to do
                    request = steps.throw(error)
                else:
                    request = steps.send(reply)
        except StopIteration as stop:
            result: T = stop.value
            return result
