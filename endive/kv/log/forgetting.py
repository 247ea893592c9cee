"""Forgetting results of intentions, by a process that does nothing else.

An open store forgets old results with its other commits (`endive.kv.serving`). A process that lives for one commit does
it when it does its share of maintenance, at its end: it joins the epoch if others may, and gives up if it has none.
"""

from functools import partial

from endive.kv.log.committing import commit_batch
from endive.kv.log.helping import forget_outcomes, old_outcomes
from endive.kv.log.state import newest_state
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import Transaction, run_function
from endive.protocol.requests import Steps


def forget_results(kept: int, cache: TableCache) -> Steps[int]:
    """Remove the results of intentions made more than `kept` WAL entries ago; return their number.

    Nothing is done while an exclusive writer has the store: it forgets them itself.
    """
    state = yield from newest_state()
    if state is None or not state.is_writable:
        return 0
    before = state.wal_end - kept
    if before <= 0:
        return 0
    transaction = Transaction(state.manifest.value.runs, state.recent, cache, is_writable=False)
    old = yield from run_function(partial(old_outcomes, before), transaction)
    if old.error is not None or not old.value:
        return 0
    committed = yield from commit_batch(state, (partial(forget_outcomes, before),), cache)
    forgotten = committed.outcomes[0]
    if forgotten.error is not None:
        raise forgotten.error
    count: int = forgotten.value
    return count
