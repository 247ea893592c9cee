"""Forgetting results of intentions, and letting intentions expire that no process has carried out.

An open store forgets old results with its other commits (`endive.kv.serving`). A process that lives for one commit does
it when it does its share of maintenance, at its end: it joins the epoch if others may, and gives up if it has none.
"""

from functools import partial

from endive.kv.log.committing import commit_batch
from endive.kv.log.helping import forget_outcomes, is_forgetting_due
from endive.kv.log.state import StoreState, newest_state
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import Transaction, run_function
from endive.protocol.requests import Steps


def forgettable(state: StoreState, kept: int, cache: TableCache) -> Steps[int]:
    """Return the position before which results can be forgotten: more than `kept` WAL entries ago.

    0: there is no result and no open intention from before it, so that an entry would change nothing.
    """
    before = state.wal_end - kept
    if before <= 0:
        return 0
    transaction = Transaction(state.manifest.value.runs, state.recent, cache, is_writable=False)
    due = yield from run_function(partial(is_forgetting_due, before, state.intentions), transaction)
    return before if due.error is None and due.value else 0


def forget_results(kept: int, cache: TableCache) -> Steps[int]:
    """Let intentions made more than `kept` WAL entries ago expire; return how many results were removed.

    Nothing is done while an exclusive writer has the store: it forgets them itself.
    """
    state = yield from newest_state()
    if state is None or not state.is_writable:
        return 0
    before = yield from forgettable(state, kept, cache)
    if not before:
        return 0
    committed = yield from commit_batch(state, (partial(forget_outcomes, before),), cache)
    forgotten = committed.outcomes[0]
    if forgotten.error is not None:
        raise forgotten.error
    count: int = forgotten.value
    return count
