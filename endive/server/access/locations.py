"""What a table's writer could do to other tables, and to the server, by locations and properties in a request.

The server reads and deletes files with its own keys, and gives keys for the files below a table's location. So a
caller who could choose locations could let the server read, overwrite or delete files that belong to somebody else:

* a location that another table has, or that lies around others: keys for their files;
* `write.metadata.path` elsewhere: the server writes a file there;
* a manifest list, manifest or statistics file of another table: its file names, statistics and bounds become rows of
  the caller's table, and a purge deletes its files;
* a property for reaching files (`s3.endpoint`): the server sends signed requests to the caller's machine;
* `py-io-impl`: the server imports a class that the caller names.

A caller with `manage` on the warehouse may choose locations. Others get the location that the server chooses, and
everything that their tables refer to lies below it. Properties that name code or reach files are refused for everybody.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from endive.catalog.commit.manifests import read_list
from endive.catalog.maintenance.candidates import is_inside, path_of
from endive.catalog.maintenance.protection import PATH_PROPERTIES
from endive.catalog.model.grants import Privilege
from endive.catalog.model.keys import TABLES, VIEWS, table_key, view_key
from endive.catalog.model.names import Identifier, text_of
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.model.view_records import ViewRecord
from endive.catalog.operations.stored_tables import location_in, uuid_in
from endive.errors import CorruptObjectError
from endive.protocol.requests import Steps
from endive.server.access.guard import ObjectKind
from endive.server.errors import HttpError, bad_request
from endive.server.messages import Json
from endive.server.names import uuid_of
from endive.server.routes import Call

LIST = "a manifest list"

UNSAFE = re.compile(r"(s3|s3a|gs|gcs|adls?|abfss?|wasbs?|hdfs|client|oss|hf)\..*|.*[.-]impl")
"""Properties that name code, or how files are reached: they are the operator's, and never a table's."""


def check_properties(properties: Mapping[str, Any] | None) -> None:
    """Refuse properties that would change how the server itself reaches files."""
    for name in properties or ():
        if UNSAFE.fullmatch(name):
            words = f"The property {name!r} cannot be set through the server: its operator sets it"
            raise HttpError(403, "ForbiddenException", words)


def check_new(call: Call, kind: ObjectKind, name: str, location: str | None, properties: Mapping[str, Any]) -> None:
    """Check the location and properties of a table or view to be created.

    An idempotency key decides the uuid, and that the folder: with many keys one could be found for another's folder.
    """
    check_properties(properties)
    if call.guard.may(Privilege.MANAGE):
        return
    if location:
        raise _refused(f"the location of a new {kind} is the server's choice", location)
    for each in PATH_PROPERTIES:
        if each in properties:
            raise _refused(f"{each} of a new {kind} is the server's choice", str(properties[each]))
    uuid = uuid_of(call.request_id)
    if uuid is not None and call.catalog.namespace_exists(call.namespace):
        own = call.catalog.tables.location_for((*call.namespace, name), uuid.hex, None)
        if call.catalog.store.read_cached(lambda tx: _is_taken(tx, own, uuid.hex)):
            raise _refused("another table is in the location", own)


def check_namespace(call: Call, properties: Mapping[str, Any]) -> None:
    """Check the properties of a namespace: `location` is where its tables will be."""
    check_properties(properties)
    if "location" in properties and not call.guard.may(Privilege.MANAGE):
        raise _refused("the location of a namespace is the server's choice", str(properties["location"]))


def check_updates(call: Call, kind: ObjectKind, name: Identifier, updates: Sequence[Json]) -> None:
    """Check what a commit's updates name: locations, properties, manifest lists, statistics."""
    for update in updates:
        if update.get("action") == "set-properties" and isinstance(update.get("updates"), dict):
            check_properties(update["updates"])
    if call.guard.may(Privilege.MANAGE):
        return
    named = list(_named(updates))
    moved = [one["location"] for one in updates if one.get("action") == "set-location" and "location" in one]
    if not named and not moved:
        return
    location = call.catalog.store.read_cached(lambda tx: _location(tx, kind, name))
    for place in moved:
        if location is None:
            _check_first(call, kind, name, updates, str(place))
            location = str(place)
        elif str(place).rstrip("/") != location.rstrip("/"):  # other spellings may lead elsewhere
            raise _refused(f"the location of a {kind} cannot be changed", str(place))
    for what, path in named:
        if location is None or not is_inside(location, path):
            raise _refused(f"{what} is not below the location of {text_of(name)}", path)
        if what == LIST:
            _check_manifests(call, name, location, path)


