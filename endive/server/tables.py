"""Operations on tables, commits among them."""

from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit
from uuid import UUID

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import AssertTableUUID

from endive.catalog.commit.change import TableChange
from endive.catalog.model.catalog_records import TableRecord
from endive.catalog.model.grants import Place, Privilege
from endive.catalog.model.names import table_of, text_of
from endive.catalog.operations.tables_in_store import LoadedTable
from endive.drivers.blocking import random_id
from endive.errors import AlreadyInCatalogError, CommitConflictError, NotInCatalogError
from endive.server.access.locations import check_properties
from endive.server.changes import change_of
from endive.server.configuration import client_properties
from endive.server.errors import bad_request, missing_file
from endive.server.http import NO_CONTENT, Page, Request, Response, json_response
from endive.server.messages import CommitTable, CommitTransaction, CreateTable, RegisterTable, Rename, SignRequest
from endive.server.metadata import metadata_json
from endive.server.names import name_json, uuid_of
from endive.server.routes import Call
from endive.server.storage.delegation import HEADER, NO_STORE
from endive.server.structures import parsed

MODES = ("all", "refs")


def list_tables(call: Call) -> Response:
    """Return the tables of a namespace."""
    found, following = Page.of(call.request).cut(
        call.guard.visible("table", call.namespace, call.catalog.list_tables(call.namespace))
    )
    return json_response({"identifiers": [name_json(one) for one in found], "next-page-token": following})


def create_table(call: Call) -> Response:
    """Create a table, or with `stage-create` only compute its metadata."""
    asked = call.request.decoded(CreateTable)
    name = (*call.namespace, asked.name)
    structure = _structure_of(asked)
    properties = dict(asked.properties or {})
    if asked.stage_create:
        if call.catalog.table_exists(name):
            raise AlreadyInCatalogError("Table", text_of(name))
        if not call.catalog.namespace_exists(name[:-1]):
            raise NotInCatalogError("Namespace", text_of(name[:-1]))
        metadata = call.catalog.tables.new_metadata(
            name,
            structure.schema,
            asked.location,
            structure.spec,
            structure.order,
            properties,
            call.guard.principal.staged_uuid(UUID(random_id(), version=4)),
        )
        return json_response(
            {"metadata": metadata_json(metadata), "config": client_properties(call.catalog.properties)}
        )
    created = call.catalog.create_table(
        name,
        structure.schema,
        asked.location,
        structure.spec,
        structure.order,
        properties,
        uuid_of(call.request_id),
        call.guard.owner_in(name[:-1]),
    )
    call.guard.require_on(Privilege.READ, "table", name)  # a retry, after the creator's grant was revoked
    return table_response(call, created)


@dataclass(frozen=True)
class _Structure:
    """Schema, partitions and order of a table to be created."""

    schema: Schema
    spec: PartitionSpec
    order: SortOrder


def _structure_of(asked: CreateTable) -> _Structure:
    spec, order = asked.partition_spec, asked.write_order
    return _Structure(
        parsed(Schema, asked.schema, "schema"),
        parsed(PartitionSpec, spec, "partition-spec") if spec else UNPARTITIONED_PARTITION_SPEC,
        parsed(SortOrder, order, "write-order") if order else UNSORTED_SORT_ORDER,
    )


def load_table(call: Call) -> Response:
    """Return a table; 304 if it is as the client knows it."""
    mode = call.request.query.get("snapshots", "all")
    if mode not in MODES:
        raise bad_request(f"snapshots is {mode!r}, not one of {', '.join(MODES)}")
    needs_keys = HEADER in call.request.headers  # which an answer without a body would not have

    def is_known(record: TableRecord) -> bool:
        return not needs_keys and _is_known(call.request, etag(record, mode))

    found = call.catalog.tables.load_unless(call.table, is_known, refs_only=mode == "refs")
    _require_metadata_file(found.metadata_location)
    if isinstance(found, TableRecord):
        return Response(304, headers={"etag": etag(found, mode)})
    return table_response(call, found, mode)


def _require_metadata_file(location: str) -> None:
    """Report a missing metadata file where looking costs microseconds; on a bucket `endive catalog check` finds it."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file") and not Path(parts.path).exists():
        raise missing_file(location)


def _is_known(request: Request, tag: str) -> bool:
    known = [one.strip() for one in request.headers.get("if-none-match", "").split(",")]
    return "*" in known or tag in known or f"W/{tag}" in known


def etag(loaded: LoadedTable | TableRecord, mode: str = "all") -> str:
    """Return a tag of a table's content: its uuid and version, and which snapshots are sent."""
    return f'"{loaded.uuid.hex}-{loaded.version}-{mode}"'


def table_exists(call: Call) -> Response:
    """Answer 204 or 404."""
    if not call.catalog.table_exists(call.table):
        raise NotInCatalogError("Table", text_of(call.table))
    return NO_CONTENT


