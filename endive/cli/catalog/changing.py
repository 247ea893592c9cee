"""`endive catalog set`: properties and columns of a table, all in one commit."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.update.schema import UpdateSchema

from endive.catalog.iceberg import metadata_of
from endive.catalog.pyiceberg.catalog import EndiveCatalog
from endive.catalog.settings import CREATE, require_known
from endive.cli.catalog.arguments import Endpoint, Json, Properties, TableName, Url, opened, pairs, reach
from endive.cli.catalog.columns import parse_column, parse_type
from endive.cli.catalog.rendering import partition_text, print_json, say
from endive.cli.catalog.table_commands import table_document
from endive.errors import CommitConflictError, ConfigurationError, ErrorCollector

COMMAND = "endive catalog set"
FORMAT = TableProperties.FORMAT_VERSION
Change = Callable[[UpdateSchema], object]


def set_values(
    url: Url,
    name: TableName,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Properties to set; an empty value is one too.")
    ] = None,
    removals: Annotated[list[str] | None, typer.Option("--remove", metavar="KEY", help="Remove a property.")] = None,
    added: Annotated[
        list[str] | None, typer.Option("--add-column", metavar="COLUMN", help="Such as `price decimal(10, 2)`.")
    ] = None,
    dropped: Annotated[
        list[str] | None, typer.Option("--drop-column", metavar="NAME", help="A column to drop.")
    ] = None,
    renamed: Annotated[
        list[str] | None, typer.Option("--rename-column", metavar="OLD=NEW", help="Give a column another name.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="NAME=TYPE", help="Widen a type: int to long, float to double, decimals."),
    ] = None,
    endpoint: Endpoint = None,
    properties: Properties = None,
    as_json: Json = False,
) -> None:
    """Set a table's properties, and change its columns. All of it is one commit, or nothing is changed.

    Columns are known by their ids: a renamed one keeps its data, and one that is added under an old name starts empty.

    For example:

    `endive catalog set s3://bucket/lake db.events write.target-file-size-bytes=134217728 --remove owner`

    `endive catalog set s3://bucket/lake db.events --add-column 'region string' --type id=long`
    """
    errors = ErrorCollector()
    updates = _updates(errors, settings)
    changes = _changes(errors, added or (), dropped or (), renamed, types)
    errors.raise_for(COMMAND)
    if not (updates or removals or changes):
        raise ConfigurationError(COMMAND, ["nothing to change: name a KEY=VALUE, or see --help"])
    with opened(url, endpoint, properties) as catalog:
        known = catalog.load_table(name).metadata.properties
        _require_known(removals or (), known, name)
        plug_in = EndiveCatalog("endive", **{**reach(endpoint, properties), "uri": url, CREATE: "false"})
        try:
            _commit(plug_in.load_table(name), updates, removals or (), changes, name)
        finally:
            plug_in.close()
        table = catalog.load_table(name)
    if as_json:
        print_json(table_document(table))
    else:
        say(f"{name} is at version {table.version}")


def _require_known(removals: Sequence[str], known: dict[str, str], name: str) -> None:
    problems = [f"{name} has no property {key!r} to remove" for key in removals if key not in known]
    if problems:
        raise ConfigurationError("--remove", problems)


def _updates(errors: ErrorCollector, settings: Sequence[str] | None) -> dict[str, str]:
    """Return the properties to set."""
    updates: dict[str, str] = {}
    with errors.collected():
        updates = pairs(settings, COMMAND)
        require_known(updates, "table", COMMAND)
    return updates


def _changes(
    errors: ErrorCollector,
    added: Sequence[str],
    dropped: Sequence[str],
    renamed: Sequence[str] | None,
    types: Sequence[str] | None,
) -> list[tuple[str, Change]]:
    """Return the changes of columns, each with the words that asked for it. A dot leads into a struct."""
    changes: list[tuple[str, Change]] = []
    for text in added:
        with errors.collected():
            field = parse_column(text, "--add-column")
            path = tuple(field.name.split("."))
            change = partial(UpdateSchema.add_column, path=path, field_type=field.field_type, required=field.required)
            changes.append((f"--add-column {text!r}", change))
    for column in dropped:
        changes.append((f"--drop-column {column}", partial(_drop, column=column)))
    with errors.collected():
        for old, new in pairs(renamed, "--rename-column").items():
            change = partial(UpdateSchema.rename_column, path_from=old, new_name=new)
            changes.append((f"--rename-column {old}={new}", change))
    with errors.collected():
        for column, text in pairs(types, "--type").items():
            change = partial(UpdateSchema.update_column, path=column, field_type=parse_type(text, "--type"))
            changes.append((f"--type {column}={text}", change))
    return changes


def _drop(update: UpdateSchema, column: str) -> None:
    """Drop a column, unless the table is partitioned by it: no reader could make sense of new files then."""
    metadata = metadata_of(update)
    source = metadata.schema().find_field(column)
    if any(field.source_id == source.field_id for field in metadata.spec().fields):
        raise ValueError(f"the table is partitioned by {column}: {partition_text(metadata.spec(), metadata.schema())}")
    update.delete_column(column)


def _commit(
    table: Table, updates: dict[str, str], removals: Sequence[str], changes: Sequence[tuple[str, Change]], name: str
) -> None:
    """Commit everything at once; before that, say all that Iceberg forbids."""
    try:
        with table.transaction() as transaction:
            update = transaction.update_schema()
            problems = [problem for words, change in changes if (problem := _tried(update, words, change))]
            if problems:
                raise ConfigurationError(name, problems)
            if changes:
                update.commit()
            if FORMAT in updates:
                transaction.upgrade_table_version(_format(updates.pop(FORMAT)))
            if updates:
                transaction.set_properties(updates)
            if removals:
                transaction.remove_properties(*removals)
    except CommitFailedException as error:
        raise CommitConflictError(name, f"{error}; nothing was changed, try again") from error
    except ConfigurationError:
        raise
    except (ValidationError, ValueError) as error:
        if isinstance(error.__cause__, ConfigurationError):
            raise error.__cause__ from error  # the plug-in's words for it would be a list inside a list
        raise ConfigurationError(name, [str(error)]) from error


def _format(text: str) -> Any:  # noqa: ANN401 - PyIceberg's literal type
    """Return a version of Iceberg's format. It is no property, though it is given like one at creation."""
    if not text.isdigit():
        raise ValueError(f"{FORMAT}={text}: a version is a number")
    return int(text)


def _tried(update: UpdateSchema, words: str, change: Change) -> str:
    """Make a change; return the error, or an empty text."""
    try:
        change(update)
    except (ValidationError, ValueError) as error:
        return f"{words}: {error}"
    return ""
