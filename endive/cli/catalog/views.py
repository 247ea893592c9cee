"""`endive catalog views`: views, which engines create and this command lists, shows and drops."""

from typing import Annotated, Any

import typer

from endive.catalog import KVCatalog
from endive.catalog.model.names import Identifier, namespace_of, table_of, text_of
from endive.catalog.operations.views import LoadedView
from endive.cli.catalog.arguments import Endpoint, Json, Properties, Url, all_namespaces, opened
from endive.cli.catalog.rendering import print_json, print_rows, say
from endive.cli.catalog.times import iso
from endive.cli.console import output
from endive.errors import ConfigurationError


def views(
    url: Url,
    namespace: Annotated[
        str | None, typer.Argument(metavar="[NAMESPACE]", help="Only views in this one, at any depth.")
    ] = None,
    show: Annotated[str | None, typer.Option(metavar="VIEW", help="Print the SQL of a view, for each dialect.")] = None,
    drop: Annotated[str | None, typer.Option(metavar="VIEW", help="Drop a view; its metadata files stay.")] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """List the views with their dialects, print the SQL of one, or drop one. Engines such as Spark SQL create them.

    For example:

    `endive catalog views s3://bucket/lake --show db.recent`
    """
    if sum(given is not None for given in (namespace, show, drop)) > 1:
        raise ConfigurationError("endive catalog views", ["only one of NAMESPACE, --show and --drop"])
    with opened(url, endpoint, properties) as catalog:
        if drop is not None:
            catalog.drop_view(table_of(drop))
            print_json({"dropped": drop}) if as_json else say(f"dropped the view {drop}")
            return
        if show is not None:
            _show(catalog.load_view(table_of(show)), as_json)
            return
        found = [_summary(catalog.load_view(name)) for name in _names(catalog, namespace)]
    if as_json:
        print_json(found)
        return
    rows = [(one["view"], ", ".join(one["dialects"]), one["versions"], one["changed"]) for one in found]
    print_rows(("view", "dialects", "versions", "changed (UTC)"), rows, numbers=("versions",))


def _names(catalog: KVCatalog, namespace: str | None) -> list[Identifier]:
    inside = namespace_of(namespace) if namespace is not None else ()
    if inside:
        catalog.list_views(inside)  # raises if there is no such namespace
    levels = [each for each in all_namespaces(catalog) if each[: len(inside)] == inside]
    return sorted(name for each in levels for name in catalog.list_views(each))


def _current(view: LoadedView) -> dict[str, Any]:
    number = view.metadata["current-version-id"]
    found: dict[str, Any] = next(one for one in view.metadata["versions"] if one["version-id"] == number)
    return found


def _summary(view: LoadedView) -> dict[str, Any]:
    current = _current(view)
    return {
        "view": text_of(view.identifier),
        "dialects": [one["dialect"] for one in current["representations"]],
        "versions": len(view.metadata["versions"]),
        "changed": iso(view.metadata["version-log"][-1]["timestamp-ms"]) if view.metadata["version-log"] else "",
        "metadata_location": view.metadata_location,
    }


def _show(view: LoadedView, as_json: bool) -> None:
    if as_json:
        print_json(view.metadata)
        return
    for one in _current(view)["representations"]:
        output.print(f"-- {output.escape(one['dialect'])}\n{output.escape(one['sql'])}", soft_wrap=True)
