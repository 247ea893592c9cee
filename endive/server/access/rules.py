"""What each operation needs: functions that refuse a call, named in the table of routes.

A route cannot be declared without a rule. Rules look at the path and, where the body names tables, at the body: every
table of a transaction, both names of a rename.
"""

from collections.abc import Callable

from endive.catalog.model.grants import Privilege
from endive.catalog.model.names import Identifier
from endive.server.access.guard import ObjectKind
from endive.server.access.locations import check_namespace, check_new, check_updates
from endive.server.messages import (
    CommitTable,
    CommitTransaction,
    CreateNamespace,
    CreateTable,
    CreateView,
    RegisterTable,
    Rename,
    UpdateProperties,
)
from endive.server.routes import Call, levels_of

Rule = Callable[[Call], None]


def nothing(_call: Call) -> None:
    """Let every caller in: the operation itself decides, or has nothing to protect."""


def filtered(call: Call) -> None:
    """Let every caller in: the operation returns only what the caller may see."""
    parent = call.request.query.get("parent", "")
    call.guard.require_sight(levels_of(parent) if parent else ())


def on_namespace(privilege: Privilege) -> Rule:
    """Return the rule of an operation on the namespace in the path."""

    def rule(call: Call) -> None:
        call.guard.require(privilege, call.namespace)

    return rule


def sees_namespace(call: Call) -> None:
    """Require that the caller may know of the namespace in the path."""
    call.guard.require_sight(call.namespace)


def on_table(privilege: Privilege, kind: ObjectKind = "table") -> Rule:
    """Return the rule of an operation on the table or view in the path."""

    def rule(call: Call) -> None:
        call.guard.require_on(privilege, kind, call.table)

    return rule


def on_view(privilege: Privilege) -> Rule:
    """Return the rule of an operation on the view in the path."""
    return on_table(privilege, "view")


def registering(call: Call) -> None:
    """Require `manage` on the warehouse: a metadata file may name any file that the server can read."""
    call.guard.require(Privilege.MANAGE)
    call.guard.touch((*call.namespace, call.request.decoded(RegisterTable).name))


def creating_namespace(call: Call) -> None:
    """Require the privilege to create in the namespace around the new one, or in the warehouse."""
    asked = call.request.decoded(CreateNamespace)
    call.guard.touch(tuple(asked.namespace))
    call.guard.require(Privilege.CREATE, tuple(asked.namespace)[:-1])
    check_namespace(call, asked.properties)


def changing_namespace(call: Call) -> None:
    """Require `manage` on the namespace in the path, and more for its location."""
    call.guard.require(Privilege.MANAGE, call.namespace)
    check_namespace(call, call.request.decoded(UpdateProperties).updates)


def creating_table(call: Call) -> None:
    """Require the privilege to create in the namespace in the path."""
    call.guard.require(Privilege.CREATE, call.namespace)
    asked = call.request.decoded(CreateTable)
    call.guard.touch((*call.namespace, asked.name))
    check_new(call, "table", asked.name, asked.location, asked.properties or {})


def creating_view(call: Call) -> None:
    """Require the privilege to create in the namespace in the path."""
    call.guard.require(Privilege.CREATE, call.namespace)
    asked = call.request.decoded(CreateView)
    call.guard.touch((*call.namespace, asked.name))
    check_new(call, "view", asked.name, asked.location, asked.properties or {})


def replacing_view(call: Call) -> None:
    """Require the privilege to write to the view in the path."""
    call.guard.require_on(Privilege.WRITE, "view", call.table)
    check_updates(call, "view", call.table, call.request.decoded(CommitTable).updates)


def committing(call: Call) -> None:
    """Require the privilege to write to the table in the path, or to create it."""
    require_commit(call, call.table, call.request.decoded(CommitTable))


def committing_all(call: Call) -> None:
    """Require the privileges on every table of a transaction."""
    for one in call.request.decoded(CommitTransaction).table_changes:
        if one.identifier is not None:  # without one the request is malformed
            require_commit(call, (*one.identifier.namespace, one.identifier.name), one)


def require_commit(call: Call, name: Identifier, asked: CommitTable) -> None:
    """Refuse a commit. A commit that creates its table fails if the table exists, so it needs no privilege on it."""
    if any(one.get("type") == "assert-create" for one in asked.requirements):
        call.guard.touch(name)
        call.guard.require(Privilege.CREATE, name[:-1])
    else:
        call.guard.require_on(Privilege.WRITE, "table", name)
    check_updates(call, "table", name, asked.updates)


def renaming(kind: ObjectKind) -> Rule:
    """Return the rule of a rename: `manage` on the old name, `create` where the new one is."""

    def rule(call: Call) -> None:
        asked = call.request.decoded(Rename)
        source, target = asked.source, asked.destination
        call.guard.require_on(Privilege.MANAGE, kind, (*source.namespace, source.name))
        call.guard.touch((*target.namespace, target.name))
        if source.namespace != target.namespace:
            call.guard.require(Privilege.CREATE, tuple(target.namespace))

    return rule