def drop_table(call: Call) -> Response:
    """Drop a table; its files stay unless `purgeRequested`."""
    is_confined = not call.guard.may(Privilege.MANAGE)  # on the warehouse
    purge = call.request.flag("purgeRequested")
    call.catalog.drop_table(call.table, purge, request_id=call.request_id, is_confined=is_confined)
    return NO_CONTENT


def register_table(call: Call) -> Response:
    """Add a table by its metadata file."""
    asked = call.request.decoded(RegisterTable)
    name = (*call.namespace, asked.name)
    try:
        check_properties(call.catalog.files.read_given(asked.metadata_location).properties)
        registered = call.catalog.register_table(name, asked.metadata_location, asked.overwrite, call.request_id)
    except FileNotFoundError as error:
        raise missing_file(asked.metadata_location) from error
    return table_response(call, registered)


def unregister_table(call: Call) -> Response:
    """Remove a table from the catalog, and return where its metadata file is; all files stay."""
    loaded = call.catalog.unregister_table(call.table, call.request_id)
    return json_response({"metadata-location": loaded.metadata_location, "metadata": metadata_json(loaded.metadata)})


def rename_table(call: Call) -> Response:
    """Rename a table."""
    asked = call.request.decoded(Rename)
    source, target = asked.source, asked.destination
    names = (table_of((*source.namespace, source.name)), table_of((*target.namespace, target.name)))
    call.catalog.tables.rename(*names, call.request_id)
    return NO_CONTENT


def update_table(call: Call) -> Response:
    """Commit to a table."""
    change = pinned(call, change_of(call.table, call.request.decoded(CommitTable)))
    is_new = change.creates and not call.catalog.table_exists(call.table)
    if change.creates and not is_new and not call.guard.may_on(Privilege.READ, "table", call.table):
        # To create needs no privilege on a table that exists: neither an empty change nor a retry may show it.
        raise CommitConflictError(text_of(call.table), "Table already exists")
    if not change.updates:
        unchanged = call.catalog.load_table(call.table)
        call.guard.require_same_tables()
        return table_response(call, unchanged)
    (loaded,) = call.catalog.commit_and_load([change], call.request_id)
    if is_new:
        _own(call, loaded)
    return table_response(call, loaded)


def commit_transaction(call: Call) -> Response:
    """Commit to several tables, all or none."""
    asked = call.request.decoded(CommitTransaction)
    if any(one.identifier is None for one in asked.table_changes):
        raise bad_request("Every change of a transaction needs the identifier of its table")
    changes = [
        pinned(call, change_of((*one.identifier.namespace, one.identifier.name), one))
        for one in asked.table_changes
        if one.identifier is not None
    ]
    if len({one.identifier for one in changes}) != len(changes):
        raise bad_request("A transaction has every table only once")
    new = {one.identifier for one in changes if one.creates and not call.catalog.table_exists(one.identifier)}
    if not new:
        call.catalog.commit_many(changes, call.request_id)
        return NO_CONTENT
    for loaded in call.catalog.commit_and_load(changes, call.request_id):
        if loaded.identifier in new:
            _own(call, loaded)
    return NO_CONTENT


def pinned(call: Call, change: TableChange) -> TableChange:
    """Return a change that fails if another table has the name of the one that the caller has a grant on.

    It has the digest of the request: the client's key belongs to this request alone.
    """
    change = replace(change, digest=call.digest)
    place = call.guard.pinned.get(change.identifier)
    if place is None:
        return change
    return replace(change, requirements=(*change.requirements, AssertTableUUID(uuid=UUID(place.uuid))))


def _own(call: Call, created: LoadedTable) -> None:
    """Let the caller manage a table that it has created."""
    call.guard.own(Place("table", uuid=str(created.uuid)), created.identifier[:-1])


def report_metrics(call: Call) -> Response:
    """Accept a report of a scan or a commit. It is not kept."""
    call.request.decoded(dict)
    return NO_CONTENT


def table_response(call: Call, loaded: LoadedTable, mode: str = "all") -> Response:
    """Return a table with its metadata and the properties that a client needs for its files."""
    access = call.delegation.access(call.guard, call.request, loaded)
    body = {
        "metadata-location": loaded.metadata_location,
        "metadata": metadata_json(loaded.metadata, mode),
        "config": {**client_properties(call.catalog.properties), **access.config},
    }
    if not access.credentials:
        return json_response(body, headers={"etag": etag(loaded, mode)})
    return json_response({**body, "storage-credentials": access.credentials}, headers=NO_STORE)


def load_credentials(call: Call) -> Response:
    """Return temporary keys for a table's files; none if the server gives none."""
    found = call.delegation.credentials(call.guard, call.catalog.load_table(call.table))
    return json_response({"storage-credentials": found}, headers=NO_STORE)


def sign_request(call: Call) -> Response:
    """Sign a request to a table's files."""
    asked = call.request.decoded(SignRequest)
    loaded = call.catalog.load_table(call.table)
    signed = call.delegation.sign(call.guard, loaded, asked.method, asked.uri, asked.headers, asked.body)
    return json_response({"uri": signed.uri, "headers": signed.headers}, headers=NO_STORE)
