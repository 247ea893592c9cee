"""Transaction functions on grants.

All grants of one user or group are one row, so that a request needs one row for each of its caller's names. A drop
deletes the grants on what it drops in the same transaction: nothing created later under the name or uuid inherits them.
"""

from endive.catalog.model.grants import Grantee, GrantsRecord, Place, Privilege
from endive.catalog.model.keys import GRANTS, TABLES, VIEWS, grants_key, table_from, table_key, view_from, view_key
from endive.catalog.model.names import Identifier
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.model.view_records import ViewRecord
from endive.catalog.operations.stored_tables import uuid_in
from endive.protocol.requests import Steps


def find_grants(tx: StoreTransaction, grantee: Grantee) -> Steps[GrantsRecord]:
    """Return the grants of a user or group; empty if there are none."""
    body = yield from tx.get(grants_key(grantee.kind, grantee.name))
    return GrantsRecord(grantee, {}) if body is None else GrantsRecord.decoded(body)


def all_grants(tx: StoreTransaction) -> Steps[tuple[GrantsRecord, ...]]:
    """Return all grants."""
    rows = yield from tx.scan(GRANTS.encode())
    return tuple(GrantsRecord.decoded(body) for _, body in rows)


def _put(tx: StoreTransaction, record: GrantsRecord) -> None:
    key = grants_key(record.grantee.kind, record.grantee.name)
    if record.grants:
        tx.put(key, record.encoded())
    else:
        tx.delete(key)


def add_grant(
    tx: StoreTransaction, grantee: Grantee, place: Place, privileges: frozenset[Privilege]
) -> Steps[frozenset[Privilege]]:
    """Add privileges; return those that are new."""
    record = yield from find_grants(tx, grantee)
    held = record.grants.get(place, frozenset())
    if privileges <= held:
        return frozenset()
    _put(tx, record.changed(place, held | privileges))
    return privileges - held


def remove_grant(
    tx: StoreTransaction, grantee: Grantee, place: Place, privileges: frozenset[Privilege]
) -> Steps[frozenset[Privilege]]:
    """Remove privileges; return those that were there."""
    record = yield from find_grants(tx, grantee)
    held = record.grants.get(place, frozenset())
    if privileges & held:
        _put(tx, record.changed(place, held - privileges))
    return privileges & held


def forget_place(tx: StoreTransaction, *places: Place) -> Steps[None]:
    """Remove all grants on things that are dropped, or that did not exist before."""
    records = yield from all_grants(tx)
    for record in records:
        kept = {on: held for on, held in record.grants.items() if on not in places}
        if len(kept) < len(record.grants):
            _put(tx, GrantsRecord(record.grantee, kept))


def own(tx: StoreTransaction, owner: Grantee | None, place: Place) -> Steps[None]:
    """Grant `manage` to the creator, in the transaction that creates. None: grant nothing."""
    if owner is not None:
        yield from add_grant(tx, owner, place, frozenset((Privilege.MANAGE,)))


def uuid_in_store(tx: StoreTransaction, kind: str, identifier: Identifier) -> Steps[str | None]:
    """Return the uuid of a table or view; None if there is none."""
    body = yield from tx.get(table_key(identifier) if kind == "table" else view_key(identifier))
    if body is None:
        return None
    return str(uuid_in(body)) if kind == "table" else ViewRecord.decoded(body).uuid


def names_by_uuid(tx: StoreTransaction, kind: str, uuids: frozenset[str]) -> Steps[dict[str, Identifier]]:
    """Return the current names of tables or views."""
    if not uuids:
        return {}
    rows = yield from tx.scan((TABLES if kind == "table" else VIEWS).encode())
    texts = [one.encode() for one in uuids]
    found: dict[str, Identifier] = {}
    for key, body in rows:
        if any(text in body for text in texts):
            uuid = str(uuid_in(body)) if kind == "table" else ViewRecord.decoded(body).uuid
            if uuid in uuids:
                found[uuid] = table_from(key) if kind == "table" else view_from(key)
    return found
