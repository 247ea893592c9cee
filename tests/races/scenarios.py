"""What the explorer is given: processes made of the store's own protocols, and what must hold in every state.

A process tells what it has done by `RecordEvent`; invariants compare that with the objects. Whether a write is there is
decided by the store's own reading protocol, run to its end on the objects of that state.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from endive.errors import EndiveError, FencedError, MissingObjectError
from endive.kv.log.opening import Lease, open_writer
from endive.kv.log.wal import WAL, is_fence
from endive.kv.maintenance.compactor import claim_compactor, compact_wal
from endive.kv.maintenance.garbage_collector import collect_garbage
from endive.kv.sst.format import Rows, decode_footer, encode_sst
from endive.kv.sst.lookup import find_in_groups, find_in_runs
from endive.kv.sst.reading import NoCache
from endive.kv.views import create_checkpoint, newest_view, prolong_checkpoint, view_at
from endive.protocol.fencing import append
from endive.protocol.requests import (
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
    ask,
)
from endive.testing.explorer import Invariant, RecordEvent
from tests.races.processes import driver_of

T = TypeVar("T")


# Processes.


def group_of(rows: Mapping[str, str], epoch: int, put_id: str, seq: int) -> bytes:
    keys = sorted(key.encode() for key in rows)
    values: list[bytes | None] = [rows[key.decode()].encode() for key in keys]
    return encode_sst(Rows(keys, values, [seq] * len(keys)), epoch, put_id)


def writer(name: str, writes: int = 1, parallel_writes: int = 1) -> Steps[str]:
    """Open the store and write `writes` groups of two rows each, one after the other."""
    lease: Lease = yield from open_writer(parallel_writes)
    yield from ask(RecordEvent(("open", lease.epoch, lease.next_slot)))
    for number in range(writes):
        yield from one_write(lease, lease.next_slot + number, f"{name}{number}")
    return "done"


def one_write(lease: Lease, slot: int, value: str) -> Steps[None]:
    put_id = yield from ask(NewId())
    # Sequence numbers ascend with epoch and slot, as the store's do.
    body = group_of({value: value, f"{value}+": value}, lease.epoch, put_id, seq=lease.epoch * 100 + slot)
    yield from append(WAL, slot, body, lease.epoch)
    yield from ask(RecordEvent(("acknowledged", value, slot)))


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
    """Read both rows of a group in one view, and tell what was seen."""
    try:
        view = yield from newest_view()
    except MissingObjectError as error:
        yield from ask(RecordEvent(("took for damaged", error.path)))
        return "gave up"
    seen: tuple[bool, ...] = ()
    for key in (value, f"{value}+"):
        row = find_in_groups(view.groups, key.encode())
        if row is None:
            row = yield from find_in_runs(view.manifest.value.runs, key.encode(), NoCache())
        seen = (*seen, row is not None)
    yield from ask(RecordEvent(("read", value, seen)))
    return "done"


def open_already(name: str, lease: Lease, writes: int = 1) -> Steps[str]:
    """Go on writing as a writer that has opened before."""
    for number in range(writes):
        yield from one_write(lease, lease.next_slot + number, f"{name}{number}")
    return "done"


def keeper(lifetime_s: int = 0) -> Steps[str]:
    """Pin the store's state, for a while first if so asked, then for ever, and rely on it."""
    checkpoint = yield from create_checkpoint(lifetime_s)
    if lifetime_s:
        yield from prolong_checkpoint(checkpoint.id, 0)
    yield from ask(RecordEvent(("pinned", checkpoint.id)))
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
    """Run a protocol to its end while nobody else does anything."""
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
        body = group_of({value: value, f"{value}+": value}, lease.epoch, f"{place:032x}", place + 1)
        driver.run(append(WAL, lease.next_slot + place, body, lease.epoch))
    driver.run(claim_compactor())
    objects = {info.path: driver.objects.get(info.path) or b"" for info in driver.objects.list("")}
    return objects, replace(lease, next_slot=lease.next_slot + len(values))


# Invariants.


def holds(key: str) -> Steps[bool]:
    view = yield from newest_view()
    row = find_in_groups(view.groups, key.encode())
    if row is None:
        row = yield from find_in_runs(view.manifest.value.runs, key.encode(), NoCache())
    return row is not None


def acknowledged_writes_are_there(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    for event in events | {("acknowledged", "x", 0)}:  # every store here begins with that write
        match event:
            case ("acknowledged", str(value), int(slot)):
                try:
                    there = at_rest(bodies, holds(value)) and at_rest(bodies, holds(f"{value}+"))
                except EndiveError as error:
                    return f"reading {value!r}: {error}"
                if not there and not is_behind_a_gap(bodies, slot):
                    return f"acknowledged write {value!r} in slot {slot} is missing"
    return None


def is_behind_a_gap(bodies: Mapping[str, bytes], slot: int) -> bool:
    """Whether a write is in the WAL, but readers wait for one before it."""
    view = at_rest(bodies, newest_view())
    return WAL.path_of(slot) in bodies and slot > view.wal_end


def one_writer_is_open(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    """No object of an older epoch stands where, or behind where, a newer writer has opened."""
    opened = [(event[1], event[2]) for event in events if isinstance(event, tuple) and event[0] == "open"]
    if len({epoch for epoch, _ in opened}) != len(opened):
        return f"two writers have the same epoch: {sorted(opened)}"
    for path, body in bodies.items():
        slot = WAL.slot_of(path)
        if slot is None:
            continue
        epoch = decode_footer(path, body).epoch
        for newer, next_slot in opened:
            if epoch < newer and slot >= next_slot:
                kind = "fence" if is_fence(ObjectInfo(path, len(body), 0)) else "write"
                return f"a {kind} of epoch {epoch} in slot {slot}, though epoch {newer} has opened at {next_slot}"
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


def a_pinned_view_can_be_read(bodies: Mapping[str, bytes], events: frozenset[Hashable]) -> str | None:
    for event in events:
        match event:
            case ("pinned", str(checkpoint_id)):
                try:
                    view = at_rest(bodies, view_at(checkpoint_id))
                    at_rest(bodies, find_in_runs(view.manifest.value.runs, b"x", NoCache()))
                except EndiveError as error:
                    return str(error)
    return None


INVARIANTS: dict[str, Invariant] = {
    "an acknowledged write is missing": acknowledged_writes_are_there,
    "two writers are open": one_writer_is_open,
    "a reader sees a torn batch": no_batch_is_torn,
    "a pinned view is gone": a_pinned_view_can_be_read,
    "the store cannot be opened": a_new_writer_can_open,
}
