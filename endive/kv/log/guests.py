"""Commits of a process while another one is the exclusive writer: a guest announces, and the other carries out.

An exclusive writer looks for intentions now and then, and all the time while there are some (`endive.kv.serving`). A
guest that waits for it saves both the change of the epoch: a handful of requests, and the speed of the other's commits.
The wait is a hint. A guest that was not served claims the store, as any writer may.
"""

from collections.abc import Sequence
from typing import Any

from endive.kv.log.committing import Committed, prepare
from endive.kv.log.helping import result_of
from endive.kv.log.intentions import Decided, Intention
from endive.kv.log.state import StoreState, refreshed
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import TransactionFunction
from endive.protocol.requests import Sleep, Steps, ask

POLL_MS = 50.0
POLLS_MAX = 50
"""Looks for a result, with pauses of `POLL_MS`: the exclusive writer looks for intentions once a second."""
ROUNDS_MAX = 10


def await_exclusive(
    state: StoreState, own: Intention, cache: TableCache, polls_max: int = POLLS_MAX
) -> Steps[tuple[StoreState, Decided | None]]:
    """Wait for the exclusive writer to carry out an intention; return the newest state, and how it was decided.

    None: it was not for a while, or the store is not exclusive any more.
    """
    for _ in range(polls_max):
        decided = yield from result_of(own, state, cache)
        if decided is not None or state.is_writable:
            return state, decided
        yield from ask(Sleep(POLL_MS))
        state = yield from refreshed(state)
    return state, None


def read_as_guest(
    state: StoreState, functions: Sequence[TransactionFunction[Any]], cache: TableCache
) -> Steps[Committed | None]:
    """Run functions that put nothing on the newest state; None: one of them wants to write, or it changes too fast."""
    for _ in range(ROUNDS_MAX):
        prepared = yield from prepare(state, functions, cache)
        if prepared.entry is not None:
            return None
        newest = yield from refreshed(state)
        if newest.wal_end == state.wal_end:
            return Committed(newest, prepared.outcomes)
        state = newest
    return None
