"""Processes for the explorer that share a store, and invariants that must hold in every state.

Every transaction function appends a letter of its own to a key, so the key holds the history: which commits counted, in
which order. A letter that is missing was lost, one that appears twice was committed twice. Capitals go to a key of
their own, so that a commit does not always write over the row of the one before.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial

from endive.errors import EndiveError, FencedError, OutcomeUnknownError
from endive.kv.log.committing import Prepared, append_exclusive, commit_batch, prepare
from endive.kv.log.epochs import open_exclusive, open_shared, share_epoch
from endive.kv.log.opening import Lease, open_writer
from endive.kv.log.state import StoreState, newest_state, refreshed, state_at
from endive.kv.log.wal import WAL, WalEntry
from endive.kv.maintenance.claim import maintain
from endive.kv.sst.format import Rows, decode_footer, encode_sst
from endive.kv.sst.lookup import find_in_runs
from endive.kv.sst.reading import NoCache
from endive.kv.transaction import Transaction, run_functions
from endive.kv.views import newest_view
from endive.protocol.requests import NewId, Steps, ask
from endive.testing.explorer import Invariant, RecordEvent
from tests.races.processes import driver_of
from tests.races.scenarios import at_rest
from tests.store_protocols import claim_compactor, find_in_entries

KEYS = (b"log", b"LOG")
FIRST = "x"
"""What every store here begins with."""
REFRESHES = 2
LONG_MS = 1e15
"""Longer than any jump of the clock."""


def key_of(letter: str) -> bytes:
    return KEYS[letter.isupper()]


def append_letter(letter: str, transaction: Transaction) -> Steps[str]:
    held = yield from transaction.get(key_of(letter))
    transaction.put(key_of(letter), (held or b"") + letter.encode())
    return letter


# Processes.


def joining(letter: str, commits: int = 1) -> Steps[str]:
    """Join, then append letters: `a` appends "a", "A"."""
    state = yield from open_shared(refreshes_max=REFRESHES, claims_max=REFRESHES)
    yield from ask(RecordEvent(("joined", state.manifest.value.writer_epoch, state.wal_end + 1)))
    yield from committing(letter, state, commits)
    return "done"


def owning(letter: str, commits: int = 1) -> Steps[str]:
    """Claim an epoch exclusively, then append letters."""
    state = yield from open_exclusive(claims_max=REFRESHES)
    yield from ask(RecordEvent(("open", state.manifest.value.writer_epoch, state.wal_end + 1)))
    yield from committing(letter, state, commits)
    return "done"


def committing(letter: str, state: StoreState, commits: int = 1) -> Steps[str]:
    """Append letters, as a writer that has opened before."""
    yield from appending(letter + letter.upper() * (commits - 1), state)
    return "done"


def appending(letters: str, state: StoreState) -> Steps[None]:
    """Append letters, one commit each."""
    for own in letters:
        function = partial(append_letter, own)
        committed = yield from commit_batch(state, (function,), NoCache(), REFRESHES)
        if committed.outcomes[0].error is not None:
            raise committed.outcomes[0].error  # a read was refused: nothing was written
        state = committed.state
        yield from ask(RecordEvent(("appended", own)))


def short_lived(letter: str, state: StoreState) -> Steps[str]:
    """Append a letter, then do a share of maintenance, as a process that ends does."""
    yield from committing(letter, state)
    done = yield from maintain(LONG_MS, retention_ms=0)
    if done is not None:
        yield from ask(RecordEvent(("maintained", letter)))
    return "done"


def maintaining() -> Steps[str]:
    """Do a share of maintenance."""
    yield from maintain(LONG_MS, retention_ms=0)
    return "done"


def closing(letter: str, state: StoreState) -> Steps[str]:
    """Append a letter exclusively, then share the epoch, as an exclusive writer that is closed does."""
    yield from committing(letter, state)
    if state.own_epoch:
        yield from share_epoch(state.own_epoch)
    return "done"


def committing_again(letter: str, state: StoreState, claims: bool = True) -> Steps[str]:
    """Append a letter exclusively; if the outcome is unknown, claim another epoch and append the capital."""
    try:
        yield from committing(letter, state)
        return "done"
    except OutcomeUnknownError:
        if claims:
            state = yield from open_exclusive(create_store=False, claims_max=REFRESHES)
    yield from committing(letter.upper(), state)
    return "done"


def committing_and_reading(letters: str, state: StoreState) -> Steps[str]:
    """Append letters, then read from the state as it was before: the last letter must be seen."""
    yield from appending(letters, state)
    yield from reading(state, letters[-1])
    return "done"


def opening_and_reading() -> Steps[str]:
    """Open the store as a process that only reads, and read."""
    state = yield from newest_state()
    assert state is not None
    yield from _read(state, FIRST)
    return "done"


def reading(state: StoreState, expected: str = FIRST) -> Steps[str]:
    """Read as a writer that has not refreshed for a while."""
    newer = yield from refreshed(state)
    yield from _read(newer, expected)
    return "done"


def _read(state: StoreState, expected: str) -> Steps[None]:
    outcomes, _ = yield from run_functions((read_logs,), state.manifest.value.runs, state.recent, NoCache())
    if outcomes[0].error is None:  # else a file was deleted; the read is repeated on a newer state
        yield from ask(RecordEvent(("read", outcomes[0].value, expected)))


def read_logs(transaction: Transaction) -> Steps[tuple[str, ...]]:
    held: tuple[str, ...] = ()
    for number in range(len(KEYS)):
        value = yield from transaction.get(KEYS[number])
        held = (*held, (value or b"").decode())
    return held


def alone(letter: str) -> Steps[str]:
    """Open the store as an exclusive writer, and append a letter."""
    lease = yield from open_writer()
    yield from ask(RecordEvent(("open", lease.epoch, lease.next_entry)))
    state = yield from refreshed(state_at(lease.manifest, lease.epoch))
    if not state.is_writable:
        return "fenced"
    row = state.recent.find(key_of(letter))
    if row is None:
        row = yield from find_in_runs(state.manifest.value.runs, key_of(letter), NoCache())
    held = b"" if row is None else row.value or b""
    yield from alone_already(letter, lease, held)
    return "done"


def alone_already(letter: str, lease: Lease, held: bytes) -> Steps[str]:
    """Append a letter as an exclusive writer that has opened before and knows what the key holds."""
    put_id = yield from ask(NewId())
    rows = Rows([key_of(letter)], [held + letter.encode()], [1000 * lease.epoch + lease.next_entry])
    entry = WalEntry(lease.next_entry, rows, lease.epoch, put_id)
    yield from append_exclusive(state_at(lease.manifest, lease.epoch), entry)
    yield from ask(RecordEvent(("appended", letter)))
    return "done"


def two_in_flight(state: StoreState) -> tuple[Prepared, Prepared]:
    """Return two batches, which append "p" and "q", the second computed from the state after the first."""
    driver = driver_of()
    first = driver.run(prepare(state, (partial(append_letter, "p"),), NoCache()))
    second = driver.run(prepare(first.after, (partial(append_letter, "q"),), NoCache()))
    return first, second


def sending(letter: str, prepared: Prepared, state: StoreState) -> Steps[str]:
    """Send a batch that was computed before; if it is refused, commit its function again, from a newer state."""
    entry = prepared.entry
    assert entry is not None
    try:
        yield from append_exclusive(prepared.before, entry)
    except FencedError:
        newer = yield from refreshed(state)
        yield from committing(letter, newer)
        return "committed again"
    yield from ask(RecordEvent(("landed", letter, entry.number - state.wal_end)))
    return "done"


# A store at rest.


def writer_at_rest(parallel_writes: int = 1) -> tuple[dict[str, bytes], Lease]:
    """Return the objects of a store that an exclusive writer has written to, and what that writer holds."""
    driver = driver_of()
    lease = driver.run(open_writer(parallel_writes))
    path = WAL.path_of(lease.next_entry)
    driver.objects.put(path, encode_sst(Rows([key_of(FIRST)], [FIRST.encode()], [1]), lease.epoch, "0" * 32))
    driver.run(claim_compactor())
    objects = {info.path: driver.objects.get(info.path) or b"" for info in driver.objects.list("")}
    return objects, replace(lease, next_entry=lease.next_entry + 1)


def writers_at_rest(
    open_to_write: Callable[[], Steps[StoreState]] = open_shared,
) -> tuple[dict[str, bytes], StoreState]:
    """Return the objects of a store that one writer has written to, and that writer's state. A compactor is open."""
    driver = driver_of()
    state = driver.run(open_to_write())
    state = driver.run(commit_batch(state, (partial(append_letter, FIRST),), NoCache())).state
    driver.run(claim_compactor())
    state = driver.run(refreshed(state))
    return {info.path: driver.objects.get(info.path) or b"" for info in driver.objects.list("")}, state


