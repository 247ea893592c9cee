"""`endive catalog create`, `show`, `rename` and `drop`: tables as a whole."""

from itertools import takewhile
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import typer
from pyiceberg.exceptions import NotInstalledError
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from endive.catalog import KVCatalog, LoadedTable
from endive.catalog.iceberg import iceberg_schema
from endive.catalog.maintenance.candidates import path_of
from endive.catalog.maintenance.purge import files_to_purge, require_gc_enabled
from endive.catalog.model.names import table_of, text_of
from endive.catalog.settings import require_known
from endive.cli.catalog.arguments import Endpoint, Json, Properties, TableName, Url, opened, pairs
from endive.cli.catalog.columns import check_partitions, parse_partitions, parse_schema
from endive.cli.catalog.rendering import (
    cell,
    count,
    kept,
    operation,
    partition_text,
    print_facts,
    print_json,
    print_rows,
    say,
    size,
    snapshot_document,
)
from endive.cli.catalog.times import iso, shown
from endive.cli.console import asked, errors
from endive.errors import (
    ConfigurationError,
    CorruptObjectError,
    ErrorCollector,
    NotInCatalogError,
    OutcomeUnknownError,
    ResultError,
)
from endive.wording import counted

PLACES_SHOWN = 10
"""Folders of files to be deleted that a question names."""


def create(
    url: Url,
    name: TableName,
    schema: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Names and types: `id long required, ts timestamptz, tags list<string>`."),
    ] = None,
    like: Annotated[
        str | None, typer.Option(metavar="FILE", help="Take the columns of a Parquet file; a path or a URL.")
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(metavar="FIELDS", help="Columns or transforms of them: `day(ts), bucket(16, id), region`."),
    ] = None,
    location: Annotated[str | None, typer.Option(metavar="URL", help="Where its files go.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A property of the table.")
    ] = None,
    warehouse: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where tables without a location go, if not where the catalog says."),
    ] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Create an empty table.

    Types are Iceberg's: boolean, int, long, float, double, decimal(P, S), date, time, timestamp, timestamptz, string,
    uuid, fixed[N], binary, list<…>, map<…, …>, struct<…>. Transforms are year, month, day, hour, bucket(N, column) and
    truncate(N, column); a column alone is itself.

    For example:

    `endive catalog create lake db.events --schema 'id long required, ts timestamptz' --partition 'day(ts)'`

    `endive catalog create lake db.trips --like trips.parquet --set write.format.default=parquet`
    """
    updates = _checked(name, schema, like, partition, settings)
    with opened(url, endpoint, properties, warehouse=warehouse) as catalog:
        columns = parse_schema(schema) if schema is not None else _columns_of(catalog, str(like))
        spec = parse_partitions(partition, columns) if partition is not None else UNPARTITIONED_PARTITION_SPEC
        try:
            table = catalog.create_table(name, columns, location, spec, properties=updates)
        except ConfigurationError:
            raise
        except (ValueError, IcebergValidationError) as error:
            raise ConfigurationError(name, [str(error)]) from error
    if as_json:
        print_json(table_document(table))
    else:
        say(f"created {name} at {table.metadata.location}")


def _checked(
    name: str, schema: str | None, like: str | None, partition: str | None, settings: list[str] | None
) -> dict[str, str]:
    """Return the properties of a table to be created; raise with all errors in the arguments."""
    updates: dict[str, str] = {}
    errors = ErrorCollector()
    with errors.collected():
        if (schema is None) == (like is None):
            raise ConfigurationError("endive catalog create", ["the columns come from --schema or --like, one of them"])
    with errors.collected():
        table_of(name)
    if schema is not None:
        with errors.collected():
            parse_schema(schema)
    if schema is not None and partition is not None:
        with errors.collected():
            check_partitions(partition, schema)
    with errors.collected():
        updates = pairs(settings, "--set")
        require_known(updates, "table", "--set")
    errors.raise_for("endive catalog create")
    return updates


def _columns_of(catalog: KVCatalog, file: str) -> Schema:
    """Return the columns of a Parquet file, with ids of their own."""
    try:
        with catalog.files.io(file).new_input(file).open() as stream:
            found = pq.read_schema(stream)
        return assign_fresh_schema_ids(iceberg_schema(found))
    except (OSError, ValueError, TypeError, pa.ArrowException, NotInstalledError) as error:
        raise ConfigurationError(file, [f"cannot serve as --like: {error}"]) from error


def show(
    url: Url,
    name: TableName,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Show a table: its columns, partitions, properties, branches and tags, and its current snapshot.

    For example:

    `endive catalog show s3://bucket/lake db.events`
    """
    with opened(url, endpoint, properties) as catalog:
        table = catalog.load_table(name)
    if as_json:
        print_json(table_document(table))
        return
    metadata = table.metadata
    print_facts(_facts(table))
    say("")
    columns = [
        (field.field_id, field.name, field.field_type, "required" if field.required else "", field.doc)
        for field in metadata.schema().fields
    ]
    print_rows(("id", "column", "type", "", "comment"), columns, numbers=("id",))
    if metadata.refs:
        say("")
        rows = [
            (key, ref.snapshot_ref_type.value, str(ref.snapshot_id), kept(ref))
            for key, ref in sorted(metadata.refs.items())
        ]
        print_rows(("branch or tag", "kind", "snapshot", "kept"), rows)
    if metadata.properties:
        say("")
        print_rows(("property", "value"), sorted(metadata.properties.items()))


