"""Processes for the explorer that help each other, and invariants that must hold in every state.

A call appends a letter of its own to a key (`tests.races.shared_writers`), or refuses if the key's length is odd or
even, as its argument says. Some letters need a file: an intention that names a file keeps it from being deleted.
"""

from collections.abc import Hashable, Mapping
from functools import partial

from endive.errors import EndiveError, RefusalError
from endive.kv.log.committing import commit_batch
from endive.kv.log.epochs import open_exclusive
from endive.kv.log.helping import announce, collect_intentions, delete_intention, forget_outcomes
from endive.kv.log.intentions import (
    DONE,
    HORIZON,
    PREFIX,
    Intention,
    decode_intention,
    encode_intention,
    name_of,
    names_in,
    outcome_key,
    position_of,
)
from endive.kv.log.state import StoreState, newest_state, refreshed
from endive.kv.manifest_format import MANIFESTS
from endive.kv.procedures import Call, procedure
from endive.kv.recorded import record_functions
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction, run_functions
from endive.protocol.requests import Delete, Get, List, Steps, ask
from endive.protocol.sequenced import update
from endive.testing.explorer import Invariant, RecordEvent
from tests.races.processes import driver_of
from tests.races.scenarios import at_rest
from tests.races.shared_writers import INVARIANTS as INVARIANTS_OF_WRITERS
from tests.races.shared_writers import REFRESHES, append_letter, key_of, logs_at_rest, read_logs, writers_at_rest

FILES = "data/"
ROUNDS = 3


@procedure("races.append", 1)
def append(tx: Transaction, argument: bytes) -> Steps[bytes]:
    """Append a letter: `b"a"`, or `b"a 1"` if the length must be odd."""
    letter, _, parity = argument.decode().partition(" ")
    held = yield from tx.get(key_of(letter))
    held = held or b""
    if parity and len(held) % 2 != int(parity):
        raise RefusalError(held)
    tx.put(key_of(letter), held + letter.encode())
    return held + letter.encode()


def call(argument: str) -> tuple[Call, ...]:
    return (Call("races.append", 1, argument.encode()),)


def helpers_at_rest() -> tuple[dict[str, bytes], StoreState]:
    """Return the objects of a shared store where transactions were announced before, and a writer's state."""
    objects, state = writers_at_rest()
    driver = driver_of()
    for path, body in objects.items():
        driver.objects.put(path, body)
    driver.run(update(MANIFESTS, lambda newest: newest.value.with_intentions("marked")))
    state = driver.run(refreshed(state))
    return {info.path: driver.objects.get(info.path) or b"" for info in driver.objects.list("")}, state


# Processes.


def helping(argument: str, state: StoreState) -> Steps[str]:
    """Announce a call, carry out what is pending until it is decided, and delete the intention."""
    own = yield from announce(state, call(argument), argument[0])
    yield from ask(RecordEvent(("announced", own.name)))
    state = yield from refreshed(state)
    yield from deciding(own, state)
    return "done"


def deciding(own: Intention, state: StoreState) -> Steps[str]:
    """Go on as the owner of an intention that was announced; also one that died and is back."""
    committed = yield from commit_batch(state, (), NoCache(), REFRESHES, own=own, by="helper")
    assert committed.decided is not None
    result = committed.decided.results[0]
    letter = own.calls[0].argument[:1].decode()
    kind = "appended" if result.kind == DONE else "refused"
    if kind == "appended":
        yield from ask(RecordEvent(("appended", letter)))
    yield from ask(RecordEvent(("told", kind, letter, result.body.decode())))
    yield from delete_intention(own)
    return "done"


def giving_up(argument: str, state: StoreState) -> Steps[str]:
    """Announce a call and never look again."""
    own = yield from announce(state, call(argument), argument[0])
    yield from ask(RecordEvent(("announced", own.name)))
    return "gone"


def recording(letter: str, state: StoreState) -> Steps[str]:
    """Run a transaction function on the known state, announce what it has read and wants to write; again if refused."""
    for _ in range(ROUNDS):
        recorded = yield from record_functions((partial(append_letter, letter),), state, NoCache(), {})
        if recorded is None:
            return "must be run on the newest state"
        own = yield from announce(state, recorded.calls, letter)
        yield from ask(RecordEvent(("announced", own.name)))
        committed = yield from commit_batch(state, (), NoCache(), REFRESHES, own=own, by="helper")
        assert committed.decided is not None
        yield from delete_intention(own)
        if committed.decided.results[0].kind == DONE:
            yield from ask(RecordEvent(("appended", letter)))
            return "done"
        state = committed.state
    return "refused again and again"


