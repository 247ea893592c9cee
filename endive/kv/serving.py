"""Intentions outside of commits: an exclusive writer carries them out, old ones are deleted, results are looked up.

Background maintenance calls the first two. Nothing here is needed for safety: see `endive.kv.log.helping`.
"""

from functools import partial
from time import monotonic, sleep

from endive.drivers.blocking import BlockingDriver
from endive.errors import ConfigurationError
from endive.kv.exchange import Exchange
from endive.kv.log.forgetting import forget_results, forgettable
from endive.kv.log.helping import collect_intentions, forget_outcomes, open_intentions, pending
from endive.kv.log.intentions import PREFIX, CallResult, Intention, is_name
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import Transaction
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


class Service:
    """Carries out intentions of others for an exclusive writer."""

    def __init__(self, writer: Writer, exchange: Exchange) -> None:
        self._writer = writer
        self._exchange = exchange
        self._left: frozenset[str] = frozenset()
        """Intentions that an attempt has left pending. They are tried again when others have come."""

    def serve(self) -> bool:
        """Carry out what is pending, as an exclusive writer that has just refreshed, for a second at most.

        Return whether something was carried out lately: then it is worth looking again at once.
        """
        end_s = quiet_s = monotonic() + SERVE_S
        found = False
        while self._writer.state.own_epoch and monotonic() < min(end_s, quiet_s):
            names = self._names()
            if names <= self._left:
                if not found:
                    return False
                sleep(SERVE_PAUSE_S)
                self._writer.refresh()
            elif self._carry_out(names):
                found, quiet_s = True, monotonic() + QUIET_S
        return found and monotonic() < quiet_s

    def _names(self) -> frozenset[str]:
        """Return the intentions that are pending as far as this process knows, and that it may be able to carry out."""
        on_topics = self._exchange.names() if self._exchange.carriers else ()
        return frozenset((*pending(self._writer.state), *on_topics))

    def _carry_out(self, names: frozenset[str]) -> bool:
        """Carry out what is pending, and refresh; return whether anything was carried out."""
        helper = self._writer.helper
        before = helper.carried_for_others
        if pending(self._writer.state):
            self._writer.group.submit(_nothing).wait()
        on_topics = self._exchange.names()
        self._exchange.carry_out_pending()
        self._writer.refresh()
        is_carried = helper.carried_for_others > before
        self._left = frozenset() if is_carried else names & helper.tried.union(on_topics)
        return is_carried


def _nothing(transaction: Transaction) -> Steps[None]:  # noqa: ARG001 - a transaction function
    """Let a batch begin: it carries out what is pending."""
    yield from ()


def settle(writer: Writer, driver: BlockingDriver, cache: TableCache, exchange: Exchange) -> tuple[str, ...]:
    """Carry out all intentions that are pending now; return those that this process cannot carry out.

    A commit that ends meanwhile may bring back an older listing. So an intention counts as one that cannot be carried
    out only if this process has read it, or was asked to prepare it.
    """
    left: tuple[str, ...] = ()
    tried: set[str] = set()
    for _ in range(SETTLE_ROUNDS_MAX):
        before, left = left, driver.run(open_intentions(writer.refresh(), cache))
        strange = {one.name for one in writer.helper.known if not one.is_known}
        if not left or (left == before and strange.union(tried).issuperset(left)):
            break
        if pending(writer.state):
            writer.group.submit(_nothing).wait()
        tried = set(exchange.names())
        exchange.carry_out_pending()
    return left


def results_at(path: str, exchange: Exchange) -> tuple[CallResult, ...] | None:
    """Return the results of an intention by its path, as far as this process knows; None: it is not decided."""
    name = path.removeprefix(PREFIX)
    if not is_name(name):
        raise ConfigurationError(path, ["not the path of an intention: only announced calls have a stored result"])
    decided = exchange.result(Intention(name, ()))
    return None if decided is None else decided.results


def collect_closed(writer: Writer, driver: BlockingDriver, cache: TableCache) -> tuple[str, ...]:
    """Delete the intentions that nobody can carry out any more, and forget old results; return their names."""
    state = writer.state
    if not state.manifest.value.has_intentions:
        return ()
    deleted = driver.run(collect_intentions(cache, state))
    if not writer.group.is_open:  # the process ends: its threads commit nothing more
        driver.run(forget_results(OUTCOMES_KEPT, cache))
    elif state.is_writable:
        before = driver.run(forgettable(state, OUTCOMES_KEPT, cache))
        if before:
            writer.group.submit(partial(forget_outcomes, before)).wait()
    return deleted
