"""Processes for the explorer: an exclusive writer, and guests that let it carry out their calls (decision 72).

A guest announces, looks for the result, and claims the store if there is none. The exclusive writer appends letters of
its own and carries out what it finds with them, as `endive.kv.writer` does.
"""

from functools import partial
from typing import Any

from endive.errors import FencedError
from endive.kv.log.combining import commit_calls
from endive.kv.log.committing import Committed, append_exclusive, commit_batch, prepare
from endive.kv.log.epochs import open_exclusive, open_shared
from endive.kv.log.guests import await_exclusive, read_as_guest
from endive.kv.log.helping import announce, carry_out, delete_intention, read_intentions, to_carry_out
from endive.kv.log.intentions import DONE
from endive.kv.log.state import StoreState, newest_state, refreshed
from endive.kv.manifest_format import MANIFESTS
from endive.kv.recorded import record_functions
from endive.kv.sst.reading import NoCache
from endive.protocol.requests import Steps, ask
from endive.protocol.sequenced import update
from endive.testing.explorer import RecordEvent
from tests.races.helping import call
from tests.races.mutants import swapped
from tests.races.processes import driver_of
from tests.races.shared_writers import REFRESHES, append_letter, read_logs, writers_at_rest

POLLS = 1
"""Looks of a guest for its result, before it claims the store."""
ROUNDS = 2


def hosts_at_rest() -> tuple[dict[str, bytes], StoreState, StoreState]:
    """Return the objects of a store with an exclusive writer, that writer's state, and the state of a guest."""
    objects, _ = writers_at_rest(open_exclusive)
    driver = driver_of()
    for path, body in objects.items():
        driver.objects.put(path, body)
    driver.run(update(MANIFESTS, lambda newest: newest.value.with_intentions("marked")))
    host = driver.run(open_exclusive(create_store=False))
    guest = driver.run(newest_state())
    assert guest is not None
    return {info.path: driver.objects.get(info.path) or b"" for info in driver.objects.list("")}, host, guest


# Processes.


def visiting(letter: str, state: StoreState, reads: bool = False) -> Steps[str]:
    """Commit a call beside an exclusive writer; then read, if asked to, from the state before it."""
    committed = yield from committed_as_guest(letter, state)
    outcome = committed.outcomes[0]
    if outcome.error is not None:
        raise outcome.error
    yield from ask(RecordEvent(("appended", letter)))
    yield from ask(RecordEvent(("told", "appended", letter, outcome.value.decode())))
    if committed.own is not None:
        yield from delete_intention(committed.own)
    if reads:
        yield from reading_as_guest(letter, state)
    return "done"


def committed_as_guest(letter: str, state: StoreState) -> Steps[Committed]:
    """Commit a call, as a store does that awaits an exclusive writer elsewhere."""
    return (
        yield from commit_calls(
            state, call(letter), NoCache(), by="guest", refreshes_max=REFRESHES, guest_polls_max=POLLS
        )
    )


def reading_as_guest(expected: str, state: StoreState) -> Steps[str]:
    """Read beside an exclusive writer: what was acknowledged before must be seen."""
    read = yield from read_as_guest(state, (read_logs,), NoCache())
    if read is None:
        return "it changes too fast"
    yield from ask(RecordEvent(("read", read.outcomes[0].value, expected)))
    return "done"


def recording_as_guest(letter: str, state: StoreState) -> Steps[str]:
    """Let the exclusive writer put what a function has read and wants to write; again if it was refused."""
    for _ in range(ROUNDS):
        recorded = yield from record_functions((partial(append_letter, letter),), state, NoCache(), {})
        if recorded is None:
            return "must be run on the newest state"
        committed = yield from commit_calls(
            state, recorded.calls, NoCache(), by="guest", refreshes_max=REFRESHES, guest_polls_max=POLLS
        )
        if committed.own is not None:
            yield from delete_intention(committed.own)
        if committed.outcomes[0].error is None:
            yield from ask(RecordEvent(("appended", letter)))
            return "done"
        state = committed.state
    return "refused again and again"


def serving(letter: str, state: StoreState, rounds: int = ROUNDS) -> Steps[str]:
    """Append letters as the exclusive writer, and carry out what is pending in the same entries, until it is fenced."""
    for number in range(rounds):
        state = yield from refreshed(state)
        if not state.is_writable:
            return "fenced"
        own = letter.upper() if number else letter
        known = yield from read_intentions(state, ())
        helped = tuple(partial(carry_out, one, "host") for one in to_carry_out(known, None))
        prepared = yield from prepare(state, (partial(append_letter, own), *helped), NoCache())
        assert prepared.entry is not None
        try:
            yield from append_exclusive(prepared.before, prepared.entry)
        except FencedError:
            return "fenced"
        yield from ask(RecordEvent(("appended", own)))
        state = prepared.after
    return "done"


# Mutants.


def claiming_without_the_intention(letter: str, state: StoreState) -> Steps[str]:
    """A guest that was not served claims the store and runs its function, though its intention is still pending."""
    own = yield from announce(state, call(letter), letter)
    newest, decided = yield from await_exclusive(state, own, NoCache(), POLLS)
    if decided is not None:
        assert decided.results[0].kind == DONE
        yield from ask(RecordEvent(("appended", letter)))
        return "served"
    if not newest.is_writable:
        newest = yield from open_shared(create_store=False, refreshes_max=REFRESHES)
    yield from commit_batch(newest, (partial(append_letter, letter),), NoCache(), REFRESHES)
    yield from ask(RecordEvent(("appended", letter)))
    return "done"


def no_second_look() -> Any:
    """A guest answers a read from the state that it knows."""

    def as_it_was(state: StoreState) -> Steps[StoreState]:
        yield from ()
        return state

    return swapped(("endive.kv.log.guests.refreshed", as_it_was))


def fences_ignored() -> Any:
    """The exclusive writer takes a refused create for an entry of its own, and acknowledges it."""
    append_really = append_exclusive

    def append(state: StoreState, entry: Any) -> Steps[None]:
        try:
            yield from append_really(state, entry)
        except FencedError:
            return

    return swapped(("tests.races.guests.append_exclusive", append))
