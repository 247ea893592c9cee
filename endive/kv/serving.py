"""What an open store does for intentions besides its commits: an exclusive writer takes them; old ones are deleted.

Both are called by background maintenance. Nothing here is needed for safety: see `endive.kv.log.helping`.
"""

from functools import partial
from time import monotonic, sleep

from endive.drivers.blocking import BlockingDriver
from endive.kv.exchange import Exchange
from endive.kv.log.forgetting import forget_results
from endive.kv.log.helping import collect_intentions, forget_outcomes, old_outcomes, open_intentions, pending
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import Transaction, run_function
from endive.kv.writer import Writer
from endive.protocol.requests import Steps

SERVE_S = 1.0
"""How long an exclusive writer looks for intentions again and again, once it has seen some."""
QUIET_S = 0.3
"""...and when it stops, because no more have come."""
SERVE_PAUSE_S = 0.01
SETTLE_ROUNDS_MAX = 100
OUTCOMES_KEPT = 10_000
"""WAL entries for which results of intentions are kept. An owner that comes back later cannot know its outcome."""


def serve(writer: Writer, exchange: Exchange) -> bool:
    """Carry out intentions of others as an exclusive writer that has just refreshed, for a second at most.

    Return whether there were any lately: then it is worth looking again at once.
    """
    end_s = quiet_s = monotonic() + SERVE_S
    found = False
    left: tuple[str, ...] = ()
    """Topics with intentions that this process cannot carry out."""
    while writer.state.own_epoch and monotonic() < min(end_s, quiet_s):
        if pending(writer.state):
            found, quiet_s = True, monotonic() + QUIET_S
            writer.group.submit(_nothing).wait()
        elif exchange.carriers and exchange.topics() and exchange.topics() != left:
            found, quiet_s = True, monotonic() + QUIET_S
            left = exchange.carry_out_pending()
        elif not found:
            return False
        else:
            sleep(SERVE_PAUSE_S)
        writer.refresh()
    return found and monotonic() < quiet_s


def _nothing(transaction: Transaction) -> Steps[None]:  # noqa: ARG001 - a transaction function
    """Let a batch begin: it carries out what is pending."""
    yield from ()


def settle(writer: Writer, driver: BlockingDriver, cache: TableCache, exchange: Exchange) -> tuple[str, ...]:
    """Carry out all intentions that are pending now; return those that this process cannot carry out."""
    left: tuple[str, ...] = ()
    for _ in range(SETTLE_ROUNDS_MAX):
        before, left = left, driver.run(open_intentions(writer.refresh(), cache))
        if not left or left == before:
            break
        if pending(writer.state):
            writer.group.submit(_nothing).wait()
        exchange.carry_out_pending()
    return left


def collect_closed(writer: Writer, driver: BlockingDriver, cache: TableCache) -> tuple[str, ...]:
    """Delete the intentions that nobody can carry out any more, and forget old results; return their names."""
    state = writer.state
    if not state.manifest.value.has_intentions:
        return ()
    deleted = driver.run(collect_intentions(cache, state))
    before = state.wal_end - OUTCOMES_KEPT
    if not writer.group.is_open:  # the process ends: its threads commit nothing more
        driver.run(forget_results(OUTCOMES_KEPT, cache))
    elif state.is_writable and before > 0:
        transaction = Transaction(state.manifest.value.runs, state.recent, cache, is_writable=False)
        old = driver.run(run_function(partial(old_outcomes, before), transaction))
        if old.error is None and old.value:
            writer.group.submit(partial(forget_outcomes, before)).wait()
    return deleted
