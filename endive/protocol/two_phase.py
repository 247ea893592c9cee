"""Create-if-absent for object stores that have none, with the help of a transactional store.

A *record* says which temporary object, the source, is to become which object, the destination. Whoever inserts the
record of a destination has created it: the record store accepts one record for each destination.

1. Write the source, under a name that nobody else uses.
2. Insert the record. From here on the object exists: `get` and `list` find it, copied or not.
3. Copy the source to the destination, mark the record as committed, delete the source.

**What can race.** A writer dies after 2: recovery, by anybody, does 3. Readers that come before recovery ask the
record store when they do not find an object, so a write that is durable is never invisible. Recovery and the writer
copy at the same time: both write the same bytes. A collector finds an old source: it asks for the record first, and
recovers instead of deleting if an open record names it. An object is deleted before its record, so that its name
cannot be created anew while it can still be read.

**What is left out.** Recovery that was overtaken by a deletion may write a deleted object again. Names of the store
that were deleted are never used again, so it is garbage, and collected as such. A writer that stalls for longer than
a day between 1 and 2, or a collector whose clock is a day ahead, may cost a writer its source; it acknowledges only
after the copy, so nothing acknowledged is lost, but if it dies right then, the record has no source, the name stays
taken, and recovery says so.
"""

from dataclasses import dataclass

from endive.errors import OutcomeUnknownError, StorageAccessError, StorageUnavailableError
from endive.protocol.requests import Delete, Get, List, NewId, Now, ObjectInfo, Put, Request, Steps, ask

TRIES_MAX = 5
ID_DIGITS, CHECKSUM_DIGITS = 32, 8
ORPHAN_AGE_MS = 24 * 3600 * 1000
"""A source that no record names is garbage when it is older than this."""


@dataclass(frozen=True)
class TransferRecord:
    """One row of the transactional store."""

    destination: str
    source: str
    is_committed: bool


@dataclass(frozen=True)
class InsertRecord(Request[bool]):
    """Insert an open record. False: the destination has one."""

    destination: str
    source: str


@dataclass(frozen=True)
class GetRecord(Request[TransferRecord | None]):
    """The record of a destination."""

    destination: str


@dataclass(frozen=True)
class OpenRecords(Request[tuple[TransferRecord, ...]]):
    """All records that are not committed and whose destination starts with `prefix`."""

    prefix: str


@dataclass(frozen=True)
class CommitRecord(Request[None]):
    """Mark a record as committed."""

    destination: str


@dataclass(frozen=True)
class DeleteRecord(Request[None]):
    """Remove the record of a destination."""

    destination: str


@dataclass(frozen=True)
class Recovered:
    """What a recovery did."""

    copied: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    """Destinations whose source is gone: never acknowledged, but their names stay taken."""
    orphans: tuple[str, ...] = ()
    """Sources that were deleted because no record names them."""


def source_of(destination: str, new_id: str, checksum: int) -> str:
    """Return a temporary name beside the destination."""
    return f"{destination}.{new_id}.{checksum:0{CHECKSUM_DIGITS}x}"


def destination_of(path: str) -> str | None:
    """Return the destination of a temporary name; None if it is not one."""
    rest, _, checksum = path.rpartition(".")
    destination, _, new_id = rest.rpartition(".")
    digits = new_id + checksum
    fits = len(new_id) == ID_DIGITS and len(checksum) == CHECKSUM_DIGITS and set(digits) <= set("0123456789abcdef")
    return destination if destination and fits else None


def create_in_two_phases(destination: str, body: bytes, checksum: int) -> Steps[bool]:
    """Create an object. False: there is one. `OutcomeUnknownError`: it is durable or not, and nobody lost anything."""
    new_id = yield from ask(NewId())
    source = source_of(destination, new_id, checksum)
    yield from ask(Put(source, body))
    is_ours = yield from _insert(destination, source)
    if not is_ours:
        yield from ask(Delete(source))
        return False
    try:
        yield from _transfer(destination, source, body)
    except (StorageUnavailableError, StorageAccessError) as error:
        raise OutcomeUnknownError(destination) from error
    return True


