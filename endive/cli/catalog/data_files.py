"""`endive catalog files`, `orphans`, `import` and `export`: the files of tables."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.parser import parse
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyparsing import ParseException

from endive.catalog import KVCatalog
from endive.catalog.connection import url_of
from endive.catalog.maintenance.purge import GC_DISABLED, is_gc_enabled
from endive.catalog.model.file_rows import chain_of
from endive.catalog.model.names import table_of
from endive.catalog.operations.table_rows import load_table
from endive.cli.catalog.arguments import Endpoint, Json, Properties, TableName, Url, opened
from endive.cli.catalog.past import Moment, Ref, SnapshotId, chosen
from endive.cli.catalog.rendering import partition_values, print_json, print_rows, relative, say, size
from endive.cli.catalog.table_commands import table_document
from endive.cli.catalog.times import limit_ms
from endive.drivers.blocking import unix_ms
from endive.errors import ConfigurationError
from endive.files import write_durably
from endive.wording import counted, suggestion


def files(
    url: Url,
    name: TableName,
    where: Annotated[
        str | None,
        typer.Option(metavar="FILTER", help="Only files that may have such rows: `day >= '2024-01-01' and id = 7`."),
    ] = None,
    snapshot_id: SnapshotId = None,
    at: Moment = None,
    ref: Ref = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """List the data files of a table that a scan would read, and how many the filter skips.

    Files are found in the catalog's records, by partition and by the least and greatest value of each column; no
    manifest is read. Tables that were imported without `--index-files` are the exception.

    For example:

    `endive catalog files s3://bucket/lake db.events --where "day >= '2024-01-01' and region = 'x'"`
    """
    with opened(url, endpoint, properties, table=name) as catalog:
        metadata = catalog.load_table(name).metadata
        wanted = chosen(metadata, snapshot_id, at, ref) or metadata.current_snapshot()
        row_filter = _filter(where, metadata)
        target = wanted.snapshot_id if wanted is not None else None
        everything = catalog.plan_files(name, snapshot_id=target)
        found = catalog.plan_files(name, row_filter, target) if where is not None else everything
        indexed = _is_indexed(catalog, name, target)
    read_bytes, all_bytes = _bytes(found), _bytes(everything)
    rows = [_document(task, metadata) for task in sorted(found, key=lambda task: task.file.file_path)]
    if as_json:
        totals = {"files": len(everything), "size_bytes": all_bytes}
        skipped = {"files": len(everything) - len(found), "size_bytes": all_bytes - read_bytes}
        document = {"table": name, "snapshot_id": target, "from": "records" if indexed else "manifests"}
        print_json(document | {"files": rows, "skipped": skipped, "total": totals})
        return
    _print(rows, metadata)
    source = "planned from records" if indexed else "planned from manifests"
    say(
        f"{len(found)} of {counted(len(everything), 'file')}, {size(read_bytes)} of {size(all_bytes)}; "
        f"{len(everything) - len(found)} skipped; {source}"
    )


def _filter(where: str | None, metadata: TableMetadata) -> BooleanExpression:
    """Return the filter of a text, for this table; raise with the place of the error."""
    if where is None:
        return AlwaysTrue()
    try:
        expression = parse(where)
    except (ParseException, ValueError) as error:
        known = "=, !=, <, <=, >, >=, in, between, like, is null, is nan, and, or, not"
        problem = f"{where!r} is not a filter; write it as id = 7 and day >= '2024-01-01', with {known}"
        raise ConfigurationError("--where", [problem]) from error
    try:
        bind(metadata.schema(), expression, case_sensitive=True)
    except (ValueError, TypeError, ValidationError) as error:
        raise ConfigurationError("--where", [_problem(str(error), metadata.schema())]) from error
    return expression


def _problem(words: str, schema: Schema) -> str:
    """Return the error in a filter; for an unknown column, with the nearest known one."""
    if not words.startswith("Could not find field"):
        return words
    column = words.partition("name ")[2].rpartition(", case_sensitive")[0]
    near = suggestion(column, schema.column_names) or f"; there are: {', '.join(schema.column_names)}"
    return f"no column {column!r}{near}"


def _is_indexed(catalog: KVCatalog, name: str, snapshot_id: int | None) -> bool:
    view = catalog.store.read(lambda tx: load_table(tx, table_of(name)))
    return snapshot_id is None or chain_of(view.snapshots, snapshot_id) is not None


def _bytes(tasks: list[FileScanTask]) -> int:
    return sum(task.file.file_size_in_bytes for task in tasks)


def _document(task: FileScanTask, metadata: TableMetadata) -> dict[str, Any]:
    spec = metadata.specs()[task.file.spec_id]
    return {
        "path": task.file.file_path,
        "format": task.file.file_format.value,
        "partition": partition_values(spec, metadata.schema(), task.file.partition),
        "rows": task.file.record_count,
        "size_bytes": task.file.file_size_in_bytes,
        "delete_files": sorted(one.file_path for one in task.delete_files),
    }


def _print(rows: list[dict[str, Any]], metadata: TableMetadata) -> None:
    cells = [
        (
            relative(row["path"], metadata.location),
            ", ".join(f"{key}={value}" for key, value in row["partition"].items()),
            row["rows"],
            size(row["size_bytes"]),
            len(row["delete_files"]),
        )
        for row in rows
    ]
    print_rows(("file", "partition", "rows", "size", "delete files"), cells, numbers=("rows", "size", "delete files"))


def orphans(
    url: Url,
    name: TableName,
    older_than: Annotated[
        str, typer.Option(metavar="AGE", help="Only files older than this: `3d`, `12h`, or a moment.")
    ] = "3d",
    delete: Annotated[bool, typer.Option("--delete", help="Delete them; without it they are only listed.")] = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """List the files below a table's location that no snapshot and no metadata file needs; `--delete` deletes them.

    Crashes and failed commits leave such files. A young one may belong to a commit under way, so the age should be
    longer than any commit takes. A table with `gc.enabled=false` is only listed.

    For example:

    `endive catalog orphans s3://bucket/lake db.events --older-than 3d --delete`
    """
    limit = limit_ms(older_than, unix_ms(), "--older-than")
    with opened(url, endpoint, properties) as catalog:
        metadata = catalog.load_table(name).metadata
        found = sorted(catalog.remove_orphan_files(name, limit, dry_run=not delete))
    if as_json:
        print_json({"table": name, "deleted": delete, "files": found})
        return
    for path in found:
        say(relative(path, metadata.location))
    if delete:
        say(f"{counted(len(found), 'file')} deleted")
    elif found and not is_gc_enabled(metadata):
        say(f"{counted(len(found), 'file')} that nothing needs; {GC_DISABLED}")
    else:
        say(f"{counted(len(found), 'file')} would be deleted" + ("; --delete does it" if found else ""))


def import_table(
    url: Url,
    name: TableName,
    metadata_file: Annotated[
        str, typer.Argument(metavar="METADATA", help="The table's newest `….metadata.json`: a path or a URL.")
    ],
    index: Annotated[
        bool, typer.Option("--index-files", help="Also put the current snapshot's files into the records.")
    ] = False,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Take over an Iceberg table by its metadata file, with its snapshots, branches, tags and history.

    No file is copied or changed. From then on the table must be written through this catalog only. Commands that
    delete files here, such as `drop --purge`, take them from the catalog that the table came from. With
    `--index-files`, scans are planned from records at once; else from the first commit that rewrites everything.

    For example:

    `endive catalog import lake db.trips s3://old/trips/metadata/00042-….metadata.json --index-files`
    """
    location = url_of(metadata_file)
    with opened(url, endpoint, properties) as catalog:
        table_of(name)
        try:
            table = catalog.register_table(name, location)
        except FileNotFoundError as error:
            raise ConfigurationError(location, ["not there"]) from error
        indexed = catalog.index_files(name) if index else None
        table = catalog.load_table(name)
    if as_json:
        print_json(table_document(table) | {"indexed_files": indexed})
    else:
        suffix = f", {counted(indexed, 'file')} in the records" if indexed is not None else ""
        say(f"{name} is in the catalog: {counted(len(table.metadata.snapshots), 'snapshot')}{suffix}")
        forbid = shlex.join(("endive", "catalog", "set", url, name, "gc.enabled=false"))
        say(
            f"its files stay in {table.metadata.location}, shared with the catalog that it came from: `drop --purge`, "
            f"`expire` and `orphans --delete` delete them for both; `{forbid}` forbids that"
        )


def export(
    url: Url,
    name: TableName,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write a copy to this file.")] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Print where a table's metadata file is, after writing it if it is behind: any Iceberg reader opens it.

    For example:

    `duckdb -c "select * from iceberg_scan('$(endive catalog export lake db.events)')"`
    """
    with opened(url, endpoint, properties) as catalog:
        location = catalog.export_metadata(name)
        if to is not None:
            body = catalog.files.read(location).model_dump_json()
            write_durably(to, lambda part: part.write_text(body, encoding="utf-8"))
    if as_json:
        print_json({"table": name, "metadata_location": location, "copy": str(to) if to is not None else None})
    else:
        say(location)
