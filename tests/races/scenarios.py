"""Scenarios for the explorer: processes made of the store's own protocols, and invariants of every state.

A process records its progress by `RecordEvent`; invariants compare that with the objects. Whether a write can be read
is decided by the store's own reading protocol, run to its end on the objects of that state.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from endive.errors import EndiveError, FencedError, MissingObjectError
from endive.kv.log.committing import append_exclusive
from endive.kv.log.opening import Lease, open_writer
from endive.kv.log.state import state_at
from endive.kv.log.wal import WAL, WalEntry, is_fence
from endive.kv.maintenance.compactor import compact_wal
from endive.kv.maintenance.garbage_collector import collect_garbage
from endive.kv.sst.format import Rows, decode_footer, encode_sst
from endive.kv.sst.lookup import find_in_runs
from endive.kv.sst.reading import NoCache
from endive.kv.views import create_checkpoint, newest_view, refresh_checkpoint, view_at
from endive.protocol.requests import (
    Elsewhere,
    Get,
    GetAll,
    GetRange,
    List,
    NewId,
    Now,
    ObjectInfo,
    PutIfAbsent,
    Request,
    Sleep,
    Steps,
    Together,
    ask,
)
from endive.testing.explorer import Invariant, RecordEvent
from tests.races.processes import driver_of
from tests.store_protocols import claim_compactor, find_in_entries

T = TypeVar("T")


# Processes.


def rows_of(rows: Mapping[str, str], seq: int) -> Rows:
    keys = sorted(key.encode() for key in rows)
    values: list[bytes | None] = [rows[key.decode()].encode() for key in keys]
    return Rows(keys, values, [seq] * len(keys))


def body_of(rows: Mapping[str, str], epoch: int, put_id: str, seq: int) -> bytes:
    return encode_sst(rows_of(rows, seq), epoch, put_id)


def writer(name: str, writes: int = 1, parallel_writes: int = 1) -> Steps[str]:
    """Open the store and write `writes` entries of two rows each, one after the other."""
    lease: Lease = yield from open_writer(parallel_writes)
    yield from ask(RecordEvent(("open", lease.epoch, lease.next_entry)))
    for number in range(writes):
        yield from one_write(lease, lease.next_entry + number, f"{name}{number}")
    return "done"


def one_write(lease: Lease, number: int, value: str) -> Steps[None]:
    put_id = yield from ask(NewId())
    # Sequence numbers ascend with epoch and entry, as the store's do.
    rows = rows_of({value: value, f"{value}+": value}, lease.epoch * 100 + number)
    entry = WalEntry(number, rows, lease.epoch, put_id)
    yield from append_exclusive(state_at(lease.manifest, lease.epoch), entry)
    yield from ask(RecordEvent(("acknowledged", value, number)))


def in_flight(lease: Lease, number: int, value: str) -> Steps[str]:
    """Write one of several entries that one writer has in flight; it acknowledges them in their order."""
    put_id = yield from ask(NewId())
    rows = rows_of({value: value, f"{value}+": value}, lease.epoch * 100 + number)
    entry = WalEntry(number, rows, lease.epoch, put_id)
    try:
        yield from append_exclusive(state_at(lease.manifest, lease.epoch), entry)
    except FencedError:
        yield from ask(RecordEvent(("refused", value, number)))
        return "fenced"
    yield from ask(RecordEvent(("landed", value, number - lease.next_entry)))
    return "done"


def compactor() -> Steps[str]:
    epoch = yield from claim_compactor()
    yield from compact_wal(epoch)
    return "done"


def compactor_open_already(epoch: int = 1) -> Steps[str]:
    yield from compact_wal(epoch)
    return "done"


def collector() -> Steps[str]:
    yield from collect_garbage(retention_ms=0)
    return "done"


def reader(value: str) -> Steps[str]:
    """Read both rows of an entry in one view, and record which were seen."""
    try:
        view = yield from newest_view()
    except MissingObjectError as error:
        yield from ask(RecordEvent(("took for damaged", error.path)))
        return "gave up"
    seen: tuple[bool, ...] = ()
    for key in (value, f"{value}+"):
        row = find_in_entries(view.entries, key.encode())
        if row is None:
            row = yield from find_in_runs(view.manifest.value.runs, key.encode(), NoCache())
        seen = (*seen, row is not None)
    yield from ask(RecordEvent(("read", value, seen)))
    return "done"


def open_already(name: str, lease: Lease, writes: int = 1) -> Steps[str]:
    """Go on writing as a writer that has opened before."""
    for number in range(writes):
        yield from one_write(lease, lease.next_entry + number, f"{name}{number}")
    return "done"


def keeper(lifetime_s: int = 0) -> Steps[str]:
    """Create a checkpoint, for a while first if `lifetime_s` says so, then for ever, and rely on it."""
    checkpoint = yield from create_checkpoint(lifetime_s)
    if lifetime_s:
        yield from refresh_checkpoint(checkpoint.id, 0)
    yield from ask(RecordEvent(("checkpoint", checkpoint.id)))
    return "done"


# A store at rest, on which protocols run to their end.


def answer(bodies: dict[str, bytes], request: Request[Any]) -> Any:  # noqa: PLR0911
    match request:
        case Get(path):
            return bodies.get(path)
        case GetRange(path, start, length):
            return None if path not in bodies else bodies[path][start : start + length]
        case GetAll(paths):
            return tuple(map(bodies.get, paths))
        case Elsewhere(url, inner):
            inside = {path.removeprefix(url): body for path, body in bodies.items() if path.startswith(url)}
            return answer(inside, inner)
        case Together(requests):
            return tuple(answer(bodies, one) for one in requests)
        case List(prefix, after):
            found = sorted(path for path in bodies if path.startswith(prefix) and path > after)
            return tuple(ObjectInfo(path, len(bodies[path]), 0) for path in found)
        case PutIfAbsent(path, body):
            if path in bodies:
                return False
            bodies[path] = body
            return True
        case Sleep():
            return None
        case NewId():
            return "f" * 32
        case Now():
            return 0
    raise TypeError(request)


def at_rest(bodies: Mapping[str, bytes], steps: Steps[T]) -> T:
    """Run a protocol to its end while no other protocol takes a step."""
    objects = dict(bodies)
    try:
        request = next(steps)
        while True:
            request = steps.send(answer(objects, request))
    except StopIteration as stop:
        result: T = stop.value
        return result


def store_at_rest(*values: str, parallel_writes: int = 1) -> tuple[dict[str, bytes], Lease]:
    """Return the objects of a store to which one writer has written, and what that writer holds.

    A compactor has claimed its epoch, and has not done anything yet.
    """
    driver = driver_of()
    lease = driver.run(open_writer(parallel_writes))
    for place, value in enumerate(values):
        entry = WalEntry(
            lease.next_entry + place,
            rows_of({value: value, f"{value}+": value}, place + 1),
            lease.epoch,
            f"{place:032x}",
        )
        driver.run(append_exclusive(state_at(lease.manifest, lease.epoch), entry))
    driver.run(claim_compactor())
    objects = {info.path: driver.objects.get(info.path) or b"" for info in driver.objects.list("")}
    return objects, replace(lease, next_entry=lease.next_entry + len(values))


# Invariants.


def holds(key: str) -> Steps[bool]:
    view = yield from newest_view()
    row = find_in_entries(view.entries, key.encode())
    if row is None:
        row = yield from find_in_runs(view.manifest.value.runs, key.encode(), NoCache())
    return row is not None


def acknowledged_writes_are_there(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    landed = {event[2]: event[1] for event in events if isinstance(event, tuple) and event[0] == "landed"}
    in_order = {
        ("acknowledged", landed[place], 0) for place in landed if all(before in landed for before in range(place))
    }
    for event in events | in_order | {("acknowledged", "x", 0)}:  # every store here begins with that write
        match event:
            case ("acknowledged", str(value), int(number)):
                try:
                    there = at_rest(bodies, holds(value)) and at_rest(bodies, holds(f"{value}+"))
                except EndiveError as error:
                    return f"reading {value!r}: {error}"
                if not there and not is_behind_a_gap(bodies, number):
                    return f"acknowledged write {value!r} in entry {number} is missing"
    return None


def nothing_counts_behind_a_refused_entry(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    """Entries in flight were computed one from the other: if one is refused, those behind it are void."""
    refused = [event[2] for event in events if isinstance(event, tuple) and event[0] == "refused"]
    for event in events:
        match event:
            case ("refused", str(value), int()) if at_rest(bodies, holds(value)):
                return f"{value!r} was refused, and counts"
            case ("landed", str(value), int()) if refused and value > "p" and at_rest(bodies, holds(value)):
                return f"{value!r} counts, though the entry before it was refused"
    return None


def is_behind_a_gap(bodies: Mapping[str, bytes], number: int) -> bool:
    """Whether a write is in the WAL, but readers wait for one before it."""
    view = at_rest(bodies, newest_view())
    return WAL.path_of(number) in bodies and number > view.wal_end


def one_writer_is_open(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    """No object of an older epoch stands where, or behind where, a newer writer has opened."""
    opened = [(event[1], event[2]) for event in events if isinstance(event, tuple) and event[0] == "open"]
    if len({epoch for epoch, _ in opened}) != len(opened):
        return f"two writers have the same epoch: {sorted(opened)}"
    for path, body in bodies.items():
        number = WAL.number_of(path)
        if number is None:
            continue
        epoch = decode_footer(path, body).epoch
        for newer, next_entry in opened:
            if epoch < newer and number >= next_entry:
                kind = "fence" if is_fence(ObjectInfo(path, len(body), 0)) else "write"
                return f"a {kind} of epoch {epoch} in entry {number}, though epoch {newer} has opened at {next_entry}"
    return None


def no_batch_is_torn(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    for event in events:
        match event:
            case ("read", value, (first, second)) if first != second:
                return f"a reader saw half of the batch {value!r}"
            case ("read", "x", (False, False)):
                return "a reader missed a write that was acknowledged before it began"
            case ("took for damaged", path):
                return f"a reader says that {path} was lost, which was collected"
    return None


def a_new_writer_can_open(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    try:
        at_rest(bodies, open_writer())
    except FencedError:
        raise
    except EndiveError as error:
        return f"the store cannot be opened any more: {error}"
    return None


def a_checkpoint_can_be_read(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    for event in events:
        match event:
            case ("checkpoint", str(checkpoint_id)):
                try:
                    view = at_rest(bodies, view_at(checkpoint_id))
                    at_rest(bodies, find_in_runs(view.manifest.value.runs, b"x", NoCache()))
                except EndiveError as error:
                    return str(error)
    return None


INVARIANTS: dict[str, Invariant] = {
    "an acknowledged write is missing": acknowledged_writes_are_there,
    "an entry counts behind a refused one": nothing_counts_behind_a_refused_entry,
    "two writers are open": one_writer_is_open,
    "a reader sees a torn batch": no_batch_is_torn,
    "a checkpoint is gone": a_checkpoint_can_be_read,
    "the store cannot be opened": a_new_writer_can_open,
}