def _facts(table: LoadedTable) -> list[tuple[str, object]]:
    metadata, current = table.metadata, table.metadata.current_snapshot()
    facts: list[tuple[str, object]] = [
        ("table", text_of(table.identifier)),
        ("uuid", table.uuid),
        ("location", metadata.location),
        ("metadata file", table.metadata_location),
        ("Iceberg format", metadata.format_version),
        ("version", table.version),
        ("changed (UTC)", shown(metadata.last_updated_ms)),
        ("partitioned by", partition_text(metadata.spec(), metadata.schema())),
        ("sorted by", ", ".join(map(str, metadata.sort_order().fields))),
        ("snapshots", len(metadata.snapshots)),
    ]
    if current is None:
        return [*facts, ("current snapshot", "none: the table is empty")]
    figures = [
        counted(number, noun) if number is not None else f"- {noun}s"
        for noun, number in (
            ("row", count(current, "total-records")),
            ("file", count(current, "total-data-files")),
        )
    ]
    figures.append(f"{cell(size(count(current, 'total-files-size')))} in all")
    moment = f"{operation(current)}, {shown(current.timestamp_ms)}"
    return [*facts, ("current snapshot", f"{current.snapshot_id} ({moment})"), ("holds", ", ".join(figures))]


def table_document(table: LoadedTable) -> dict[str, Any]:
    """Return a table as JSON: its record, and Iceberg's metadata."""
    metadata, current = table.metadata, table.metadata.current_snapshot()
    return {
        "table": text_of(table.identifier),
        "uuid": str(table.uuid),
        "version": table.version,
        "location": metadata.location,
        "metadata_location": table.metadata_location,
        "updated": iso(metadata.last_updated_ms),
        "current_snapshot": snapshot_document(metadata, current) if current is not None else None,
        "metadata": metadata.model_dump(mode="json"),
    }