def _check_manifests(call: Call, name: Identifier, location: str, manifest_list: str) -> None:
    """Check that a list names only manifests of its table. The file is kept, so that the commit does not read it."""
    try:
        manifests = read_list(call.catalog.files.io(location), manifest_list)
    except FileNotFoundError as error:
        raise bad_request(f"The manifest list does not exist: {manifest_list}") from error
    except CorruptObjectError as error:
        raise bad_request(str(error)) from error
    for one in manifests:
        if not is_inside(location, one.manifest_path):
            raise _refused(f"a manifest is not below the location of {text_of(name)}", one.manifest_path)


def _named(updates: Sequence[Json]) -> Iterable[tuple[str, str]]:
    """Return the paths in updates, each with its name."""
    for update in updates:
        properties = update.get("updates")
        if isinstance(properties, dict):
            yield from ((each, str(properties[each])) for each in PATH_PROPERTIES if each in properties)
        snapshot = update.get("snapshot")
        if isinstance(snapshot, dict):
            if "manifest-list" in snapshot:
                yield LIST, str(snapshot["manifest-list"])
            if snapshot.get("manifests"):
                yield from (("a manifest", str(each)) for each in snapshot["manifests"])
        for field in ("statistics", "partition-statistics"):
            statistics = update.get(field)
            if isinstance(statistics, dict) and "statistics-path" in statistics:
                yield "a statistics file", str(statistics["statistics-path"])


def _check_first(call: Call, kind: ObjectKind, name: Identifier, updates: Sequence[Json], location: str) -> None:
    """Check the location of a table that a commit creates: the one that the server chose when it was staged."""
    given = [uuid_of(str(one["uuid"])) for one in updates if one.get("action") == "assign-uuid" and "uuid" in one]
    chosen = [call.catalog.tables.location_for(name, uuid.hex, None) for uuid in given if uuid is not None]
    if location.rstrip("/") not in chosen:
        raise _refused(f"the location of a new {kind} is the server's choice", location)
    if call.catalog.store.read_cached(lambda tx: _is_taken(tx, location, "")):
        raise _refused("another table is in the location", location)
    if not all(uuid is not None and call.guard.principal.has_staged(uuid) for uuid in given):
        raise _refused(f"the uuid of a new {kind} is the server's choice: stage it first", location)


def _location(tx: StoreTransaction, kind: ObjectKind, name: Identifier) -> Steps[str | None]:
    body = yield from tx.get(table_key(name) if kind == "table" else view_key(name))
    if body is None:
        return None
    if kind == "table":
        return location_in(body)
    return str(ViewRecord.decoded(body).metadata.get("location", ""))


def _is_taken(tx: StoreTransaction, location: str, own_uuid: str) -> Steps[bool]:
    """Whether a table or view is in a location or below it; one of `own_uuid` is the result of an earlier try."""
    own, text = path_of(location).rstrip("/") + "/", location.rstrip("/").rpartition("/")[2].encode()
    for space in (TABLES, VIEWS):
        rows = yield from tx.scan(space.encode())
        for body in (body for _, body in rows if text in body):
            found, uuid = _place(space, body)
            if uuid != own_uuid and (path_of(found).rstrip("/") + "/").startswith(own):
                return True
    return False


def _place(space: str, body: bytes) -> tuple[str, str]:
    """Return the location and the uuid of a table's or view's record."""
    if space == TABLES:
        return location_in(body), uuid_in(body).hex
    view = ViewRecord.decoded(body)
    return str(view.metadata.get("location", "")), view.uuid.replace("-", "")


def _refused(why: str, location: str) -> HttpError:
    return HttpError(403, "ForbiddenException", f"{why}: {location}; choosing it needs `manage` on the warehouse")
