"""Two-phase create: create-if-absent for object stores without conditional writes, by means of a record store.

The record store is a small transactional database. A *record* names a temporary object, the source, that becomes an
object, the destination. The record store accepts one record for each destination: the process that inserts it has
created the object.

1. Write the source, under a unique name.
2. Insert the record. From here on the object exists: `get` and `list` find it, copied or not.
3. Copy the source to the destination, mark the record as committed, delete the source.

**What can race.** A writer crashes after 2: any process can recover, which does 3. Until then, readers that do not find
an object consult the record store, so a durable write is always visible. Recovery and the writer copy at the same
time: both write the same bytes. Recovery finds an old source: it reads the record first, and copies instead of
deleting if an open record names the source. An object is deleted before its record, so that its name cannot be
created again while the old object can be read.

**Limits.** Recovery that was overtaken by a deletion may write a deleted object again. The store never uses
a deleted name again, so the object is garbage and is collected. A writer that stalls for more than a day between 1 and
2, or a garbage collector whose clock is a day ahead, may cost a writer its source. The writer acknowledges only after
the copy, so no acknowledged write is lost. If it crashes right then, the record has no source: creates of that name
raise `CorruptObjectError`, and `recover(release_lost=True)` removes the record once all writers have stopped.
"""

from dataclasses import dataclass

from endive.errors import CorruptObjectError, OutcomeUnknownError, StorageAccessError, StorageUnavailableError
from endive.protocol.requests import Delete, Get, List, NewId, Now, ObjectInfo, Put, Request, Steps, ask

TRIES_MAX = 5
ID_DIGITS, CHECKSUM_DIGITS = 32, 8
CLAIM = "manifest/records"
MARKER = f"{CLAIM}-"
"""Record and object that tie a store to its record store (`endive.protocol.records_marker`)."""
ORPHAN_AGE_MS = 24 * 3600 * 1000
"""A source without a record is garbage when it is older than this."""
LOST = (
    "its record has neither an object nor a source: the writer crashed before it acknowledged this write. Stop all "
    "writers, then remove the record: endive kv recover URL --records RECORDS --release-lost"
)


@dataclass(frozen=True)
class TransferRecord:
    """One row of the transactional store."""

    destination: str
    source: str
    is_committed: bool


@dataclass(frozen=True)
class InsertRecord(Request[bool]):
    """Insert an open record. False: the destination already has one."""

    destination: str
    source: str


@dataclass(frozen=True)
class GetRecord(Request[TransferRecord | None]):
    """Return the record of a destination; None if there is none."""

    destination: str


@dataclass(frozen=True)
class OpenRecords(Request[tuple[TransferRecord, ...]]):
    """Return all open records whose destination starts with `prefix`."""

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
    """Result of a recovery."""

    copied: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    """Destinations whose source is gone: never acknowledged. Their records remain, unless they were released."""
    orphans: tuple[str, ...] = ()
    """Sources that were deleted because no record names them."""


def is_marker(path: str) -> bool:
    """Whether `path` is the marker that ties a store to its record store."""
    return path.startswith(MARKER)


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
    """Create an object. False: it already exists. `OutcomeUnknownError`: it may or may not have been created.

    `CorruptObjectError`: an earlier writer left a record without a source; see `recover`.
    """
    new_id = yield from ask(NewId())
    source = source_of(destination, new_id, checksum)
    yield from ask(Put(source, body))
    try:
        is_ours = yield from _insert(destination, source)
    except CorruptObjectError:
        yield from ask(Delete(source))
        raise
    if not is_ours:
        yield from ask(Delete(source))
        return False
    try:
        yield from _transfer(destination, source, body)
    except (StorageUnavailableError, StorageAccessError) as error:
        raise OutcomeUnknownError(destination) from error
    return True


def _insert(destination: str, source: str) -> Steps[bool]:
    """Insert the record. After a lost reply, the record in the record store decides."""
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
        return (yield from _is_own(destination, source))
    raise OutcomeUnknownError(destination)


def _is_own(destination: str, source: str) -> Steps[bool]:
    """Whether the existing record is the caller's: some database clients retry an insert without reporting it."""
    try:
        record = yield from ask(GetRecord(destination))
        if record is None:
            raise OutcomeUnknownError(destination)  # deleted since; it may have been the caller's
        is_lost = False
        if record.source != source:
            is_lost = yield from _is_lost(record)
    except (StorageUnavailableError, StorageAccessError) as error:
        raise OutcomeUnknownError(destination) from error
    if is_lost:
        raise CorruptObjectError(destination, LOST)
    return record.source == source


def _is_lost(record: TransferRecord) -> Steps[bool]:
    """Whether neither the source nor the destination of an open record exists.

    The record is read again last: a record that has changed since was committed or deleted, hence not lost.
    """
    if record.is_committed:
        return False
    body = yield from ask(Get(record.source))
    if body is None:
        body = yield from ask(Get(record.destination))
    if body is not None:
        return False
    again = yield from ask(GetRecord(record.destination))
    return again == record


def _transfer(destination: str, source: str, body: bytes) -> Steps[None]:
    yield from ask(Put(destination, body))
    yield from ask(CommitRecord(destination))
    yield from ask(Delete(source))


def get_in_two_phases(path: str) -> Steps[bytes | None]:
    """Return an object, copied or not; None if it does not exist."""
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


def _open_transfers(prefix: str) -> Steps[tuple[TransferRecord, ...]]:
    """Return the open records without the claim, which is no transfer."""
    records = yield from ask(OpenRecords(prefix))
    return tuple(record for record in records if record.destination != CLAIM)


def list_in_two_phases(prefix: str, after: str) -> Steps[tuple[ObjectInfo, ...]]:
    """List objects, copied or not, without sources and the marker.

    The records are read first: an object that is copied after that is in the listing. The name of a source begins with
    its destination, so the listing after a path has the sources of all destinations after that path.
    """
    records = yield from _open_transfers(prefix)
    listing = yield from ask(List(prefix, after))
    sources = {info.path: info for info in listing}
    found = {path: info for path, info in sources.items() if destination_of(path) is None and not is_marker(path)}
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


def recover(prefix: str = "", orphan_age_ms: int = ORPHAN_AGE_MS, release_lost: bool = False) -> Steps[Recovered]:
    """Finish the creates of crashed writers, then delete old sources that no record names.

    `release_lost` deletes the records whose source is gone, so that their names can be created. Only if no writer of
    the store is running: a stalled one could still write the object.
    """
    records = yield from _open_transfers(prefix)
    copied: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    for number in range(len(records)):
        record = records[number]
        body = yield from ask(Get(record.source))
        if body is not None:
            yield from _transfer(record.destination, record.source, body)
            copied = (*copied, record.destination)
            continue
        is_lost = yield from _is_lost(record)
        if is_lost:
            lost = (*lost, record.destination)
            if release_lost:
                yield from ask(DeleteRecord(record.destination))
            continue
        body = yield from ask(Get(record.destination))
        if body is not None:
            yield from ask(CommitRecord(record.destination))
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
