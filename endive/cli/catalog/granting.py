"""`endive catalog grant`, `revoke` and `grants`: what users and groups may do through a server."""

from typing import Annotated

import typer

from endive.catalog import KVCatalog
from endive.catalog.model.grants import Grantee, Place, Privilege
from endive.catalog.operations.grants import NamedGrant
from endive.cli.catalog.arguments import Endpoint, Json, Properties, Url, opened
from endive.cli.catalog.rendering import print_json, print_rows, say
from endive.errors import ConfigurationError

To = Annotated[str, typer.Argument(metavar="GRANTEE", help="The name of a token or of an OIDC user, or `group:NAME`.")]
Privileges = Annotated[
    list[Privilege],
    typer.Argument(
        metavar="PRIVILEGE…",
        help="`read`; `write`, which includes `read`; `create` tables, views and namespaces; `manage`, which includes "
        "everything.",
    ),
]
OnNamespace = Annotated[
    str | None, typer.Option("--namespace", metavar="NAMESPACE", help="On a namespace and all that is inside.")
]
OnTable = Annotated[str | None, typer.Option("--table", metavar="TABLE", help="On one table, also after a rename.")]
OnView = Annotated[str | None, typer.Option("--view", metavar="VIEW", help="On one view, also after a rename.")]


def grant(
    url: Url,
    grantee: To,
    privileges: Privileges,
    namespace: OnNamespace = None,
    table: OnTable = None,
    view: OnView = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Grant privileges to callers of `endive serve`; without --namespace, --table or --view on the whole warehouse.

    For example:

    `endive catalog grant s3://bucket/lake ada read create --namespace sales`

    `endive catalog grant s3://bucket/lake group:loaders write --table sales.orders`

    A caller without grants gets nothing. The creator of a table manages it. A running server follows within a second.
    """
    with opened(url, endpoint, properties) as catalog:
        new = catalog.grants.grant(Grantee.parsed(grantee), privileges, _place(catalog, namespace, table, view))
    _report("granted", new, "it has these privileges already", as_json)


def revoke(
    url: Url,
    grantee: To,
    privileges: Privileges,
    namespace: OnNamespace = None,
    table: OnTable = None,
    view: OnView = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Revoke privileges where they were granted.

    For example:

    `endive catalog revoke s3://bucket/lake ada create --namespace sales`

    Revoking `read` takes nothing from a grantee with `write` or `manage`, which include it.
    """
    with opened(url, endpoint, properties) as catalog:
        gone = catalog.grants.revoke(Grantee.parsed(grantee), privileges, _place(catalog, namespace, table, view))
    _report("revoked", gone, "nothing of that was granted there; `endive catalog grants` lists all grants", as_json)


def grants(
    url: Url,
    grantee: Annotated[str | None, typer.Argument(metavar="[GRANTEE]", help="Only those of a user or a group.")] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """List all grants, with the current names of tables and views.

    For example:

    `endive catalog grants s3://bucket/lake group:analysts`
    """
    only = Grantee.parsed(grantee) if grantee is not None else None
    with opened(url, endpoint, properties) as catalog:
        found = [one for one in catalog.grants.list() if only in (None, one.grantee)]
    if as_json:
        print_json([_json(one) for one in found])
        return
    rows = [(str(one.grantee), ", ".join(one.privileges), one.place.kind, one.name) for one in found]
    print_rows(("grantee", "privileges", "on", "name"), rows)


def _place(catalog: KVCatalog, namespace: str | None, table: str | None, view: str | None) -> Place:
    if sum(one is not None for one in (namespace, table, view)) > 1:
        raise ConfigurationError("a grant", ["only one of --namespace, --table and --view"])
    return catalog.grants.place(namespace, table, view)


def _report(verb: str, changed: list[Privilege], otherwise: str, as_json: bool) -> None:
    if as_json:
        print_json({verb: changed})
    else:
        say(f"{verb} {', '.join(changed)}" if changed else otherwise)


def _json(one: NamedGrant) -> dict[str, object]:
    return {"grantee": str(one.grantee), "privileges": one.privileges, "on": one.place.kind, "name": one.name}
