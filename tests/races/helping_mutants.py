"""Faulty variants of helping. Each is a plausible mistake; the explorer must find it."""

from dataclasses import replace
from functools import partial
from typing import Any

from endive.kv.log import helping
from endive.kv.log.committing import Committed, append_shared, commit_batch, prepare
from endive.kv.log.helping import announce, carry_out, read_intentions, result_of, to_carry_out
from endive.kv.log.intentions import DONE, HORIZON, PREFIX, Decided, Intention, names_in, outcome_key, topic_of
from endive.kv.log.state import StoreState
from endive.kv.sst.reading import TableCache
from endive.kv.transaction import Transaction
from endive.protocol.requests import Delete, List, Steps, ask
from tests.races.helping import call, deciding
from tests.races.mutants import swapped

COMMIT = "tests.races.helping.commit_batch"


def not_read_again() -> Any:
    """A helper that loses a race puts what it has computed into the next entry, without reading the one before."""

    def commit(
        state: StoreState, functions: tuple[Any, ...], cache: TableCache, refreshes: int, own: Intention, by: str
    ) -> Steps[Committed]:
        decided = yield from result_of(own, state, cache)
        if decided is not None:
            return Committed(state, (), 0, 0, decided)
        known = yield from read_intentions(state, ())
        chosen = to_carry_out(known, own)
        prepared = yield from prepare(state, tuple(partial(carry_out, one, by) for one in chosen), cache)
        entry = prepared.entry
        assert entry is not None
        for losses in range(5):
            state, is_committed = yield from append_shared(state, entry)
            if is_committed:
                decided = prepared.outcomes[chosen.index(own)].value
                return Committed(state, (), entry.number, losses, decided)
            entry = replace(entry, number=state.wal_end + 1)
        raise AssertionError("lost five races")

    return swapped((COMMIT, commit))


def deleted_before_it_is_decided() -> Any:
    """A helper deletes the intentions that it is about to carry out, before the entry that decides them exists."""

    def commit(
        state: StoreState, functions: tuple[Any, ...], cache: TableCache, refreshes: int, own: Intention, by: str
    ) -> Steps[Committed]:
        known = yield from read_intentions(state, ())
        for number in range(len(known)):
            yield from ask(Delete(known[number].path))
        return (yield from commit_batch(state, functions, cache, refreshes, own=own, by=by, known=known))

    return swapped((COMMIT, commit))


def retrying_under_a_new_key(argument: str, state: StoreState) -> Steps[str]:
    """An owner that does not hear of its intention announces the call again, under another name."""
    yield from announce(state, call(argument), argument[0])
    own = yield from announce(state, call(argument), argument[0])
    yield from deciding(own, state)
    return "done"


def refusals_not_recorded() -> Any:
    """A refused call leaves no result: there is nothing to write."""

    def carry(intention: Intention, by: str, tx: Transaction) -> Steps[Decided | None]:
        decided = yield from carry_out(intention, by, tx)
        if decided is not None and all(result.kind != DONE for result in decided.results):
            del tx.rows[outcome_key(intention.name)]
        return decided

    return swapped(("endive.kv.log.committing.carry_out", carry))


def abandoned_ones_collected() -> Any:
    """The garbage collector deletes an intention whose owner is gone, though it is not decided."""

    def collect(cache: TableCache, state: StoreState) -> Steps[tuple[str, ...]]:
        listing = yield from ask(List(PREFIX))
        names = names_in(listing)
        for number in range(len(names)):
            yield from ask(Delete(PREFIX + names[number]))
        return names

    return swapped(("tests.races.helping.collect_intentions", collect))


def listed(state: StoreState, topic: str = "") -> tuple[str, ...]:
    """All intentions that were listed; results in memory are not consulted."""
    return tuple(name for name in state.intentions if topic_of(name) == topic)


def no_horizon() -> Any:
    """An intention is carried out if it has no result, however old it is."""

    def is_open(name: str, tx: Transaction) -> Steps[bool]:
        decided = yield from tx.get(outcome_key(name))
        return decided is None

    return swapped(("endive.kv.log.helping.is_open", is_open), ("endive.kv.log.helping.pending", listed))


def always_open(name: str, tx: Transaction) -> Steps[bool]:
    """Every intention may take effect."""
    yield from ()
    return True


def results_not_looked_up() -> Any:
    """An intention that is listed is carried out."""
    return swapped(("endive.kv.log.helping.is_open", always_open), ("endive.kv.log.helping.pending", listed))


def results_on_topics_not_looked_up() -> Any:
    """An intention on a topic that is listed is carried out."""
    return swapped(("endive.kv.log.topics.is_open", always_open), ("endive.kv.log.helping.pending", listed))


def horizon_in_a_later_entry() -> Any:
    """Results are removed first, and the horizon rises with a later commit: here, never."""
    forget = helping.forget_outcomes

    def forget_outcomes(before: int, tx: Transaction) -> Steps[int]:
        count = yield from forget(before, tx)
        tx.rows.pop(HORIZON, None)
        return count

    return swapped(("tests.races.helping.forget_outcomes", forget_outcomes))


def reads_not_compared() -> Any:
    """The rows of a recorded function are put, whatever its reads would give now."""
    return swapped(("endive.kv.recorded.digest_of_value", lambda _: bytes(16)))
