"""Operations on views."""

from endive.catalog.model.grants import Privilege
from endive.catalog.model.names import text_of
from endive.catalog.operations.views import LoadedView
from endive.errors import NotInCatalogError
from endive.server.errors import bad_request, missing_file
from endive.server.http import NO_CONTENT, Page, Response, json_response
from endive.server.messages import CommitTable, CreateView, RegisterTable, Rename
from endive.server.names import name_json, uuid_of
from endive.server.routes import Call


def list_views(call: Call) -> Response:
    """Return the views of a namespace."""
    found, following = Page.of(call.request).cut(
        call.guard.visible("view", call.namespace, call.catalog.list_views(call.namespace))
    )
    return json_response({"identifiers": [name_json(one) for one in found], "next-page-token": following})


def create_view(call: Call) -> Response:
    """Create a view."""
    asked = call.request.decoded(CreateView)
    uuid = uuid_of(call.request_id)
    created = call.catalog.create_view(
        (*call.namespace, asked.name),
        asked.schema,
        asked.view_version,
        asked.location,
        asked.properties or {},
        str(uuid) if uuid is not None else None,
        call.guard.owner_in(call.namespace),
    )
    call.guard.require_on(Privilege.READ, "view", created.identifier)  # a retry, after the grant was revoked
    return view_response(created)


def load_view(call: Call) -> Response:
    """Return a view."""
    return view_response(call.catalog.load_view(call.table))


def view_exists(call: Call) -> Response:
    """Answer 204 or 404."""
    if not call.catalog.view_exists(call.table):
        raise NotInCatalogError("View", text_of(call.table))
    return NO_CONTENT


def replace_view(call: Call) -> Response:
    """Commit to a view."""
    asked = call.request.decoded(CommitTable)
    name = asked.identifier
    if name is not None and (*name.namespace, name.name) != call.table:
        raise bad_request(f"The path names the view {text_of(call.table)}, and the body another one")
    requirements = asked.requirements
    place = call.guard.pinned.get(call.table)
    if place is not None:  # another view may have got the name since its grants were read
        requirements = [*requirements, {"type": "assert-view-uuid", "uuid": place.uuid}]
    return view_response(call.catalog.commit_view(call.table, requirements, asked.updates, call.request_id))


def drop_view(call: Call) -> Response:
    """Drop a view."""
    call.catalog.drop_view(call.table, call.request_id)
    return NO_CONTENT


def rename_view(call: Call) -> Response:
    """Rename a view."""
    asked = call.request.decoded(Rename)
    source, target = asked.source, asked.destination
    call.catalog.rename_view((*source.namespace, source.name), (*target.namespace, target.name), call.request_id)
    return NO_CONTENT


def register_view(call: Call) -> Response:
    """Add a view by its metadata file."""
    asked = call.request.decoded(RegisterTable)
    try:
        name = (*call.namespace, asked.name)
        return view_response(call.catalog.register_view(name, asked.metadata_location, call.request_id))
    except FileNotFoundError as error:
        raise missing_file(asked.metadata_location) from error


def view_response(loaded: LoadedView) -> Response:
    """Return a view with its metadata."""
    return json_response({"metadata-location": loaded.metadata_location, "metadata": loaded.metadata, "config": {}})