# Invariants.


def logs_at_rest(bodies: Mapping[str, bytes]) -> tuple[str, ...]:
    """Return the histories as a reader finds them."""
    return tuple(at_rest(bodies, _log(key)) for key in KEYS)


def _log(key: bytes) -> Steps[str]:
    view = yield from newest_view()
    row = find_in_entries(view.entries, key)
    if row is None:
        row = yield from find_in_runs(view.manifest.value.runs, key, NoCache())
    return "" if row is None else (row.value or b"").decode()


def every_commit_counts_once(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    try:
        held = "".join(logs_at_rest(bodies))
    except EndiveError as error:
        return f"the log cannot be read: {error}"
    if len(set(held)) != len(held):
        return f"a commit counts twice: {held!r}"
    landed = {event[2]: event[1] for event in events if isinstance(event, tuple) and event[0] == "landed"}
    in_order = {("appended", landed[place]) for place in landed if all(before in landed for before in range(1, place))}
    for event in events | in_order | {("appended", FIRST)}:
        match event:
            case ("appended", str(letter)) if letter not in held:
                return f"the acknowledged commit {letter!r} is missing: {held!r}"
    return None


def reads_are_fresh_and_true(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    for event in events:
        match event:
            case ("read", (str(low), str(high)), str(expected)):
                held = logs_at_rest(bodies)
                if expected not in low + high:
                    return f"a read that began after the commit of {expected!r} saw {low!r} and {high!r}"
                if not (held[0].startswith(low) and held[1].startswith(high)):
                    return f"a read saw {low!r} and {high!r}, which never were: {held}"
    return None


def no_older_epoch_behind_the_fences(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    joined = [(event[1], event[2]) for event in events if isinstance(event, tuple) and event[0] in ("joined", "open")]
    for path, body in bodies.items():
        number = WAL.number_of(path)
        for newer, next_entry in joined if number is not None else ():
            epoch = decode_footer(path, body).epoch
            if number is not None and epoch < newer and number >= next_entry:
                return f"entry {number} has epoch {epoch}, though epoch {newer} was joined or opened at {next_entry}"
    return None


def anybody_can_join(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    try:
        at_rest(bodies, open_shared())
    except EndiveError as error:
        return str(error)
    return None


INVARIANTS: dict[str, Invariant] = {
    "commits": every_commit_counts_once,
    "reads": reads_are_fresh_and_true,
    "two writers are open": no_older_epoch_behind_the_fences,
    "the store cannot be joined": anybody_can_join,
}
