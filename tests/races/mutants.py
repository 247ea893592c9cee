"""Faulty variants of the protocols. Each is a mistake that was made, or is easily made; the explorer must find it.

A mutant takes a part of the protocol away or puts a wrong one in its place, for as long as its context lasts.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from endive.errors import FencedError, OutcomeUnknownError
from endive.kv.log.opening import Lease, require_newest
from endive.kv.log.wal import WAL
from endive.kv.manifest import Checkpoint, StoreManifest
from endive.kv.manifest_format import MANIFESTS
from endive.kv.sst.format import encode_fence
from endive.protocol.fencing import ROLE, contiguous_end, fence
from endive.protocol.requests import Delete, Get, List, NewId, ObjectInfo, Put, PutIfAbsent, Steps, ask
from endive.protocol.sequenced import Numbered, newest, propose, update
from endive.protocol.two_phase import (
    CommitRecord,
    DeleteRecord,
    GetRecord,
    InsertRecord,
    Recovered,
    destination_of,
)


@contextmanager
def swapped(*changes: tuple[str, Any]) -> Iterator[None]:
    """Put other things in the place of names, such as `endive.kv.maintenance.garbage_collector.is_fence`."""
    patches = [patch(name, value) for name, value in changes]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


CREATORS = ("protocol.fencing", "protocol.sequenced", "kv.log.committing")
"""Modules that create objects."""

# Opening.


def open_as_in_the_document(parallel_writes: int = 1) -> Steps[Lease]:
    """Claim the epoch, then list the WAL, then fence, and look no further."""
    put_id = yield from ask(NewId())
    pin = Checkpoint(put_id, 0, 0)
    claimed = yield from update(MANIFESTS, lambda base: base.value.with_writer(put_id, parallel_writes, pin))
    epoch = claimed.value.writer_epoch
    end = yield from contiguous_end(WAL, claimed.value.wal_id_last_compacted)
    count = claimed.value.max_parallel_writes
    first = yield from fence(WAL, end + 1, epoch, count, encode_fence(epoch, put_id))
    if first is None:
        raise OutcomeUnknownError(WAL.prefix)
    return Lease(epoch, first + count, claimed)


def open_without_a_second_look(parallel_writes: int = 1) -> Steps[Lease]:
    """List the WAL before the claim, but do not read the manifest after the fence."""
    put_id = yield from ask(NewId())
    base = yield from newest(MANIFESTS)
    assert base is not None
    end = yield from contiguous_end(WAL, base.value.wal_id_last_compacted)
    pin = Checkpoint(put_id, base.number + 1, 120)
    claimed = yield from propose(MANIFESTS, base, base.value.with_writer(put_id, parallel_writes, pin))
    if claimed is None:
        raise FencedError(ROLE, 0, 0)  # one try is enough for a mutant
    epoch, count = claimed.value.writer_epoch, claimed.value.max_parallel_writes
    first = yield from fence(WAL, end + 1, epoch, count, encode_fence(epoch, put_id))
    if first is None:
        raise OutcomeUnknownError(WAL.prefix)
    return Lease(epoch, first + count, claimed)


def open_with_one_fence(parallel_writes: int = 1) -> Steps[Lease]:
    """Write one fence, however many writes the older writer may have under way."""
    put_id = yield from ask(NewId())
    base = yield from require_newest()
    end = yield from contiguous_end(WAL, base.value.wal_id_last_compacted)
    pin = Checkpoint(put_id, base.number + 1, 120)
    claimed = yield from propose(MANIFESTS, base, base.value.with_writer(put_id, parallel_writes, pin))
    if claimed is None:
        raise FencedError(ROLE, 0, 0)
    epoch = claimed.value.writer_epoch
    first = yield from fence(WAL, end + 1, epoch, 1, encode_fence(epoch, put_id))
    assert first is not None
    return Lease(epoch, first + 1, claimed)


def document_004() -> Any:
    return swapped(("tests.races.scenarios.open_writer", open_as_in_the_document))


def no_second_look() -> Any:
    return swapped(("tests.races.scenarios.open_writer", open_without_a_second_look))


def one_fence() -> Any:
    return swapped(("tests.races.scenarios.open_writer", open_with_one_fence))


# Sequenced objects.


def no_boundary() -> Any:
    def boundary_of(family: object) -> Steps[int]:
        yield from ()  # a generator, like the one it replaces
        return 0

    return swapped(("endive.protocol.sequenced.boundary_of", boundary_of))


def a_lost_reply_taken_for_success() -> Any:
    def create(path: str, body: bytes) -> Steps[bool]:
        try:
            created = yield from ask(PutIfAbsent(path, body))
        except OutcomeUnknownError:
            return True
        return created

    return swapped(*((f"endive.{module}.create", create) for module in CREATORS))


def a_lost_reply_taken_for_a_rival() -> Any:
    def create(path: str, body: bytes) -> Steps[bool]:
        for _ in range(3):
            try:
                created = yield from ask(PutIfAbsent(path, body))
            except OutcomeUnknownError:
                continue
            return created
        raise OutcomeUnknownError(path)

    return swapped(*((f"endive.{module}.create", create) for module in CREATORS))


def stale_manifest_written_over() -> Any:
    """A change is made to the manifest as it was read first, and written over whatever others have changed since."""

    def update(family: Any, change: Any, attempts_max: int = 3) -> Steps[Any]:
        first = yield from newest(family)
        assert first is not None
        value = change(first)
        if value is first.value:
            return first
        for _ in range(attempts_max):
            base = yield from newest(family)
            created = yield from propose(family, base, value)
            if created is not None:
                return created
        raise OutcomeUnknownError(family.prefix)

    return swapped(("endive.kv.maintenance.compactor.update", update), ("tests.store_protocols.update", update))


# Entries in flight.


def void_entries_replayed() -> Any:
    def is_void(footer: object, epoch: int) -> bool:
        return False

    return swapped(("endive.kv.log.wal.is_void", is_void), ("endive.kv.maintenance.compactor.is_void", is_void))


def compaction_ends_anywhere() -> Any:
    def safe_end(entries: list[object], parallel_writes: int) -> int:
        return len(entries)

    return swapped(("endive.kv.maintenance.compactor.safe_end", safe_end))


# Collecting.


def fences_collected() -> Any:
    return swapped(("endive.kv.maintenance.garbage_collector.is_fence", lambda _: False))


def no_watermark() -> Any:
    return swapped(("endive.kv.maintenance.garbage_collector.is_settled", lambda *_: True))


def checkpoints_expire_by_the_clock_alone() -> Any:
    """The collector leaves expired checkpoints in the manifest, and does not count them."""

    def without_expired(base: Numbered[StoreManifest], put_id: str, now_unix_s: int) -> StoreManifest:
        return base.value

    def active(manifest: StoreManifest, now_unix_s: int) -> set[int]:
        return {pin.manifest_id for pin in manifest.checkpoints if not pin.is_expired(now_unix_s)}

    return swapped(
        ("endive.kv.maintenance.garbage_collector._without_expired", without_expired),
        ("endive.kv.maintenance.garbage_collector.checkpointed_by", active),
    )


# Reading.


def no_look_for_a_newer_manifest() -> Any:
    def newer_than(manifest: object) -> Steps[None]:
        yield from ()

    return swapped(("endive.kv.views.newer_than", newer_than))


# Two-phase create.


def temporary_objects_collected_by_age_alone() -> Any:
    """Collection as in the document: what is old goes, whether a record names it or not, and nothing is recovered."""

    def recover(prefix: str = "", orphan_age_ms: int = 0) -> Steps[Recovered]:
        listing = yield from ask(List(prefix))
        for number in range(len(listing)):
            if destination_of(listing[number].path) is not None:
                yield from ask(Delete(listing[number].path))
        return Recovered()

    return swapped(("tests.races.two_phase_scenarios.recover", recover))


def records_not_consulted() -> Any:
    """Readers as in the document: an object is there when it has been copied."""

    def get_in_two_phases(path: str) -> Steps[bytes | None]:
        return (yield from ask(Get(path)))

    def list_in_two_phases(prefix: str, after: str) -> Steps[tuple[ObjectInfo, ...]]:
        listing = yield from ask(List(prefix, after))
        return tuple(info for info in listing if destination_of(info.path) is None)

    return swapped(
        ("tests.races.two_phase_scenarios.get_in_two_phases", get_in_two_phases),
        ("tests.races.two_phase_scenarios.list_in_two_phases", list_in_two_phases),
    )


def a_committed_record_taken_for_a_deletion() -> Any:
    """A reader that does not look again for an object that was copied between its two requests."""

    def get_in_two_phases(path: str) -> Steps[bytes | None]:
        body = yield from ask(Get(path))
        if body is not None:
            return body
        record = yield from ask(GetRecord(path))
        if record is None or record.is_committed:
            return None
        return (yield from ask(Get(record.source)))

    return swapped(("tests.races.two_phase_scenarios.get_in_two_phases", get_in_two_phases))


def an_unsure_insert_forgotten() -> Any:
    """An insert that is refused after one whose answer was lost is taken for the whole story."""

    def _insert(destination: str, source: str) -> Steps[bool]:
        for _ in range(3):
            try:
                return (yield from ask(InsertRecord(destination, source)))
            except OutcomeUnknownError:
                continue
        raise OutcomeUnknownError(destination)

    return swapped(("endive.protocol.two_phase._insert", _insert))


def a_record_committed_before_the_copy() -> Any:
    def _transfer(destination: str, source: str, body: bytes) -> Steps[None]:
        yield from ask(CommitRecord(destination))
        yield from ask(Put(destination, body))
        yield from ask(Delete(source))

    return swapped(("endive.protocol.two_phase._transfer", _transfer))


def a_record_deleted_before_its_object() -> Any:
    def delete_in_two_phases(path: str) -> Steps[None]:
        yield from ask(DeleteRecord(path))
        yield from ask(Delete(path))

    return swapped(("tests.races.two_phase_scenarios.delete_in_two_phases", delete_in_two_phases))
