"""Operations on namespaces."""

from endive.catalog.model.grants import Privilege
from endive.catalog.model.names import text_of
from endive.errors import NotInCatalogError
from endive.server.errors import HttpError
from endive.server.http import NO_CONTENT, Page, Response, json_response
from endive.server.messages import CreateNamespace, UpdateProperties
from endive.server.routes import Call, levels_of


def list_namespaces(call: Call) -> Response:
    """Return the namespaces inside one, or the outermost."""
    parent = call.request.query.get("parent", "")
    inside = call.catalog.list_namespaces(levels_of(parent) if parent else ())
    found, following = Page.of(call.request).cut(call.guard.visible_namespaces(inside))
    return json_response({"namespaces": found, "next-page-token": following})


def create_namespace(call: Call) -> Response:
    """Create a namespace."""
    asked = call.request.decoded(CreateNamespace)
    namespace = tuple(asked.namespace)
    owner = call.guard.owner_in(namespace[:-1])
    call.catalog.create_namespace(namespace, asked.properties, call.request_id, owner)
    return json_response({"namespace": namespace, "properties": asked.properties})


def load_namespace(call: Call) -> Response:
    """Return the properties of a namespace."""
    properties = call.catalog.namespace_properties(call.namespace)
    if not call.guard.may(Privilege.READ, call.namespace):
        properties = {}  # the caller may know of the namespace, since something inside is granted
    return json_response({"namespace": call.namespace, "properties": properties})


def namespace_exists(call: Call) -> Response:
    """Answer 204 or 404."""
    if not call.catalog.namespace_exists(call.namespace):
        raise NotInCatalogError("Namespace", text_of(call.namespace))
    return NO_CONTENT


def drop_namespace(call: Call) -> Response:
    """Drop an empty namespace."""
    call.catalog.drop_namespace(call.namespace, call.request_id)
    return NO_CONTENT


def update_properties(call: Call) -> Response:
    """Set and remove properties of a namespace."""
    asked = call.request.decoded(UpdateProperties)
    both = sorted(set(asked.removals) & asked.updates.keys())
    if both:
        raise HttpError(422, "UnprocessableEntityException", f"Both set and removed: {', '.join(both)}")
    removals = set(asked.removals)
    change = call.catalog.update_namespace_properties(call.namespace, removals, asked.updates, call.request_id)
    return json_response({"updated": change.updated, "removed": change.removed, "missing": change.missing})