def rename(
    url: Url,
    name: TableName,
    new_name: Annotated[str, typer.Argument(metavar="NEW_NAME", help="In the same namespace or in another.")],
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Give a table another name. Its files stay where they are, and writers that have it open under the old name fail.

    For example:

    `endive catalog rename s3://bucket/lake db.events archive.events_2025`
    """
    with opened(url, endpoint, properties) as catalog:
        table = catalog.rename_table(name, new_name)
    if as_json:
        print_json({"table": text_of(table.identifier), "before": name, "uuid": str(table.uuid)})
    else:
        say(f"{name} is now {new_name}")


def drop(
    url: Url,
    name: TableName,
    purge: Annotated[bool, typer.Option("--purge", help="Delete its files as well; they cannot be had again.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Remove a table from the catalog; asks first. Its files stay, unless `--purge` deletes them.

    A table that is written between the question and the answer is not dropped. A commit after the drop fails, and its
    files stay without a table that refers to them.

    A purge takes the files wherever they are: those of a table that was imported are taken from the catalog that it
    came from as well. The question says where they are.

    For example:

    `endive catalog drop s3://bucket/lake db.scratch --purge`
    """
    with opened(url, endpoint, properties) as catalog:
        try:
            table = catalog.load_table(name)
        except NotInCatalogError:
            if not purge or not catalog.finish_purge(name):
                raise
            if as_json:
                print_json({"dropped": name, "purged": True, "finished": True})
            else:
                say(f"{name} was dropped before; its remaining files are deleted now")
            return
        if not yes:
            _confirm(catalog, table, purge)
        try:
            catalog.drop_table(name, purge, expected=table)
        except (CorruptObjectError, FileNotFoundError) as error:
            problem = f"it is dropped, but not all of its files could be found: {error}"
            raise ResultError(
                name, problem, f"delete the remaining files in {table.metadata.location} by hand"
            ) from error
        except OutcomeUnknownError as error:
            problem = f"whether it is dropped is not known: {error}"
            raise ResultError(name, problem, "run the same command again to finish the drop") from error
        except OSError as error:
            problem = f"it is dropped, but not all of its files could be deleted: {error}"
            raise ResultError(name, problem, "run the same command again to continue") from error
    if as_json:
        print_json({"dropped": text_of(table.identifier), "uuid": str(table.uuid), "purged": purge})
    else:
        files = "its files are deleted" if purge else f"its files stay in {table.metadata.location}"
        say(f"dropped {name}; {files}")


def _confirm(catalog: KVCatalog, table: LoadedTable, purge: bool) -> None:
    """Ask whether to drop a table, and say which files would go with it."""
    name = text_of(table.identifier)
    rows = counted(count(table.metadata.current_snapshot(), "total-records") or 0, "row")
    holds = f"{rows}, {counted(len(table.metadata.snapshots), 'snapshot')}"
    _tell(f"{name}: {holds}, changed {shown(table.metadata.last_updated_ms)}")
    imported = catalog.imported_from(name)
    if imported is not None:
        _tell(f"it was imported from {imported}: the catalog that it came from may still need its files")
    if purge:
        require_gc_enabled(table.identifier, table.metadata)
        _tell_purged(catalog, table)
    agreed = asked("Drop it and delete these files?" if purge else "Drop it, and keep its files?")
    if agreed is None:
        raise ConfigurationError(name, ["no answer, nothing was dropped; use --yes to drop without a question"])
    if not agreed:
        errors.print("nothing was dropped")
        raise typer.Exit(1)


def _tell(line: str) -> None:
    errors.print(errors.escape(line), soft_wrap=True)


def _tell_purged(catalog: KVCatalog, table: LoadedTable) -> None:
    """Say how many files a purge would delete where: in the table's location, and in the folders of all others."""
    location = table.metadata.location.rstrip("/")
    io = catalog.files.io(table.metadata.location, table.metadata.properties)
    places: dict[str, int] = {}
    for path in files_to_purge(io, table.metadata, table.metadata_location, []):
        place = location if path_of(path).startswith(f"{path_of(location)}/") else _folder(path)
        places[place] = places.get(place, 0) + 1
    for place, files in sorted(places.items())[:PLACES_SHOWN]:
        _tell(f"{counted(files, 'file')} would be deleted in {place}")
    rest = sorted(places.items())[PLACES_SHOWN:]
    if rest:
        _tell(f"{counted(sum(files for _, files in rest), 'file')} in {counted(len(rest), 'other folder')}")


def _folder(path: str) -> str:
    """Return the folder of a file; one of a partition (`day=2026-03-01`) counts as the one that it is in."""
    folders = path.split("/")[:-1]
    return "/".join(takewhile(lambda folder: "=" not in folder, folders))
