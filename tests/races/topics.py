"""Processes for the explorer that announce appends which need files, and compose those of all.

The owner of a letter announces it on a topic. A leader reads the pending ones and the key, writes a file with the
letters that it has composed, and puts them if the key is still what it has read (`endive.kv.log.topics`).
"""

from functools import partial
from typing import Any

from endive.kv.log.committing import commit_batch
from endive.kv.log.helping import announce, delete_intention, read_intentions, result_of
from endive.kv.log.intentions import DONE, CallResult, Intention
from endive.kv.log.state import StoreState, refreshed
from endive.kv.log.topics import CarryOutPrepared, Verdict
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction, run_functions
from endive.protocol.requests import Put, Steps, ask
from endive.testing.explorer import RecordEvent
from tests.races.helping import call
from tests.races.mutants import swapped
from tests.races.shared_writers import REFRESHES, key_of

TOPIC = "t" * 16
FILES = "composed/"
ROUNDS = 4
STALE, COMMITTED = "stale", "committed"


def composing(letter: str, state: StoreState) -> Steps[str]:
    """Announce a letter on the topic, and lead until it is decided."""
    own = yield from announce(state, call(letter), letter, TOPIC)
    yield from ask(RecordEvent(("announced", own.name)))
    for _ in range(ROUNDS):
        state = yield from refreshed(state)
        decided = yield from result_of(own, state, NoCache())
        if decided is not None:
            yield from ask(RecordEvent(("appended", letter)))
            yield from ask(RecordEvent(("told", "appended", letter, decided.results[0].body.decode())))
            yield from delete_intention(own)
            return "done"
        state = yield from lead(own, state)
    return "void again and again"


def lead(own: Intention, state: StoreState) -> Steps[StoreState]:
    """Compose everything that is pending, and try to commit it."""
    known = yield from read_intentions(state, (own,), TOPIC)
    found = tuple(sorted({*known, own}, key=lambda one: one.name))
    outcomes, _ = yield from run_functions((read_log,), state.manifest.value.runs, state.recent, NoCache())
    if outcomes[0].error is not None:
        raise outcomes[0].error
    base: bytes = outcomes[0].value
    letters = tuple(one.calls[0].argument.decode() for one in found)
    yield from ask(Put(FILES + own.calls[0].argument.decode(), "".join(letters).encode()))
    function = CarryOutPrepared(tuple(one.name for one in found), "leader", partial(apply_composed, base, found))
    committed = yield from commit_batch(state, (function,), NoCache(), REFRESHES)
    if committed.outcomes[0].error is not None:
        raise committed.outcomes[0].error
    return committed.state


def read_log(tx: Transaction) -> Steps[bytes]:
    held = yield from tx.get(key_of("a"))
    return held or b""


def apply_composed(base: bytes, found: tuple[Intention, ...], tx: Transaction) -> Steps[Verdict[str]]:
    """Put what was composed, if it was composed on what is there."""
    held = yield from read_log(tx)
    if is_other(held, base):
        return Verdict(STALE)
    composed, results = base, {}
    for one in found:
        composed += one.calls[0].argument
        results[one.name] = (CallResult(DONE, composed),)
    tx.put(key_of("a"), composed)
    return Verdict(COMMITTED, results)


def is_other(held: bytes, base: bytes) -> bool:
    return held != base


# Mutants.


def state_not_compared() -> Any:
    """Puts the composed rows, whatever the state is now."""
    return swapped(("tests.races.topics.is_other", lambda *_: False))


def results_not_recorded() -> Any:
    """The letters are put, and the intentions stay pending."""

    def nothing(*_: Any) -> None:
        return None

    return swapped(("endive.kv.log.topics.record_results", nothing))
