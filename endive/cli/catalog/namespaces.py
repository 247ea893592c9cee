"""`endive catalog init`, `namespaces` and `tables`."""

from typing import Annotated, Any

import typer

from endive.catalog import KVCatalog
from endive.catalog.connection import url_of
from endive.catalog.model.names import Identifier, namespace_of, text_of
from endive.catalog.model.transaction import StoreTransaction
from endive.catalog.operations.namespaces import namespace_properties, require_namespace
from endive.catalog.operations.table_rows import TableView, all_tables, whole_view
from endive.cli.catalog.arguments import (
    Endpoint,
    Json,
    Properties,
    Url,
    all_namespaces,
    as_typed,
    opened,
    pairs,
    reach,
    require_lasting,
)
from endive.cli.catalog.rendering import count, print_json, print_rows, say, size
from endive.cli.catalog.times import iso, shown
from endive.errors import CatalogNotFoundError, ConfigurationError
from endive.protocol.requests import Steps


def init(
    url: Url,
    warehouse: Annotated[
        str | None, typer.Option(metavar="URL", help="Where tables go that are created without a location.")
    ] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Make a catalog at a URL or in a directory. One that is there already stays as it is.

    Its records are below the URL, in `_endive/`. Tables go beside it, or to `--warehouse`, which the catalog stores
    for all processes, unless a table is given a location. Nothing has to run.

    For example:

    `endive catalog init s3://bucket/lake`
    """
    settings = reach(endpoint, properties)
    require_lasting(url, settings)
    with as_typed(url):
        try:
            with KVCatalog.open(url, properties=settings) as catalog:
                place, created, kept = catalog.url, False, catalog.warehouse
        except CatalogNotFoundError:
            with KVCatalog.create(url, warehouse, settings) as catalog:
                place, created, kept = catalog.url, True, catalog.warehouse
    if warehouse is not None and url_of(warehouse) != kept:
        raise ConfigurationError(place, [f"the catalog is there already, and its warehouse is {kept}"])
    if as_json:
        print_json({"url": place, "created": created, "warehouse": kept})
    else:
        say(f"{place}: a new catalog" if created else f"{place}: the catalog is there already, and stays as it is")


def namespaces(
    url: Url,
    name: Annotated[str | None, typer.Argument(metavar="[NAMESPACE]", help="List the namespaces in this one.")] = None,
    create: Annotated[str | None, typer.Option(metavar="NAME", help="Create a namespace; `a.b` makes `a` too.")] = None,
    drop: Annotated[str | None, typer.Option(metavar="NAME", help="Drop a namespace that holds nothing.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a property of NAMESPACE, or of the one created."),
    ] = None,
    removals: Annotated[
        list[str] | None, typer.Option("--remove", metavar="KEY", help="Remove a property of NAMESPACE.")
    ] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """List namespaces with their tables and properties; or create, drop or change one.

    The property `location` says where tables go that are created in the namespace.

    For example:

    `endive catalog namespaces s3://bucket/lake --create sales.europe --set owner=ana`

    `endive catalog namespaces s3://bucket/lake sales --set location=s3://other/sales`
    """
    updates = pairs(settings, "--set")
    subject = _subject(name, create, drop, bool(updates or removals))
    with opened(url, endpoint, properties) as catalog:
        if create is not None:
            catalog.create_namespace(create, updates)
        elif drop is not None:
            catalog.drop_namespace(drop)
        elif name is not None and (updates or removals):
            catalog.update_namespace_properties(name, set(removals or ()), updates)
        listed = _listed(catalog, namespace_of(name) if name is not None else ())
    if as_json:
        print_json(listed)
    elif subject is not None:
        say(f"{subject[1]} {subject[0]}")
    else:
        rows = [(one["namespace"], one["tables"], _joined(one["properties"])) for one in listed]
        print_rows(("namespace", "tables", "properties"), rows, numbers=("tables",))


def _subject(name: str | None, create: str | None, drop: str | None, changes: bool) -> tuple[str, str] | None:
    """Return the change and a word for it; None if only a list is wanted."""
    problems = []
    if create is not None and drop is not None:
        problems.append("--create or --drop, not both")
    if name is not None and (create is not None or drop is not None):
        problems.append(f"--create and --drop name the namespace themselves: leave {name!r} out")
    if changes and name is None and create is None:
        problems.append("--set and --remove need a NAMESPACE whose properties they change, or --create")
    if changes and drop is not None:
        problems.append("--drop takes no properties")
    if problems:
        raise ConfigurationError("endive catalog namespaces", problems)
    if create is not None:
        return create, "created"
    if drop is not None:
        return drop, "dropped"
    return (name, "changed") if name is not None and changes else None


def _listed(catalog: KVCatalog, inside: Identifier) -> list[dict[str, Any]]:
    found = all_namespaces(catalog, inside)
    names = [*((inside,) if inside else ()), *found]

    def look(tx: StoreTransaction) -> Steps[list[dict[str, Any]]]:
        if inside:
            yield from require_namespace(tx, inside)
        records = yield from all_tables(tx)
        held = [record.identifier[:-1] for record in records]
        rows = []
        for name in names:
            properties = yield from namespace_properties(tx, name)
            rows.append({"namespace": text_of(name), "tables": held.count(name), "properties": properties})
        return rows

    return catalog.store.read(look)


def _joined(properties: dict[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(properties.items()))


def tables(
    url: Url,
    namespace: Annotated[
        str | None, typer.Argument(metavar="[NAMESPACE]", help="Only tables in this one, at any depth.")
    ] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """List the tables with their rows, files and sizes, as their current snapshots count them.

    For example:

    `endive catalog tables s3://bucket/lake sales --json`
    """
    inside = namespace_of(namespace) if namespace is not None else ()
    with opened(url, endpoint, properties) as catalog:
        found = [_summary(view) for view in _tables(catalog, inside)]
    if as_json:
        print_json(found)
        return
    headings = ("table", "rows", "files", "size", "snapshots", "changed (UTC)")
    rows = [
        (one["table"], one["rows"], one["files"], size(one["size_bytes"]), one["snapshots"], shown(one["updated_ms"]))
        for one in found
    ]
    print_rows(headings, rows, numbers=("rows", "files", "size", "snapshots"))


def _tables(catalog: KVCatalog, inside: Identifier) -> list[TableView]:
    """Return the tables of a namespace with their snapshots, in one read of the store."""

    def look(tx: StoreTransaction) -> Steps[list[TableView]]:
        if inside:
            yield from require_namespace(tx, inside)
        records = yield from all_tables(tx)
        found = []
        for record in records:
            if record.identifier[: len(inside)] == inside:
                view = yield from whole_view(tx, record)
                found.append(view)
        return found

    return catalog.store.read(look)


def _summary(view: TableView) -> dict[str, Any]:
    record, snapshot = view.record, view.metadata.current_snapshot()
    return {
        "table": text_of(record.identifier),
        "namespace": list(record.identifier[:-1]),
        "name": record.identifier[-1],
        "uuid": str(record.uuid),
        "location": record.metadata.location,
        "current_snapshot_id": record.metadata.current_snapshot_id,
        "rows": count(snapshot, "total-records") if snapshot is not None else 0,
        "files": count(snapshot, "total-data-files") if snapshot is not None else 0,
        "size_bytes": count(snapshot, "total-files-size") if snapshot is not None else 0,
        "snapshots": len(view.snapshots),
        "updated_ms": record.metadata.last_updated_ms,
        "updated": iso(record.metadata.last_updated_ms),
    }