def helping_exclusively(letter: str) -> Steps[str]:
    """Claim an epoch exclusively, and append a letter with everything that is pending."""
    state = yield from open_exclusive(claims_max=REFRESHES)
    yield from ask(RecordEvent(("open", state.manifest.value.writer_epoch, state.wal_end + 1)))
    function = partial(append_function, letter)
    committed = yield from commit_batch(state, (function,), NoCache(), REFRESHES, by="exclusive")
    if committed.outcomes[0].error is not None:
        raise committed.outcomes[0].error
    yield from ask(RecordEvent(("appended", letter)))
    return "done"


def append_function(letter: str, tx: Transaction) -> Steps[bytes]:
    return (yield from append(tx, letter.encode()))


def forgetting(state: StoreState) -> Steps[str]:
    """Forget all results so far, and delete the intentions that nobody can carry out any more."""
    state = yield from refreshed(state)
    function = partial(forget_outcomes, state.wal_end)
    committed = yield from commit_batch(state, (function,), NoCache(), REFRESHES, by="collector")
    yield from collect_intentions(NoCache(), committed.state)
    return "done"


def collecting(state: StoreState) -> Steps[str]:
    """Delete the intentions that nobody can carry out any more."""
    yield from collect_intentions(NoCache(), state)
    return "done"


def collecting_files(state: StoreState) -> Steps[str]:
    """Delete the intentions that nobody can carry out, then the files that no letter and no intention names."""
    yield from collect_intentions(NoCache(), state)
    files = yield from ask(List(FILES))
    listing = yield from ask(List(PREFIX))
    names = names_in(listing)
    named: tuple[str, ...] = ()
    for number in range(len(names)):
        body = yield from ask(Get(PREFIX + names[number]))
        if body is not None:
            named = (*named, *(one.argument[:1].decode() for one in decode_intention(names[number], body).calls))
    newest = yield from refreshed(state)
    outcomes, _ = yield from run_functions((read_logs,), newest.manifest.value.runs, newest.recent, NoCache())
    if outcomes[0].error is not None:
        raise outcomes[0].error
    kept = {*named, *"".join(outcomes[0].value)}
    unused = tuple(info.path for info in files if info.path.removeprefix(FILES) not in kept)
    for number in range(len(unused)):
        yield from ask(Delete(unused[number]))
    return "done"


def abandoned(objects: Mapping[str, bytes], state: StoreState, argument: str) -> tuple[dict[str, bytes], Intention]:
    """Return the objects with an intention whose owner is gone, and its file."""
    own = Intention(name_of(state.wal_end, "d" * 32), call(argument), "gone")
    return {**objects, own.path: encode_intention(own), FILES + argument[0]: b"data"}, own


# Invariants.


def owners_are_told_what_the_log_says(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    told = [event for event in events if isinstance(event, tuple) and event[0] == "told"]
    if not told:
        return None
    held = "".join(logs_at_rest(bodies))
    for _, kind, letter, body in told:
        if kind == "refused" and letter in held:
            return f"the owner of {letter!r} was told that it is refused, but it is there: {held!r}"
        if kind == "appended" and not held.startswith(body):
            return f"the owner of {letter!r} was told {body!r}, but the log holds {held!r}"
    return None


def pending_intentions_exist(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    names = [event[1] for event in events if isinstance(event, tuple) and event[0] == "announced"]
    lost = [name for name in names if PREFIX + name not in bodies]
    for name in lost:
        try:
            is_over = at_rest(bodies, _is_over(name))
        except EndiveError as error:
            return f"the log cannot be read: {error}"
        if not is_over:
            return f"the intention {name} is neither decided nor expired, and its object is gone"
    return None


def _is_over(name: str) -> Steps[bool]:
    state = yield from newest_state()
    assert state is not None
    function = partial(_reads, name)
    outcomes, _ = yield from run_functions((function,), state.manifest.value.runs, state.recent, NoCache())
    return bool(outcomes[0].value)


def _reads(name: str, tx: Transaction) -> Steps[bool]:
    result = yield from tx.get(outcome_key(name))
    horizon = yield from tx.get(HORIZON)
    return result is not None or position_of(name) < int(horizon or b"0")


def files_exist(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    needed = [event[1] for event in events if isinstance(event, tuple) and event[0] == "needs a file"]
    for letter in needed:
        if FILES + letter not in bodies and letter in "".join(logs_at_rest(bodies)):
            return f"{letter!r} is in the log, and its file was deleted"
    return None


def needing(letter: str) -> Steps[str]:
    """Record that a letter needs its file."""
    yield from ask(RecordEvent(("needs a file", letter)))
    return "done"


INVARIANTS: dict[str, Invariant] = {
    **INVARIANTS_OF_WRITERS,
    "answers": owners_are_told_what_the_log_says,
    "intentions": pending_intentions_exist,
    "files": files_exist,
}
