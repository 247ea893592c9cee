"""The marker that ties a store to the record store that decides its creates (`endive.protocol.two_phase`).

All writers of a store must use the same record store, or none: otherwise a plain writer and a two-phase writer could
both create the same WAL entry, and one would overwrite the other's acknowledged write. So a two-phase store has a
*marker*, an empty object `manifest/records-ID`. The record store holds the same ID in a record named
`manifest/records`, the *claim*, which is committed once the store belongs to this record store for good.

A plain opening lists the manifests anyway, finds the marker and raises (`endive.protocol.sequenced`). This costs no
additional request.

**What can race.** Two record stores, or a record store and a plain writer, open a new store at the same time. The
object store has no conditional writes to decide between them. Instead, each first writes its own object (a marker, or
the first manifest), then lists, and gives up if the other's object is there. Markers are never deleted, so at least
one of the two sees the other. If both give up, an operator deletes one of the objects.

**Limits.** A store of an older version has no marker until a two-phase writer opens it.
"""

from contextlib import suppress

from endive.errors import AttemptsExhaustedError, ConfigurationError, OutcomeUnknownError
from endive.protocol.requests import Get, List, NewId, ObjectInfo, Put, Steps, ask
from endive.protocol.two_phase import CLAIM, MARKER, CommitRecord, GetRecord, InsertRecord, destination_of

PREFIX = "manifest/"
TRIES_MAX = 5

OTHER_RECORDS = "the store was written with another record store; open it with that one"
NO_RECORDS = "the store was written without a record store; open it without `records`"
OTHER_STORE = "the record store given belongs to another store; use a database or table of its own for each store"
TWO_CLAIMS = (
    "several record stores, or a writer without one, opened this new store at once, and none of them may go on; delete "
    "the objects of the wrong ones and open the store again"
)


def require_own_records() -> Steps[bool]:
    """Check before the first read that store and record store belong together. `ConfigurationError` if not.

    True: they do, for good. False: the store has no marker yet; call `claim_records` before the first write.
    """
    claim = yield from ask(GetRecord(CLAIM))
    if claim is None or not claim.is_committed:
        yield from _require_no_other("" if claim is None else claim.source)
        return False
    listing = yield from ask(List(PREFIX))
    if claim.source not in markers_in(listing):
        raise ConfigurationError(claim.source, [OTHER_STORE])
    return True


def claim_records() -> Steps[None]:
    """Tie the store to the record store before the first write. `ConfigurationError` if it belongs to another one."""
    is_settled = yield from require_own_records()
    if is_settled:
        return
    new_id = yield from ask(NewId())
    with suppress(OutcomeUnknownError):  # the claim that is read next counts, whichever process inserted it
        yield from ask(InsertRecord(CLAIM, f"{MARKER}{new_id}"))
    claim = yield from ask(GetRecord(CLAIM))
    if claim is None:
        raise OutcomeUnknownError(CLAIM)
    yield from ask(Put(claim.source, b""))
    if not claim.is_committed:
        yield from _require_no_other(claim.source)
        yield from ask(CommitRecord(CLAIM))


def _require_no_other(own: str) -> Steps[None]:
    """Raise if the store has another marker than `own`, or a manifest that was created without these records."""
    for _ in range(TRIES_MAX):
        listing = yield from ask(List(PREFIX))
        others = [marker for marker in markers_in(listing) if marker != own]
        if others:
            claim = yield from ask(GetRecord(CLAIM))
            if claim is not None and claim.is_committed:
                return  # another process with the same records was faster
            if claim is None or claim.source == own:
                raise ConfigurationError(others[0], [TWO_CLAIMS if own else OTHER_RECORDS])
            own = claim.source
            continue
        newest = max((info.path for info in listing if _is_manifest(info.path)), default="")
        if not newest:
            return
        record = yield from ask(GetRecord(newest))
        if record is not None:
            return
        body = yield from ask(Get(newest))
        if body is not None:  # an object is deleted before its record, so this one never had a record
            raise ConfigurationError(newest, [TWO_CLAIMS if own else NO_RECORDS])
    raise AttemptsExhaustedError(PREFIX, TRIES_MAX)


def markers_in(listing: tuple[ObjectInfo, ...]) -> list[str]:
    """Return the markers in a listing of the manifests."""
    return [info.path for info in listing if info.path.startswith(MARKER)]


def _is_manifest(path: str) -> bool:
    return path.startswith(PREFIX) and path[len(PREFIX) :][:1].isdigit() and destination_of(path) is None