def _insert(destination: str, source: str) -> Steps[bool]:
    """Insert the record; a lost answer is settled by looking whose record there is."""
    was_unsure = False
    for _ in range(TRIES_MAX):
        try:
            inserted = yield from ask(InsertRecord(destination, source))
        except OutcomeUnknownError:
            was_unsure = True
            continue
        except (StorageUnavailableError, StorageAccessError):
            if was_unsure:  # this try did nothing, but an earlier one may have
                break
            raise
        if inserted:
            return True
        return (yield from _is_ours(destination, source))
    raise OutcomeUnknownError(destination)


def _is_ours(destination: str, source: str) -> Steps[bool]:
    """Whether the record that stands in the way is our own: some clients repeat an insert without telling."""
    try:
        record = yield from ask(GetRecord(destination))
    except (OutcomeUnknownError, StorageUnavailableError, StorageAccessError) as error:
        raise OutcomeUnknownError(destination) from error
    if record is None:
        raise OutcomeUnknownError(destination)  # somebody's record, deleted since: it may have been ours
    return record.source == source


def _transfer(destination: str, source: str, body: bytes) -> Steps[None]:
    yield from ask(Put(destination, body))
    yield from ask(CommitRecord(destination))
    yield from ask(Delete(source))


def get_in_two_phases(path: str) -> Steps[bytes | None]:
    """Return an object, whether it was copied already or not."""
    body = yield from ask(Get(path))
    if body is not None:
        return body
    record = yield from ask(GetRecord(path))
    if record is None:
        return None  # never created, or deleted
    if not record.is_committed:
        body = yield from ask(Get(record.source))
        if body is not None:
            return body
    return (yield from ask(Get(path)))  # copied since the first request, or deleted


def list_in_two_phases(prefix: str, after: str) -> Steps[tuple[ObjectInfo, ...]]:
    """List objects, copied or not, without temporary ones.

    The records are read first: what is copied after that shows up in the listing itself.
    """
    records = yield from ask(OpenRecords(prefix))
    listing = yield from ask(List(prefix))
    sources = {info.path: info for info in listing}
    found = {info.path: info for info in listing if destination_of(info.path) is None}
    for record in records:
        if record.destination not in found and record.source in sources:
            source = sources[record.source]
            found[record.destination] = ObjectInfo(record.destination, source.size_bytes, source.modified_unix_ms)
    return tuple(found[path] for path in sorted(found) if path > after)


def delete_in_two_phases(path: str) -> Steps[None]:
    """Delete an object, then its record."""
    record = yield from ask(GetRecord(path))
    yield from ask(Delete(path))
    if record is not None:
        yield from ask(Delete(record.source))
    yield from ask(DeleteRecord(path))


def recover(prefix: str = "", orphan_age_ms: int = ORPHAN_AGE_MS) -> Steps[Recovered]:
    """Finish what others have left unfinished, then delete temporary objects that no record names."""
    records = yield from ask(OpenRecords(prefix))
    copied: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    for number in range(len(records)):
        record = records[number]
        body = yield from ask(Get(record.source))
        if body is not None:
            yield from _transfer(record.destination, record.source, body)
            copied = (*copied, record.destination)
            continue
        there = yield from ask(Get(record.destination))
        if there is not None:
            yield from ask(CommitRecord(record.destination))
        else:
            again = yield from ask(GetRecord(record.destination))
            lost = (*lost, record.destination) if again == record else lost
    orphans = yield from _delete_orphans(prefix, orphan_age_ms)
    return Recovered(copied, lost, orphans)


def _delete_orphans(prefix: str, orphan_age_ms: int) -> Steps[tuple[str, ...]]:
    now_ms = yield from ask(Now())
    listing = yield from ask(List(prefix))
    old = [info.path for info in listing if info.modified_unix_ms + orphan_age_ms < now_ms]
    orphans: tuple[str, ...] = ()
    for number in range(len(old)):
        destination = destination_of(old[number])
        if destination is None:
            continue
        record = yield from ask(GetRecord(destination))
        if record is None or record.source != old[number] or record.is_committed:
            yield from ask(Delete(old[number]))
            orphans = (*orphans, old[number])
    return orphans
